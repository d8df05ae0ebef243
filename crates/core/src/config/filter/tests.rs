//! Tests of the configuration's rules against a configuration that uses every member. Each member
//! is misspelt, mistyped and left out in turn, so a new member is covered as soon as [`full`] has
//! it.

mod schema;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::super::wire::tests::wire;
use super::*;
use crate::config::clients::ClientType;
use crate::config::{
    AuthorizeSubjectToken, CustomClaimsSettings, EtcdSettings, Jwks, OnReplay, Problem,
    SignInRules, decode,
};
use crate::jose::Algorithm;
use crate::secret::Digest;

/// RFC 8037, appendix A.
const ED25519_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const ED25519_D: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

/// RFC 7515, appendix A.3.
const P256_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const P256_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
const P256_D: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";

/// RFC 8410, section 10.3.
const PEM_BODY: &str = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC";

const INLINE_SECRET: &str = "correct horse battery staple";
const SECRET_IN_ENVIRONMENT: &str = "Tr0ub4dor&3";

/// 24 bytes.
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Secrets that no message may ever show.
const SECRETS: [&str; 6] =
    [ED25519_D, P256_D, PEM_BODY, INLINE_SECRET, SECRET_IN_ENVIRONMENT, WEBHOOK_SECRET];

fn ed25519() -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X, "d": ED25519_D})
}

fn p256() -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": P256_X, "y": P256_Y, "d": P256_D})
}

fn pem() -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\n-----END PRIVATE KEY-----\n")
}

fn key_set() -> Value {
    json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": ED25519_X}]})
}

fn environment(name: &str) -> Option<String> {
    match name {
        "SIGNING_KEY" => Some(ed25519().to_string()),
        "EC_KEY" => Some(p256().to_string()),
        "PEM_KEY" => Some(pem()),
        "SECRET" => Some(SECRET_IN_ENVIRONMENT.to_owned()),
        "KEY_SET" => Some(key_set().to_string()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn http_uri(path: &str) -> Value {
    let uri = format!("https://auth.example.com{path}");
    json!({"uri": uri, "cluster": "identity_gateway", "timeout": "3s"})
}

/// A configuration with every member.
fn full() -> Value {
    json!({
        "issuer": "https://auth.example.com/oidc",
        "base_path": "/tenant-a",
        "paths": {
            "token": "/realms/acme/protocol/openid-connect/token",
            "jwks": "/realms/acme/protocol/openid-connect/certs",
            "discovery": "/realms/acme/.well-known/openid-configuration",
            "oauth_discovery": "/.well-known/oauth-authorization-server/realms/acme",
            "revocation": "/realms/acme/protocol/openid-connect/revoke",
            "introspection": "/realms/acme/protocol/openid-connect/token/introspect",
            "subject_tokens": "/impersonation/subject-tokens",
            "impersonations": "/impersonation/list",
            "approvals": "/impersonation/approvals",
            "back_channel_logout": "/impersonation/logout",
            "security_events": "/impersonation/events",
            "console": "/impersonation/",
        },
        "signing_keys": [
            {"jwk": ed25519(), "kid": "first", "alg": "EdDSA"},
            {"environment_variable": "SIGNING_KEY", "kid": "second", "alg": "EdDSA"},
            {"pem": pem(), "kid": "third", "alg": "EdDSA"},
        ],
        "subject_tokens": {
            "lifetime": "300s",
            "max_context_bytes": 1000,
            "authentication": {
                "jwt": [
                    {
                        "issuer": "https://auth.example.com/oidc",
                        "name_prefix": "",
                        "audiences": ["https://auth.example.com/api"],
                        "required_scopes": ["impersonate"],
                        "client_ids": ["integrator-backend", "nightly-job"],
                        "clock_skew": "30s",
                        "remote_jwks": {"http_uri": http_uri("/oidc/jwks"), "cache_duration": "100s"},
                    },
                    {
                        "issuer": "https://other.example.com",
                        "name_prefix": "other:",
                        "audiences": ["https://auth.example.com/api"],
                        "required_scopes": ["impersonate"],
                        "client_ids": ["integrator-backend"],
                        "local_jwks": {"inline_string": key_set().to_string()},
                    },
                ],
                "introspection": {
                    "http_uri": http_uri("/oidc/token/introspection"),
                    "client_id": "impersonation-filter",
                    "client_secret": {"environment_variable": "SECRET"},
                    "required_scopes": ["impersonate"],
                    "audiences": ["https://auth.example.com/api"],
                    "client_ids": ["integrator-backend"],
                    "name_prefix": "",
                    "cache_duration": "5s",
                },
            },
            "user_lookup": {"http_uri": http_uri("/api/users/{userId}"), "user_id_member": "id"},
            "required_context": ["ticketId"],
            "protected_users": ["root", "admin-*"],
            "max_mints_per_caller": {"count": 1000, "per": "600s"},
            "on_replay": "report",
            "token_types": ["urn:ietf:params:oauth:token-type:access_token", "urn:logto:token-type:impersonation_token"],
        },
        "impersonations": {
            "authentication": {
                "jwt": [{
                    "issuer": "https://auth.example.com/oidc",
                    "name_prefix": "",
                    "audiences": ["https://auth.example.com/api"],
                    "required_scopes": ["support"],
                    "client_ids": ["support-desk"],
                    "clock_skew": "30s",
                    "remote_jwks": {"http_uri": http_uri("/oidc/jwks"), "cache_duration": "100s"},
                }],
                "introspection": {
                    "http_uri": http_uri("/oidc/token/introspection"),
                    "client_id": "impersonation-filter",
                    "client_secret": {"environment_variable": "SECRET"},
                    "required_scopes": ["support"],
                    "audiences": ["https://auth.example.com/api"],
                    "client_ids": ["support-desk"],
                    "name_prefix": "opaque:",
                    "cache_duration": "5s",
                },
            },
            "capacity": 100,
            "context": ["ticketId", "reason"],
            "back_channel_logout": [
                {
                    "issuer": "https://auth.example.com/oidc",
                    "name_prefix": "",
                    "audiences": ["support-portal"],
                    "remote_jwks": {"http_uri": http_uri("/oidc/jwks"), "cache_duration": "100s"},
                },
                {
                    "issuer": "https://other.example.com",
                    "name_prefix": "other:",
                    "audiences": ["support-portal"],
                    "local_jwks": {"inline_string": key_set().to_string()},
                },
            ],
            "security_events": [{
                "issuer": "https://auth.example.com",
                "name_prefix": "",
                "audiences": ["https://gateway.example.com/api/security-events"],
                "authorization_sha256": ["d".repeat(64)],
                "local_jwks": {"environment_variable": "KEY_SET"},
            }],
        },
        "approvals": {
            "authentication": {
                "jwt": [{
                    "issuer": "https://auth.example.com/oidc",
                    "name_prefix": "",
                    "audiences": ["https://auth.example.com/api"],
                    "required_scopes": ["openid"],
                    "client_ids": ["support-desk"],
                    "clock_skew": "30s",
                    "local_jwks": {"inline_string": key_set().to_string()},
                }],
            },
            "required": 2,
            "protected_users": ["vip-*"],
            "lifetime": "1200s",
            "break_glass": {"required_context": ["incident"]},
        },
        "authzen": {
            "http_uri": http_uri("/access/v1/evaluation"),
            "authorization": {"environment_variable": "SECRET"},
        },
        "notifications": [{
            "http_uri": http_uri("/hook"),
            "events": ["approval.requested"],
            "required": true,
            "secret": {"inline_string": WEBHOOK_SECRET},
        }],
        "store": {"shared_data": {"capacity": 10}},
        "access_tokens": {"lifetime": "1800s", "typ": "JWT"},
        "actor_tokens": {
            "required": true,
            "jwt": [{
                "issuer": "https://auth.example.com/oidc",
                "name_prefix": "",
                "audiences": ["https://auth.example.com/api"],
                "local_jwks": {"environment_variable": "KEY_SET"},
            }],
            "userinfo": {
                "http_uri": http_uri("/oidc/me"), "name_prefix": "opaque:", "cache_duration": "0s",
            },
            "introspection": {
                "http_uri": http_uri("/oidc/token/introspection"),
                "client_id": "impersonation-filter",
                "client_secret": {"inline_string": INLINE_SECRET},
                "audiences": ["https://auth.example.com/api"],
                "name_prefix": "opaque:",
            },
            "acr_values": ["phrh", "phr"],
            "max_age": "900s",
            "max_lifetime": "48h",
        },
        "clients": [
            {
                "client_id": "portal",
                "type": "traditional_web",
                "client_secret_sha256": ["a".repeat(64), "B".repeat(64)],
                "resources": ["https://api.example.com/orders"],
                "actor_token_required": true,
            },
            {"client_id": "console", "type": "single_page"},
            {"client_id": "app", "type": "native"},
            {
                "client_id": "job",
                "type": "machine_to_machine",
                "authentication": ["client_secret_post", "client_secret_basic"],
                "client_secret_sha256": ["c".repeat(64)],
                "token_binding": "any",
                "resources": [],
            },
            {
                "client_id": "signer",
                "type": "machine_to_machine",
                "authentication": "private_key_jwt",
                "local_jwks": {"environment_variable": "KEY_SET"},
                "token_binding": "dpop",
                "resources": [],
            },
            {
                "client_id": "connector",
                "type": "traditional_web",
                "authentication": "tls_client_auth",
                "tls_client_auth": {"san_dns": "portal.example.com"},
                "token_binding": "mtls",
                "resources": [],
            },
            {
                "client_id": "selfmade",
                "type": "traditional_web",
                "authentication": "self_signed_tls_client_auth",
                "remote_jwks": {"http_uri": http_uri("/oidc/jwks"), "cache_duration": "100s"},
            },
        ],
        "resources": [
            {
                "indicator": "https://api.example.com/orders",
                "scopes": ["orders:read", "orders:write"],
                "access_token_lifetime": "900s",
                "access_token_typ": "at+jwt",
                "actor_acr_values": ["phrh"],
                "actor_max_age": "300s",
                "token_binding": "any",
            },
            {"indicator": "urn:example:invoices"},
            {"indicator": "https://shop-as-user.example/"},
        ],
        "console": {
            "client_id": "support-desk",
            "scopes": ["openid", "impersonations:read", "impersonations:revoke"],
            "resource": "https://auth.example.com/api",
        },
        "browser_sessions": {
            "domain": "shop-as-user.example",
            "begin_from": ["https://support.example.com"],
            "ended": "https://support.example.com/ended",
            "resource": "https://shop-as-user.example/",
            "read_only": false,
            "landing": "/orders",
        },
        "foreign_subject_tokens": "pass_through",
        "dpop": {"nonce": "required"},
        "client_certificate": "forwarded",
        "audit": {"context": true},
        "identity_gateway": {
            "documents": "merge",
            "cluster": "identity_gateway",
            "origins": ["https://mtls.example.com"],
        },
    })
}

/// A configuration that leaves out every member with a default.
fn minimal() -> Value {
    json!({
        "issuer": "https://auth.example.com/oidc",
        "signing_keys": [{"jwk": ed25519()}],
        "subject_tokens": {"authentication": {"jwt": [{
            "issuer": "https://auth.example.com/oidc",
            "audiences": ["https://auth.example.com/api"],
            "local_jwks": {"inline_string": key_set().to_string()},
        }]}},
        "clients": [],
        "resources": [],
    })
}

/// Changes one member of the full configuration, by its JSON pointer. `-` adds to a list.
fn with(pointer: &str, new: Value) -> Value {
    changed(full(), pointer, new)
}

fn changed(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.insert(name.to_owned(), new)),
        Value::Array(items) if name == "-" => items.push(new),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = new,
        _ => panic!("{parent} has no members"),
    }
    value
}

fn without(pointer: &str) -> Value {
    removed(full(), pointer)
}

fn removed(mut value: Value, pointer: &str) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.remove(name).unwrap()),
        Value::Array(items) => drop(items.remove(name.parse().unwrap())),
        _ => panic!("{parent} has no members"),
    }
    value
}

/// Reads a configuration from the bytes that Envoy hands over.
fn read(bytes: &[u8]) -> Result<Config, ConfigError> {
    parse(&decode(bytes)?)
}

fn parse(value: &Value) -> Result<Config, ConfigError> {
    Config::from_value(value, &Compiler)
}

/// The outside world of the parser. The issuer has the engine of scripts. Here a script names its
/// own mistake.
struct Compiler;

fn compile(script: &str) -> Result<(), String> {
    script.strip_prefix("mistake: ").map_or(Ok(()), |mistake| Err(mistake.to_owned()))
}

impl ConfigEnvironment for Compiler {
    fn variable(&self, name: &str) -> Option<String> {
        environment(name)
    }

    fn try_script(&self, custom_claims: &CustomClaimsSettings) -> Result<(), String> {
        compile(&custom_claims.script)
    }

    fn try_authorizer(&self, written: &AuthorizeSubjectToken) -> Result<(), String> {
        compile(&written.script)
    }
}

/// Returns the problems of a configuration, after checking that no message shows a secret.
#[track_caller]
fn problems(value: &Value) -> Vec<Problem> {
    let problems = parse(value).err().map(|error| error.problems).unwrap_or_default();
    for problem in &problems {
        assert_silent(&problem.to_string());
    }
    problems
}

#[track_caller]
fn assert_silent(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
        // Nor may the text show a useful part of a secret.
        assert!(!text.contains(secret.split_at(10).0), "{text}");
    }
}

/// A subject token can be exchanged by any client. If one client is refused because it names no
/// actor, another one could exchange the same token.
#[test]
fn a_client_that_need_not_name_an_actor_beside_one_that_must_is_a_warning() {
    const ORDERS: &str = "https://api.example.com/orders";
    const PLAIN: &str = "urn:example:invoices";
    let strict = json!({"client_id": "strict", "type": "native", "actor_token_required": true});
    let strict_for = |resource: &str| json!({"client_id": "strict", "type": "native", "actor_token_required": true, "resources": [resource]});
    let portal = json!({
        "client_id": "portal", "type": "traditional_web", "client_secret_sha256": ["a".repeat(64)],
    });
    let console = json!({"client_id": "console", "type": "single_page"});
    let console_for = |resource: &str| json!({"client_id": "console", "type": "single_page", "resources": [resource]});
    #[rustfmt::skip]
    let cases = [
        ("a public one",           json!([strict, console]),                           vec!["clients[1]"]),
        ("before it",              json!([console, strict]),                           vec!["clients[0]"]),
        ("a confidential one",     json!([strict, portal, console]),                   vec!["clients[1]", "clients[2]"]),
        ("for the same resource",  json!([strict_for(ORDERS), console_for(ORDERS)]),   vec!["clients[1]"]),
        ("for any resource",       json!([strict_for(ORDERS), console]),               vec!["clients[1]"]),
        ("for another resource",   json!([strict_for(ORDERS), console_for(PLAIN)]),    vec![]),
        ("all need one",           json!([strict, strict_for(ORDERS)]),                vec![]),
        ("nobody needs one",       json!([portal, console]),                           vec![]),
    ];
    for (case, mut clients, expected) in cases {
        for (index, client) in clients.as_array_mut().unwrap().iter_mut().enumerate() {
            client["client_id"] =
                json!(format!("{}-{index}", client["client_id"].as_str().unwrap()));
        }
        for required in [false, true] {
            let mut value = with("/clients", clients.clone());
            value["actor_tokens"]["required"] = json!(required);
            let warnings = parse(&value).unwrap().warnings;
            // The full configuration has rules about sign-ins, which is another warning.
            let paths = warnings.iter().map(|warning| &*warning.path);
            let paths: Vec<_> = paths.filter(|path| *path != "actor_tokens").collect();
            assert_eq!(paths, if required { vec![] } else { expected.clone() }, "{case}");
        }
    }
}

/// Asserts that there is exactly one problem, at this path, and that its text begins like this.
#[track_caller]
fn assert_problem(case: &str, value: &Value, path: &str, text: &str) {
    let problems = problems(value);
    let [problem] = &*problems else { panic!("{case}: {problems:#?}") };
    assert_eq!(problem.path, path, "{case}: {problem}");
    assert!(problem.expected.starts_with(text), "{case}: {problem}");
}

/// Returns every value of a configuration: its JSON pointer, and its path as messages show it.
fn places(value: &Value) -> Vec<(String, String)> {
    fn visit(value: &Value, pointer: &str, path: &str, places: &mut Vec<(String, String)>) {
        places.push((pointer.to_owned(), path.to_owned()));
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    // RFC 6901 §3.
                    let step = name.replace('~', "~0").replace('/', "~1");
                    visit(member, &format!("{pointer}/{step}"), &path, places);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    visit(item, &format!("{pointer}/{index}"), &format!("{path}[{index}]"), places);
                }
            }
            _ => {}
        }
    }
    let mut places = Vec::new();
    visit(value, "", "", &mut places);
    // The members of a JWK are not the configuration's: a JWK may have any member (RFC 7517 §4).
    places.retain(|(pointer, _)| !pointer.contains("/jwk/"));
    places
}

#[test]
fn every_member_can_be_set() {
    let config = parse(&full()).unwrap();
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.issuer, "https://auth.example.com/oidc");
    assert_eq!(config.base_path, "/tenant-a");
    assert_eq!(config.paths, Paths::of_unchecked(&full()));
    assert_eq!(config.paths.token, "/tenant-a/realms/acme/protocol/openid-connect/token");
    assert_eq!(config.signing_key.algorithm, Algorithm::EdDsa);
    let kids: Vec<_> = config.published_keys.iter().map(|key| &*key.kid).collect();
    assert_eq!(kids, ["first", "second", "third"]);
    assert_eq!(config.subject_tokens.lifetime, Duration::from_secs(300));
    assert_eq!(config.subject_tokens.max_context_bytes, 1000);
    assert_eq!(config.store, StoreSettings::SharedData { capacity: 10 });
    let lookup = &config.subject_tokens.user_lookup.as_ref().unwrap().http_uri;
    assert_eq!((&*lookup.cluster, lookup.timeout), ("identity_gateway", Duration::from_secs(3)));
    assert_eq!(config.access_token_lifetime, Duration::from_secs(1800));
    assert!(config.actor_tokens.required);
    assert_eq!(config.foreign_subject_tokens, ForeignSubjectTokens::PassThrough);
    assert_eq!(config.documents, DocumentSource::Merged);
    let source = config.stand_ins.as_ref().unwrap();
    assert_eq!(&*source.cluster, "identity_gateway");
    assert_eq!(source.origins, ["https://mtls.example.com"]);
    assert!(config.audit_context);

    let portal = &config.clients["portal"];
    assert_eq!(portal.r#type, ClientType::TraditionalWeb);
    let digests = [Digest::from_bytes([0xaa; 32]), Digest::from_bytes([0xbb; 32])];
    assert_eq!(portal.secret_digests, digests);
    assert_eq!(portal.resources, Some(vec!["https://api.example.com/orders".to_owned()]));
    assert!(portal.actor_token_required);
    let types = ["console", "app", "job"].map(|client| config.clients[client].r#type);
    assert_eq!(types, [ClientType::SinglePage, ClientType::Native, ClientType::MachineToMachine]);

    let orders = &config.resources["https://api.example.com/orders"];
    assert_eq!(orders.scopes, ["orders:read", "orders:write"]);
    assert_eq!(orders.access_token_lifetime, Some(Duration::from_secs(900)));

    let rules = |acr_values: &[&str], secs| SignInRules {
        acr_values: Some(acr_values.iter().map(|value| (*value).to_owned()).collect()),
        max_age: Some(Duration::from_secs(secs)),
    };
    assert_eq!(config.actor_tokens.sign_in, rules(&["phrh", "phr"], 900));
    assert_eq!(orders.actor_sign_in, rules(&["phrh"], 300));
    let [own, other] = &*config.impersonations.back_channel_logout else { panic!("two") };
    assert_eq!(
        (&*own.issuer, own.name_prefix.as_deref()),
        ("https://auth.example.com/oidc", Some(""))
    );
    assert!(matches!(own.keys, Jwks::Remote(_)) && matches!(other.keys, Jwks::Local(_)));
    assert_eq!(own.authorization_digests, None);
    let [events] = &*config.impersonations.security_events else { panic!("one") };
    assert_eq!(events.audiences, ["https://gateway.example.com/api/security-events"]);
    assert_eq!(events.authorization_digests, Some(vec![Digest::from_bytes([0xdd; 32])]));
    assert_eq!(config.paths.security_events.as_deref(), Some("/tenant-a/impersonation/events"));
    let console = config.console.unwrap();
    assert_eq!(console.client_id, "support-desk");
    assert_eq!(console.scopes, ["openid", "impersonations:read", "impersonations:revoke"]);
    assert_eq!(console.resource.as_deref(), Some("https://auth.example.com/api"));
    assert_eq!(config.paths.console.as_deref(), Some("/tenant-a/impersonation/"));
    let sessions = config.browser_sessions.unwrap();
    assert_eq!(sessions.domain, "shop-as-user.example");
    assert_eq!(sessions.begin_from, ["https://support.example.com"]);
    assert_eq!(sessions.ended, "https://support.example.com/ended");
    assert_eq!(sessions.resource, "https://shop-as-user.example/");
    assert_eq!((sessions.read_only, &*sessions.landing), (false, "/orders"));
    assert_eq!(config.paths.browser_sessions, Some("/.impersonation"));
}

#[test]
fn an_absent_member_has_its_default() {
    let mut minimal = minimal();
    minimal["clients"] = json!([{"client_id": "console", "type": "single_page"}]);
    minimal["resources"] = json!([{"indicator": "urn:example:invoices"}]);
    let config = parse(&minimal).unwrap();
    assert_eq!(config.base_path, "");
    assert_eq!(config.paths, Paths::new(""));
    assert_eq!(config.paths.oauth_discovery, None);
    // RFC 8037, appendix A.3: the thumbprint of that key.
    assert_eq!(config.published_keys[0].kid, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    assert_eq!(config.subject_tokens.lifetime, Duration::from_secs(600));
    assert_eq!(config.subject_tokens.max_context_bytes, 4096);
    assert_eq!(config.store, StoreSettings::SharedData { capacity: 65_536 });
    assert!(config.subject_tokens.user_lookup.is_none());
    assert_eq!(config.access_token_lifetime, Duration::from_secs(3600));
    assert!(!config.actor_tokens.required);
    assert!(config.actor_tokens.verification.is_empty());
    assert_eq!(config.foreign_subject_tokens, ForeignSubjectTokens::Refuse);
    assert_eq!(config.documents, DocumentSource::Merged);
    assert!(!config.audit_context);
    let console = &config.clients["console"];
    assert_eq!((&console.resources, console.actor_token_required), (&None, false));
    assert!(config.actor_tokens.sign_in.is_empty());
    let paths = config.paths;
    assert_eq!((paths.back_channel_logout, paths.security_events), (None, None));
    assert!(config.console.is_none() && paths.console.is_none());
    let invoices = &config.resources["urn:example:invoices"];
    assert!(invoices.actor_sign_in.is_empty());
    assert_eq!((&*invoices.scopes, invoices.access_token_lifetime), (&[][..], None));
}

#[test]
fn an_unknown_member_is_refused_wherever_it_is() {
    for (pointer, path) in places(&full()) {
        if !full().pointer(&pointer).unwrap().is_object() || pointer.ends_with("/jwk") {
            continue;
        }
        let value = with(&format!("{pointer}/colour"), json!("blue"));
        let path = if path.is_empty() { "colour".to_owned() } else { format!("{path}.colour") };
        assert_problem(&path, &value, &path, "unknown member; expected one of ");
    }
    // The name may hold any character, and it is logged.
    assert_problem("a forged line", &with("/a\n\u{1b}[2J", json!(1)), "a\\n\\u{1b}[2J", "unknown");
}

#[test]
fn a_value_of_another_type_is_refused_where_it_is() {
    let others = [json!(null), json!(true), json!(7.5), json!("\u{0}"), json!([]), json!({})];
    for (pointer, path) in places(&full()).into_iter().skip(1) {
        for other in &others {
            let value = with(&pointer, other.clone());
            let (old, new) = (full(), &value);
            let kind = |value: &Value| std::mem::discriminant(value.pointer(&pointer).unwrap());
            if kind(&old) == kind(new) {
                continue;
            }
            assert_problem(&format!("{path} = {other}"), &value, &path, "expected ");
        }
    }
    for other in others.iter().filter(|other| !other.is_object()) {
        assert_problem("the whole", other, "", "expected an object, found ");
    }
}

#[test]
fn a_missing_required_member_is_named() {
    #[rustfmt::skip]
    let required = [
        "issuer",
        "signing_keys",
        "subject_tokens",
        "subject_tokens.authentication",
        "subject_tokens.authentication.jwt[0].issuer",
        "subject_tokens.authentication.jwt[0].name_prefix",
        "subject_tokens.authentication.jwt[0].audiences",
        "subject_tokens.authentication.jwt[0].remote_jwks.http_uri",
        "subject_tokens.authentication.jwt[0].remote_jwks.http_uri.uri",
        "subject_tokens.authentication.jwt[0].remote_jwks.http_uri.cluster",
        "subject_tokens.authentication.jwt[1].issuer",
        "subject_tokens.authentication.jwt[1].name_prefix",
        "subject_tokens.authentication.jwt[1].audiences",
        "subject_tokens.authentication.introspection.http_uri",
        "subject_tokens.authentication.introspection.http_uri.uri",
        "subject_tokens.authentication.introspection.http_uri.cluster",
        "subject_tokens.authentication.introspection.client_id",
        "subject_tokens.authentication.introspection.client_secret",
        "subject_tokens.authentication.introspection.name_prefix",
        "subject_tokens.user_lookup.http_uri",
        "subject_tokens.user_lookup.http_uri.uri",
        "subject_tokens.user_lookup.http_uri.cluster",
        "subject_tokens.max_mints_per_caller.count",
        "subject_tokens.max_mints_per_caller.per",
        "actor_tokens.jwt[0].issuer",
        "actor_tokens.jwt[0].audiences",
        "actor_tokens.userinfo.http_uri",
        "actor_tokens.userinfo.http_uri.uri",
        "actor_tokens.userinfo.http_uri.cluster",
        "actor_tokens.userinfo.name_prefix",
        "actor_tokens.introspection.http_uri",
        "actor_tokens.introspection.http_uri.uri",
        "actor_tokens.introspection.http_uri.cluster",
        "actor_tokens.introspection.client_id",
        "actor_tokens.introspection.client_secret",
        "actor_tokens.introspection.name_prefix",
        "console.client_id",
        "console.scopes",
        "impersonations.authentication",
        "impersonations.authentication.jwt[0].issuer",
        "impersonations.authentication.jwt[0].audiences",
        "impersonations.authentication.jwt[0].remote_jwks.http_uri",
        "impersonations.authentication.jwt[0].remote_jwks.http_uri.uri",
        "impersonations.authentication.jwt[0].remote_jwks.http_uri.cluster",
        "impersonations.authentication.introspection.http_uri",
        "impersonations.authentication.introspection.http_uri.uri",
        "impersonations.authentication.introspection.http_uri.cluster",
        "impersonations.authentication.introspection.client_id",
        "impersonations.authentication.introspection.client_secret",
        "impersonations.authentication.introspection.name_prefix",
        "impersonations.back_channel_logout[0].issuer",
        "impersonations.back_channel_logout[0].name_prefix",
        "impersonations.back_channel_logout[0].audiences",
        "impersonations.back_channel_logout[0].remote_jwks.http_uri",
        "impersonations.back_channel_logout[0].remote_jwks.http_uri.uri",
        "impersonations.back_channel_logout[0].remote_jwks.http_uri.cluster",
        "impersonations.back_channel_logout[1].issuer",
        "impersonations.back_channel_logout[1].name_prefix",
        "impersonations.back_channel_logout[1].audiences",
        "impersonations.security_events[0].issuer",
        "impersonations.security_events[0].audiences",
        "clients",
        "clients[0].client_id",
        "clients[0].type",
        "clients[1].client_id",
        "clients[1].type",
        "clients[2].client_id",
        "clients[2].type",
        "clients[3].client_id",
        "clients[3].type",
        "clients[3].resources",
        "clients[4].client_id",
        "clients[4].type",
        "clients[4].resources",
        "clients[5].client_id",
        "clients[5].type",
        "clients[5].tls_client_auth",
        "clients[5].resources",
        "clients[6].client_id",
        "clients[6].type",
        "clients[6].remote_jwks.http_uri",
        "clients[6].remote_jwks.http_uri.uri",
        "clients[6].remote_jwks.http_uri.cluster",
        "resources",
        "resources[0].indicator",
        "resources[1].indicator",
        "resources[2].indicator",
        "browser_sessions.domain",
        "browser_sessions.begin_from",
        "browser_sessions.ended",
        "browser_sessions.resource",
        "approvals.authentication",
        "approvals.authentication.jwt[0].issuer",
        "approvals.authentication.jwt[0].audiences",
        "authzen.http_uri",
        "authzen.http_uri.uri",
        "authzen.http_uri.cluster",
        "notifications[0].http_uri",
        "notifications[0].http_uri.uri",
        "notifications[0].http_uri.cluster",
        "notifications[0].secret",
    ];
    // Members that another rule requires: a choice of several, or another member.
    #[rustfmt::skip]
    let needed = [
        ("signing_keys[0].jwk",                        "signing_keys[0]",                         "expected exactly one of jwk, environment_variable, pem"),
        ("signing_keys[1].environment_variable",       "signing_keys[1]",                         "expected exactly one of jwk, environment_variable, pem"),
        ("signing_keys[2].pem",                        "signing_keys[2]",                         "expected exactly one of jwk, environment_variable, pem"),
        ("subject_tokens.authentication.jwt[0].remote_jwks", "subject_tokens.authentication.jwt[0]", "expected exactly one of remote_jwks, local_jwks"),
        ("subject_tokens.authentication.jwt[1].local_jwks",  "subject_tokens.authentication.jwt[1]", "expected exactly one of remote_jwks, local_jwks"),
        ("subject_tokens.authentication.jwt[1].local_jwks.inline_string", "subject_tokens.authentication.jwt[1].local_jwks", "expected exactly one of inline_string, environment_variable"),
        ("subject_tokens.authentication.introspection.client_secret.environment_variable", "subject_tokens.authentication.introspection.client_secret", "expected exactly one of inline_string, environment_variable"),
        ("impersonations.authentication.jwt[0].remote_jwks", "impersonations.authentication.jwt[0]", "expected exactly one of remote_jwks, local_jwks"),
        ("impersonations.authentication.introspection.client_secret.environment_variable", "impersonations.authentication.introspection.client_secret", "expected exactly one of inline_string, environment_variable"),
        ("impersonations.authentication.jwt[0]",       "impersonations.authentication.jwt",       "expected a list that is not empty"),
        ("impersonations.back_channel_logout[0].remote_jwks", "impersonations.back_channel_logout[0]", "expected exactly one of remote_jwks, local_jwks"),
        ("impersonations.back_channel_logout[1].local_jwks", "impersonations.back_channel_logout[1]", "expected exactly one of remote_jwks, local_jwks"),
        ("impersonations.back_channel_logout[1].local_jwks.inline_string", "impersonations.back_channel_logout[1].local_jwks", "expected exactly one of inline_string, environment_variable"),
        ("impersonations.back_channel_logout[0].audiences[0]", "impersonations.back_channel_logout[0].audiences", "expected a list that is not empty"),
        ("impersonations.back_channel_logout[1].audiences[0]", "impersonations.back_channel_logout[1].audiences", "expected a list that is not empty"),
        ("impersonations.security_events[0]", "impersonations.security_events", "expected a list that is not empty"),
        ("impersonations.security_events[0].audiences[0]", "impersonations.security_events[0].audiences", "expected a list that is not empty"),
        ("impersonations.security_events[0].authorization_sha256[0]", "impersonations.security_events[0].authorization_sha256", "expected a list that is not empty"),
        ("impersonations.security_events[0].local_jwks", "impersonations.security_events[0]", "expected exactly one of remote_jwks, local_jwks"),
        ("impersonations.security_events[0].local_jwks.environment_variable", "impersonations.security_events[0].local_jwks", "expected exactly one of inline_string, environment_variable"),
        ("approvals.authentication.jwt", "approvals.authentication", "expected at least one of jwt, introspection"),
        ("approvals.authentication.jwt[0]", "approvals.authentication.jwt", "expected a list that is not empty"),
        ("approvals.authentication.jwt[0].audiences[0]", "approvals.authentication.jwt[0].audiences", "expected a list that is not empty"),
        ("approvals.authentication.jwt[0].client_ids[0]", "approvals.authentication.jwt[0].client_ids", "expected a list that is not empty"),
        ("approvals.authentication.jwt[0].local_jwks", "approvals.authentication.jwt[0]", "expected exactly one of remote_jwks, local_jwks"),
        ("approvals.authentication.jwt[0].local_jwks.inline_string", "approvals.authentication.jwt[0].local_jwks", "expected exactly one of inline_string, environment_variable"),
        ("authzen.authorization.environment_variable", "authzen.authorization", "expected exactly one of inline_string, environment_variable"),
        ("identity_gateway.cluster", "identity_gateway.origins", "expected only beside cluster"),
        ("identity_gateway.origins[0]", "identity_gateway.origins", "expected a list that is not empty"),
        ("notifications[0]", "notifications", "expected a list that is not empty"),
        ("notifications[0].events[0]", "notifications[0].events", "expected a list that is not empty"),
        ("notifications[0].secret.inline_string", "notifications[0].secret", "expected exactly one of inline_string, environment_variable"),
        ("resources[0].actor_acr_values[0]", "resources[0].actor_acr_values", "expected a list that is not empty"),
        ("impersonations.authentication.jwt[0].audiences[0]", "impersonations.authentication.jwt[0].audiences", "expected a list that is not empty"),
        ("impersonations.authentication.jwt[0].client_ids[0]", "impersonations.authentication.jwt[0].client_ids", "expected a list that is not empty"),
        ("impersonations.authentication.introspection.audiences[0]", "impersonations.authentication.introspection.audiences", "expected a list that is not empty"),
        ("impersonations.authentication.introspection.client_ids[0]", "impersonations.authentication.introspection.client_ids", "expected a list that is not empty"),
        ("actor_tokens",                               "clients[0].actor_token_required",         "no way to verify actor tokens is given in actor_tokens"),
        ("actor_tokens.jwt[0].local_jwks",             "actor_tokens.jwt[0]",                     "expected exactly one of remote_jwks, local_jwks"),
        ("actor_tokens.jwt[0].local_jwks.environment_variable", "actor_tokens.jwt[0].local_jwks", "expected exactly one of inline_string, environment_variable"),
        ("actor_tokens.introspection.client_secret.inline_string", "actor_tokens.introspection.client_secret", "expected exactly one of inline_string, environment_variable"),
        ("clients[0].client_secret_sha256",            "clients[0]",                              "a confidential client needs client_secret_sha256"),
        ("clients[3].client_secret_sha256",            "clients[3]",                              "a confidential client needs client_secret_sha256"),
        ("clients[4].authentication",                  "clients[4]",                              "a confidential client needs client_secret_sha256"),
        ("clients[4].local_jwks",                      "clients[4]",                              "a client with private_key_jwt needs remote_jwks or local_jwks"),
        ("clients[4].local_jwks.environment_variable", "clients[4].local_jwks",                   "expected exactly one of inline_string, environment_variable"),
        ("clients[5].authentication",                  "clients[5]",                              "a confidential client needs client_secret_sha256"),
        ("clients[5].tls_client_auth.san_dns",         "clients[5].tls_client_auth",              "expected exactly one of san_dns, san_uri, subject"),
        ("clients[6].authentication",                  "clients[6]",                              "a confidential client needs client_secret_sha256"),
        ("clients[6].remote_jwks",                     "clients[6]",                              "a client with self_signed_tls_client_auth needs remote_jwks or local_jwks"),
        // Items of a list. Without them the list is empty, or another member names a missing item.
        ("subject_tokens.authentication.jwt[0].audiences[0]", "subject_tokens.authentication.jwt[0].audiences", "expected a list that is not empty"),
        ("subject_tokens.authentication.jwt[1].audiences[0]", "subject_tokens.authentication.jwt[1].audiences", "expected a list that is not empty"),
        ("subject_tokens.authentication.jwt[1].client_ids[0]", "subject_tokens.authentication.jwt[1].client_ids", "expected a list that is not empty"),
        ("subject_tokens.authentication.introspection.audiences[0]", "subject_tokens.authentication.introspection.audiences", "expected a list that is not empty"),
        ("subject_tokens.authentication.introspection.client_ids[0]", "subject_tokens.authentication.introspection.client_ids", "expected a list that is not empty"),
        ("actor_tokens.introspection.audiences[0]",    "actor_tokens.introspection.audiences",    "expected a list that is not empty"),
        ("actor_tokens.jwt[0].audiences[0]",           "actor_tokens.jwt[0].audiences",           "expected a list that is not empty"),
        ("actor_tokens.jwt[0]",                        "actor_tokens.jwt",                        "expected a list that is not empty"),
        ("clients[3].client_secret_sha256[0]",         "clients[3]",                              "a confidential client needs client_secret_sha256"),
        ("browser_sessions.begin_from[0]",             "browser_sessions.begin_from",             "expected a list that is not empty"),
        ("resources[2]",                               "browser_sessions.resource",               "expected the indicator of one of the resources"),
        ("resources[0]",                               "clients[0].resources[0]",                 "expected the indicator of one of the resources"),
    ];
    for (pointer, path) in places(&full()).into_iter().skip(1) {
        let value = without(&pointer);
        if let Some((_, at, text)) = needed.iter().find(|(member, _, _)| *member == path) {
            assert_problem(&path, &value, at, text);
        } else if required.contains(&&*path) {
            assert_problem(&path, &value, &path, "is required");
        } else {
            assert_eq!(problems(&value), [], "{path} is optional");
        }
    }
}

#[test]
fn an_issuer_may_have_a_slash_at_its_end() {
    for issuer in ["https://acme.example.com/", "https://acme.example.com/o/acme/"] {
        let mut configuration = minimal();
        configuration["issuer"] = json!(issuer);
        assert_eq!(parse(&configuration).unwrap().issuer, issuer);
    }
}

#[test]
fn only_a_normal_path_is_accepted() {
    let with = |path: &str| {
        let mut configuration = minimal();
        configuration["paths"] = json!({"token": path});
        parse(&configuration)
    };
    for path in
        ["/t", "/oauth2/v1/token", "/a/.well-known/b", "/a:b@c/~d", "/a.b/...", "/OIDC", "/a/b/"]
    {
        assert!(with(path).is_ok(), "{path}");
    }
    let wrong = [
        "",
        "/",
        "token",
        "/a//",
        "//a",
        "/a/./",
        "/a//b",
        "/a?b",
        "/a#b",
        "/a;b",
        "/a b",
        "/a%2fb",
        "/a\\b",
        "/.",
        "/..",
        "/a/../b",
        "/a/./b",
        "/ä",
        "/a\n",
        "http://a/b",
        "/{realm}/token",
        "/a*?",
    ];
    for path in wrong {
        let error = with(path).unwrap_err().to_string();
        let expected = "paths.token: expected a normal path such as /oidc/token, without a query";
        assert!(error.starts_with(expected), "{path}: {error}");
    }
}

#[test]
fn two_paths_that_are_alike_are_refused() {
    let with = |paths: Value| {
        let mut configuration = minimal();
        configuration["paths"] = paths;
        parse(&configuration).map(drop).map_err(|error| error.to_string())
    };
    #[rustfmt::skip]
    let cases = [
        (json!({"token": "/oidc/jwks"}),                           Some("paths.jwks: expected a path that is not like paths.token")),
        (json!({"token": "/OIDC/Jwks"}),                           Some("paths.jwks: expected a path that is not like paths.token")),
        (json!({"token": "/a", "revocation": "/a"}),               Some("paths.revocation: expected a path that is not like paths.token")),
        (json!({"oauth_discovery": "/oidc/token"}),                Some("paths.oauth_discovery: expected a path that is not like paths.token")),
        (json!({"token": "/api/subject-tokens/1"}),                Some("paths.token: expected a path that is not like paths.subject_tokens or below it")),
        (json!({"token": "/api/impersonations/revocations"}),      Some("paths.token: expected a path that is not like paths.impersonations or below it")),
        (json!({"impersonations": "/api/subject-tokens/a"}),       Some("paths.impersonations: expected a path that is not like paths.subject_tokens or below it")),
        (json!({"subject_tokens": "/api/Impersonations/a"}),       Some("paths.impersonations: expected a path that is not like paths.subject_tokens or below it")),
        (json!({"token": "/oidc/jwks/"}),                          Some("paths.jwks: expected a path that is not like paths.token")),
        (json!({"token": "/a/", "revocation": "/A"}),              Some("paths.revocation: expected a path that is not like paths.token")),
        (json!({"token": "/api/subject-tokens/"}),                 Some("paths.token: expected a path that is not like paths.subject_tokens or below it")),
        (json!({"subject_tokens": "/api/subject-tokens/"}),        Some("paths.subject_tokens: expected a normal path")),
        (json!({"impersonations": "/api/impersonations/"}),        Some("paths.impersonations: expected a normal path")),
        (json!({"jwks": "/oidc/token/keys"}),                      None),
        (json!({"token": "/o/token/", "jwks": "/o/acme/jwks/"}),   None),
        (json!({"token": "/api/subject-tokens-2"}),                None),
        (json!({"token": "/oidc/jwks", "jwks": "/oidc/token"}),    None),
        // Without `console`, the page's path is the gateway's.
        (json!({"impersonations": "/impersonations"}),             None),
    ];
    for (paths, problem) in cases {
        match (with(paths.clone()), problem) {
            (Ok(()), None) => {}
            (Err(error), Some(problem)) => assert!(error.starts_with(problem), "{paths}: {error}"),
            (outcome, _) => panic!("{paths}: {outcome:?}"),
        }
    }
}

#[test]
fn values_out_of_bounds_are_refused() {
    const JWT: &str = "/subject_tokens/authentication/jwt/0";
    const JWT_PATH: &str = "subject_tokens.authentication.jwt[0]";
    let jwt = |member: &str| (format!("{JWT}/{member}"), format!("{JWT_PATH}.{member}"));
    let at = |pointer: &str, path: &str| (pointer.to_owned(), path.to_owned());
    let lookup = |uri: &str| json!(format!("https://auth.example.com{uri}"));
    let (lookup_pointer, lookup_path) =
        ("/subject_tokens/user_lookup/http_uri/uri", "subject_tokens.user_lookup.http_uri.uri");
    #[rustfmt::skip]
    let cases = [
        (at("/issuer", "issuer"),                              json!(""),                              "expected an http or https URL"),
        (at("/issuer", "issuer"),                              json!("auth.example.com"),              "expected an http or https URL"),
        (at("/issuer", "issuer"),                              json!("https://auth.example.com/?a"),   "expected an http or https URL"),
        (at("/issuer", "issuer"),                              json!("https://auth.example.com/#a"),   "expected an http or https URL"),
        (at("/issuer", "issuer"),                              json!("https://u:p@auth.example.com"),  "expected an http or https URL"),
        (at("/base_path", "base_path"),                        json!("/"),                             "expected an empty string, or a path"),
        (at("/base_path", "base_path"),                        json!("tenant-a"),                      "expected an empty string, or a path"),
        (at("/base_path", "base_path"),                        json!("/tenant-a/"),                    "expected an empty string, or a path"),
        (at("/base_path", "base_path"),                        json!("/tenant a"),                     "expected an empty string, or a path"),
        (at("/base_path", "base_path"),                        json!("/a?b"),                          "expected an empty string, or a path"),
        (at("/signing_keys", "signing_keys"),                  json!([]),                              "expected at least one key"),
        (at("/signing_keys/0/kid", "signing_keys[0].kid"),     json!(""),                              "expected a string that is not empty"),
        (at("/signing_keys/0/alg", "signing_keys[0].jwk"),     json!("ES256"),                         "expected an alg that fits the key"),
        (at("/signing_keys/0/alg", "signing_keys[0].jwk"),     json!("none"),                          "expected an alg that fits the key"),
        (at("/signing_keys/1/alg", "signing_keys[1].environment_variable"), json!("ES256"),            "expected an alg that fits the key"),
        (at("/signing_keys/1/environment_variable", "signing_keys[1].environment_variable"), json!("NOWHERE"), "expected the name of an environment variable that is set, and NOWHERE is unset or empty; in Envoy"),
        (at("/signing_keys/1/environment_variable", "signing_keys[1].environment_variable"), json!("EMPTY"), "expected the name of an environment variable that is set, and EMPTY is unset or empty; in Envoy"),
        // A secret that is there by mistake is not repeated.
        (at("/signing_keys/1/environment_variable", "signing_keys[1].environment_variable"), json!("JBSWY3DPEHPK3PXP"), "expected the name of an environment variable that is set; in Envoy"),
        (at("/signing_keys/1/environment_variable", "signing_keys[1].environment_variable"), json!("a_secret_in_words"), "expected the name of an environment variable that is set; in Envoy"),
        (at("/signing_keys/1/environment_variable", "signing_keys[1].environment_variable"), json!("SECRET"), "expected a PKCS#8 private key in PEM"),
        (at("/signing_keys/2/pem", "signing_keys[2].pem"),     json!(PEM_BODY),                        "expected a PKCS#8 private key in PEM"),
        (at("/subject_tokens/lifetime", "subject_tokens.lifetime"), json!("0s"),                       "expected a duration from 1s to"),
        (at("/subject_tokens/lifetime", "subject_tokens.lifetime"), json!("25h"),                      "expected a duration from 1s to"),
        (at("/subject_tokens/lifetime", "subject_tokens.lifetime"), json!("1500ms"),                   "expected whole seconds"),
        (at("/subject_tokens/lifetime", "subject_tokens.lifetime"), json!("10 minutes"),               "expected a duration such as"),
        (at("/subject_tokens/max_context_bytes", "subject_tokens.max_context_bytes"), json!(1),        "expected an integer from 2 to 65536"),
        (at("/subject_tokens/max_context_bytes", "subject_tokens.max_context_bytes"), json!(65_537),   "expected an integer from 2 to 65536"),
        (at("/subject_tokens/max_context_bytes", "subject_tokens.max_context_bytes"), json!(-2),       "expected an integer from 2 to 65536"),
        (at("/subject_tokens/max_context_bytes", "subject_tokens.max_context_bytes"), json!(4096.5),   "expected an integer from 2 to 65536"),
        (at("/store/shared_data/capacity", "store.shared_data.capacity"), json!(0), "expected an integer from 1 to 10000000"),
        (at("/store/shared_data/capacity", "store.shared_data.capacity"), json!(10_000_001), "expected an integer from 1 to 10000000"),
        (at("/subject_tokens/protected_users/0", "subject_tokens.protected_users[0]"), json!("*"),    "expected a user, or the beginning of a name"),
        (at("/subject_tokens/protected_users/0", "subject_tokens.protected_users[0]"), json!("*-x"),  "expected a user, or the beginning of a name"),
        (at("/subject_tokens/protected_users/0", "subject_tokens.protected_users[0]"), json!(""),     "expected a user, or the beginning of a name"),
        (at("/subject_tokens/required_context/0", "subject_tokens.required_context[0]"), json!(""),   "expected a string that is not empty"),
        (at("/subject_tokens/required_context/0", "subject_tokens.required_context[0]"), json!("a\"b"), "expected printable ASCII"),
        (at("/subject_tokens/max_mints_per_caller/count", "subject_tokens.max_mints_per_caller.count"), json!(0), "expected an integer from 1 to"),
        (at("/subject_tokens/max_mints_per_caller/per", "subject_tokens.max_mints_per_caller.per"), json!("25h"), "expected a duration from 1s to"),
        (at("/subject_tokens/user_lookup/user_id_member", "subject_tokens.user_lookup.user_id_member"), json!(""), "expected a string that is not empty"),
        (at("/subject_tokens/authentication", "subject_tokens.authentication"), json!({}),             "expected at least one of jwt, introspection"),
        (at("/subject_tokens/authentication/jwt", "subject_tokens.authentication.jwt"), json!([]),     "expected a list that is not empty"),
        (jwt("issuer"),                                        json!(""),                              "expected a string that is not empty"),
        (jwt("audiences[0]"),                                  json!(""),                              "expected a string that is not empty"),
        (jwt("client_ids"),                                    json!([]),                              "expected a list that is not empty"),
        (jwt("client_ids[1]"),                                 json!(""),                              "expected a string that is not empty"),
        (jwt("required_scopes[0]"),                            json!("a b"),                           "expected one scope"),
        (jwt("required_scopes[0]"),                            json!(""),                              "expected one scope"),
        (jwt("clock_skew"),                                    json!("2h"),                            "expected a duration from 0ns to 3600s"),
        (jwt("remote_jwks.cache_duration"),                    json!("0s"),                            "expected a duration from 1s to"),
        (jwt("remote_jwks.http_uri.uri"),                      json!("/oidc/jwks"),                    "expected an http or https URL"),
        (jwt("remote_jwks.http_uri.uri"),                      json!("https://u:p@auth.example.com/"), "expected an http or https URL"),
        (jwt("remote_jwks.http_uri.cluster"),                  json!(""),                              "expected a string that is not empty"),
        (jwt("remote_jwks.http_uri.timeout"),                  json!("0s"),                            "expected a duration from 1ms to 60s"),
        (jwt("remote_jwks.http_uri.timeout"),                  json!("61s"),                           "expected a duration from 1ms to 60s"),
        (at(lookup_pointer, lookup_path),                      lookup("/api/users"),                   "expected {userId} once in the path"),
        (at(lookup_pointer, lookup_path),                      lookup("/{userId}/{userId}"),           "expected {userId} once in the path"),
        (at(lookup_pointer, lookup_path),                      lookup("/{user_id}"),                   "expected {userId} in the path, not \"{user_id}\""),
        (at(lookup_pointer, lookup_path),                      lookup("/{userId}/{}"),                 "expected {userId} in the path, not \"{}\""),
        (at(lookup_pointer, lookup_path),                      lookup("/{userId}/}{"),                 "expected an http or https URL without user information and fragment"),
        (at("/subject_tokens/authentication/introspection/cache_duration", "subject_tokens.authentication.introspection.cache_duration"), json!("11s"), "expected a duration from 0ns to 10s"),
        (at("/actor_tokens/introspection/client_secret/inline_string", "actor_tokens.introspection.client_secret.inline_string"), json!(""), "expected a string that is not empty"),
        (at("/actor_tokens/jwt/0/local_jwks/environment_variable", "actor_tokens.jwt[0].local_jwks.environment_variable"), json!("SECRET"), "expected a JWK set"),
        (at("/access_tokens/lifetime", "access_tokens.lifetime"), json!("24h1s"),                      "expected a duration such as"),
        (at("/clients/0/type", "clients[0].type"),             json!("confidential"),                  "expected one of traditional_web, machine_to_machine, single_page, native"),
        (at("/clients/0/client_secret_sha256/0", "clients[0].client_secret_sha256[0]"), json!("a".repeat(63)), "expected a SHA-256 in 64 hex digits"),
        (at("/clients/0/client_secret_sha256/0", "clients[0].client_secret_sha256[0]"), json!("g".repeat(64)), "expected a SHA-256 in 64 hex digits"),
        (at("/clients/0/client_secret_sha256/0", "clients[0].client_secret_sha256[0]"), json!("+a".repeat(32)), "expected a SHA-256 in 64 hex digits"),
        (at("/clients/0/client_secret_sha256/0", "clients[0].client_secret_sha256[0]"), json!(INLINE_SECRET), "expected a SHA-256 in 64 hex digits"),
        (at("/resources/1/indicator", "resources[1].indicator"), json!("invoices"),                    "expected an absolute URI"),
        (at("/resources/1/indicator", "resources[1].indicator"), json!("https://a.example/#b"),        "expected an absolute URI"),
        (at("/resources/0/scopes/0", "resources[0].scopes[0]"), json!("orders read"),                  "expected one scope"),
        (at("/resources/0/access_token_lifetime", "resources[0].access_token_lifetime"), json!("0.5s"), "expected a duration from 1s to"),
        (at("/foreign_subject_tokens", "foreign_subject_tokens"), json!("ignore"),                     "expected one of refuse, pass_through"),
        (at("/identity_gateway/documents", "identity_gateway.documents"), json!("replace"),            "expected one of merge, none"),
    ];
    for ((pointer, path), value, text) in cases {
        let pointer = pointer.replace('[', "/").replace(']', "").replace('.', "/");
        assert_problem(&format!("{path} = {value}"), &with(&pointer, value), &path, text);
    }
}

#[test]
fn keys_must_be_whole_and_private_where_they_sign() {
    let key = |changes: &[(&str, Value)], mut key: Value| {
        for (name, value) in changes {
            key[name] = value.clone();
        }
        key.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        key
    };
    let other = "AAAAne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    let weak = json!({"kty": "RSA", "n": "x".repeat(171), "e": "AQAB", "d": "x".repeat(171),
        "p": "x".repeat(86), "q": "x".repeat(86)});
    #[rustfmt::skip]
    let cases = [
        ("no key at all",            json!({}),                                       "signing_keys[0].jwk", "expected a JWK"),
        ("an unknown kty",           key(&[("kty", json!("oct"))], ed25519()),        "signing_keys[0].jwk", "expected a JWK"),
        ("a symmetric key",          json!({"kty": "oct", "k": ED25519_D}),           "signing_keys[0].jwk", "expected a JWK"),
        ("an unknown curve",         key(&[("crv", json!("P-521"))], p256()),         "signing_keys[0].jwk", "expected "),
        ("another curve's alg",      key(&[("alg", json!("ES384"))], p256()),         "signing_keys[0].jwk", "expected an alg that fits the key"),
        ("parts of two keys",        key(&[("d", json!(other))], ed25519()),          "signing_keys[0].jwk", "expected a valid key whose private and public parts belong together"),
        ("parts of two EC keys",     key(&[("d", json!(other))], p256()),             "signing_keys[0].jwk", "expected a valid key whose private and public parts belong together"),
        ("a part too short",         key(&[("d", json!("nWGx"))], ed25519()),         "signing_keys[0].jwk", "expected "),
        ("a part that is no base64", key(&[("d", json!("?"))], ed25519()),            "signing_keys[0].jwk", "expected a JWK"),
        ("RSA of 1024 bits",         weak,                                            "signing_keys[0].jwk", "expected "),
        ("the first is public",      key(&[("d", json!(null))], ed25519()),           "signing_keys[0]",     "expected a private key: the first key signs"),
    ];
    for (case, jwk, path, text) in cases {
        let value = changed(minimal(), "/signing_keys/0/jwk", jwk);
        assert_problem(case, &value, path, text);
    }
    // Without `alg` the type of the key decides.
    for (source, alg) in [
        (json!({"jwk": p256()}), Algorithm::Es256),
        (json!({"environment_variable": "EC_KEY"}), Algorithm::Es256),
        (json!({"environment_variable": "PEM_KEY"}), Algorithm::EdDsa),
        (json!({"pem": pem(), "alg": "EdDSA"}), Algorithm::EdDsa),
    ] {
        let config = parse(&changed(minimal(), "/signing_keys/0", source)).unwrap();
        assert_eq!(config.signing_key.algorithm, alg);
    }
    // A key that no longer signs may be public.
    let public = key(&[("d", json!(null))], p256());
    assert_eq!(problems(&with("/signing_keys/-", json!({"jwk": public, "kid": "old"}))), []);
}

#[test]
fn contradictions_are_refused() {
    let client = |changes: Value| {
        let mut client = json!({"client_id": "new", "type": "single_page"});
        client.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        with("/clients/-", client)
    };
    let hash = json!(["d".repeat(64)]);
    let no_actors = |mut value: Value| {
        value["clients"] = json!([]);
        value["actor_tokens"] = json!({"required": true});
        value
    };
    #[rustfmt::skip]
    let cases = [
        ("two sources of one key",     with("/signing_keys/0/pem", json!(pem())),         "signing_keys[0]", "expected exactly one of"),
        ("two sources of one secret",  with("/actor_tokens/introspection/client_secret/environment_variable", json!("SECRET")), "actor_tokens.introspection.client_secret", "expected exactly one of"),
        ("two sources of keys",        with("/subject_tokens/authentication/jwt/0/local_jwks", json!({"inline_string": "{}"})), "subject_tokens.authentication.jwt[0]", "expected exactly one of"),
        ("two names of one key",       with("/signing_keys/0/jwk/kid", json!("other")),   "signing_keys[0].kid", "the key itself has another kid"),
        ("two algorithms of one key",  with("/signing_keys/0/jwk/alg", json!("RS256")),   "signing_keys[0].alg", "the key itself has another alg"),
        ("two keys of one name",       with("/signing_keys/1/kid", json!("first")),       "signing_keys[1]", "another key has the kid \"first\" too"),
        ("one key twice, unnamed",     with("/signing_keys", json!([{"jwk": ed25519()}, {"jwk": ed25519()}])), "signing_keys[1]", "another key has the kid "),
        ("an issuer twice",            with("/subject_tokens/authentication/jwt/1/issuer", json!("https://auth.example.com/oidc")), "subject_tokens.authentication.jwt[1].issuer", "\"https://auth.example.com/oidc\" is given twice"),
        ("a client twice",             client(json!({"client_id": "portal"})),            "clients[7].client_id", "\"portal\" is given twice"),
        ("a resource twice",           with("/resources/1/indicator", json!("https://api.example.com/orders")), "resources[1].indicator", "\"https://api.example.com/orders\" is given twice"),
        ("a public client's secret",   client(json!({"client_secret_sha256": hash})),     "clients[7]", "a public client (single_page, native) cannot keep a secret"),
        ("a native client's secret",   client(json!({"type": "native", "client_secret_sha256": hash})), "clients[7]", "a public client"),
        ("a public client that authenticates", client(json!({"authentication": "client_secret_basic"})), "clients[7]", "a public client (single_page, native) does not authenticate"),
        ("a secret beside keys",       client(json!({"type": "traditional_web", "client_secret_sha256": hash, "authentication": "private_key_jwt", "local_jwks": {"environment_variable": "KEY_SET"}})), "clients[7]", "a client with private_key_jwt has no secret"),
        ("assertions without keys",    client(json!({"type": "traditional_web", "authentication": "private_key_jwt"})), "clients[7]", "a client with private_key_jwt needs remote_jwks or local_jwks"),
        ("keys beside a secret",       client(json!({"type": "traditional_web", "client_secret_sha256": hash, "local_jwks": {"environment_variable": "KEY_SET"}})), "clients[7]", "a client with client_secret_basic has no keys"),
        ("keys of a public client",    client(json!({"local_jwks": {"environment_variable": "KEY_SET"}})), "clients[7]", "a client with none has no keys"),
        ("a key set without a certificate", client(json!({"type": "traditional_web", "authentication": "self_signed_tls_client_auth", "local_jwks": {"environment_variable": "KEY_SET"}})), "clients[7].local_jwks", "expected a key with x5c or x5t#S256"),
        ("a certificate without a name", client(json!({"type": "traditional_web", "authentication": "tls_client_auth"})), "clients[7].tls_client_auth", "is required"),
        ("a name without a certificate", client(json!({"tls_client_auth": {"san_dns": "a"}})), "clients[7].tls_client_auth", "is only for"),
        ("two names of a certificate", client(json!({"type": "traditional_web", "authentication": "tls_client_auth", "tls_client_auth": {"san_dns": "a", "san_uri": "b"}})), "clients[7].tls_client_auth", "expected exactly one of"),
        ("a method that there is not", client(json!({"type": "traditional_web", "authentication": "client_secret_jwt"})), "clients[7].authentication", "expected one of client_secret_basic, client_secret_post, private_key_jwt"),
        ("a method twice",             client(json!({"type": "traditional_web", "client_secret_sha256": hash, "authentication": ["client_secret_post", "client_secret_post"]})), "clients[7].authentication[1]", "is given twice"),
        ("no method",                  client(json!({"type": "traditional_web", "client_secret_sha256": hash, "authentication": []})), "clients[7].authentication", "expected a list that is not empty"),
        ("two methods, no secret",     client(json!({"type": "traditional_web", "authentication": ["private_key_jwt", "client_secret_basic"], "local_jwks": {"environment_variable": "KEY_SET"}})), "clients[7]", "a confidential client needs client_secret_sha256"),
        ("two methods, no keys",       client(json!({"type": "traditional_web", "client_secret_sha256": hash, "authentication": ["private_key_jwt", "client_secret_basic"]})), "clients[7]", "a client with private_key_jwt and client_secret_basic needs remote_jwks or local_jwks"),
        ("two methods, no name",       client(json!({"type": "traditional_web", "client_secret_sha256": hash, "authentication": ["tls_client_auth", "client_secret_basic"]})), "clients[7].tls_client_auth", "is required"),
        ("a secret of no digits",      client(json!({"type": "traditional_web", "client_secret_sha256": []})), "clients[7]", "a confidential client needs"),
        ("an unknown resource",        client(json!({"resources": ["urn:example:nothing"]})), "clients[7].resources[0]", "expected the indicator of one of the resources"),
        ("actors without a way",       no_actors(full()),                                 "actor_tokens", "actor tokens are required, but no way"),
    ];
    for (case, value, path, text) in cases {
        assert_problem(case, &value, path, text);
    }
}

/// FAPI 2.0 Security Profile, sections 5.3.2.1 and 5.4.1.
#[test]
fn browser_sessions_fit_the_rest_of_the_configuration() {
    let session = |member: &str, value: Value| with(&format!("/browser_sessions/{member}"), value);
    let resource = "https://shop-as-user.example/";
    let without_resources = |client: usize| without(&format!("/clients/{client}/resources"));
    #[rustfmt::skip]
    let cases = [
        (session("resource", "urn:example:unknown".into()),             "browser_sessions.resource", "expected the indicator of one of the resources"),
        (with("/resources/2/token_binding", "any".into()),              "browser_sessions.resource", "expected a resource without token_binding"),
        (with("/clients/3/resources", json!([resource])),               "clients[3].resources",      "the client has a token_binding"),
        (without_resources(3),                                          "clients[3].resources",      "is required beside token_binding"),
        (without_resources(4),                                          "clients[4].resources",      "is required beside token_binding"),
        (without_resources(5),                                          "clients[5].resources",      "is required beside token_binding"),
        (session("domain", "example.com".into()),                       "browser_sessions.begin_from[0]", "expected an address outside of domain"),
        (session("domain", "auth.example.com".into()),                  "browser_sessions.domain",   "expected a domain that the issuer is not in"),
        (session("domain", "https://as-user.example".into()),           "browser_sessions.domain",   "expected a domain in small letters"),
        (session("begin_from", json!(["https://a.shop-as-user.example:8443"])), "browser_sessions.begin_from[0]", "expected an address outside of domain"),
        (session("begin_from", json!(["https://support.example/"])),    "browser_sessions.begin_from[0]", "expected an origin"),
        (session("begin_from", json!(["null"])),                        "browser_sessions.begin_from[0]", "expected an origin"),
        (session("begin_from", json!([])),                              "browser_sessions.begin_from", "expected a list that is not empty"),
        (session("ended", "https://shop-as-user.example/ended".into()), "browser_sessions.ended",    "expected an address outside of domain"),
        (session("ended", "/ended".into()),                             "browser_sessions.ended",    "expected an http or https URL"),
        (session("landing", "//evil.example".into()),                   "browser_sessions.landing",  "expected a path"),
        (session("landing", "orders".into()),                           "browser_sessions.landing",  "expected a path"),
    ];
    for (value, path, text) in cases {
        assert_problem(path, &value, path, text);
    }
    let bare = changed(
        full(),
        "/browser_sessions",
        json!({
            "domain": "shop-as-user.example", "begin_from": ["https://support.example.com"],
            "ended": "https://support.example.com/ended", "resource": resource,
        }),
    );
    let sessions = parse(&bare).unwrap().browser_sessions.unwrap();
    assert_eq!((sessions.read_only, &*sessions.landing), (true, "/"));
    // A client that is not bound may have the resource, and need not name it.
    parse(&with("/clients/1/resources", json!([resource]))).unwrap();
}

#[test]
fn the_profile_names_every_setting_that_it_forbids() {
    let mut value = minimal();
    value["profile"] = json!("fapi2");
    value["issuer"] = json!("http://auth.example.com/oidc");
    value["signing_keys"] = json!([{"jwk": ed25519()}, {"environment_variable": "EC_KEY"}]);
    let es256 =
        json!({"keys": [{"kty": "EC", "crv": "P-256", "x": P256_X, "y": P256_Y, "alg": "ES256"}]});
    let signer = |keys: &Value, more: Value| {
        let mut client = json!({
            "client_id": more["client_id"], "type": "traditional_web",
            "authentication": "private_key_jwt", "local_jwks": {"inline_string": keys.to_string()},
        });
        client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client
    };
    value["clients"] = json!([
        {"client_id": "basic", "type": "traditional_web", "client_secret_sha256": ["a".repeat(64)], "token_binding": "any"},
        {"client_id": "post", "type": "machine_to_machine", "authentication": "client_secret_post", "client_secret_sha256": ["a".repeat(64)], "token_binding": "dpop"},
        {"client_id": "console", "type": "single_page"},
        signer(&es256, json!({"client_id": "signer", "token_binding": "dpop"})),
        signer(&es256, json!({"client_id": "unbound"})),
        {"client_id": "connector", "type": "traditional_web", "authentication": "tls_client_auth", "tls_client_auth": {"subject": "CN=a"}, "token_binding": "mtls"},
        signer(&es256, json!({"client_id": "several", "token_binding": "dpop", "authentication": ["private_key_jwt", "client_secret_basic"], "client_secret_sha256": ["a".repeat(64)]})),
    ]);
    value["resources"] = json!([
        {"indicator": "urn:a", "token_binding": "any"}, {"indicator": "urn:b"}, {"indicator": "urn:c", "token_binding": "dpop"},
    ]);
    let mut found: Vec<_> = problems(&value).into_iter().map(|problem| problem.path).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "clients[0].authentication",
            "clients[1].authentication",
            "clients[2].token_binding",
            "clients[2].type",
            "clients[4].token_binding",
            "clients[6].authentication",
            "issuer",
            "resources[1].token_binding",
        ]
    );
    value["issuer"] = json!("https://auth.example.com/oidc");
    value["clients"] = json!([value["clients"][3], value["clients"][5]]);
    value["resources"] = json!([value["resources"][0], value["resources"][2]]);
    assert_eq!(problems(&value), []);
    let callers = value["subject_tokens"].clone();
    assert!(callers.is_object(), "the profile does not apply to callers");
}

/// Reading costs something, so the filter reads nothing that no setting asks for.
#[test]
fn proofs_and_certificates_are_read_only_where_something_asks_for_them() {
    let bound =
        |binding: &str| json!([{"client_id": "a", "type": "native", "token_binding": binding}]);
    let tls = json!([{"client_id": "a", "type": "traditional_web", "authentication": "tls_client_auth", "tls_client_auth": {"san_dns": "a"}}]);
    #[rustfmt::skip]
    let cases = [
        ("nothing",                  json!({}),                                     false, false),
        ("dpop",                     json!({"dpop": {}}),                           true,  false),
        ("a client with dpop",       json!({"clients": bound("dpop")}),             true,  false),
        ("a client with mtls",       json!({"clients": bound("mtls")}),             false, true),
        ("a client with any",        json!({"clients": bound("any")}),              true,  true),
        ("a resource with dpop",     json!({"resources": [{"indicator": "urn:a", "token_binding": "dpop"}]}), true, false),
        ("a client that connects",   json!({"clients": tls}),                       false, true),
        ("certificates",             json!({"client_certificate": "connection"}),   false, true),
    ];
    for (case, members, proofs, certificates) in cases {
        let mut value = minimal();
        value.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let config = parse(&value).unwrap();
        assert_eq!(
            (config.dpop.is_some(), config.certificates.is_some()),
            (proofs, certificates),
            "{case}"
        );
    }
}

#[test]
fn all_problems_are_found_at_once() {
    let mut value = full();
    for (pointer, new) in [
        ("/isuer", json!("https://auth.example.com")),
        ("/signing_keys/1/environment_variable", json!("NOWHERE")),
        ("/subject_tokens/lifetime", json!(600)),
        ("/subject_tokens/authentication/jwt/1/clock_skew", json!("one minute")),
        ("/clients/0/type", json!("website")),
        ("/clients/2/colour", json!("blue")),
        ("/resources/1/indicator", json!("invoices")),
    ] {
        value = changed(value, pointer, new);
    }
    value.as_object_mut().unwrap().remove("issuer");
    let mut paths: Vec<_> = problems(&value).into_iter().map(|problem| problem.path).collect();
    paths.sort();
    assert_eq!(
        paths,
        [
            "clients[0].type",
            "clients[2].colour",
            "issuer",
            "isuer",
            "resources[1].indicator",
            "signing_keys[1].environment_variable",
            "subject_tokens.authentication.jwt[1].clock_skew",
            "subject_tokens.lifetime",
        ]
    );
    let error = parse(&value).err().unwrap().to_string();
    assert!(error.contains("issuer: is required; ") || error.ends_with("issuer: is required"));
}

#[test]
fn a_script_is_compiled_at_once_and_its_mistakes_have_a_place() {
    let claims = |members: Value| {
        let mut claims = json!({"script": "const getCustomJwtClaims = () => ({})"});
        for (name, value) in members.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    };
    assert!(parse(&with("/custom_claims", claims(json!({})))).is_ok());
    #[rustfmt::skip]
    let cases = [
        ("no script",         json!({}),                                          "custom_claims.script",                     "is required"),
        ("a syntax error",    claims(json!({"script": "mistake: line 2"})),         "custom_claims.script",                     "line 2"),
        ("a number variable", claims(json!({"environment_variables": {"A": 1}})),   "custom_claims.environment_variables.A",    "expected a string"),
        ("no such word",      claims(json!({"on_error": "ignore"})),                "custom_claims.on_error",                   "expected one of refuse, issue_without"),
        ("too long",          claims(json!({"timeout": "10s"})),                    "custom_claims.timeout",                    "expected a duration from"),
        ("too little",        claims(json!({"memory_limit_bytes": 1})),             "custom_claims.memory_limit_bytes",         "expected an integer from"),
    ];
    for (case, value, path, expected) in cases {
        assert_problem(case, &with("/custom_claims", value.clone()), path, expected);
        // `authorize_subject_token` has the same members. Its `on_error` has one word only: a
        // failed function allows nothing.
        let path = path.replace("custom_claims", "authorize_subject_token");
        let expected = expected.replace("refuse, issue_without", "refuse");
        assert_problem(case, &with("/authorize_subject_token", value), &path, &expected);
    }
    let authorizer = |on_error: &str| json!({"script": "const authorizeSubjectToken = () => {};", "on_error": on_error});
    assert!(parse(&with("/authorize_subject_token", authorizer("refuse"))).is_ok());
    let issued = with("/authorize_subject_token", authorizer("issue_without"));
    let path = "authorize_subject_token.on_error";
    assert_problem("failing open", &issued, path, "expected one of refuse");
}

/// A script is compiled even if other members are wrong.
#[test]
fn a_broken_script_is_reported_with_all_other_problems() {
    let value = with("/custom_claims", json!({"script": "mistake: line 1"}));
    let value = changed(value, "/subject_tokens/lifetime", json!("soon"));
    let value = changed(value, "/signing_keys/0/jwk/d", json!("AAAA"));
    let paths: Vec<_> = problems(&value).into_iter().map(|problem| problem.path).collect();
    assert_eq!(paths, ["signing_keys[0].jwk", "subject_tokens.lifetime", "custom_claims.script"]);
}

#[test]
fn a_probably_unintended_setting_is_a_warning() {
    const JWT: &str = "subject_tokens.authentication.jwt[1]";
    const INTROSPECTION: &str = "subject_tokens.authentication.introspection";
    #[rustfmt::skip]
    let cases = [
        (with("/subject_tokens/authentication/jwt/1/required_scopes", json!([])),        JWT,           "no required_scopes"),
        (with("/subject_tokens/authentication/introspection/required_scopes", json!([])), INTROSPECTION, "no required_scopes"),
        (without("/subject_tokens/authentication/jwt/1/client_ids"),                     JWT,           "no client_ids"),
        (without("/subject_tokens/authentication/introspection/client_ids"),             INTROSPECTION, "no client_ids"),
        (without("/subject_tokens/authentication/introspection/audiences"),              INTROSPECTION, "no audiences"),
        (without("/actor_tokens/introspection/audiences"),                               "actor_tokens.introspection", "no audiences"),
        (removed(without("/identity_gateway/origins"), "/identity_gateway/cluster"),     "identity_gateway.cluster", "absent: while the identity gateway fails"),
    ];
    for (value, path, text) in cases {
        let warnings = parse(&value).unwrap().warnings;
        let [warning] = &*warnings else { panic!("{path}, {text}: {warnings:?}") };
        assert_eq!(warning.path, path, "{text}");
        assert!(warning.expected.starts_with(text), "{path}: {warning}");
    }
}

/// Rules about the sign-in of actors hold for actor tokens only.
#[test]
fn a_rule_about_sign_ins_that_some_exchange_escapes_is_a_warning() {
    let warnings = |value: &Value| -> Vec<String> {
        parse(value).unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    let optional = with("/actor_tokens/required", json!(false));
    let warned = warnings(&optional);
    assert!(
        warned.iter().any(|warning| warning.starts_with("actor_tokens: acr_values and max_age")),
        "{warned:?}"
    );
    let mut value = minimal();
    value["resources"] = json!([{"indicator": "urn:example:x", "actor_max_age": "300s"}]);
    let warned = warnings(&value);
    assert!(
        warned
            .iter()
            .any(|warning| warning.starts_with("resources: no access token can be issued")),
        "{warned:?}"
    );
    value["resources"][0].as_object_mut().unwrap().remove("actor_max_age");
    let warned = warnings(&value);
    assert!(!warned.iter().any(|warning| warning.contains("no access token")), "{warned:?}");
}

/// The kill switch must exist before it is needed.
#[test]
fn a_service_whose_impersonations_nobody_can_end_is_a_warning() {
    let warnings = parse(&without("/impersonations")).unwrap().warnings;
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert_eq!(warning.path, "impersonations");
    assert!(warning.expected.starts_with("absent: nobody can"), "{warning}");
}

#[test]
fn the_list_keeps_a_few_members_of_the_context_each_named_once() {
    assert_eq!(parse(&full()).unwrap().impersonations.context, ["ticketId", "reason"]);
    assert_eq!(parse(&without("/impersonations/context")).unwrap().impersonations.context, [""; 0]);
    let names = |count: usize| (0..count).map(|index| format!("n{index}")).collect::<Vec<_>>();
    let most = with("/impersonations/context", json!(names(8)));
    assert_eq!(parse(&most).unwrap().impersonations.context, names(8));
    #[rustfmt::skip]
    let cases = [
        (json!(names(9)),           "impersonations.context",       "expected at most 8 names"),
        (json!(["a", "b", "a"]),    "impersonations.context[2]",    "is named twice"),
        (json!([""]),               "impersonations.context[0]",    "expected a string that is not empty"),
        (json!(["a".repeat(65)]),   "impersonations.context[0]",    "expected a name of at most 64 bytes"),
    ];
    for (names, path, expected) in cases {
        assert_problem(expected, &with("/impersonations/context", names), path, expected);
    }
}

#[test]
fn a_capacity_of_the_list_has_no_effect_under_etcd() {
    let mut value = with("/store", json!({"etcd": {"cluster": "etcd"}}));
    let warned = |value: &Value| {
        let warnings = parse(value).unwrap().warnings;
        warnings.into_iter().map(|warning| warning.path).collect::<Vec<_>>()
    };
    value["impersonations"]["capacity"] = json!(10);
    assert_eq!(warned(&value), ["impersonations.capacity"]);
    value["impersonations"].as_object_mut().unwrap().remove("capacity");
    assert_eq!(warned(&value), [""; 0]);
}

#[test]
fn a_replay_ends_the_impersonation_unless_the_operator_says_otherwise() {
    for store in [json!({"shared_data": {}}), json!({"etcd": {"cluster": "etcd"}})] {
        let mut value = with("/store", store);
        let members = value["subject_tokens"].as_object_mut().unwrap();
        members.remove("on_replay");
        assert_eq!(parse(&value).unwrap().subject_tokens.on_replay, OnReplay::Revoke);
        value["subject_tokens"]["on_replay"] = json!("report");
        assert_eq!(parse(&value).unwrap().subject_tokens.on_replay, OnReplay::Report);
    }
    let config = parse(&minimal()).unwrap();
    assert!(config.impersonations.authentication.is_empty());
}

#[test]
fn the_store_is_either_shared_data_or_etcd() {
    let parsed = |value: &Value| parse(value).unwrap_or_else(|error| panic!("{error}"));
    let with = |pointer: &str, store: Value| {
        let mut value = with(pointer, store);
        value.as_object_mut().unwrap().remove("impersonations");
        value
    };
    let config = parsed(&with("/store", json!({"etcd": {"cluster": "etcd"}})));
    let etcd = EtcdSettings {
        cluster: "etcd".into(),
        prefix: "/impersonation/".into(),
        timeout: Duration::from_millis(3500),
        authority: None,
    };
    assert_eq!(config.store, StoreSettings::Etcd(etcd));
    let all =
        json!({"cluster": "c", "prefix": "/p/", "timeout": "2s", "authority": "etcd.example"});
    let config = parsed(&with("/store", json!({"etcd": all})));
    let etcd = EtcdSettings {
        cluster: "c".into(),
        prefix: "/p/".into(),
        timeout: Duration::from_secs(2),
        authority: Some("etcd.example".into()),
    };
    assert_eq!(config.store, StoreSettings::Etcd(etcd));
    assert_eq!(
        parsed(&with("/store", json!({}))).store,
        StoreSettings::SharedData { capacity: 65_536 }
    );

    let two = json!({"shared_data": {}, "etcd": {"cluster": "etcd"}});
    assert_problem(
        "two",
        &with("/store", two),
        "store",
        "expected at most one of shared_data, etcd",
    );
    let etcd = |name: &str, value: Value| {
        let mut etcd = json!({"cluster": "etcd"});
        etcd[name] = value;
        with("/store", json!({"etcd": etcd}))
    };
    #[rustfmt::skip]
    let cases = [
        ("cluster",   json!(""),               "store.etcd.cluster", "expected a string that is not empty"),
        ("cluster",   json!("c".repeat(121)),  "store.etcd",         "expected cluster and authority together"),
        ("authority", json!("a".repeat(117)),  "store.etcd",         "expected cluster and authority together"),
        ("prefix",    json!("/a b/"),          "store.etcd.prefix",  "expected at most 256 printable ASCII"),
        ("timeout",   json!("10ms"),           "store.etcd.timeout", "expected a duration from 100ms to 60s"),
    ];
    for (name, value, path, expected) in cases {
        assert_problem(name, &etcd(name, value), path, expected);
    }
    assert_problem(
        "none",
        &with("/store", json!({"etcd": {}})),
        "store.etcd.cluster",
        "is required",
    );
}

/// One name must mean one person. Only the operator knows which issuer's names are in use.
#[test]
fn two_issuers_of_a_list_have_two_prefixes() {
    const LISTS: [(&str, &str); 3] = [
        ("/subject_tokens/authentication/jwt", "subject_tokens.authentication.jwt"),
        ("/actor_tokens/jwt", "actor_tokens.jwt"),
        ("/impersonations/authentication/jwt", "impersonations.authentication.jwt"),
    ];
    let keys = key_set().to_string();
    let entry = |issuer: &str, prefix: Option<&str>| {
        let mut entry =
            json!({"issuer": issuer, "audiences": ["a"], "local_jwks": {"inline_string": keys}});
        if let Some(prefix) = prefix {
            entry["name_prefix"] = json!(prefix);
        }
        entry
    };
    let (one, two, three) = ("https://one.example", "https://two.example", "https://three.example");
    let long = "x".repeat(129);
    #[rustfmt::skip]
    let cases = [
        ("one, absent",         vec![(one, None)],                                            None),
        ("one, empty",          vec![(one, Some(""))],                                        None),
        ("one",                 vec![(one, Some("one:"))],                                    None),
        ("two",                 vec![(one, Some("")), (two, Some("two:"))],                   None),
        ("one within another",  vec![(one, Some("a")), (two, Some("ab")), (three, Some(""))], None),
        ("absent",              vec![(one, None), (two, Some("two:"))],                       Some((0, "is required"))),
        ("absent, too",         vec![(one, Some("")), (two, None)],                           Some((1, "is required"))),
        ("alike",               vec![(one, Some("a:")), (two, Some("a:"))],                   Some((1, "expected another prefix"))),
        ("both empty",          vec![(one, Some("")), (two, Some(""))],                       Some((1, "expected another prefix"))),
        ("alike, not the next", vec![(one, Some("a:")), (two, Some("")), (three, Some("a:"))], Some((2, "expected another prefix"))),
        ("too long",            vec![(one, Some(&*long))],                                    Some((0, "expected at most 128"))),
        ("a line break",        vec![(one, Some("a\n"))],                                     Some((0, "expected at most 128"))),
    ];
    for (pointer, list) in LISTS {
        for (case, entries, problem) in &cases {
            let entries: Vec<_> =
                entries.iter().map(|(name, prefix)| entry(name, *prefix)).collect();
            let value = with(pointer, json!(entries));
            match problem {
                None => assert_eq!(problems(&value), [], "{list}, {case}"),
                Some((index, text)) => {
                    assert_problem(case, &value, &format!("{list}[{index}].name_prefix"), text);
                }
            }
        }
    }
    // Every entry without a prefix is reported.
    let value = with(LISTS[0].0, json!([entry(one, None), entry(two, None)]));
    assert_eq!(problems(&value).len(), 2);
}

/// An actor is a user. The client that the token was issued to says nothing about the user.
#[test]
fn actor_tokens_have_no_client_ids() {
    for (way, place) in [("jwt/0", "jwt[0]"), ("introspection", "introspection")] {
        let value = with(&format!("/actor_tokens/{way}/client_ids"), json!(["console"]));
        let path = format!("actor_tokens.{place}.client_ids");
        assert_problem(way, &value, &path, "unknown member");
    }
}

/// Prints a whole configuration, for comparison.
fn summary(config: &Config) -> String {
    let mut clients: Vec<_> = config.clients.values().map(|client| format!("{client:?}")).collect();
    clients.sort();
    let mut resources: Vec<_> =
        config.resources.iter().map(|resource| format!("{resource:?}")).collect();
    resources.sort();
    format!(
        "{:?}",
        (
            (&config.issuer, &config.base_path, config.signing_key.algorithm),
            (&config.published_keys, &config.subject_tokens, config.access_token_lifetime),
            (&config.actor_tokens, clients, resources, config.documents),
            (config.foreign_subject_tokens, config.audit_context, &config.store, &config.warnings),
        )
    )
}

#[test]
fn both_wire_forms_yield_the_same_configuration() {
    for value in [full(), minimal()] {
        let text = read(value.to_string().as_bytes()).unwrap();
        let r#struct = read(&wire(&value)).unwrap();
        assert_eq!(summary(&r#struct), summary(&text));
    }
    let wrong =
        changed(with("/clients/0/type", json!(7.5)), "/subject_tokens/lifetime", json!(600));
    let text = read(wrong.to_string().as_bytes()).err().unwrap();
    let r#struct = read(&wire(&wrong)).err().unwrap();
    assert_eq!(text.problems.len(), 2);
    assert_eq!(r#struct, text);
}

#[test]
fn no_message_and_no_debug_output_shows_a_secret() {
    assert_silent(&summary(&parse(&full()).unwrap()));
    // Mistakes that put a secret into a member for something else.
    #[rustfmt::skip]
    let cases = [
        ("a key for a variable's name",    with("/signing_keys/1/environment_variable", json!(pem()))),
        ("a JWK for a variable's name",    with("/signing_keys/1/environment_variable", json!(p256().to_string()))),
        ("a secret for a variable's name", with("/subject_tokens/authentication/introspection/client_secret/environment_variable", json!(INLINE_SECRET))),
        ("a secret for its hash",          with("/clients/0/client_secret_sha256", json!([INLINE_SECRET]))),
        ("a secret for a list of hashes",  with("/clients/0/client_secret_sha256", json!(INLINE_SECRET))),
        ("a key for an algorithm",         with("/signing_keys/0/alg", json!(ED25519_D))),
        ("a JWK for a PEM",                with("/signing_keys/2/pem", ed25519())),
        ("a PEM for a JWK",                with("/signing_keys/0/jwk", json!(pem()))),
        ("a JWK as text",                  with("/signing_keys/0/jwk", json!(ed25519().to_string()))),
        ("a JWK without a name for it",    with("/signing_keys/0", ed25519())),
        ("a private key for a key set",    with("/subject_tokens/authentication/jwt/1/local_jwks/inline_string", json!(ed25519().to_string()))),
        ("a key set of broken keys",       with("/subject_tokens/authentication/jwt/1/local_jwks/inline_string", json!(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": ED25519_D, "d": "?"}, {"kty": "EC", "crv": "P-256", "x": P256_D, "y": 1}]}).to_string()))),
        ("a secret as the whole",          json!(INLINE_SECRET)),
    ];
    for (case, value) in cases {
        // Each mistake is reported, and `problems` checks that the message shows no secret.
        assert_ne!(problems(&value), [], "{case}");
    }
    for text in [pem(), format!("{{\"signing_keys\": {}", ed25519()), INLINE_SECRET.to_owned()] {
        assert_silent(&read(text.as_bytes()).err().unwrap().to_string());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        // Values that pass the first checks.
        prop::sample::select(vec![
            "600s",
            "https://a.example",
            "/a",
            "EdDSA",
            "ES256",
            "RS256",
            "native",
            "SIGNING_KEY",
            "KEY_SET",
            "none",
            "{\"keys\":[]}",
            "{userId}",
            "{}",
            "P-256",
            "OKP",
            "EC",
            "RSA",
            "AQAB",
        ])
        .prop_map(Value::from),
    ];
    let name = prop_oneof![
        "\\PC{0,5}",
        prop::sample::select(vec![
            "issuer",
            "jwt",
            "http_uri",
            "uri",
            "jwk",
            "kty",
            "crv",
            "x",
            "y",
            "d",
            "n",
            "e",
            "p",
            "q",
            "kid",
            "alg",
            "pem",
            "environment_variable",
            "inline_string",
            "local_jwks",
            "type",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_the_parser_panic(value in any_json()) {
        let _ = parse(&value);
    }

    #[test]
    fn no_change_makes_the_parser_panic(
        changes in prop::collection::vec((any::<Index>(), any_json()), 1..4)
    ) {
        let mut value = full();
        for (index, new) in changes {
            // Members of JWKs too: the parser reads them.
            let places = pointers(&value);
            *value.pointer_mut(places[index.index(places.len())].as_str()).unwrap() = new;
        }
        for problem in problems(&value) {
            prop_assert!(!problem.expected.is_empty());
            prop_assert!(!problem.to_string().contains('\n'));
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
        let _ = read(&bytes);
    }
}

/// Returns the JSON pointer of every value, including those within JWKs.
fn pointers(value: &Value) -> Vec<String> {
    let below = |name: &str, value: &Value| -> Vec<String> {
        // RFC 6901 §3.
        let name = name.replace('~', "~0").replace('/', "~1");
        pointers(value).into_iter().map(|pointer| format!("/{name}{pointer}")).collect()
    };
    let mut found = vec![String::new()];
    match value {
        Value::Object(members) => {
            found.extend(members.iter().flat_map(|(name, member)| below(name, member)));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            found.extend(items.flat_map(|(index, item)| below(&index.to_string(), item)));
        }
        _ => {}
    }
    found
}
