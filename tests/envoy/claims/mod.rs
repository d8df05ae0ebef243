//! The operator's function in Envoy. The native tests are beside the code; these cover what depends
//! on the sandbox and on Envoy.

mod failures;
mod sandbox;

use serde_json::{Value, json};

use testkit::Findings;
use testkit::claims_scripts::{self, function, misbehaving, script};
use testkit::configuration::Configuration;
use testkit::gateway::{
    Gateway, Listeners, Options, exchange_form, mint_body_request, minted, raw_part,
};
use testkit::http::Answer;

const FAILURES: &str = "wasmcustom.impersonation_custom_claims_failures_total";

/// Mints a subject token with this context.
fn mint(gateway: &Gateway, context: &Value) -> String {
    minted(&gateway.send(&mint_body_request(&json!({"userId": "u-1", "context": context}))))
}

/// Exchanges a subject token with this context.
fn call(gateway: &Gateway, context: &Value) -> Answer {
    gateway.exchange(&exchange_form(&mint(gateway, context)))
}

/// Returns the claims of the access token. The answer must be 200.
fn claims(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    raw_part(&answer.member("access_token"), 1)
}

/// Returns the claims that a script has added.
fn custom(answer: &Answer) -> Value {
    claims_scripts::custom(claims(answer))
}

/// Returns the audit events of exchanges.
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
    let gateway = Gateway::lent(&Configuration::default());
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

fn custom_with_actor(answer: &Answer) -> Value {
    let mut claims = custom(answer);
    let act = claims.as_object_mut().unwrap().remove("act");
    assert_eq!(act, Some(json!({"sub": "agent-1"})));
    claims
}
