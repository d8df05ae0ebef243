//! The operator's function, in Envoy: what it is told, what it may say, and that whatever it does it does
//! to its own exchange. A trap would take the worker's VM with it, so these scripts are run where they will
//! be: natively they are tried as well, beside the code.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Findings;
use crate::support::configuration::{
    CLIENT_SECRET, Configuration, ORDERS, PROVIDER_KEY, SIGNING_KEY,
};
use crate::support::envoy::{Envoy, Filter, Listeners, Options, Plugin};
use crate::support::gateway::{
    BEARER, Gateway, actor_claims, exchange_form, exchange_request, key_set, mint_body_request,
    minted, now, raw_part, verify, with_actor,
};
use crate::support::http::{Answer, Request};

/// Every way to fail, by name; see the file.
const HOSTILE: &str = include_str!("../fixtures/claims/hostile.js");

const FAILURES: &str = "wasmcustom.impersonation_custom_claims_failures_total";

fn script(source: &str) -> Configuration {
    Configuration::default().with("/custom_claims/script", source)
}

/// A function with this body.
fn function(body: &str) -> Configuration {
    script(&format!(
        "const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => {{\n{body}\n}};"
    ))
}

/// A subject token with this context.
fn mint(gateway: &Gateway, context: &Value) -> String {
    minted(&gateway.send(&mint_body_request(&json!({"userId": "u-1", "context": context}))))
}

/// What an exchange with this context comes to.
fn call(gateway: &Gateway, context: &Value) -> Answer {
    gateway.exchange(&exchange_form(&mint(gateway, context)))
}

/// An exchange for `orders:write`, for which the scripts of these tests misbehave.
fn misbehaving(subject_token: &str) -> Request {
    exchange_request(&exchange_form(subject_token).set("scope", "orders:write"))
}

/// The claims in an answer that must be a success.
fn claims(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    raw_part(&answer.member("access_token"), 1)
}

/// The claims that are not the filter's own.
fn custom(answer: &Answer) -> Value {
    let mut claims = claims(answer);
    for name in ["iss", "sub", "aud", "client_id", "iat", "exp", "jti", "scope"] {
        assert!(claims.as_object_mut().unwrap().remove(name).is_some(), "{name}: {answer:?}");
    }
    claims
}

/// The audit events of exchanges.
fn events(log: &str) -> Vec<Value> {
    let events = log.lines().filter_map(|line| {
        let event =
            line.split_once("{\"event\":\"token_exchange").map(|(before, _)| before.len())?;
        serde_json::from_str(&line[event..]).ok()
    });
    events.collect()
}

#[test]
fn a_script_that_cannot_be_called_is_refused_with_its_line_and_column() {
    #[rustfmt::skip]
    let cases = [
        ("a syntax error",   "const getCustomJwtClaims = () => {\n  return { a: };\n};", "line 2, column 15: SyntaxError"),
        ("an end too early", "const getCustomJwtClaims = () => {\n",                   "line 2, column 1: SyntaxError"),
        ("no function",      "const getClaims = () => ({});\n",                        "line 2, column 1: the script declares no function getCustomJwtClaims"),
        ("no function here", "\n  let getCustomJwtClaims = {};",                       "line 2, column 7: the script declares no function getCustomJwtClaims"),
        ("a throw",          "const a = {};\na.b.c = 1;",                             "line 2, column 1: TypeError"),
        ("an endless loop",  "for (;;);",                                             "the script takes too long to load"),
        ("endless memory",   "for (const a = []; ; ) a.push({});",                    "the script takes too much memory to load"),
        ("endless recursion", "const f = () => f(); f();",                            "RangeError"),
        ("too deep",         &"[".repeat(100_000),                                    "the script is nested too deep"),
        ("nothing",          "",                                                      "custom_claims.script"),
    ];
    let mut findings = Findings::default();
    let gateway = Gateway::start(&Configuration::default());
    let token = gateway.mint("u-1");
    for (case, source, expected) in cases {
        match gateway.update(&script(source)) {
            Ok(()) => findings.add(format!("{case}: accepted")),
            Err(log)
                if !log.lines().any(|line| {
                    line.contains("custom_claims.script") && line.contains(expected)
                }) =>
            {
                findings.add(format!("{case}: expected {expected} in {log}"));
            }
            Err(_) => {}
        }
    }
    gateway.assert_spendable(&token, "after many bad scripts");
    gateway.update(&function("return { a: 1 };")).unwrap();
    assert_eq!(custom(&call(&gateway, &json!({}))), json!({"a": 1}));

    for (case, source, expected) in cases.into_iter().take(4) {
        let options = Options { listeners: Listeners::Static, ..Options::default() };
        match Gateway::try_start(&script(source), &options) {
            Ok(_) => findings.add(format!("{case}: started")),
            Err(exit) => {
                findings.expect(case, &exit.code, &Some(1));
                findings.expect(format!("{case} named"), &exit.log.contains(expected), &true);
            }
        }
    }
}

/// Each on a worker of two, whichever it is, and everybody else is served.
#[test]
fn a_script_that_fails_fails_its_exchange_and_no_other() {
    for on_error in ["refuse", "issue_without"] {
        let configuration = script(HOSTILE).with("/custom_claims/on_error", on_error);
        let options = Options { concurrency: 2, ..Options::default() };
        let gateway = Gateway::try_start(&configuration, &options).unwrap();
        let names = custom(&gateway.send(&misbehaving(&mint(&gateway, &json!({"case": "names"})))));
        let names = names["names"].as_str().unwrap().split(' ').map(str::to_owned);
        let names: Vec<_> = names.collect();
        let done = AtomicBool::new(false);
        let mut findings = Findings::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    gateway.assert_serves("beside scripts that fail");
                    thread::sleep(Duration::from_millis(1));
                }
            });
            for name in &names {
                let token = mint(&gateway, &json!({"case": name}));
                let answer = gateway.send(&misbehaving(&token));
                if on_error == "refuse" {
                    let refused = (500, "server_error".into());
                    findings.expect(name, &answer.refusal(), &refused);
                    let answer = gateway.exchange(&exchange_form(&token));
                    findings.expect(format!("{name}: its token"), &answer.status, &200);
                    if answer.status == 200 {
                        findings.expect(name, &custom(&answer), &json!({"works": true}));
                    }
                } else if answer.status == 200 {
                    findings.expect(name, &custom(&answer), &json!({}));
                } else {
                    findings.add(format!("{name}: {answer:?}"));
                }
                let after = call(&gateway, &json!({}));
                findings.expect(format!("after {name}"), &after.status, &200);
            }
            done.store(true, Ordering::Relaxed);
        });
        gateway.assert_every_worker_serves("after every failure");
        findings.expect("counted", &gateway.envoy.stat(FAILURES), &(names.len() as u64));
        let log = gateway.envoy.log();
        let warnings = log.lines().filter(|line| {
            line.contains("[warning][wasm]") && line.contains("custom claims: the script")
                || line.contains("custom claims: the claims are too long")
                || line.contains("custom claims: what the script returned")
        });
        findings.expect("warnings", &warnings.count(), &names.len());
        let events = events(&log);
        let failed = events.iter().filter(|event| event["reason"] == "custom_claims_failed");
        let expected = if on_error == "refuse" { names.len() } else { 0 };
        findings.expect("audited", &failed.count(), &expected);
    }
}

/// Has each fail ten thousand times in one VM, which must not grow by as much as a few bytes for each.
fn repeat(source: &str, names: &[&str], timeout: &str) {
    const REPETITIONS: u32 = 10_000;
    const ROOM: u64 = 512 << 10;
    let gateway = Gateway::start(&script(source).with("/custom_claims/timeout", timeout));
    // Each leaves a warning.
    gateway.envoy.set_log_level("wasm", "error");
    let tokens: Vec<_> = names.iter().map(|name| mint(&gateway, &json!({"case": name}))).collect();
    let repeat = |count: u32| {
        for (name, token) in names.iter().zip(&tokens) {
            let request = misbehaving(token);
            let mut connection = gateway.connect();
            for _ in 0..count {
                let answer = connection.send(&request);
                assert_eq!(answer.refusal(), (500, "server_error".into()), "{name}: {answer:?}");
            }
        }
    };
    repeat(REPETITIONS / 20);
    let before = gateway.envoy.resident_bytes();
    repeat(REPETITIONS);
    let after = gateway.envoy.resident_bytes();
    println!("{names:?}: {before} bytes, then {after}");
    assert!(after < before + ROOM, "{before} bytes before 10 000 of {names:?}, {after} after");
    assert_eq!(gateway.envoy.stat(FAILURES), names.len() as u64 * u64::from(REPETITIONS / 20 * 21));
    for token in &tokens {
        gateway.assert_spendable(token, "after ten thousand refusals");
    }
    gateway.assert_serves("after ten thousand failures");
}

#[test]
fn memory_does_not_grow_with_scripts_that_loop() {
    repeat(HOSTILE, &["loop"], "1ms");
}

#[test]
fn memory_does_not_grow_with_expressions_that_explode() {
    repeat(HOSTILE, &["expressionNested"], "1ms");
}

#[test]
fn memory_does_not_grow_with_objects_that_are_deep() {
    // Made once, because half of the time would go into making it.
    let source = "
        let deep = {};
        for (let i = 0; i < 10_000; i++) deep = { deep };
        const getCustomJwtClaims = ({ token }) => token.scope === 'orders:read' ? {} : deep;";
    repeat(source, &["a deep object"], "10ms");
}

#[test]
fn memory_does_not_grow_with_scripts_that_fail_otherwise() {
    #[rustfmt::skip]
    let names = [
        "recursion", "stringTooLong", "memoryAtOnce", "pending", "text", "getter", "cycle", "bigint", "long",
        "proxyThatThrows", "toPrimitive", "toJson",
    ];
    repeat(HOSTILE, &names, "10ms");
}

/// All on one worker, one after the other.
#[test]
fn what_one_exchange_leaves_behind_no_other_sees() {
    // Each counts itself, where it thinks that the next will look.
    #[rustfmt::skip]
    let traces = [
        ("a global",            "count = (globalThis.count ?? 0) + 1; return count;"),
        ("a defined global",    "Object.defineProperty(globalThis, 'defined', { value: 1 }); return defined;"),
        ("a deleted global",    "const count = typeof Map === 'function' ? 1 : 2; delete globalThis.Map; return count;"),
        ("a replaced global",   "const count = (JSON.count ?? 0) + 1; JSON = { count }; return count;"),
        ("a variable",          "return ++variable;"),
        ("a constant's member", "return ++constant.count;"),
        ("a closure",           "return closure();"),
        ("a generator",         "return generator.next().value;"),
        ("an expression",       "sticky.test('aa'); return sticky.lastIndex;"),
        ("a buffer",            "return ++new Uint8Array(buffer)[0] && new Uint8Array(buffer)[0];"),
        ("a private member",    "return kept.up();"),
        ("Object.prototype",    "Object.prototype.count = (Object.prototype.count ?? 0) + 1; return ({}).count;"),
        ("Array.prototype",     "const count = [].push(1); Array.prototype.push = () => 2; return count;"),
        ("Array.prototype.map", "const count = [1].map((n) => n)[0]; Array.prototype.map = () => [2]; return count;"),
        ("String.prototype",    "const count = 'a'.trim().length; String.prototype.trim = () => 'ab'; return count;"),
        ("Promise.prototype",   "const { then } = Promise.prototype; then.count = (then.count ?? 0) + 1; return then.count;"),
        ("a frozen prototype",  "const count = Object.isFrozen(Object.prototype) ? 2 : 1; Object.freeze(Object.prototype); return count;"),
        ("the function itself", "getCustomJwtClaims.count = (getCustomJwtClaims.count ?? 0) + 1; return getCustomJwtClaims.count;"),
        ("its environment",     "const e = environmentVariables; e.COUNT = +(e.COUNT ?? 0) + 1; return +e.COUNT;"),
        ("the console",         "const { log } = console; console.log = 1; return typeof log === 'function' ? 1 : 2;"),
        ("Math and Date",       "const count = Math.max(1, Date.count ?? 0); Math.max = () => 2; Date.count = 2; return count;"),
        ("a pending promise",   "Promise.resolve().then(() => { variable = 7; }).then(() => new Promise(() => {})); return ++variable;"),
        ("a symbol's registry", "const s = Symbol.for('s'), count = (seen.get(s) ?? 0) + 1; seen.set(s, count); return count;"),
        ("a prototype's chain", "const count = Object.getPrototypeOf(constant) === Object.prototype ? 1 : 2; Object.setPrototypeOf(constant, null); return count;"),
        ("a thrown error",      "variable = 5; Array.prototype.map = JSON.stringify = undefined; throw new Error();"),
        ("an endless loop",     "variable = 5; Promise.prototype.then = undefined; for (;;);"),
        ("no memory left",      "variable = 5; for (const a = []; ; ) a.push(seen.set(Symbol(), {}));"),
        ("no stack left",       "variable = 5; const f = () => f() + 1; return f();"),
        ("a denial",            "variable = 5; Object = undefined; return api.denyAccess('no');"),
    ];
    let table = traces.iter().map(|(name, body)| format!("{name:?}: {}", table_entry(body)));
    let gateway = Gateway::start(&script(&format!(
        "let variable = 0;
         const constant = {{ count: 0 }}, seen = new Map(), sticky = /a/g, buffer = new ArrayBuffer(4);
         const closure = (() => {{ let count = 0; return () => ++count; }})();
         const generator = (function* () {{ for (let i = 1; ; i++) yield i; }})();
         const kept = new (class {{ #count = 0; up() {{ return ++this.#count; }} }})();
         const traces = {{ {} }};
         function getCustomJwtClaims({{ context, environmentVariables, api }}) {{
           return {{ count: traces[context.grant.subjectTokenContext.trace](environmentVariables, api) }};
         }}",
        table.collect::<Vec<_>>().join(",\n")
    )));
    let mut findings = Findings::default();
    for round in 1..=3 {
        for (name, body) in traces {
            let answer = call(&gateway, &json!({"trace": name}));
            let case = format!("{name}, round {round}");
            if body.starts_with("variable = 5") {
                findings.expect(case, &(answer.status == 200), &false);
            } else if answer.status == 200 {
                findings.expect(case, &custom(&answer), &json!({"count": 1}));
            } else {
                findings.add(format!("{case}: {answer:?}"));
            }
        }
    }
}

fn table_entry(body: &str) -> String {
    format!("(environmentVariables, api) => {{ {body} }}")
}

#[test]
fn a_script_reaches_nothing_but_itself_and_its_input() {
    #[rustfmt::skip]
    let unreachable = [
        // The network.
        "fetch('https://example.com')", "new XMLHttpRequest()", "new WebSocket('ws://127.0.0.1')", "navigator.sendBeacon('/')",
        // Files, processes, modules.
        "require('fs')", "require('child_process')", "process.exit(1)", "import('fs')", "import('/etc/passwd')",
        "import('std')", "import('os')", "std.open('/etc/passwd', 'r')", "os.open('/etc/passwd')", "Deno.env", "Bun.file('/')",
        "load('/etc/passwd')", "read('/etc/passwd')", "print(1)", "scriptArgs", "new Worker('x')", "WebAssembly.compile",
        // The environment.
        "process.env", "std.getenv('SECRET')", "environment",
        // Timers.
        "setTimeout(() => {}, 1)", "setInterval(() => {}, 1)", "setImmediate(() => {})", "performance.now()",
        // Code from strings.
        "eval('1')", "(0, eval)('1')", "globalThis['ev' + 'al']('1')", "Function('return 1')()", "new Function('return 1')()",
        "(() => {}).constructor('return 1')()", "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('yield 1')()", "(async function* () {}).constructor('yield 1')()",
        "Reflect.construct(class {}.constructor, ['return 1'])()", "console.log.constructor('return 1')()",
        "api.denyAccess.constructor('return 1')()", "[].map.constructor('return 1')()",
        // What the filter has.
        "proxy_log", "host.send('log', 'x')", "host", "__wasm", "memory",
        "Object.getPrototypeOf(Object.getPrototypeOf(api)).constructor", "api.constructor('return this')().host.send",
        // To see that what is reached is seen.
        "token.sub",
    ];
    let attempts = unreachable.map(|code| format!("async () => {{ await ({code}); }}")).join(",\n");
    let configuration = function(&format!(
        "const attempts = [{attempts}], reached = [];
         for (let i = 0; i < attempts.length; i++) {{
           try {{ await attempts[i](); reached.push(i); }} catch {{}}
         }}
         return {{ reached, environmentVariables }};"
    ))
    .with("/custom_claims/environment_variables", json!({"REGION": "eu", "__proto__": "p"}));
    let filter = Filter {
        plugin: Plugin::Struct(configuration.0),
        environment: vec![("SECRET".into(), "of the VM".into())],
    };
    let gateway = Gateway { envoy: Envoy::start(Some(&filter), &Options::default()).unwrap() };
    let claims = custom(&call(&gateway, &json!({})));
    let reached = claims["reached"].as_array().unwrap().iter();
    let reached: Vec<_> =
        reached.map(|index| unreachable[index.as_u64().unwrap() as usize]).collect();
    assert_eq!(reached, ["token.sub"]);
    assert_eq!(claims["environmentVariables"], json!({"REGION": "eu", "__proto__": "p"}));
}

#[test]
fn a_script_has_a_clock_and_random_numbers() {
    let gateway = Gateway::start(&function(
        "return { now: Date.now(), year: new Date().getUTCFullYear(), utc: new Date(0).toISOString(),
                  zone: new Date().getTimezoneOffset(), random: [Math.random(), Math.random(), Math.random()] };",
    ));
    let mut numbers = BTreeSet::new();
    for _ in 0..20 {
        let (before, claims) = (now(), custom(&call(&gateway, &json!({}))));
        let at = claims["now"].as_u64().unwrap() / 1000;
        assert!((before..=now()).contains(&at), "{at}, not {before}");
        assert!(claims["year"].as_u64().unwrap() >= 2025, "{claims}");
        assert_eq!(
            (&claims["utc"], &claims["zone"]),
            (&json!("1970-01-01T00:00:00.000Z"), &json!(0))
        );
        for number in claims["random"].as_array().unwrap() {
            assert!((0.0..1.0).contains(&number.as_f64().unwrap()), "{number}");
            assert!(numbers.insert(number.to_string()), "{number} twice");
        }
    }
}

#[test]
fn the_console_is_envoys_log_at_debug() {
    let gateway = Gateway::start(&function(
        r"const { line } = context.grant.subjectTokenContext;
          console[line.level](line.text, { a: [1] });
          console.log('y'.repeat(5000));
          console.log('one\r\ntwo\u001b[31m\u0000[info] three \ud800 \u2028');
          for (let i = 0; i < 100; i++) console.log('many');
          if (line.level === 'trace') throw new Error('after logging');
          return {};",
    ));
    let say = |level: &str| {
        let line = json!({"level": level, "text": format!("said by {level}")});
        let answer = call(&gateway, &json!({ "line": line }));
        assert_eq!(answer.status, if level == "trace" { 500 } else { 200 }, "{answer:?}");
    };
    say("error");
    assert!(
        !gateway.envoy.log().contains("console: "),
        "at info it says nothing, not even at error"
    );

    gateway.envoy.set_log_level("wasm", "debug");
    let quiet = gateway.envoy.log().len();
    let levels = ["log", "debug", "info", "warn", "error", "trace"];
    for level in levels {
        say(level);
    }
    let log = gateway.envoy.log().split_off(quiet);
    let lines: Vec<_> = log.lines().filter_map(|line| line.split_once("console: ")).collect();
    for level in levels {
        let text = format!("said by {level} {{\"a\":[1]}}");
        let found: Vec<_> = lines.iter().filter(|(_, line)| *line == text).collect();
        assert_eq!(found.len(), 1, "{text} in {log}");
    }
    assert!(lines.iter().all(|(before, _)| before.contains("[debug][wasm]")), "{log}");
    let cut = "y".repeat(1024);
    assert_eq!(lines.iter().filter(|(_, line)| *line == cut).count(), levels.len());
    assert!(!log.contains(&"y".repeat(1025)), "cut at 1 KiB");
    // Each call has its thirty-two lines, and can make none look like another's.
    assert_eq!(lines.len(), 32 * levels.len());
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    assert_eq!(
        lines.iter().filter(|(_, line)| line.starts_with("one  two [31m [info] three")).count(),
        levels.len()
    );
}

#[test]
fn no_script_says_what_makes_the_token_what_it_is() {
    #[rustfmt::skip]
    let reserved = [
        "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "scope", "act", "may_act", "cnf", "__proto__",
    ];
    // Ways to return a member; `name` is its name.
    #[rustfmt::skip]
    let ways = [
        ("a member",          "return { [name]: 'x' };"),
        ("null",              "return { a: 1, [name]: null };"),
        ("twice",             "return JSON.parse(`{\"${name}\":1,\"a\":2,\"${name}\":\"x\"}`);"),
        ("an escape",         "return JSON.parse(`{\"\\\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}\":\"x\"}`);"),
        ("an object as key",  "const o = {}; Object.defineProperty(o, { toString: () => name }, { value: 1, enumerable: true }); return o;"),
        ("a getter",          "return Object.defineProperty({}, name, { get: () => 'x', enumerable: true });"),
        ("toJSON",            "return { toJSON: () => ({ [name]: 'x' }) };"),
        ("a proxy",           "return new Proxy({}, { ownKeys: () => [name], get: () => 'x', getOwnPropertyDescriptor: () => ({ configurable: true, enumerable: true }) });"),
        ("Object.prototype",  "Object.defineProperty(Object.prototype, 'toJSON', { value: () => ({ [name]: 'x' }) }); return {};"),
        ("a promise",         "return new Promise((resolve) => resolve({ [name]: 'x' }));"),
        ("a class",           "return new (class { constructor() { Object.defineProperty(this, name, { value: 'x', enumerable: true }); } })();"),
        ("no prototype",      "const o = Object.create(null); Object.defineProperty(o, name, { value: 'x', enumerable: true }); return o;"),
    ];
    let table = ways.map(|(way, body)| format!("{way:?}: (name) => {{ {body} }}")).join(",\n");
    let gateway = Gateway::start(&function(&format!(
        "const ways = {{ {table} }};
         const {{ way, name }} = context.grant.subjectTokenContext;
         if (token.scope === 'orders:read') return {{ fine: 1 }};
         return ways[way](name);"
    )));
    let mut findings = Findings::default();
    for name in reserved {
        for (way, _) in ways {
            let token = mint(&gateway, &json!({"way": way, "name": name}));
            let refused = gateway.send(&misbehaving(&token)).refusal();
            findings.expect(format!("{name} by {way}"), &refused, &(500, "server_error".into()));
            gateway.assert_spendable(&token, name);
        }
        let warned = format!("the script may not set the claim {name}");
        let warnings = gateway.envoy.log().matches(&warned).count();
        findings.expect(format!("warnings for {name}"), &warnings, &ways.len());
    }
}

/// What is no claim of ours, however much it looks like one, and what JSON leaves out.
#[test]
fn every_other_claim_is_issued_as_it_is_written() {
    #[rustfmt::skip]
    let cases = [
        ("{ 2: 'b', 1: 'a', '01': 'c', '-1': 'd', 1.5: 'e' }", json!({"1": "a", "2": "b", "01": "c", "-1": "d", "1.5": "e"})),
        ("{ [Symbol('sub')]: 'x', [Symbol.toPrimitive]: () => 'sub', [Symbol.iterator]: 1 }", json!({})),
        ("{ __proto__: { sub: 'admin', act: {} } }", json!({})),
        ("Object.create({ sub: 'admin' })", json!({})),
        ("{ sub: undefined, aud: () => {}, exp: Symbol() }", json!({})),
        ("Object.defineProperty({}, 'sub', { value: 'admin' })", json!({})),
        ("{ Sub: 1, ' sub': 2, 'sub\\0': 3, 's\\u200bub': 4, 'ſub': 5, ѕub: 6, '': 7 }",
         json!({"Sub": 1, " sub": 2, "sub\0": 3, "s\u{200b}ub": 4, "ſub": 5, "ѕub": 6, "": 7})),
        ("{ a: { sub: 1, act: { sub: 2 }, exp: 3 } }", json!({"a": {"sub": 1, "act": {"sub": 2}, "exp": 3}})),
        ("{ toString: 1, constructor: 2, hasOwnProperty: 3, prototype: 4 }",
         json!({"toString": 1, "constructor": 2, "hasOwnProperty": 3, "prototype": 4})),
        ("{ n: NaN, i: -Infinity, z: -0, f: 0.1, d: new Date(0), u: [undefined], b: new Boolean(true) }",
         json!({"n": null, "i": null, "z": 0, "f": 0.1, "d": "1970-01-01T00:00:00.000Z", "u": [null], "b": true})),
        ("{ s: '\"\\\\ </script> ü \u{1f600} \\u2028' }", json!({"s": "\"\\ </script> ü \u{1f600} \u{2028}"})),
        ("{ ...token }.accountId && { account: token.accountId, client: token.clientId }",
         json!({"account": "u-1", "client": "support-console"})),
        ("Object.assign(Object.create(null), { a: 1 })", json!({"a": 1})),
        ("new (class { a = 1; #b = 2; get c() { return 3; } })()", json!({"a": 1})),
        ("{}", json!({})),
    ];
    let table =
        cases.each_ref().map(|(expression, _)| format!("(token) => ({expression})")).join(",\n");
    let gateway = Gateway::start(&function(&format!(
        "return [{table}][context.grant.subjectTokenContext.case](token);"
    )));
    let mut findings = Findings::default();
    for (number, (expression, expected)) in cases.iter().enumerate() {
        let answer = call(&gateway, &json!({"case": number}));
        if answer.status != 200 {
            findings.add(format!("{expression}: {answer:?}"));
            continue;
        }
        let (_, verified) = verify(&answer.member("access_token"), &key_set(&SIGNING_KEY));
        assert_eq!(
            (&verified["sub"], &verified["aud"]),
            (&json!("u-1"), &json!(ORDERS)),
            "{expression}"
        );
        findings.expect(expression, &custom(&answer), expected);
    }
}

/// A script that writes down all that it can get hold of has no secret to write down.
#[test]
fn the_input_has_no_secret_in_it() {
    let gateway = Gateway::start(&function(
        "const seen = new Set(), found = [];
         const dig = (value) => {
           if (typeof value === 'function') found.push(Function.prototype.toString.call(value));
           if (Object(value) !== value) { found.push(String(value)); return; }
           if (seen.has(value)) return;
           seen.add(value);
           for (const key of Reflect.ownKeys(value)) {
             found.push(String(key));
             try { dig(value[key]); } catch {}
           }
           dig(Object.getPrototypeOf(value));
         };
         dig({ token, context, environmentVariables, api });
         const all = found.join(' ');
         for (let at = 0; at < all.length; at += 1000) console.log('input', all.slice(at, at + 1000));
         if (token.scope === 'orders:write') throw new Error(all);
         return { all: all.slice(0, 2000), more: JSON.stringify({ token, context, environmentVariables }) };",
    ).with("/custom_claims/timeout", "1s"));
    gateway.envoy.set_log_level("wasm", "debug");
    let subject_token = mint(&gateway, &json!({"ticketId": "T-1"}));
    let actor_token = PROVIDER_KEY.sign(&actor_claims("agent-1"));
    let with_scope = |scope: &str| {
        let form = with_actor(exchange_form(&subject_token), &actor_token).set("scope", scope);
        exchange_request(&form.without("client_id")).basic("support-portal", &CLIENT_SECRET)
    };
    let refused = gateway.send(&with_scope("orders:write"));
    assert_eq!(refused.refusal(), (500, "server_error".into()));
    let granted = gateway.send(&with_scope("orders:read"));
    let claims = custom_with_actor(&granted);
    let log = gateway.envoy.log();
    // It has looked: what it may see is there.
    assert!(claims["all"].as_str().unwrap().contains("agent-1"), "{claims}");
    assert!(claims["more"].as_str().unwrap().contains("T-1"), "{claims}");
    assert!(
        log.contains("console: input") && log.contains("custom claims: the script threw"),
        "{log}"
    );
    let secrets = [
        SIGNING_KEY.secrets(),
        vec![
            subject_token.clone(),
            subject_token.trim_start_matches("sub_").into(),
            actor_token,
            BEARER.clone(),
            CLIENT_SECRET.clone(),
        ],
    ];
    let told = [claims.to_string(), refused.text(), log];
    for secret in secrets.concat().into_iter().filter(|secret| secret.len() > 8) {
        for told in &told {
            assert!(!told.contains(&secret), "{secret} in {told}");
        }
    }
}

fn custom_with_actor(answer: &Answer) -> Value {
    let mut claims = custom(answer);
    let act = claims.as_object_mut().unwrap().remove("act");
    assert_eq!(act, Some(json!({"sub": "agent-1"})));
    claims
}

/// Whatever `on_error` says: a denial is no error.
#[test]
fn a_denial_is_told_to_the_client_in_words_that_are_fit_to_be_sent() {
    let long = "x".repeat(200);
    #[rustfmt::skip]
    let cases = [
        ("return api.denyAccess('The ticket is closed');",         "The ticket is closed"),
        ("api.denyAccess('No'); return { sub: 'admin' };",         "No"),
        ("try { api.denyAccess('No'); } catch {} return {};",      "No"),
        ("try { api.denyAccess('No'); } catch {} for (;;);",       "No"),
        ("await null; await Promise.reject().catch(() => api.denyAccess('late')); return {};", "late"),
        ("api.denyAccess('one'); api.denyAccess('two');",          "one"),
        ("api.denyAccess();",                                      "access denied"),
        ("api.denyAccess('');",                                    "access denied"),
        ("api.denyAccess(' \\t\\n');",                             "access denied"),
        ("api.denyAccess(Symbol());",                              "access denied"),
        ("api.denyAccess(404);",                                   "404"),
        ("api.denyAccess({ a: 1 });",                              "[object Object]"),
        ("api.denyAccess('say \"no\"');",                          "say 'no'"),
        ("api.denyAccess('a\\\\b');",                              "a/b"),
        ("api.denyAccess('a\\r\\nSet-Cookie: b\\0\\u007f');",      "a  Set-Cookie: b  "),
        ("api.denyAccess('Ü \u{1f600} \\u2028 \\ud800');",         "? ?   ?"),
        ("api.denyAccess('x'.repeat(1e6));",                       &long),
        ("api.denyAccess('ü'.repeat(1e6));",                       &"?".repeat(200)),
        ("String.prototype.slice = JSON.stringify = () => '\"'; api.denyAccess('own words');", "own words"),
    ];
    let table = cases.map(|(body, _)| format!("async (api) => {{ {body} }}")).join(",\n");
    let source = format!(
        "if (token.scope === 'orders:read') return {{ fine: 1 }};
         return [{table}][context.grant.subjectTokenContext.case](api);"
    );
    for on_error in ["refuse", "issue_without"] {
        let gateway = Gateway::start(&function(&source).with("/custom_claims/on_error", on_error));
        let mut findings = Findings::default();
        for (number, (body, description)) in cases.into_iter().enumerate() {
            let token = mint(&gateway, &json!({"case": number}));
            let answer = gateway.send(&misbehaving(&token));
            findings.expect(body, &answer.refusal(), &(400, "access_denied".into()));
            findings.expect(body, &answer.member("error_description"), &description.to_owned());
            findings.expect(body, &answer.json().as_object().unwrap().len(), &2);
            findings.expect(body, &answer.header("cache-control"), &Some("no-store"));
            findings.expect(
                body,
                &custom(&gateway.exchange(&exchange_form(&token))),
                &json!({"fine": 1}),
            );
            gateway.assert_spent(&token, body);
        }
        findings.expect("no failures", &gateway.envoy.stat(FAILURES), &0);
    }
}

#[test]
fn denials_and_failures_are_audited_and_counted() {
    let body = "const { does } = context.grant.subjectTokenContext;
         if (token.scope === 'orders:read') return { fine: 1 };
         if (does === 'deny') return api.denyAccess('No');
         throw new Error('broken\\n{\"event\":\"forged\"}');";
    for (on_error, failed) in [("refuse", 1), ("issue_without", 0)] {
        let gateway = Gateway::start(&function(body).with("/custom_claims/on_error", on_error));
        for does in ["deny", "throw"] {
            let token = mint(&gateway, &json!({ "does": does }));
            gateway.send(&misbehaving(&token));
            if does == "deny" || failed == 1 {
                gateway.assert_spendable(&token, does);
            }
        }
        let log = gateway.envoy.log();
        let outcomes = events(&log).into_iter().map(|event| {
            assert_eq!(
                (&event["user_id"], &event["client_id"]),
                (&json!("u-1"), &json!("support-console"))
            );
            let name = event["event"].as_str().unwrap().to_owned();
            (
                name,
                event["error"].as_str().map(str::to_owned),
                event["reason"].as_str().map(str::to_owned),
            )
        });
        let outcome = |event: &str, error: Option<&str>, reason: Option<&str>| {
            (event.to_owned(), error.map(str::to_owned), reason.map(str::to_owned))
        };
        let granted = outcome("token_exchange.succeeded", None, None);
        let mut expected = vec![
            outcome("token_exchange.refused", Some("access_denied"), Some("custom_claims_denied")),
            granted.clone(),
        ];
        if failed == 1 {
            expected.push(outcome(
                "token_exchange.refused",
                Some("server_error"),
                Some("custom_claims_failed"),
            ));
        }
        expected.push(granted);
        assert_eq!(outcomes.collect::<Vec<_>>(), expected, "{on_error}");
        // The warning says where, on one line.
        let warning = log.lines().find(|line| line.contains("custom claims: ")).unwrap();
        assert!(warning.contains("[warning][wasm]"), "{warning}");
        assert!(warning.contains("custom claims: the script threw: line 5, column "), "{warning}");
        assert!(warning.contains(r#"Error: broken {"event":"forged"}"#), "{warning}");

        let refusals = |error: &str, reason: &str| {
            gateway.envoy.stat(&format!(
                "wasmcustom.impersonation_refusals_total.endpoint.token.error.{error}.reason.{reason}"
            ))
        };
        assert_eq!(refusals("access_denied", "custom_claims_denied"), 1);
        assert_eq!(refusals("server_error", "custom_claims_failed"), failed);
        assert_eq!(gateway.envoy.stat(FAILURES), 1, "{on_error}");
        assert_eq!(
            gateway.envoy.stat("wasmcustom.impersonation_subject_tokens_exchanged_total"),
            2
        );
    }
}
