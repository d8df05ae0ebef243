//! Tests of the guard's configuration against one that uses every member.

use serde_json::json;

use super::*;
use crate::secret::{Digest, Secret};

/// A configuration with every member.
pub(in crate::config) fn full() -> Value {
    json!({
        "issuer": "https://auth.example.com/oidc",
        "base_path": "/tenant-a",
        "payload_in_metadata": "claims",
        "store": {"shared_data": {}},
        "mode": "enforce",
        "default": "deny",
        "rules": [
            {"path": "/orders/search", "methods": ["POST", "M-SEARCH"], "action": "allow", "actor_max_age": "300s"},
            {"path_prefix": "/orders/", "scopes": ["orders:write"], "actors": ["agent-*", "*"], "action": "deny"},
        ],
        "headers": {"id": "x-impersonation-id", "actor": "x-impersonator"},
        "public_origin": "https://api.example.com",
        "dpop": {"nonce": "required", "secret": {"inline_string": "s".repeat(32)}},
        "client_certificate": "forwarded",
        "browser_session": {"domain": "shop-as-user.example"},
        "audit": {"log": "access_log"},
        "max_staleness": "5s",
    })
}

fn problems(value: &Value) -> Vec<String> {
    let error = GuardConfig::from_value(value).err();
    error.map(|error| error.problems.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

fn with(pointer: &str, to: Value) -> Value {
    let mut value = full();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[name.parse::<usize>().unwrap()] = to,
        object => object[name] = to,
    }
    value
}

/// The key of nonces that the secret in [`full`] makes.
fn nonce_key() -> Secret<[u8; 16]> {
    let digest = Digest::of(format!("impersonation-guard: nonces\0{}", "s".repeat(32)).as_bytes());
    Secret::new(*digest.as_bytes().first_chunk().unwrap())
}

/// A nonce of one Envoy must be good at each Envoy that shares a store with it.
#[test]
fn nonces_need_an_origin_and_with_etcd_a_secret() {
    let at_least = |dpop: Value, more: Value| {
        let mut value = json!({"issuer": "https://auth.example.com/oidc", "dpop": dpop});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        problems(&value)
    };
    let origin = json!({"public_origin": "https://api.example.com"});
    let etcd =
        json!({"public_origin": "https://api.example.com", "store": {"etcd": {"cluster": "c"}}});
    let required = json!({"nonce": "required"});
    let short = json!({"nonce": "required", "secret": {"inline_string": "s".repeat(31)}});
    let long = json!({"nonce": "required", "secret": {"inline_string": "s".repeat(32)}});
    let unset = json!({"nonce": "required", "secret": {"environment_variable": "UNSET"}});
    #[rustfmt::skip]
    let cases = [
        ("of this Envoy",     at_least(required.clone(), origin.clone()), ""),
        ("of the operator",   at_least(long.clone(), origin.clone()),     ""),
        ("with etcd",         at_least(long, etcd.clone()),               ""),
        ("no origin",         at_least(required.clone(), json!({})),      "dpop: needs public_origin"),
        ("etcd, no secret",   at_least(required, etcd),                   "dpop.secret: is required with store.etcd"),
        ("a short secret",    at_least(short, origin.clone()),            "dpop.secret.inline_string: expected at least 32 characters"),
        ("an unset variable", at_least(unset, origin.clone()),            "dpop.secret.environment_variable: expected the name"),
        ("no rule",           at_least(json!({}), origin),                "dpop.nonce: is required"),
    ];
    for (case, found, expected) in cases {
        match expected {
            "" => assert_eq!(found, [""; 0], "{case}"),
            _ => assert!(found.len() == 1 && found[0].starts_with(expected), "{case}: {found:?}"),
        }
    }
    let by_variable = json!({
        "issuer": "https://auth.example.com/oidc", "public_origin": "https://api.example.com",
        "dpop": {"nonce": "required", "secret": {"environment_variable": "NONCES"}},
    });
    let variable = |name: &str| (name == "NONCES").then(|| "s".repeat(32));
    let config = GuardConfig::with_variables(&by_variable, &variable).unwrap();
    assert_eq!(config.nonces, Some(GuardNonces::Of(nonce_key())));
}

#[test]
fn all_members_are_read() {
    let config = GuardConfig::from_value(&full()).unwrap();
    assert_eq!(config.tenant(), "https://auth.example.com/oidc\n/tenant-a");
    let prefix = |text: &str| UserPattern::Prefix(text.into());
    let expected = GuardConfig {
        issuer: "https://auth.example.com/oidc".into(),
        base_path: "/tenant-a".into(),
        payload_in_metadata: "claims".into(),
        store: GuardStore::SharedData,
        mode: Mode::Enforce,
        default: DefaultAction::Deny,
        rules: vec![
            GuardRule {
                path: Some(PathPattern::Exactly("/orders/search".into())),
                methods: Some(vec!["POST".into(), "M-SEARCH".into()]),
                scopes: Vec::new(),
                actors: None,
                action: Action::Allow,
                actor_max_age: Some(Duration::from_secs(300)),
            },
            GuardRule {
                path: Some(PathPattern::Prefix("/orders/".into())),
                methods: None,
                scopes: vec!["orders:write".into()],
                actors: Some(vec![prefix("agent-"), prefix("")]),
                action: Action::Deny,
                actor_max_age: None,
            },
        ],
        headers: GuardHeaders {
            id: Some("x-impersonation-id".into()),
            actor: Some("x-impersonator".into()),
        },
        public_origin: Some("https://api.example.com".into()),
        nonces: Some(GuardNonces::Of(nonce_key())),
        certificates: CertificateSource::Forwarded,
        browser_session: Some(GuardSessions { domain: "shop-as-user.example".into() }),
        audit_log: AuditLog::AccessLog,
        warnings: config.warnings.clone(),
    };
    assert_eq!(config, expected);
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "rules[1]: a client escapes this rule by asking for less scope: leave scopes out, and let rules that allow ask for them",
            "max_staleness: has no effect: shared data is never out of touch",
        ]
    );
}

/// In mode report, any page could make the browser act as the user.
#[test]
fn browser_sessions_are_guarded_in_mode_enforce_only() {
    let found = problems(&with("/mode", "report".into()));
    assert!(found.len() == 1 && found[0].starts_with("mode: expected enforce"), "{found:?}");
    let mut value = with("/mode", "report".into());
    value.as_object_mut().unwrap().remove("browser_session");
    assert_eq!(GuardConfig::from_value(&value).unwrap().mode, Mode::Report);
    for domain in ["", "A.example", "a..example", ".example", "example.", "a.example:8443", "-a.b"]
    {
        let found = problems(&with("/browser_session/domain", domain.into()));
        let expected = "browser_session.domain: expected a domain";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{domain}: {found:?}");
    }
}

/// The guard reads `store.etcd` with the filter's own parser.
#[test]
fn etcd_is_configured_as_in_the_filter_and_can_be_out_of_touch() {
    let read = |store: Value, staleness: Option<&str>| {
        let mut value = json!({"issuer": "https://auth.example.com/oidc", "store": store});
        if let Some(staleness) = staleness {
            value["max_staleness"] = staleness.into();
        }
        let config = GuardConfig::from_value(&value).unwrap();
        assert_eq!(config.warnings, [], "{value}");
        config.store
    };
    let settings = EtcdSettings {
        cluster: "etcd".into(),
        prefix: "/impersonation/".into(),
        timeout: Duration::from_millis(3500),
        authority: None,
    };
    let max_staleness = Duration::from_secs(10);
    let etcd = GuardStore::Etcd { settings, max_staleness };
    assert_eq!(read(json!({"etcd": {"cluster": "etcd"}}), None), etcd);
    let store = json!({"etcd": {
        "cluster": "store", "prefix": "/a/", "timeout": "1s", "authority": "etcd.example.com",
    }});
    let settings = EtcdSettings {
        cluster: "store".into(),
        prefix: "/a/".into(),
        timeout: Duration::from_secs(1),
        authority: Some("etcd.example.com".into()),
    };
    let max_staleness = Duration::from_secs(5);
    assert_eq!(read(store, Some("5s")), GuardStore::Etcd { settings, max_staleness });
    assert_eq!(read(json!({}), None), GuardStore::SharedData);
}

#[test]
fn a_guard_with_only_an_issuer_refuses_writes() {
    let config =
        GuardConfig::from_value(&json!({"issuer": "https://auth.example.com/oidc"})).unwrap();
    assert_eq!(config.base_path, "");
    assert_eq!(config.payload_in_metadata, "access_token");
    assert_eq!((config.mode, config.default), (Mode::Enforce, DefaultAction::ReadOnly));
    assert_eq!((config.rules, config.warnings), (Vec::new(), Vec::new()));
    assert_eq!(config.headers, GuardHeaders { id: None, actor: None });
}

#[test]
fn a_problem_is_reported_with_its_path() {
    #[rustfmt::skip]
    let cases = [
        ("/issuer",                 json!("auth"),             "issuer: expected an http or https URL without query and fragment"),
        ("/issuer",                 json!(null),               "issuer: expected a string, found null"),
        ("/base_path",              json!("/a/"),              "base_path: expected an empty string, or a path such as /tenant-a"),
        ("/payload_in_metadata",    json!(""),                 "payload_in_metadata: expected a string that is not empty"),
        ("/store",                  json!({"etcd": {}}),       "store.etcd.cluster: is required"),
        ("/store",                  json!({"etcd": {"cluster": "etcd", "capacity": 7}}), "store.etcd.capacity: unknown member; expected one of cluster, prefix, timeout, authority"),
        ("/store",                  json!({"etcd": {"cluster": "etcd"}, "shared_data": {}}), "store: expected at most one of shared_data, etcd"),
        ("/store",                  json!({"shared_data": {"capacity": 7}}), "store.shared_data.capacity: unknown member; expected one of "),
        ("/store",                  json!({"redis": {}}),      "store.redis: unknown member; expected one of shared_data, etcd"),
        ("/mode",                   json!("dry_run"),          "mode: expected one of enforce, report"),
        ("/default",                json!("readonly"),         "default: expected one of read_only, allow, deny"),
        ("/rules",                  json!({}),                 "rules: expected a list, found an object"),
        ("/rules/0",                json!("deny"),             "rules[0]: expected an object, found a string"),
        ("/rules/0",                json!({"path": "/a"}),     "rules[0].action: is required"),
        ("/rules/1/actor_max_age",  json!("300s"),             "rules[1].actor_max_age: is for rules that allow: this rule denies in any case"),
        ("/rules/0/action",         json!("refuse"),           "rules[0].action: expected one of allow, deny"),
        ("/rules/0/colour",         json!("blue"),             "rules[0].colour: unknown member; expected one of path, path_prefix, methods, scopes, actors, action, actor_max_age"),
        ("/rules/0/path",           json!("orders"),           "rules[0].path: expected a path such as /orders/, without a query, an encoded slash, `;`, empty or dot segments"),
        ("/rules/0/path",           json!("/orders?a"),        "rules[0].path: expected a path such as /orders/, without a query, an encoded slash, `;`, empty or dot segments"),
        ("/rules/0/path",           json!("/a//b"),            "rules[0].path: expected a path such as /orders/, without a query, an encoded slash, `;`, empty or dot segments"),
        ("/rules/0/path_prefix",    json!("/orders"),          "rules[0]: expected at most one of path, path_prefix"),
        ("/rules/0/methods",        json!([]),                 "rules[0].methods: expected a list that is not empty"),
        ("/rules/0/methods",        json!("POST"),             "rules[0].methods: expected a list, found a string"),
        ("/rules/0/methods/1",      json!("post"),             "rules[0].methods[1]: expected a method such as POST"),
        ("/rules/0/methods/1",      json!("*"),                "rules[0].methods[1]: expected a method such as POST"),
        ("/rules/1/scopes",         json!([]),                 "rules[1].scopes: expected a list that is not empty"),
        ("/rules/1/scopes/0",       json!("a b"),              "rules[1].scopes[0]: expected one scope: printable ASCII without spaces, quotes or backslashes"),
        ("/rules/1/actors",         json!([]),                 "rules[1].actors: expected a list that is not empty"),
        ("/rules/1/actors/0",       json!("*-agent"),          "rules[1].actors[0]: expected an actor, or the beginning of a name and `*`"),
        ("/rules/1/actors/0",       json!(""),                 "rules[1].actors[0]: expected an actor, or the beginning of a name and `*`"),
        ("/headers/id",             json!("X-Id"),             "headers.id: expected the name of a header of your own in small letters, such as x-impersonator"),
        ("/headers/id",             json!(":path"),            "headers.id: expected the name of a header of your own in small letters, such as x-impersonator"),
        ("/headers/id",             json!("authorization"),    "headers.id: expected the name of a header of your own in small letters, such as x-impersonator"),
        ("/headers/id",             json!("x-impersonator"),   "headers.actor: expected another header than that of id"),
        ("/public_origin",          json!("api.example.com"),  "public_origin: expected an origin such as https://api.example.com, without a path"),
        ("/public_origin",          json!("https://api.example.com/"), "public_origin: expected an origin such as https://api.example.com, without a path"),
        ("/public_origin",          json!("https://api.example.com/a"), "public_origin: expected an origin such as https://api.example.com, without a path"),
        ("/client_certificate",     json!("header"),           "client_certificate: expected one of connection, forwarded"),
        ("/headers/colour",         json!("blue"),             "headers.colour: unknown member; expected one of id, actor"),
        ("/max_staleness",          json!("0s"),               "max_staleness: expected a duration from 1s to 3600s"),
        ("/max_staleness",          json!(10),                 "max_staleness: expected a duration such as 600s, 10m or 250ms, found a number"),
        ("/colour",                 json!("blue"),             "colour: unknown member; expected one of issuer, base_path, payload_in_metadata, store, mode, default, rules, headers, public_origin, dpop, client_certificate, browser_session, audit, max_staleness"),
    ];
    for (pointer, value, problem) in cases {
        assert_eq!(problems(&with(pointer, value.clone())), [problem], "{pointer}: {value}");
    }
    assert_eq!(problems(&json!({})), ["issuer: is required"]);
    assert_eq!(problems(&json!([])), ["expected an object, found a list"]);
}

#[test]
fn all_problems_are_found_at_once() {
    let mut value = with("/mode", json!("dry_run"));
    value["rules"][0]["action"] = json!(7);
    value["rules"][1]["path"] = json!("orders");
    assert_eq!(problems(&value).len(), 3, "{:?}", problems(&value));
}

#[test]
fn a_rule_that_denies_by_scope_is_a_warning() {
    let read = |rule: Value| {
        let value = json!({"issuer": "https://auth.example.com/oidc", "rules": [rule]});
        let warnings = GuardConfig::from_value(&value).unwrap().warnings;
        warnings.iter().map(|warning| warning.path.clone()).collect::<Vec<_>>()
    };
    let scopes = json!(["orders:write"]);
    assert_eq!(read(json!({"path": "/a", "scopes": scopes, "action": "deny"})), ["rules[0]"]);
    assert_eq!(read(json!({"path": "/a", "scopes": scopes, "action": "allow"})), [""; 0]);
    assert_eq!(read(json!({"path": "/a", "action": "deny"})), [""; 0]);
}

#[test]
fn a_rule_that_no_request_reaches_is_a_warning() {
    let rules = json!([{"action": "deny"}, {"path": "/a", "action": "allow"}]);
    let value = json!({"issuer": "https://auth.example.com/oidc", "rules": rules});
    let warnings = GuardConfig::from_value(&value).unwrap().warnings;
    let expected = "rules[1]: is never used: the rule before it matches every request";
    assert_eq!(warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    let value = json!({"issuer": "https://auth.example.com/oidc", "rules": [{"action": "deny"}]});
    assert_eq!(GuardConfig::from_value(&value).unwrap().warnings, []);
}
