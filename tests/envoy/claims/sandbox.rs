//! The surroundings of a script, and that nothing of what it does there lasts.

use std::collections::BTreeSet;

use serde_json::json;

use super::{call, custom, custom_with_actor, function, mint, script};
use testkit::Findings;
use testkit::bootstrap::Filter;
use testkit::configuration::{CLIENT_SECRET, PROVIDER_KEY, SIGNING_KEY};
use testkit::gateway::{
    BEARER, Gateway, Options, actor_claims, exchange_form, exchange_request, now, with_actor,
};

/// All exchanges run on one worker, one after the other.
#[test]
fn an_exchange_sees_no_trace_of_another() {
    // Each trace is counted where the next exchange might find it.
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
    let gateway = Gateway::lent(&script(&format!(
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
fn a_script_is_loaded_once() {
    let gateway = Gateway::lent(&script(
        "const loaded = Math.random();
         const getCustomJwtClaims = () => ({ loaded });",
    ));
    let first = custom(&call(&gateway, &json!({})));
    assert!(first["loaded"].is_f64(), "{first}");
    for _ in 0..5 {
        assert_eq!(custom(&call(&gateway, &json!({}))), first);
    }
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
        // The filter's own functions and memory.
        "proxy_log", "host.send('log', 'x')", "host", "__wasm", "memory",
        "Object.getPrototypeOf(Object.getPrototypeOf(api)).constructor", "api.constructor('return this')().host.send",
        // A control: this one can be reached, and is reported.
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
        environment: vec![("SECRET".into(), "of the VM".into())],
        ..Filter::from(&configuration)
    };
    let gateway = Gateway::try_start(&filter, &Options::default()).unwrap();
    let claims = custom(&call(&gateway, &json!({})));
    let reached = claims["reached"].as_array().unwrap().iter();
    let reached: Vec<_> =
        reached.map(|index| unreachable[index.as_u64().unwrap() as usize]).collect();
    assert_eq!(reached, ["token.sub"]);
    assert_eq!(claims["environmentVariables"], json!({"REGION": "eu", "__proto__": "p"}));
}

#[test]
fn a_script_has_a_clock_and_random_numbers() {
    let gateway = Gateway::lent(&function(
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
fn the_console_writes_to_envoys_log_at_debug() {
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
        "at level info the log has no console output, not even errors"
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
    // Each call has thirty-two lines, and none can look like another call's.
    assert_eq!(lines.len(), 32 * levels.len());
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    assert_eq!(
        lines.iter().filter(|(_, line)| line.starts_with("one  two [31m [info] three")).count(),
        levels.len()
    );
}

/// The script collects everything that it can reach. No secret is among it.
#[test]
fn a_script_can_reach_no_secret() {
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
    // The script has found what it may see.
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
