//! Tests of `claims` and `authorize`: scripts run as Envoy would run them.

#[cfg(feature = "custom-claims")]
use serde_json::{Value, json};

#[cfg(feature = "custom-claims")]
use crate::with_input;
use crate::{command, file, stdout};

#[cfg(feature = "custom-claims")]
const SCRIPT: &str =
    "const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  const { grant: { type, subjectTokenContext } } = context;
  console.log('called for', token.accountId);
  if (subjectTokenContext.denied) return api.denyAccess('No ticket');
  if (subjectTokenContext.loops) for (;;);
  return { type, ...subjectTokenContext, region: environmentVariables.REGION };
};
";

#[test]
#[cfg(feature = "custom-claims")]
fn a_script_gets_the_input_that_the_filter_gives_it() {
    let script = file("claims.js", SCRIPT);
    let input = json!({
        "token": {"sub": "user_123"},
        "context": {"grant": {"subjectTokenContext": {"ticketId": "TICKET-123"}}},
        "environmentVariables": {"REGION": "eu"},
    });
    let script = script.to_str().unwrap();
    let output = with_input(&["claims", script, "--input", "-"], input.to_string().as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
    let token_exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
    let expected = json!({"type": token_exchange, "ticketId": "TICKET-123", "region": "eu"});
    assert_eq!(claims, expected);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "called for user_123\n");
}

#[test]
#[cfg(feature = "custom-claims")]
fn a_script_that_fails_says_where() {
    fn context(context: Value) -> Value {
        json!({"context": {"grant": {"subjectTokenContext": context}}})
    }
    let good = SCRIPT.to_owned();
    #[rustfmt::skip]
    let cases = [
        ("denies",     good.clone(), context(json!({"denied": true})), 1, "the script denied access: No ticket"),
        ("loops",      good.clone(), context(json!({"loops": true})),  1, "the script timed out"),
        ("throws",     good.replace("...subject", "...a.subject"), json!({}), 1,
                       "line 6, column 21: ReferenceError: a is not defined"),
        ("reserved",   good.clone(), context(json!({"sub": "admin"})), 1, "may not set the claim sub"),
        ("no syntax",  good.replace("};", "}}"), json!({}),            1, "line 7, column 1: SyntaxError"),
        ("no script",  String::new(), json!({}),                       1, "declares no function getCustomJwtClaims"),
        ("a user",     good.clone(), json!({"context": {"user": {}}}), 2, "unknown field `user`"),
        ("no object",  good, json!([]),                                2, "invalid"),
    ];
    for (case, source, input, status, message) in cases {
        let script = file("claims.js", &source);
        let input = file("input.json", &input.to_string());
        let arguments = ["claims", script.to_str().unwrap(), "--input", input.to_str().unwrap()];
        let output = command(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{case}");
        assert!(output.stdout.is_empty(), "{case}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{case}: {errors}");
    }
}

#[test]
#[cfg(feature = "custom-claims")]
fn the_page_shows_what_a_script_gives() {
    let page = include_str!("../../../../docs/custom-claims.md");
    let (_, section) = page.split_once("run by the tests, as docs/claims. -->").unwrap();
    let block = |language: &str| {
        let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
        block.split_once("```\n").unwrap().0
    };
    let source = include_str!("../../../../docs/claims/impersonation.js");
    assert_eq!(block("js"), source);
    assert_eq!(block("json"), include_str!("../../../../docs/claims/input.json"));

    let (line, printed) = block("console").split_once('\n').unwrap();
    let mut words = line.split(' ');
    assert_eq!((words.next(), words.next()), (Some("$"), Some("impersonation-filter")));
    let arguments: Vec<_> = words.collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = command(&arguments).current_dir(root).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), printed));
    assert!(output.stderr.is_empty());

    let script = file("impersonation.js", &source.replace("grant.subject", "grants.subject"));
    let arguments = ["claims", script.to_str().unwrap(), "--input", "docs/claims/input.json"];
    let output = command(&arguments).current_dir(root).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let printed = String::from_utf8_lossy(&output.stderr)
        .replace(script.to_str().unwrap(), "docs/claims/impersonation.js");
    assert_eq!(printed, block("text"));
}

#[test]
#[cfg(feature = "custom-claims")]
fn authorize_prints_the_bounds_or_the_refusal_of_a_mint() {
    let page = include_str!("../../../../docs/who-may-impersonate-whom.md");
    let (_, block) = page.split_once("```console\n").unwrap();
    let (line, printed) = block.split_once("```\n").unwrap().0.split_once('\n').unwrap();
    let arguments: Vec<_> = line.split(' ').skip(2).collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = command(&arguments).current_dir(root).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), printed));

    let function = |body: &str| {
        format!("const authorizeSubjectToken = ({{ bounds, user, api }}) => {{ {body} }};")
    };
    #[rustfmt::skip]
    let cases = [
        ("allows",           function(""),                                  r#"{}"#,                          0, ""),
        ("denies",           function("api.denyAccess('no');"),             r#"{}"#,                          1, "denied access: no"),
        ("throws",           function("user.roles;"),                       r#"{}"#,                          1, "line 1"),
        ("returns too much", function("return { allow: true };"),           r#"{}"#,                          1, "no bounds"),
        ("leaves nothing",   function("return { actorId: 'a' };"),          r#"{"bounds": {"actorId": "b"}}"#, 1, "actorId leaves nothing"),
        ("a claims script",  "const getCustomJwtClaims = () => {};".into(), r#"{}"#,                          1, "declares no function authorizeSubjectToken"),
        ("unknown member",   function(""),                                  r#"{"token": {}}"#,               2, "unknown field"),
        ("bad bounds",       function(""),                                  r#"{"bounds": {"expiresIn": 0}}"#, 2, "bounds: expiresIn must be"),
    ];
    for (case, source, input, status, said) in cases {
        let (script, input) = (file("script.js", &source), file("input.json", input));
        let (script, input) = (script.to_str().unwrap(), input.to_str().unwrap());
        let output = command(&["authorize", script, "--input", input, "--timeout", "1000"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{case}: {errors}");
        assert!(errors.contains(said), "{case}: {errors}");
    }
}

/// The limits are those that a configuration can set, and the stack is as in Envoy.
#[test]
#[cfg(feature = "custom-claims")]
fn a_script_runs_within_the_limits_of_the_filter() {
    const RECURSE: &str = "const depth = (n) => (n === 0 ? 0 : 1 + depth(n - 1));";
    let works =
        "const getCustomJwtClaims = () => ({ a: new ArrayBuffer(2e6).byteLength });".to_owned();
    let deep = |calls: u32| {
        format!("{RECURSE} const getCustomJwtClaims = () => ({{ depth: depth({calls}) }});")
    };
    #[rustfmt::skip]
    let cases: [(&str, String, &[&str], i32, &str); 9] = [
        ("the least",         works.clone(), &["--timeout", "1000", "--memory-limit-bytes", "1048576"], 1, "out of memory"),
        ("the most",          works.clone(), &["--timeout", "1000", "--memory-limit-bytes", "67108864"], 0, ""),
        ("too short",         works.clone(), &["--timeout", "0"],                    2, "expected a duration in 1ms..=1s"),
        ("too long",          works.clone(), &["--timeout", "1001"],                 2, "expected a duration in 1ms..=1s"),
        ("no milliseconds",   works.clone(), &["--timeout", "10ms"],                 2, "a number of milliseconds"),
        ("too little memory", works.clone(), &["--memory-limit-bytes", "1048575"],   2, "expected a number in 1048576..=67108864"),
        ("too much memory",   works,         &["--memory-limit-bytes", "67108865"],  2, "expected a number in 1048576..=67108864"),
        ("deep",              deep(200),     &["--timeout", "1000"],                 0, ""),
        ("too deep",          deep(700),     &["--timeout", "1000"],                 1, "overflowed its stack"),
    ];
    for (case, source, options, status, message) in cases {
        let (script, input) = (file("claims.js", &source), file("input.json", "{}"));
        let arguments = ["claims", script.to_str().unwrap(), "--input", input.to_str().unwrap()];
        let output = command(&[&arguments, options].concat()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{case}: {errors}");
        assert!(errors.contains(message), "{case}: {errors}");
    }
}

#[test]
#[cfg(not(feature = "custom-claims"))]
fn a_build_without_the_engine_runs_no_script() {
    let script = file("claims.js", "const getCustomJwtClaims = () => ({});");
    let output = command(&["claims", script.to_str().unwrap(), "--input", "-"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert!(String::from_utf8_lossy(&output.stderr).contains("custom-claims"));
}

/// The command and the filter parse a configuration with the same code. So a filter without the
/// engine refuses a script as well.
#[test]
#[cfg(not(feature = "custom-claims"))]
fn a_build_without_the_engine_refuses_every_script() {
    use crate::check::{check, plugin};
    use serde_json::json;

    let script = "const getCustomJwtClaims = () => ({})";
    for (claims, expected) in [
        (json!({"script": script}), "custom_claims.script: this build runs no scripts"),
        (json!({}), "custom_claims.script: is required"),
    ] {
        let mut plugin = plugin();
        plugin["custom_claims"] = claims;
        let checked = check(&file("plugin.json", &plugin.to_string()), &[]);
        assert_eq!(checked.status, Some(1), "{:?}", checked.lines);
        assert!(checked.lines.iter().any(|line| line.contains(expected)), "{:?}", checked.lines);
    }
}

/// Other tests run the same scripts in Envoy and in another engine.
#[test]
#[cfg(feature = "custom-claims")]
fn typical_scripts_give_the_expected_claims() {
    for testkit::claims_scripts::Case { name, script, mut input, outcome } in
        testkit::claims_scripts::all()
    {
        let mut token = json!({
            "iss": "https://auth.example.com/oidc",
            "sub": "user_123",
            "aud": "https://api.example.com/orders",
            "client_id": "support-console",
            "scope": "orders:read",
            "jti": "0a1b2c",
        });
        let given = input["token"].take();
        token.as_object_mut().unwrap().extend(given.as_object().cloned().unwrap_or_default());
        input["token"] = token;
        let script = file("claims.js", &script);
        // A busy machine must not decide a test.
        let arguments = ["claims", script.to_str().unwrap(), "--input", "-", "--timeout", "1000"];
        let output = with_input(&arguments, input.to_string().as_bytes());
        let errors = String::from_utf8_lossy(&output.stderr);
        match outcome {
            Ok(expected) => {
                assert_eq!(output.status.code(), Some(0), "{name}: {errors}");
                let claims: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(claims, expected, "{name}");
            }
            Err(description) => {
                assert_eq!(output.status.code(), Some(1), "{name}");
                let denied = format!("the script denied access: {description}");
                assert!(errors.contains(&denied), "{name}: {errors}");
            }
        }
    }
}
