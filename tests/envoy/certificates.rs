//! TLS certificates of clients: authentication by a certificate, and access tokens that are bound
//! to one (RFC 8705), with curl as the client.

use std::process::Command;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::{Configuration, ORDERS, PROVIDER_KEY, sha256_hex};
use testkit::envoy::Envoy;
use testkit::gateway::{BEARER, actor_claims, backend_claims, exchange_form, raw_part, with_actor};
use testkit::guarded::{API, bound_listener, filter_configuration, guard_configuration};
use testkit::holder::changed;
use testkit::http::Form;
use testkit::scratch;
use testkit::server::{Server, as_asked};
use testkit::tls::{Authority, Identity, certificate_digest};

static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::new(&scratch().join("tls/clients")));

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

/// Sends a request with curl, with a client certificate. Returns what went wrong if there is no
/// answer.
fn try_curl(
    envoy: &Envoy,
    listener: &str,
    path: &str,
    identity: Option<&Identity>,
    more: &[&str],
) -> Result<Curled, String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}"]);
    command.arg("--cacert").arg(&AUTHORITY.certificate);
    if let Some(Identity { certificate, key }) = identity {
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    command.args(more).arg(format!("https://{}{path}", envoy.address(listener)));
    let output = command.output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let (body, status) = text.rsplit_once('\n').unwrap();
    let body = serde_json::from_str(body).unwrap_or_default();
    Ok(Curled { status: status.parse().unwrap(), body })
}

/// Sends a request that is answered.
fn curl(
    envoy: &Envoy,
    listener: &str,
    path: &str,
    identity: Option<&Identity>,
    more: &[&str],
) -> Curled {
    try_curl(envoy, listener, path, identity, more).unwrap()
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
    let elsewhere = Authority::new(&scratch().join("tls/strangers"));
    let [forged, own] = ["portal", "own"].map(|name| elsewhere.issue(name));
    let registered = json!({"keys": [{"kty": "EC", "crv": "P-256", "x5t#S256": certificate_digest(&own.certificate),
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
        .with("/clients/-", client("either", json!({
            "client_secret_sha256": [sha256_hex("secret")], "tls_client_auth": {"subject": "CN=portal"},
            "authentication": ["client_secret_post", "tls_client_auth"],
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
        ("either, no credentials",     "gateway",   of("either"),  Some(&another), &unauthorized),
        ("either, a wrong secret",     "gateway",   of("either").set("client_secret", "x"), Some(&portal), &unauthorized),
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
        ("either", "gateway", of("either"), &portal),
        ("secret", "gateway", of("either").set("client_secret", "secret"), &another),
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
        let digest = certificate_digest(&identity.certificate);
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
        if case == "secret" {
            continue;
        }
        // The other endpoints authenticate clients in the same way.
        let form = Form::default().set("token", token).set("client_id", case).encode();
        let post = |path: &str, identity: Option<&Identity>| {
            let path = format!("/oidc/token/{path}");
            let answer = curl(&envoy, listener, &path, identity, &["-d", &form]);
            (answer.status, answer.body)
        };
        for path in ["introspection", "revocation"] {
            // Every certificate here has the name of `by-dns`.
            let strangers = if case == "by-dns" { vec![None] } else { vec![None, Some(&server)] };
            for stranger in strangers {
                let (status, body) = post(path, stranger);
                let told = (status, body["error"].clone());
                findings.expect(format!("{case}, {path}"), &told, &unauthorized);
            }
        }
        let introspect = || post("introspection", Some(identity)).1;
        let told = introspect();
        findings.expect(case, &told["active"], &json!(true));
        findings.expect(case, &told["token_type"], &json!("Bearer"));
        findings.expect(case, &told["cnf"], &json!({"x5t#S256": digest}));
        findings.expect(case, &post("revocation", Some(identity)).0, &200);
        findings.expect(case, &introspect()["active"], &json!(false));
    }
}

/// Tokens that the filter gets and that are bound to a certificate: of a backend, and of an actor.
#[test]
fn a_presented_token_that_is_bound_to_a_certificate_needs_it() {
    let [own, another, server] =
        ["bound", "stranger", "bound-server"].map(|name| AUTHORITY.issue(name));
    let client = json!({"client_id": "tls", "type": "native", "token_binding": "mtls"});
    let configuration = filter_configuration().with("/clients/-", client);
    let listener = Listener::new("gateway").filter(Filter::from(&configuration));
    let listener = listener.answer("/", "the gateway").tls(server).edited(verifying);
    let envoy = Bootstrap::default().listener(listener).start();
    let cnf = json!({"cnf": {"x5t#S256": certificate_digest(&own.certificate)}});
    let bound = PROVIDER_KEY.sign(&changed(backend_claims(), &cnf));
    let mint = |identity: Option<&Identity>, scheme: &str| {
        let authorization = format!("authorization: {scheme} {bound}");
        let json = ["-H", "content-type: application/json", "-d", r#"{"userId":"u-1"}"#];
        let more = [&["-H", &*authorization][..], &json].concat();
        let answer = curl(&envoy, "gateway", "/api/subject-tokens", identity, &more);
        (answer.status, answer.body["error"].clone())
    };
    let actor = PROVIDER_KEY.sign(&changed(actor_claims("agent-1"), &cnf));
    let token = self::mint(&envoy);
    let act = |identity: Option<&Identity>| {
        let form = with_actor(exchange_form(&token), &actor);
        let answer = exchange(&envoy, "gateway", &form, identity);
        (answer.status, answer.body["error"].clone())
    };
    let mut findings = Findings::default();
    let refused = (401, json!("invalid_token"));
    findings.expect("a mint, no certificate", &mint(None, "Bearer"), &refused);
    findings.expect("a mint, another one", &mint(Some(&another), "Bearer"), &refused);
    findings.expect("a mint, another scheme", &mint(Some(&own), "DPoP").0, &401);
    findings.expect("a mint", &mint(Some(&own), "Bearer").0, &201);
    let refused = (400, json!("invalid_request"));
    findings.expect("an actor, no certificate", &act(None), &refused);
    findings.expect("an actor, another one", &act(Some(&another)), &refused);
    findings.expect("an actor", &act(Some(&own)).0, &200);
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
    let of_proxy = json!(certificate_digest(&proxy.certificate));
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

/// A proxy that ends TLS, as Envoy is one: it removes the header that clients write, and writes its
/// own (RFC 8705 §6.5).
fn a_proxy(listener: &mut Value) {
    verifying(listener);
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    manager["forward_client_cert_details"] = "SANITIZE_SET".into();
    manager["set_current_client_cert_details"] = json!({"subject": true, "dns": true});
}

#[test]
fn a_certificate_that_a_proxy_forwards_binds_from_the_exchange_to_the_api() {
    let names = ["ending-proxy", "behind-it", "customer", "thief"];
    let [proxy, server, customer, thief] = names.map(|name| AUTHORITY.issue(name));
    let client = json!({
        "client_id": "customer", "type": "traditional_web", "token_binding": "mtls",
        "authentication": "tls_client_auth", "tls_client_auth": {"subject": "CN=customer"},
    });
    let configuration = filter_configuration().with("/clients/-", client);
    let configuration = configuration.with("/client_certificate", "forwarded");
    let gateway = Listener::new("gateway").filter(Filter::from(&configuration));
    let api = Server::start(API);
    api.answer(as_asked);
    let guarded = |members: Value| {
        let listener = bound_listener(&guard_configuration(&members), true);
        listener.tls(server.clone()).edited(behind_a_proxy)
    };
    let inner = |listener: Listener| {
        Bootstrap::default()
            .listener(listener)
            .cluster(Cluster::new(API, api.address).as_downstream())
            .start()
    };
    let forwarded = json!({"client_certificate": "forwarded"});
    let gateway = gateway.answer("/", "the gateway").tls(server.clone()).edited(behind_a_proxy);
    let behind = [
        ("gateway", "gateway", inner(gateway)),
        ("guarded", "guarded", inner(guarded(forwarded))),
        ("not-configured", "guarded", inner(guarded(json!({})))),
    ];
    let bootstrap =
        behind.iter().fold(Bootstrap::default(), |bootstrap, (name, listener, envoy)| {
            let cluster = Cluster::new(name, envoy.address(listener));
            let front =
                Listener::new(name).route_to(name, "60s").tls(server.clone()).edited(a_proxy);
            bootstrap.listener(front).cluster(cluster.by_tls(&proxy, &AUTHORITY.certificate))
        });
    let front = bootstrap.start();

    let mut findings = Findings::default();
    let token = mint(&front);
    let form = exchange_form(&token).set("client_id", "customer");
    let digest_of = |identity: &Identity| certificate_digest(&identity.certificate);
    let hash = |identity: &Identity| {
        let hash = URL_SAFE_NO_PAD.decode(digest_of(identity)).unwrap();
        hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let forged =
        format!("x-forwarded-client-cert: Hash={};Subject=\"CN=customer\"", hash(&customer));
    for (case, identity) in [("no certificate", None), ("another's", Some(&thief))] {
        let more = ["-d", &form.encode(), "-H", &forged];
        let answer = curl(&front, "gateway", "/oidc/token", identity, &more);
        let told = (answer.status, answer.body["error"].clone());
        findings.expect(case, &told, &(401, json!("invalid_client")));
    }
    let granted = exchange(&front, "gateway", &form, Some(&customer));
    assert_eq!(granted.status, 200, "{}", granted.body);
    let token = granted.body["access_token"].as_str().unwrap();
    let cnf = json!({"x5t#S256": digest_of(&customer)});
    findings.expect("cnf", &raw_part(token, 1)["cnf"], &cnf);

    let bearer = format!("authorization: Bearer {token}");
    let refused = (401, json!("invalid_token"));
    let passed = (200, Value::Null);
    #[rustfmt::skip]
    let cases = [
        ("its certificate",               "guarded",        Some(&customer), &bearer, &passed),
        ("its certificate and a forgery", "guarded",        Some(&customer), &forged, &passed),
        ("no certificate",                "guarded",        None,            &bearer, &refused),
        ("no certificate, a forgery",     "guarded",        None,            &forged, &refused),
        ("another's",                     "guarded",        Some(&thief),    &bearer, &refused),
        ("another's, a forgery",          "guarded",        Some(&thief),    &forged, &refused),
        ("a guard that is not told",      "not-configured", Some(&customer), &bearer, &refused),
    ];
    for (case, listener, identity, header, expected) in cases {
        let more = ["-H", &bearer, "-H", header];
        let more = if header == &bearer { &more[..2] } else { &more[..] };
        let answer = curl(&front, listener, "/orders", identity, more);
        findings.expect(case, &(answer.status, answer.body["error"].clone()), expected);
    }
    // Nobody but the proxy gets to the Envoys behind it.
    for (name, listener, envoy) in &behind {
        let answer = try_curl(envoy, listener, "/orders", None, &["-H", &bearer, "-H", &forged]);
        findings.expect(*name, &answer.is_err(), &true);
    }
}
