//! Tests of requests against rules as an operator writes them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::guard::claims::{Binding, Scope};

fn config(default: &str, rules: &Value) -> GuardConfig {
    let value =
        json!({"issuer": "https://auth.example.com/oidc", "default": default, "rules": rules});
    GuardConfig::from_value(&value).unwrap()
}

const CLAIMS: Claims<'_> = Claims {
    id: "t-1",
    user_id: "u-1",
    actor_id: Some("agent-7"),
    session: None,
    signed_in_at: None,
    client_id: "support-portal",
    resource: "https://api.example.com/orders",
    jti: "j-1",
    issued_at: 1_700_000_000,
    expires_at: UnixTime::from_millis(1_700_003_600_000),
    scope: Scope::Text("orders:read orders:write"),
    binding: Binding::None,
};

/// Returns the outcome for a request, and the index of the rule that decided or `None` for the
/// default.
fn outcome(
    config: &GuardConfig,
    method: RequestMethod<'_>,
    path: &str,
    claims: &Claims<'_>,
) -> (Result<(), Denied>, Option<usize>) {
    let path = NormalPath::parse(path.as_bytes());
    let (outcome, decider) =
        decide(config, RequestFacts { path: path.as_ref(), method, claims, now: NOW });
    let rule = match decider {
        Decider::Rule(index) => Some(index),
        Decider::Default => None,
    };
    (outcome, rule)
}

/// The time of every request.
const NOW: UnixTime = UnixTime::from_millis(1_700_000_100_000);

#[test]
fn a_rule_allows_only_after_a_recent_sign_in() {
    let rules = json!([
        {"path": "/orders", "action": "allow", "actor_max_age": "100s"},
        {"path": "/orders/search", "action": "allow"},
    ]);
    let config = config("deny", &rules);
    let too_old = Err(Denied::SignInTooOld(Duration::from_secs(100)));
    #[rustfmt::skip]
    let cases = [
        ("/orders",        Some(1_700_000_100), Ok(())),
        ("/orders",        Some(1_700_000_000), Ok(())),
        ("/orders",        Some(1_699_999_999), too_old),
        ("/orders",        Some(0),             too_old),
        ("/orders",        Some(1_700_000_200), Ok(())),
        ("/orders",        None,                too_old),
        ("/orders/search", None,                Ok(())),
    ];
    for (path, time, expected) in cases {
        let signed_in_at = time.map(|secs| UnixTime::from_millis(secs * 1000));
        let claims = Claims { signed_in_at, ..CLAIMS };
        assert_eq!(outcome(&config, POST, path, &claims).0, expected, "{path} {time:?}");
    }
}

const GET: RequestMethod<'_> = RequestMethod::Plain(b"GET");
const POST: RequestMethod<'_> = RequestMethod::Plain(b"POST");
const OVERRIDDEN: RequestMethod<'_> = RequestMethod::Overridden;

#[test]
fn the_default_decides_if_no_rule_matches() {
    use Denied::*;
    #[rustfmt::skip]
    let cases = [
        // method                    read_only             allow   deny
        ("GET",                      Ok(()),               Ok(()), Err(ByRule)),
        ("HEAD",                     Ok(()),               Ok(()), Err(ByRule)),
        ("OPTIONS",                  Ok(()),               Ok(()), Err(ByRule)),
        ("POST",                     Err(ByRule),          Ok(()), Err(ByRule)),
        ("PUT",                      Err(ByRule),          Ok(()), Err(ByRule)),
        ("PATCH",                    Err(ByRule),          Ok(()), Err(ByRule)),
        ("DELETE",                   Err(ByRule),          Ok(()), Err(ByRule)),
        ("CONNECT",                  Err(ByRule),          Ok(()), Err(ByRule)),
        ("TRACE",                    Err(ByRule),          Ok(()), Err(ByRule)),
        ("get",                      Err(ByRule),          Ok(()), Err(ByRule)),
        ("",                         Err(ByRule),          Ok(()), Err(ByRule)),
    ];
    for (method, read_only, allow, deny) in cases {
        for (default, expected) in [("read_only", read_only), ("allow", allow), ("deny", deny)] {
            let got = outcome(
                &config(default, &json!([])),
                RequestMethod::Plain(method.as_bytes()),
                "/a",
                &CLAIMS,
            );
            assert_eq!(got, (expected, None), "{default}: {method}");
        }
    }
    let read_only = config("read_only", &json!([]));
    assert_eq!(outcome(&read_only, OVERRIDDEN, "/a", &CLAIMS), (Err(MethodOverride), None));
    assert_eq!(outcome(&read_only, POST, "/a//b", &CLAIMS), (Err(PathNotNormal), None));
    assert_eq!(outcome(&read_only, GET, "/a//b", &CLAIMS), (Ok(()), None));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let config = config(
        "read_only",
        &json!([
            {"path_prefix": "/account/password", "action": "deny"},
            {"path": "/orders/search", "methods": ["POST"], "action": "allow"},
            {"path_prefix": "/orders/", "methods": ["POST", "PATCH"], "scopes": ["orders:write"], "actors": ["agent-*"], "action": "allow"},
            {"path_prefix": "/orders/secret", "action": "deny"},
        ]),
    );
    let of = |actor_id, scope| Claims { actor_id, scope: Scope::Text(scope), ..CLAIMS };
    let agent = of(Some("agent-7"), "orders:read orders:write");
    #[rustfmt::skip]
    let cases = [
        (GET,  "/account/password",   agent,                                   Err(Denied::ByRule), Some(0)),
        (GET,  "/account",            agent,                                   Ok(()),              None),
        (POST, "/orders/search",      of(None, ""),                            Ok(()),              Some(1)),
        (GET,  "/orders/search",      of(None, ""),                            Ok(()),              None),
        (POST, "/orders/7",           agent,                                   Ok(()),              Some(2)),
        (POST, "/orders/secret",      agent,                                   Ok(()),              Some(2)),
        (GET,  "/orders/secret",      agent,                                   Err(Denied::ByRule), Some(3)),
        (POST, "/orders/7",           of(Some("agent-7"), "orders:read"),      Err(Denied::ByRule), None),
        (POST, "/orders/7",           of(Some("robot-7"), "orders:write"),     Err(Denied::ByRule), None),
        (POST, "/orders/7",           of(None, "orders:write"),                Err(Denied::ByRule), None),
        (POST, "/invoices/7",         agent,                                   Err(Denied::ByRule), None),
        (OVERRIDDEN, "/orders/7",     agent,                                   Err(Denied::MethodOverride), Some(2)),
        (OVERRIDDEN, "/account/password", agent,                               Err(Denied::ByRule), Some(0)),
    ];
    for (method, path, claims, expected, rule) in cases {
        assert_eq!(
            outcome(&config, method, path, &claims),
            (expected, rule),
            "{method:?} {path} {claims:?}"
        );
    }
}

#[test]
fn allow_rules_match_exactly_and_deny_rules_match_broadly() {
    #[rustfmt::skip]
    let cases = [
        // condition                              method   path                       allowed  denied
        (json!({"path": "/orders/search"}),       GET,     "/orders/search",          true,    true),
        (json!({"path": "/orders/search"}),       GET,     "/orders/search/",         false,   true),
        (json!({"path": "/orders/search/"}),      GET,     "/orders/search",          false,   true),
        (json!({"path": "/orders/search"}),       GET,     "/Orders/SEARCH",          false,   true),
        (json!({"path": "/orders/search"}),       GET,     "/orders/search2",         false,   false),
        (json!({"path": "/orders/search"}),       GET,     "/orders",                 false,   false),
        (json!({"path": "/orders/search"}),       GET,     "/orders//search",         false,   true),
        (json!({"path": "/orders/search"}),       GET,     "/orders%2Fsearch",        false,   true),
        (json!({"path": "/orders/search"}),       GET,     "/orders/%73earch",        false,   true),
        (json!({"path": "/orders/search"}),       GET,     "/elsewhere;a",            false,   true),
        (json!({"path": "/"}),                    GET,     "/",                       true,    true),
        (json!({"path": "/"}),                    GET,     "/a",                      false,   false),
        (json!({"path": "/a@b"}),                 GET,     "/a%40b",                  true,    true),
        (json!({"path": "/a%40b"}),               GET,     "/a@b",                    true,    true),
        (json!({"path": "/caf%C3%A9"}),           GET,     "/caf%c3%a9",              true,    true),
        (json!({"path": "/caf%C3%A9"}),           GET,     "/CAF%C3%89",              false,   true),
        (json!({"path": "/kilo"}),                GET,     "/%E2%84%AAilo",           false,   true),
        (json!({"path_prefix": "/orders/"}),      GET,     "/orders/7",               true,    true),
        (json!({"path_prefix": "/orders/"}),      GET,     "/orders/",                true,    true),
        (json!({"path_prefix": "/orders/"}),      GET,     "/orders",                 false,   true),
        (json!({"path_prefix": "/orders/"}),      GET,     "/ORDERS/7",               false,   true),
        (json!({"path_prefix": "/orders"}),       GET,     "/orders",                 true,    true),
        (json!({"path_prefix": "/orders"}),       GET,     "/orders/7",               true,    true),
        (json!({"path_prefix": "/orders"}),       GET,     "/orders-of-others",       false,   true),
        (json!({"path_prefix": "/orders/"}),      GET,     "/orders/../account",      false,   true),
        (json!({"path_prefix": "/"}),             GET,     "/anything",               true,    true),
        (json!({"methods": ["POST"]}),            POST,    "/a",                      true,    true),
        (json!({"methods": ["POST"]}),            GET,     "/a",                      false,   false),
        (json!({"methods": ["POST"]}),            RequestMethod::Plain(b"post"), "/a",       false,   true),
        (json!({}),                               GET,     "/a;b",                    false,   true),
        (json!({"methods": ["GET"]}),             GET,     "/a;b",                    false,   true),
    ];
    for (condition, method, path, allowed, denied) in cases {
        let rule = |action: &str| {
            let mut rule = condition.clone();
            rule["action"] = action.into();
            json!([rule])
        };
        let allows = outcome(&config("deny", &rule("allow")), method, path, &CLAIMS).0.is_ok();
        let denies = outcome(&config("allow", &rule("deny")), method, path, &CLAIMS).0.is_err();
        assert_eq!((allows, denies), (allowed, denied), "{condition}: {method:?} {path}");
    }
}

#[test]
fn a_request_without_an_actor_matches_every_denied_actor() {
    #[rustfmt::skip]
    let cases = [
        (json!(["agent-7"]),      Some("agent-7"),  true,    true),
        (json!(["agent-7"]),      Some("agent-70"), false,   false),
        (json!(["agent-*"]),      Some("agent-70"), true,    true),
        (json!(["x", "agent-*"]), Some("agent-70"), true,    true),
        (json!(["agent-*"]),      Some("Agent-7"),  false,   false),
        (json!(["*"]),            Some("anybody"),  true,    true),
        (json!(["agent-*"]),      None,             false,   true),
        (json!(["*"]),            None,             false,   true),
    ];
    for (actors, actor_id, allowed, denied) in cases {
        let claims = Claims { actor_id, ..CLAIMS };
        let rule = |action: &str| json!([{"actors": actors, "action": action}]);
        let allows = outcome(&config("deny", &rule("allow")), GET, "/a", &claims).0.is_ok();
        let denies = outcome(&config("allow", &rule("deny")), GET, "/a", &claims).0.is_err();
        assert_eq!((allows, denies), (allowed, denied), "{actors}: {actor_id:?}");
    }
}

#[test]
fn a_rule_matches_only_with_all_its_scopes() {
    for (scopes, is_about) in [
        (json!(["orders:read"]), true),
        (json!(["orders:write", "orders:read"]), true),
        (json!(["orders:read", "orders:delete"]), false),
        (json!(["orders"]), false),
    ] {
        let rules = json!([{"scopes": scopes, "action": "allow"}]);
        let allows = outcome(&config("deny", &rules), GET, "/a", &CLAIMS).0.is_ok();
        assert_eq!(allows, is_about, "{scopes}");
    }
}

proptest! {
    /// If the guard lets a path pass that is not normal, it lets every normal path pass.
    #[test]
    fn a_path_that_is_not_normal_is_allowed_only_where_every_path_is(
        rules in prop::collection::vec((0_usize..3, 0_usize..4, any::<bool>(), any::<bool>()), 0..5),
        default in 0_usize..3,
        method in 0_usize..2,
    ) {
        const PATHS: [&str; 4] = ["/a", "/a/b", "/b", "/"];
        let rules: Vec<_> = rules.into_iter().map(|(kind, path, by_method, allow)| {
            let mut rule = json!({"action": if allow { "allow" } else { "deny" }});
            match kind {
                0 => rule["path"] = PATHS[path].into(),
                1 => rule["path_prefix"] = PATHS[path].into(),
                _ => {}
            }
            if by_method {
                rule["methods"] = json!(["POST"]);
            }
            rule
        }).collect();
        let config = config(["read_only", "allow", "deny"][default], &json!(rules));
        let method = [GET, POST][method];
        if outcome(&config, method, "/a;x/..//%2Fb", &CLAIMS).0.is_ok() {
            for path in PATHS {
                prop_assert!(outcome(&config, method, path, &CLAIMS).0.is_ok(), "{} {:?}", path, config.rules);
            }
        }
    }
}
