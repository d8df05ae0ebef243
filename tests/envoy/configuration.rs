//! The configurations that an operator may write. Every other is refused with the path of the
//! mistake and without printing a secret.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::{Filter, Plugin};
use testkit::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, SIGNING_KEY, jwks,
    sha256_hex,
};
use testkit::gateway::{Gateway, Listeners, Options, exchange_form, mint_request};
use testkit::keys::Key;

#[test]
fn both_forms_of_configuration_mean_the_same() {
    let configuration = Configuration::default()
        .with("/subject_tokens/lifetime", "250s")
        .with("/store/shared_data/capacity", 5)
        .with("/actor_tokens/required", false)
        .with("/clients/-", json!({"client_id": "tricky \"ü\"\n", "type": "native"}));
    let text = Plugin::Text(configuration.0.to_string());
    let pretty = Plugin::Text(serde_json::to_string_pretty(&configuration.0).unwrap());
    for plugin in [Plugin::Struct(configuration.0.clone()), text, pretty] {
        let case = format!("{plugin:?}").chars().take(10).collect::<String>();
        let options = Options { listeners: Listeners::Static, ..Options::default() };
        let gateway = Gateway::try_start(plugin, &options).unwrap();
        assert_eq!(gateway.send(&mint_request("u-1")).json()["expiresIn"], 250, "{case}");
        let form = exchange_form(&gateway.mint("u-1")).set("client_id", "tricky \"ü\"\n");
        assert_eq!(gateway.exchange(&form).status, 200, "{case}");
    }
}

#[test]
fn durations_are_written_as_envoy_writes_them_and_more() {
    let gateway = Gateway::lent(&Configuration::default());
    let mut findings = Findings::default();
    for (written, seconds) in [("90s", 90), ("10m", 600), ("1h", 3600), ("1s", 1), ("2000ms", 2)] {
        let configuration = Configuration::default().with("/subject_tokens/lifetime", written);
        match gateway.update(&configuration) {
            Ok(()) => {
                let answer = gateway.send(&mint_request("u-1"));
                findings.expect(written, &answer.json()["expiresIn"], &json!(seconds));
            }
            Err(log) => findings.add(format!("{written}: refused: {log}")),
        }
    }
}

#[test]
fn the_log_warns_if_nobody_can_end_an_impersonation() {
    const WARNING: &str = "configuration: impersonations: absent: nobody can list impersonations";
    let absent = Gateway::start(&Configuration::default());
    assert!(absent.envoy.log().contains(WARNING));
    let operators = json!({
        "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let given =
        Configuration::default().with("/impersonations/authentication/jwt", json!([operators]));
    assert!(!Gateway::start(&given).envoy.log().contains(WARNING));
}

#[test]
fn envoy_does_not_start_with_a_wrong_configuration() {
    let mut findings = Findings::default();
    for (path, configuration) in [
        ("subject_tokens.lifetime", Configuration::default().with("/subject_tokens/lifetime", 600)),
        ("isuer", Configuration::default().with("/isuer", "https://auth.example.com/oidc")),
    ] {
        let options = Options { listeners: Listeners::Static, ..Options::default() };
        match Gateway::try_start(&configuration, &options) {
            Ok(_) => findings.add(format!("{path}: accepted")),
            Err(exit) => {
                findings.expect(path, &exit.code, &Some(1));
                findings.expect(format!("{path} named"), &exit.log.contains(path), &true);
            }
        }
    }
}

/// Returns a key with some of its members changed. A member of `null` is left out.
fn key_with(changes: Value) -> Value {
    let mut jwk = SIGNING_KEY.private_jwk();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            jwk.as_object_mut().unwrap().remove(name);
        } else {
            jwk[name] = value.clone();
        }
    }
    json!({"jwk": jwk})
}

#[test]
fn every_mistake_is_refused_with_its_path() {
    let ok = Configuration::default;
    let secret = sha256_hex(&CLIENT_SECRET);
    let rsa = Key::generate(Algorithm::RS256, "rsa");
    let public = json!({"jwk": SIGNING_KEY.public_jwk()});
    let half_pem = SIGNING_KEY.pem().replace("-----END", "----END");
    let d = SIGNING_KEY.private_jwk()["d"].clone();
    const JWT: &str = "/subject_tokens/authentication/jwt/0";
    let jwt = |member: &str, value: Value| ok().with(&format!("{JWT}/{member}"), value);
    let operators = json!([{
        "issuer": ISSUER, "audiences": [MANAGEMENT], "client_ids": ["operations"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    }]);
    let of_operations = ok().with("/impersonations/authentication/jwt", operators);
    let page = json!({"client_id": "oncall", "scopes": ["openid", "impersonations:read"]});
    #[rustfmt::skip]
    let cases: Vec<(&[&str], Configuration)> = vec![
        // Unknown members.
        (&["isuer"],                                   ok().with("/isuer", "https://a.example")),
        (&["subject_tokens", "life_time"],             ok().with("/subject_tokens/life_time", "1s")),
        (&["clients", "0", "secret"],                  ok().with("/clients/0/secret", "x")),
        (&["resources", "1", "scope"],                 ok().with("/resources/1/scope", "x")),
        (&["store", "memory"],                         ok().with("/store/memory", json!({}))),
        (&["subject_tokens", "store"],                 ok().with("/subject_tokens/store", json!({}))),
        (&["signing_keys", "0", "file"],               ok().with("/signing_keys/0/file", "x")),
        // Missing members.
        (&["issuer"],                                  ok().without("/issuer")),
        (&["signing_keys"],                            ok().without("/signing_keys")),
        (&["subject_tokens"],                          ok().without("/subject_tokens")),
        (&["subject_tokens", "authentication"],        ok().without("/subject_tokens/authentication")),
        (&["clients", "2", "client_id"],               ok().without("/clients/2/client_id")),
        (&["clients", "0", "type"],                    ok().without("/clients/0/type")),
        (&["resources", "0", "indicator"],             ok().without("/resources/0/indicator")),
        (&["jwt", "0", "issuer"],                      ok().without(&format!("{JWT}/issuer"))),
        (&["jwt", "0", "audiences"],                   ok().without(&format!("{JWT}/audiences"))),
        (&["jwt", "0"],                                ok().without(&format!("{JWT}/local_jwks"))),
        // Wrong types.
        (&["issuer"],                                  ok().with("/issuer", 1)),
        (&["issuer"],                                  ok().with("/issuer", Value::Null)),
        (&["base_path"],                               ok().with("/base_path", true)),
        (&["signing_keys"],                            ok().with("/signing_keys", json!({}))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", "key")),
        (&["signing_keys", "0", "jwk"],                ok().with("/signing_keys/0/jwk", "key")),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", 600)),
        (&["max_context_bytes"],                       ok().with("/subject_tokens/max_context_bytes", "4096")),
        (&["max_context_bytes"],                       ok().with("/subject_tokens/max_context_bytes", 4096.5)),
        (&["max_context_bytes"],                       ok().with("/subject_tokens/max_context_bytes", -1)),
        (&["capacity"],                                ok().with("/store/shared_data/capacity", "10")),
        (&["capacity"],                                ok().with("/store/shared_data/capacity", 0.5)),
        (&["capacity"],                                ok().with("/store/shared_data/capacity", 1e300)),
        (&["clients"],                                 ok().with("/clients", "support-portal")),
        (&["clients", "0", "type"],                    ok().with("/clients/0/type", "spa")),
        (&["clients", "2", "client_secret_sha256"],    ok().with("/clients/2/client_secret_sha256", secret.clone())),
        (&["resources", "0", "scopes"],                ok().with("/resources/0/scopes", "orders:read orders:write")),
        (&["actor_tokens", "required"],                ok().with("/actor_tokens/required", "true")),
        (&["foreign_subject_tokens"],                  ok().with("/foreign_subject_tokens", "ignore")),
        (&["identity_gateway", "documents"],           ok().with("/identity_gateway/documents", "some")),
        (&["jwt", "0", "audiences"],                   jwt("audiences", json!("https://a.example"))),
        (&["jwt", "0", "required_scopes"],             jwt("required_scopes", json!("impersonate"))),
        (&["jwt", "0", "local_jwks"],                  jwt("local_jwks", json!("{}"))),
        // Values that cannot be meant.
        (&["issuer"],                                  ok().with("/issuer", "")),
        (&["base_path"],                               ok().with("/base_path", "tenant-a")),
        (&["base_path"],                               ok().with("/base_path", "/tenant-a/")),
        (&["base_path"],                               ok().with("/base_path", "/tenant?a")),
        (&["signing_keys"],                            ok().with("/signing_keys", json!([]))),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", "600")),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", "0s")),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", "-5s")),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", "soon")),
        (&["subject_tokens", "lifetime"],              ok().with("/subject_tokens/lifetime", "99999999999999999999s")),
        (&["access_tokens", "lifetime"],               ok().with("/access_tokens/lifetime", "0s")),
        (&["access_token_lifetime"],                   ok().with("/resources/0/access_token_lifetime", "x")),
        (&["capacity"],                                ok().with("/store/shared_data/capacity", 0)),
        (&["jwt", "0", "audiences"],                   jwt("audiences", json!([]))),
        (&["jwt", "0", "local_jwks"],                  jwt("local_jwks", json!({"inline_string": "no JSON"}))),
        (&["jwt", "0", "local_jwks"],                  jwt("local_jwks", json!({"inline_string": "{\"keys\":[]}"}))),
        (&["jwt", "0", "clock_skew"],                  jwt("clock_skew", json!("-1s"))),
        (&["clients", "2", "client_secret_sha256"],    ok().without("/clients/2/client_secret_sha256")),
        (&["clients", "2", "client_secret_sha256"],    ok().with("/clients/2/client_secret_sha256", json!([]))),
        (&["client_secret_sha256", "0"],               ok().with("/clients/2/client_secret_sha256/0", "2bb80d53")),
        (&["client_secret_sha256", "0"],               ok().with("/clients/2/client_secret_sha256/0", "z".repeat(64))),
        (&["client_secret_sha256", "0"],               ok().with("/clients/2/client_secret_sha256/0", CLIENT_SECRET.as_str())),
        (&["clients", "0", "client_secret_sha256"],    ok().with("/clients/0/client_secret_sha256", json!([secret]))),
        (&["clients", "0", "client_id"],               ok().with("/clients/0/client_id", "")),
        (&["clients", "support-console"],              ok().with("/clients/1/client_id", "support-console")),
        (&["clients", "0", "resources"],               ok().with("/clients/0/resources", json!(["https://nowhere.example"]))),
        (&["resources", "0", "indicator"],             ok().with("/resources/0/indicator", "/orders")),
        (&["resources", "0", "indicator"],             ok().with("/resources/0/indicator", "https://api.example.com/#orders")),
        (&["resources", ORDERS],                       ok().with("/resources/1/indicator", ORDERS)),
        (&["resources", "0", "scopes", "1"],           ok().with("/resources/0/scopes", json!(["a", "b c"]))),
        (&["resources", "0", "scopes", "0"],           ok().with("/resources/0/scopes", json!(["\""]))),
        (&["resources", "0", "scopes"],                ok().with("/resources/0/scopes", json!([""]))),
        // A page that could show nothing to anybody.
        (&["console", "client_id"],                    of_operations.with("/console", page)),
        // Keys that cannot sign.
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", json!({}))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0/pem", SIGNING_KEY.pem())),
        (&["signing_keys"],                            ok().with("/signing_keys/0", public)),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"kty": "oct", "k": d})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"crv": "Ed448"})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"alg": "HS256"})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"alg": "ES256"})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"d": "AAAA"})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"d": d.as_str().unwrap().replace(|c: char| c.is_lowercase(), "!")})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"x": Key::generate(Algorithm::EdDSA, "x").public_jwk()["x"]})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", key_with(json!({"kid": 1})))),
        (&["signing_keys", "0", "pem"],                ok().with("/signing_keys/0", json!({"pem": half_pem}))),
        (&["signing_keys", "0", "pem"],                ok().with("/signing_keys/0", json!({"pem": ""}))),
        (&["signing_keys", "0", "environment_variable"], ok().with("/signing_keys/0", json!({"environment_variable": "NOT_SET"}))),
        (&["signing_keys", "1"],                       ok().with("/signing_keys/-", key_with(json!({})))),
        (&["signing_keys", "0"],                       ok().with("/signing_keys/0", with_small_modulus(&rsa))),
    ];
    let gateway = Gateway::start(&ok());
    let token = gateway.mint("u-1");
    let mut findings = Findings::default();
    for (path, configuration) in cases {
        let case = format!("{}: {}", path.join("."), changed(&configuration));
        match gateway.update(&configuration) {
            Ok(()) => findings.add(format!("{case}: accepted")),
            Err(log) if !names(&log, path) => {
                let reason: Vec<_> = log.lines().filter(|line| line.contains("wasm")).collect();
                findings.add(format!("{case}: the path is not in {reason:#?}"));
            }
            Err(_) => {}
        }
    }
    // The last good configuration still serves, and the log contains no secret.
    gateway.update(&ok()).unwrap();
    gateway.assert_spendable(&token, "after many mistakes");
    let log = gateway.envoy.log();
    for secret in [SIGNING_KEY.secrets(), rsa.secrets(), vec![CLIENT_SECRET.clone()]].concat() {
        // The last line of a PEM may be so short that it occurs by chance.
        if secret.len() > 8 && log.contains(&secret) {
            findings.add(format!("a secret in the log: {secret}"));
        }
    }
}

/// Returns true if a line of the log names the steps of the path in their order.
fn names(log: &str, path: &[&str]) -> bool {
    log.lines().any(|line| {
        let mut rest = line;
        path.iter().all(|step| match rest.find(step) {
            Some(at) => {
                rest = &rest[at + step.len()..];
                true
            }
            None => false,
        })
    })
}

/// Returns the members that differ from the good configuration, for messages.
fn changed(configuration: &Configuration) -> String {
    fn walk(path: &str, good: &Value, now: &Value, out: &mut Vec<String>) {
        match (good, now) {
            (Value::Object(a), Value::Object(b)) => {
                for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                    let null = &Value::Null;
                    let [a, b] = [a, b].map(|object| object.get(name).unwrap_or(null));
                    walk(&format!("{path}.{name}"), a, b, out);
                }
            }
            (a, b) if a != b => {
                out.push(format!("{path} = {}", b.to_string().chars().take(60).collect::<String>()))
            }
            _ => {}
        }
    }
    let mut out = Vec::new();
    walk("", &Configuration::default().0, &configuration.0, &mut out);
    out.join(", ")
}

fn with_small_modulus(rsa: &Key) -> Value {
    let mut jwk = rsa.private_jwk();
    jwk["n"] = json!("AQAB");
    json!({"jwk": jwk})
}

#[test]
fn a_wrong_key_from_the_environment_is_not_printed() {
    let gateway = Gateway::lent(&Configuration::default());
    let configuration =
        Configuration::default().with("/signing_keys/0", json!({"environment_variable": "KEY"}));
    let wrong = ["super-secret-but-no-key", r#"{"kty":"OKP","d":"super-secret-but-no-key"}"#];
    for value in wrong {
        let filter = Filter {
            environment: vec![("KEY".into(), value.into())],
            ..Filter::from(&configuration)
        };
        let log = gateway.update(&filter).unwrap_err();
        assert!(names(&log, &["signing_keys", "0"]), "{log}");
        assert!(!log.contains("super-secret"), "{log}");
    }
}
