//! The operator's function for claims: its results, its denials, and the operator's log about them.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::flow::claims_of;
use crate::world::World;
use testkit::Findings;
use testkit::claims_scripts::{self, Case, function, misbehaving, script};
use testkit::configuration::{Configuration, ISSUER, ORDERS, PROVIDER_KEY, SIGNING_KEY};
use testkit::gateway::{
    EXCHANGE_GRANT, actor_claims, exchange_form, key_set, mint_body_request, minted, verify,
    with_actor,
};
use testkit::http::Answer;

const FAILURES: &str = "impersonation_custom_claims_failures_total";

/// Mints a subject token with this context.
fn mint(world: &World, context: &Value) -> String {
    minted(&world.send(&mint_body_request(&json!({"userId": "u-1", "context": context}))))
}

/// Exchanges a subject token with this context.
fn call(world: &World, context: &Value) -> Answer {
    world.exchange(&exchange_form(&mint(world, context)))
}

/// Returns the claims that a script has added.
fn custom(answer: &Answer) -> Value {
    claims_scripts::custom(claims_of(answer))
}

fn custom_with_actor(answer: &Answer) -> Value {
    let mut claims = custom(answer);
    let act = claims.as_object_mut().unwrap().remove("act");
    assert_eq!(act, Some(json!({"sub": "agent-1"})));
    claims
}

/// Returns the audit events of exchanges.
fn events(world: &World) -> Vec<Value> {
    let is_exchange =
        |event: &Value| event["event"].as_str().unwrap().starts_with("token_exchange");
    world.audit().into_iter().filter(is_exchange).collect()
}

/// The companion and Node.js must give the same claims, see tests/claims-scripts.
#[test]
fn the_example_scripts_give_the_recorded_claims() {
    let mut findings = Findings::default();
    let world = World::start(&Configuration::default());
    for Case { name, script: source, input, outcome } in claims_scripts::all() {
        let environment = input.get("environmentVariables").cloned().unwrap_or_else(|| json!({}));
        let configuration = script(&source)
            .with("/custom_claims/environment_variables", environment)
            .with("/custom_claims/timeout", "1s");
        world.update(&configuration).unwrap();
        let context = input.pointer("/context/grant/subjectTokenContext");
        let context = context.cloned().unwrap_or_else(|| json!({}));
        let token = minted(
            &world.send(&mint_body_request(&json!({"userId": "user_123", "context": context}))),
        );
        let mut form = exchange_form(&token);
        if let Some(scope) = input.pointer("/token/scope") {
            form = form.set("scope", scope.as_str().unwrap());
        }
        let actor = input.pointer("/token/act/sub").map(|actor| actor.as_str().unwrap());
        if let Some(actor) = actor {
            form = with_actor(form, &PROVIDER_KEY.sign(&actor_claims(actor)));
        }
        let answer = world.exchange(&form);
        match outcome {
            Err(description) => {
                findings.expect(&name, &answer.refusal(), &(400, "access_denied".into()));
                findings.expect(&name, &answer.member("error_description"), &description);
            }
            Ok(expected) if answer.status == 200 => {
                let given =
                    if actor.is_some() { custom_with_actor(&answer) } else { custom(&answer) };
                findings.expect(&name, &given, &expected);
            }
            Ok(_) => findings.add(format!("{name}: {answer:?} {:?}", world.log().lines().last())),
        }
    }
}

/// Names that only resemble reserved claims, and values that JSON leaves out.
#[test]
fn a_claim_that_is_not_reserved_is_issued_as_the_script_wrote_it() {
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
    let world = World::start(&function(&format!(
        "return [{table}][context.grant.subjectTokenContext.case](token);"
    )));
    let mut findings = Findings::default();
    for (number, (expression, expected)) in cases.iter().enumerate() {
        let answer = call(&world, &json!({"case": number}));
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

#[test]
fn a_script_cannot_set_a_reserved_claim() {
    #[rustfmt::skip]
    let reserved = [
        "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "scope", "act", "may_act", "cnf", "txn", "scp", "azp",
        "__proto__",
    ];
    // Ways to return a member whose name is `name`.
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
    let world = World::start(&function(&format!(
        "const ways = {{ {table} }};
         const {{ way, name }} = context.grant.subjectTokenContext;
         if (token.scope === 'orders:read') return {{ fine: 1 }};
         return ways[way](name);"
    )));
    let mut findings = Findings::default();
    for name in reserved {
        for (way, _) in ways {
            let token = mint(&world, &json!({"way": way, "name": name}));
            let refused = world.send(&misbehaving(&token)).refusal();
            findings.expect(format!("{name} by {way}"), &refused, &(500, "server_error".into()));
            world.assert_spendable(&token, name);
        }
        let warned = format!("the script may not set the claim {name}");
        let warnings = world.log().matches(&warned).count();
        findings.expect(format!("warnings for {name}"), &warnings, &ways.len());
    }
}

/// `on_error` does not apply: a denial is not an error.
#[test]
fn the_client_reads_a_denial_in_characters_that_oauth_allows() {
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
        let world = World::start(&function(&source).with("/custom_claims/on_error", on_error));
        let mut findings = Findings::default();
        for (number, (body, description)) in cases.into_iter().enumerate() {
            let token = mint(&world, &json!({"case": number}));
            let answer = world.send(&misbehaving(&token));
            findings.expect(body, &answer.refusal(), &(400, "access_denied".into()));
            findings.expect(body, &answer.member("error_description"), &description.to_owned());
            findings.expect(body, &answer.json().as_object().unwrap().len(), &2);
            findings.expect(body, &answer.header("cache-control"), &Some("no-store"));
            findings.expect(
                body,
                &custom(&world.exchange(&exchange_form(&token))),
                &json!({"fine": 1}),
            );
            world.assert_spent(&token, body);
        }
        findings.expect("no failures", &world.counted(FAILURES), &0);
    }
}

#[test]
fn denials_and_failures_are_audited_and_counted() {
    let body = "const { does } = context.grant.subjectTokenContext;
         if (token.scope === 'orders:read') return { fine: 1 };
         if (does === 'deny') return api.denyAccess('No');
         throw new Error('broken\\n{\"event\":\"forged\"}');";
    for (on_error, failed) in [("refuse", 1), ("issue_without", 0)] {
        let world = World::start(&function(body).with("/custom_claims/on_error", on_error));
        for does in ["deny", "throw"] {
            let token = mint(&world, &json!({ "does": does }));
            world.send(&misbehaving(&token));
            if does == "deny" || failed == 1 {
                world.assert_spendable(&token, does);
            }
        }
        let outcomes = events(&world).into_iter().map(|event| {
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
        // The warning has the line and column of the error, and is one line itself.
        let log = world.log();
        let warning = log.lines().find(|line| line.contains("custom claims: ")).unwrap();
        assert!(warning.contains("custom claims: the script threw: line 5, column "), "{warning}");
        assert!(warning.contains(r#"Error: broken {"event":"forged"}"#), "{warning}");

        let refusals = |error: &str, reason: &str| {
            world.counted(&format!(
                "impersonation_refusals_total.endpoint.token.error.{error}.reason.{reason}"
            ))
        };
        assert_eq!(refusals("access_denied", "custom_claims_denied"), 1);
        assert_eq!(refusals("server_error", "custom_claims_failed"), failed);
        assert_eq!(world.counted(FAILURES), 1, "{on_error}");
        assert_eq!(world.counted("impersonation_subject_tokens_exchanged_total"), 2);
    }
}

/// Random JSON from the context of a mint to the claims of the access token.
#[test]
fn any_json_passes_unchanged_from_context_to_claims() {
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let mut rng = Rng::with_seed(seed);
    let world = World::start(&function("return { context: context.grant.subjectTokenContext };"));
    let mut findings = Findings::default();
    for _ in 0..300 {
        let context = loop {
            let context = object(&mut rng, 4);
            if context.to_string().len() < 4000 {
                break context;
            }
        };
        let answer = call(&world, &context);
        if answer.status == 200 {
            let given = as_javascript(&custom(&answer)["context"]);
            findings.expect(&context, &given, &as_javascript(&context));
        } else {
            findings.add(format!("{context}: {answer:?}"));
        }
    }
}

fn object(rng: &mut Rng, depth: u32) -> Value {
    (0..rng.u8(..6)).map(|_| (text(rng), value(rng, depth))).collect::<Map<_, _>>().into()
}

fn value(rng: &mut Rng, depth: u32) -> Value {
    match rng.u8(..if depth == 0 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => rng.i64(-1000..1000).into(),
        // Any finite float: JSON has no others.
        4 => Some(f64::from_bits(rng.u64(..))).filter(|number| number.is_finite()).into(),
        5 => (rng.f64() * 10_f64.powi(rng.i32(-8..22))).into(),
        6 => text(rng).into(),
        7 => object(rng, depth - 1),
        _ => (0..rng.u8(..6)).map(|_| value(rng, depth - 1)).collect::<Vec<_>>().into(),
    }
}

fn text(rng: &mut Rng) -> String {
    const NAMES: [&str; 8] = ["__proto__", "constructor", "toJSON", "then", "0", "-1", "", "sub"];
    match rng.u8(..4) {
        0 => rng.choice(NAMES).unwrap().into(),
        1 => (0..rng.u8(..10)).map(|_| rng.char(..)).collect(),
        2 => (0..rng.u8(..10)).map(|_| rng.char(..' ')).collect(),
        _ => (0..rng.u8(..10)).map(|_| rng.alphanumeric()).collect(),
    }
}

/// Returns the value as JavaScript has it: all numbers are floats, and there is one zero.
fn as_javascript(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap() + 0.0),
        Value::Array(items) => items.iter().map(as_javascript).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (name.clone(), as_javascript(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

#[test]
fn the_function_sees_the_exchange_and_adds_to_its_token() {
    let body = "return { input: { token, context, environmentVariables } };";
    let configuration =
        function(body).with("/custom_claims/environment_variables", json!({"REGION": "eu"}));
    let world = World::start(&configuration);
    let token = mint(&world, &json!({"ticketId": "T-1"}));
    let actor = PROVIDER_KEY.sign(&actor_claims("agent-1"));
    let answer = world.exchange(&with_actor(exchange_form(&token), &actor));
    let claims = claims_of(&answer);
    let input = json!({
        "token": {
            "iss": ISSUER, "sub": "u-1", "aud": ORDERS, "client_id": "support-console",
            "jti": claims["jti"], "scope": "orders:read", "act": {"sub": "agent-1"},
            "accountId": "u-1", "clientId": "support-console",
        },
        "context": {"grant": {
            "type": EXCHANGE_GRANT, "subjectTokenContext": {"ticketId": "T-1"},
        }},
        "environmentVariables": {"REGION": "eu"},
    });
    assert_eq!(claims["input"], input);
    assert_eq!(claims["sub"], "u-1");
    assert_eq!(answer.json().as_object().unwrap().len(), 5, "the answer has no more members");
}
