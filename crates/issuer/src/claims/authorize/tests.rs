//! The input of `authorizeSubjectToken`, the effects of its results, and the documented examples.
#![cfg(feature = "custom-claims")]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn compile(source: &str, environment: &[(&str, &str)]) -> Authorizer {
    let variables = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    // The limits are generous, because tests run unoptimized on busy machines.
    let limits = Limits { timeout: Duration::from_secs(1), ..Limits::default() };
    Authorizer::compile(source, &limits, &variables.collect()).unwrap()
}

/// Calls the function with the usual input, in which the members of `given` replace others.
fn call(authorizer: &Authorizer, given: &Value) -> Result<Value, String> {
    let members = given["bounds"].as_object().cloned().unwrap_or_default();
    let context = if given["context"].is_null() { json!({}) } else { given["context"].clone() };
    let input = AuthorizerInput {
        client_id: Some(given["clientId"].as_str().unwrap_or("backend")),
        subject: None,
        scope: "impersonate",
        user_id: "user-42",
        user: &given["user"],
        context: &context.to_string(),
        bounds: &Bounds::read(&members).unwrap(),
        breaks_glass: false,
    };
    let bounds = authorizer.run(&input, &mut |_| ()).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(bounds).unwrap())
}

fn outcome(body: &str) -> Result<Value, String> {
    let source = format!(
        "const authorizeSubjectToken = async ({{ caller, userId, user, context, bounds, breakGlass, environmentVariables, api }}) => {{ {body} }};"
    );
    let given = json!({
        "user": {"roles": ["customer"]}, "context": {"ticketId": "T-1"},
        "bounds": {"clientId": "portal", "scope": "a b", "expiresIn": 60},
    });
    call(&compile(&source, &[("REGION", "eu")]), &given)
}

#[test]
fn the_function_gets_the_documented_input() {
    let expected = json!({
        "caller": {"clientId": "backend", "subject": null, "scope": "impersonate"},
        "userId": "user-42", "user": {"roles": ["customer"]}, "context": {"ticketId": "T-1"},
        "bounds": {"expiresIn": 60, "clientId": ["portal"], "scope": "a b"}, "breakGlass": false,
        "environmentVariables": {"REGION": "eu"},
    });
    let body = "api.denyAccess(JSON.stringify({ caller, userId, user, context, bounds, breakGlass, environmentVariables }))";
    let told = outcome(body).unwrap_err();
    // A denial has no quotes and no backslashes, and is cut.
    let plain = expected.to_string().replace('"', "'");
    let told = told.strip_prefix("the script denied access: ").unwrap();
    assert!(told.len() > 100 && plain.starts_with(told.trim_end_matches('.')), "{told}\n{plain}");
}

#[test]
fn the_function_allows_narrows_denies_or_fails() {
    #[rustfmt::skip]
    let cases = [
        ("",                                        Ok(json!({}))),
        ("return;",                                 Ok(json!({}))),
        ("return {};",                              Ok(json!({}))),
        ("return { clientId: ['portal'], actorId: 'agent-1' };", Ok(json!({"clientId": ["portal"], "actorId": "agent-1"}))),
        ("api.denyAccess('not today');",            Err("the script denied access: not today")),
        ("return null;",                            Err("the script returned no object")),
        ("return true;",                            Err("the script returned no object")),
        ("return false;",                           Err("the script returned no object")),
        ("return 'ok';",                            Err("the script returned no object")),
        ("return [];",                              Err("the script returned no object")),
        ("return () => {};",                        Err("the script returned no object")),
        ("return Symbol();",                        Err("the script returned no object")),
        ("return { allow: false };",                Err("what the script returned is no bounds: the object may have only")),
        ("return { userId: 'root' };",              Err("what the script returned is no bounds: the object may have only")),
        ("return { expiresIn: 'soon' };",           Err("what the script returned is no bounds: expiresIn must be")),
        ("return { clientId: [] };",                Err("what the script returned is no bounds: clientId must not be")),
        ("return { actorId: null };",               Err("what the script returned is no bounds: actorId must be")),
        ("return { actorId: undefined };",          Err("what the script returned is no JSON: TypeError: actorId is undefined")),
        ("return { clientId: [undefined] };",       Err("what the script returned is no JSON: TypeError: clientId[0] is undefined")),
        ("return { resource: [, 'x'] };",           Err("what the script returned is no JSON: TypeError: resource has a hole")),
        ("return { actorId: () => 'agent-1' };",    Err("what the script returned is no JSON: TypeError: actorId is a function")),
        ("return { actorId: Symbol('agent-1') };",  Err("what the script returned is no JSON: TypeError: actorId is a symbol")),
        ("return { expiresIn: 60n };",              Err("what the script returned is no JSON: TypeError: expiresIn is a bigint")),
        ("return { expiresIn: NaN };",              Err("what the script returned is no JSON: TypeError: expiresIn is NaN")),
        ("return { get actorId() { return 'a'; } };", Err("what the script returned is no JSON: TypeError: actorId has a getter")),
        ("return Object.defineProperty({}, 'actorId', { value: 'a' });", Err("what the script returned is no JSON: TypeError: actorId is not enumerable")),
        ("return Object.create({ actorId: 'a' });", Err("what the script returned is no JSON: TypeError: what is returned is no plain object")),
        ("return new Map([['actorId', 'a']]);",     Err("what the script returned is no JSON: TypeError: what is returned is no plain object")),
        ("return { expiresIn: 60, toJSON: () => ({}) };", Err("what the script returned is no JSON: TypeError: toJSON is a function")),
        ("return new Proxy({}, { get: () => 'a' });", Err("what the script returned is no JSON: TypeError: what is returned is a proxy")),
        ("return { ...bounds, actorId: user.agent };", Err("what the script returned is no JSON: TypeError: actorId is undefined")),
        ("return bounds;",                          Ok(json!({"expiresIn": 60, "clientId": ["portal"], "scope": "a b"}))),
        ("return JSON.parse('{\"expiresIn\":30}');", Ok(json!({"expiresIn": 30}))),
        ("throw new Error('x');",                   Err("the script threw: ")),
        ("return new Promise(() => {});",           Err("the script returned a promise that never resolves")),
        ("for (;;);",                               Err("the script timed out")),
        ("for (const a = []; ; ) a.push('xxxxxxxxxxxxxxxx'.repeat(1000));", Err("the script ran out of memory")),
    ];
    for (body, expected) in cases {
        let got = outcome(body);
        match expected {
            Ok(bounds) => assert_eq!(got, Ok(bounds), "{body}"),
            Err(start) => {
                let error = got.expect_err(body);
                assert!(error.starts_with(start), "{body}: {error}");
            }
        }
    }
}

#[test]
fn a_script_for_claims_is_no_authorizer() {
    let source = "const getCustomJwtClaims = () => ({});";
    let error = Authorizer::compile(source, &Limits::default(), &BTreeMap::new()).unwrap_err();
    assert!(error.message.contains("declares no function authorizeSubjectToken"), "{error}");
}

/// The result of an example: no bounds, further bounds, or a denial with the beginning of its
/// message.
type Case = (Value, Result<Value, &'static str>);

fn holds(name: &str, source: &str, environment: &[(&str, &str)], cases: &[Case]) {
    let authorizer = compile(source, environment);
    for (given, expected) in cases {
        let got = call(&authorizer, given);
        let denied = |told: &str| format!("the script denied access: {told}");
        assert_eq!(got, expected.clone().map_err(denied), "{name}: {given}");
    }
}

#[test]
fn the_documented_examples_work() {
    let nobody = Err("The roles of this user are not known");
    #[rustfmt::skip]
    holds("protected roles", include_str!("../../../../../docs/authorize/protected-roles.js"), &[], &[
        (json!({"user": {"roles": ["customer"]}}),          Ok(json!({}))),
        (json!({"user": {"roles": []}}),                    Ok(json!({}))),
        (json!({"user": {"roles": ["customer", "owner"]}}), Err("This user must not be impersonated")),
        (json!({"user": {}}),                               nobody.clone()),
        (json!({"user": {"roles": "admin"}}),               nobody.clone()),
        (json!({"user": null}),                             nobody),
    ]);
    let others = Err("This user belongs to somebody else");
    let tenants = [("TENANTS", r#"{"acme-support": "acme", "globex-support": "globex"}"#)];
    #[rustfmt::skip]
    holds("tenants", include_str!("../../../../../docs/authorize/tenants.js"), &tenants, &[
        (json!({"clientId": "acme-support", "user": {"tenant": "acme"}}),   Ok(json!({"resource": ["https://acme.example.com/api"]}))),
        (json!({"clientId": "acme-support", "user": {"tenant": "globex"}}), others.clone()),
        (json!({"clientId": "acme-support", "user": {}}),                   others.clone()),
        (json!({"clientId": "acme-support", "user": null}),                 others.clone()),
        (json!({"clientId": "unknown", "user": {"tenant": "acme"}}),        others.clone()),
        (json!({"clientId": "unknown", "user": {}}),                        others.clone()),
        (json!({"clientId": "constructor", "user": {"tenant": "acme"}}),    others),
    ]);
    #[rustfmt::skip]
    holds("on call", include_str!("../../../../../docs/authorize/on-call.js"), &[("ON_CALL", "agent-1 agent-2")], &[
        (json!({"bounds": {"actorId": "agent-2"}}), Ok(json!({}))),
        (json!({"bounds": {"actorId": "agent-3"}}), Err("Who is acting is not on call")),
        (json!({"bounds": {"actorId": "agent"}}),   Err("Who is acting is not on call")),
        (json!({}),                                 Err("actorId must name who is acting")),
    ]);
    let shape = Err("ticketId must be a ticket such as SUP-1001");
    #[rustfmt::skip]
    holds("ticket", include_str!("../../../../../docs/authorize/ticket.js"), &[], &[
        (json!({"context": {"ticketId": "SUP-1001"}}),      Ok(json!({}))),
        (json!({"context": {"ticketId": "SUP-0"}}),         shape.clone()),
        (json!({"context": {"ticketId": "x SUP-1001"}}),    shape.clone()),
        (json!({"context": {"ticketId": "SUP-1001\n"}}),    shape.clone()),
        (json!({"context": {"ticketId": ["SUP-1001"]}}),    shape.clone()),
        (json!({"context": {}}),                            shape),
    ]);
}

/// The test sets the clock to both ends of the day and of the week, east and west of Greenwich.
#[test]
fn the_documented_working_hours_follow_their_time_zone() {
    let source = include_str!("../../../../../docs/authorize/working-hours.js");
    let closed = Err("Only from 8 to 18, Monday to Friday");
    let short = Ok(json!({"expiresIn": 60, "accessTokenExpiresIn": 300}));
    #[rustfmt::skip]
    let cases = [
        ("2026-03-02T06:59:59Z", "+01:00", closed.clone()),
        ("2026-03-02T07:00:00Z", "+01:00", Ok(json!({}))),
        ("2026-03-02T16:59:59Z", "+01:00", Ok(json!({}))),
        ("2026-03-02T17:00:00Z", "+01:00", closed.clone()),
        ("2026-03-07T12:00:00Z", "+01:00", closed.clone()), // a Saturday
        ("2026-03-02T02:30:00Z", "+05:30", Ok(json!({}))),
        ("2026-03-03T01:59:59Z", "-08:00", Ok(json!({}))),  // still Monday there
        ("2026-03-02T15:59:59Z", "-08:00", closed.clone()),
    ];
    for (now, offset, expected) in cases {
        let source = format!("Date.now = () => Date.parse('{now}');\n{source}");
        let night = json!({"context": {"emergency": true}});
        let in_emergency = if expected.is_ok() { Ok(json!({})) } else { short.clone() };
        let cases = [(json!({}), expected), (night, in_emergency)];
        holds(now, &source, &[("UTC_OFFSET", offset)], &cases);
    }
}

#[test]
fn the_tested_examples_are_the_documented_ones() {
    let page = include_str!("../../../../../docs/who-may-impersonate-whom.md");
    for example in [
        include_str!("../../../../../docs/authorize/protected-roles.js"),
        include_str!("../../../../../docs/authorize/working-hours.js"),
        include_str!("../../../../../docs/authorize/on-call.js"),
        include_str!("../../../../../docs/authorize/tenants.js"),
        include_str!("../../../../../docs/authorize/ticket.js"),
    ] {
        assert!(page.contains(&format!("```js\n{example}```")), "{example}");
    }
}
