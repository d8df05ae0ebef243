//! TLS certificates of clients: authentication by a certificate, and access tokens that are bound to
//! one (RFC 8705), with curl as the client.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::{Configuration, ORDERS, sha256_hex};
use testkit::envoy::Envoy;
use testkit::gateway::{BEARER, exchange_form, raw_part};
use testkit::guarded::{API, bound_listener, filter_configuration, guard_configuration};
use testkit::holder::sha256;
use testkit::http::Form;
use testkit::scratch;
use testkit::server::{Server, as_asked};
use testkit::tls::{Authority, Identity};

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    Authority::new(&scratch().join(format!("tls/{}-clients", std::process::id())))
});

/// The bytes of a certificate file.
fn der(certificate: &Path) -> Vec<u8> {
    let pem = std::fs::read_to_string(certificate).unwrap();
    let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(lines).unwrap()
}

fn validation(listener: &mut Value) -> &mut Value {
    let context = "/filter_chains/0/transport_socket/typed_config/common_tls_context";
    listener.pointer_mut(context).unwrap()
}

/// Verifies certificates, and lets clients without one pass.
fn verifying(listener: &mut Value) {
    validation(listener)["validation_context"] =
        json!({"trusted_ca": {"filename": AUTHORITY.certificate}});
}

/// Accepts every certificate.
fn accepting(listener: &mut Value) {
    validation(listener)["validation_context"] = json!({
        "trusted_ca": {"filename": AUTHORITY.certificate},
        "trust_chain_verification": "ACCEPT_UNTRUSTED",
    });
}

/// An answer that curl got.
struct Curled {
    status: u16,
    body: Value,
}

/// Sends a request with curl, with a client certificate.
fn curl(
    envoy: &Envoy,
    listener: &str,
    path: &str,
    identity: Option<&Identity>,
    more: &[&str],
) -> Curled {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}"]);
    command.arg("--cacert").arg(&AUTHORITY.certificate);
    if let Some(Identity { certificate, key }) = identity {
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    command.args(more).arg(format!("https://{}{path}", envoy.address(listener)));
    let output = command.output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or_else(|| {
        panic!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
    });
    Curled { status: status.parse().unwrap(), body: serde_json::from_str(body).unwrap_or_default() }
}

fn mint(envoy: &Envoy) -> String {
    let bearer = format!("authorization: Bearer {}", *BEARER);
    let more = ["-H", &bearer, "-H", "content-type: application/json", "-d", r#"{"userId":"u-1"}"#];
    let minted = curl(envoy, "gateway", "/api/subject-tokens", None, &more);
    minted.body["subjectToken"].as_str().expect("a subject token").to_owned()
}

fn exchange(envoy: &Envoy, listener: &str, form: &Form, identity: Option<&Identity>) -> Curled {
    curl(envoy, listener, "/oidc/token", identity, &["-d", &form.encode()])
}

#[test]
fn a_certificate_authenticates_a_client_and_binds_its_tokens() {
    let names = ["portal", "another", "server"];
    let [portal, another, server] = names.map(|name| AUTHORITY.issue(name));
    let elsewhere =
        Authority::new(&scratch().join(format!("tls/{}-strangers", std::process::id())));
    let [forged, own] = ["portal", "own"].map(|name| elsewhere.issue(name));
    let registered = json!({"keys": [{"kty": "EC", "crv": "P-256", "x5t#S256": sha256(der(&own.certificate)),
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]});
    let client = |client_id: &str, members: Value| {
        let mut client =
            json!({"client_id": client_id, "type": "traditional_web", "token_binding": "mtls"});
        client.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        client
    };
    let by_name =
        |name: Value| json!({"authentication": "tls_client_auth", "tls_client_auth": name});
    let configuration = filter_configuration()
        .with("/clients/-", client("portal", by_name(json!({"subject": "CN=portal"}))))
        .with("/clients/-", client("by-dns", by_name(json!({"san_dns": "localhost"}))))
        .with("/clients/-", client("nobody", by_name(json!({"san_dns": "nobody.example.com"}))))
        .with("/clients/-", client("own", json!({
            "authentication": "self_signed_tls_client_auth",
            "local_jwks": {"inline_string": registered.to_string()},
        })))
        .with("/clients/-", client("secret", json!({
            "client_secret_sha256": [sha256_hex("secret")], "authentication": "client_secret_post",
        })));
    let gateway = |name: &str, edit: fn(&mut Value)| {
        let listener = Listener::new(name).filter(Filter::from(&configuration));
        listener.answer("/", "the gateway").tls(server.clone()).edited(edit)
    };
    let api = Server::start(API);
    api.answer(as_asked);
    let guarded = bound_listener(&guard_configuration(&json!({})), true);
    let envoy = Bootstrap::default()
        .listener(gateway("gateway", verifying))
        .listener(gateway("accepting", accepting))
        .listener(guarded.tls(server.clone()).edited(accepting))
        .cluster(Cluster::new(API, api.address).as_downstream())
        .start();

    let mut findings = Findings::default();
    let token = mint(&envoy);
    let of = |client: &str| exchange_form(&token).set("client_id", client);
    let unauthorized = (401, json!("invalid_client"));
    #[rustfmt::skip]
    let refusals = [
        ("no certificate",             "gateway",   of("portal"),  None,           &unauthorized),
        ("another's certificate",      "gateway",   of("portal"),  Some(&another), &unauthorized),
        ("another name",               "gateway",   of("nobody"),  Some(&portal),  &unauthorized),
        ("not registered",             "accepting", of("own"),     Some(&portal),  &unauthorized),
        ("a forgery of its name",      "accepting", of("own"),     Some(&forged),  &unauthorized),
        ("a secret instead",           "gateway",   of("portal").set("client_secret", "secret"), Some(&portal), &unauthorized),
        ("no certificate to bind to",  "gateway",   of("secret").set("client_secret", "secret"), None, &(400, json!("invalid_request"))),
    ];
    for (case, listener, form, identity, expected) in refusals {
        let answer = exchange(&envoy, listener, &form, identity);
        findings.expect(case, &(answer.status, answer.body["error"].clone()), expected);
    }
    let successes = [
        ("portal", "gateway", of("portal"), &portal),
        ("by-dns", "gateway", of("by-dns"), &another),
        ("own", "accepting", of("own"), &own),
        ("secret", "gateway", of("secret").set("client_secret", "secret"), &another),
    ];
    for (case, listener, form, identity) in successes {
        let form = form.set("subject_token", &mint(&envoy));
        let answer = exchange(&envoy, listener, &form, Some(identity));
        findings.expect(
            case,
            &(answer.status, answer.body["token_type"].clone()),
            &(200, json!("Bearer")),
        );
        let Some(token) = answer.body["access_token"].as_str() else { continue };
        let claims = raw_part(token, 1);
        findings.expect(case, &claims["aud"], &json!(ORDERS));
        let digest = sha256(der(&identity.certificate));
        findings.expect(case, &claims["cnf"], &json!({"x5t#S256": digest}));
        let bearer = format!("authorization: Bearer {token}");
        let call = |identity: Option<&Identity>, header: &str| {
            let answer = curl(&envoy, "guarded", "/orders", identity, &["-H", header]);
            (answer.status, answer.body["error"].clone())
        };
        findings.expect(case, &call(Some(identity), &bearer).0, &200);
        let refused = (401, json!("invalid_token"));
        findings.expect(format!("{case}, no certificate"), &call(None, &bearer), &refused);
        findings.expect(format!("{case}, the server's"), &call(Some(&server), &bearer), &refused);
        let by_dpop = bearer.replace("Bearer", "DPoP");
        findings.expect(format!("{case}, DPoP"), &call(Some(identity), &by_dpop), &refused);
    }
}

/// Trusts the header of a proxy, and lets nobody else connect.
fn behind_a_proxy(listener: &mut Value) {
    verifying(listener);
    let chain = &mut listener["filter_chains"][0];
    chain["transport_socket"]["typed_config"]["require_client_certificate"] = true.into();
    chain["filters"][0]["typed_config"]["forward_client_cert_details"] = "FORWARD_ONLY".into();
}

/// A header that anybody can write counts only where the operator says that a proxy writes it.
#[test]
fn a_forwarded_certificate_counts_only_where_it_is_configured() {
    let [proxy, server] = ["proxy", "proxied-server"].map(|name| AUTHORITY.issue(name));
    let client = json!({"client_id": "tls", "type": "native", "token_binding": "mtls"});
    let configuration = filter_configuration().with("/clients/-", client);
    let forwarded = configuration.clone().with("/client_certificate", "forwarded");
    let gateway = |name: &str, configuration: &Configuration, edit: fn(&mut Value)| {
        let listener = Listener::new(name).filter(Filter::from(configuration));
        listener.answer("/", "the gateway").tls(server.clone()).edited(edit)
    };
    let envoy = Bootstrap::default()
        .listener(gateway("gateway", &configuration, verifying))
        .listener(gateway("proxied", &forwarded, behind_a_proxy))
        .listener(gateway("removed", &forwarded, verifying))
        .start();
    let header = |value: &str| format!("x-forwarded-client-cert: {value}");
    let one = format!("Hash={};Subject=\"CN=portal\"", "01".repeat(32));
    let ask = |listener: &str, values: &[&str]| {
        let form = exchange_form(&mint(&envoy)).set("client_id", "tls").encode();
        let headers: Vec<_> = values.iter().map(|value| header(value)).collect();
        let mut more: Vec<&str> = vec!["-d", &form];
        headers.iter().for_each(|header| more.extend(["-H", header]));
        curl(&envoy, listener, "/oidc/token", Some(&proxy), &more)
    };
    let bound = |answer: &Curled| {
        let token = answer.body["access_token"].as_str();
        token.map_or(Value::Null, |token| raw_part(token, 1)["cnf"]["x5t#S256"].clone())
    };
    let of_proxy = json!(sha256(der(&proxy.certificate)));
    assert_eq!(bound(&ask("gateway", &[&one])), of_proxy, "the connection's certificate counts");
    let answer = ask("proxied", &[&one]);
    assert_eq!(bound(&answer), json!(URL_SAFE_NO_PAD.encode([1; 32])), "{:?}", answer.body);
    // Envoy has removed the header.
    assert_eq!(ask("removed", &[&one]).status, 400);
    let two = format!("{one},{one}");
    for (case, values) in
        [("none", &[][..]), ("two elements", &[&*two]), ("two headers", &[&*one, &*one])]
    {
        let answer = ask("proxied", values);
        assert_eq!(
            (answer.status, &answer.body["error"]),
            (400, &json!("invalid_request")),
            "{case}"
        );
    }
}
