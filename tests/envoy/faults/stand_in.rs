//! The documents that stand in while the identity gateway fails are the filter's own: no caller's
//! request decides what others get.

use serde_json::json;

use super::documents::{gateway_with_documents, stand_in, wait_for_a_fetch};
use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Cluster, Listener};
use testkit::configuration::{ISSUER, PROVIDER_KEY};
use testkit::documents::{DISCOVERY, JWKS, keeping, kids};
use testkit::envoy::Envoy;
use testkit::gateway::{IDENTITY_GATEWAY, backend_claims, in_front_of};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::{Fault, Received, Reply, Server};

/// The issuer's authority, at which the filter asks.
const AUTHORITY: &str = "auth.example.com";

/// A gateway of many tenants: whoever names another host, in any way, or an application gets the
/// stranger's keys and endpoints.
fn gateway_of_tenants(ours: &Key, strangers: &Key) -> Server {
    let keys = |key: &Key| json!({"keys": [key.public_jwk()]});
    let documents = [keys(ours), keys(strangers)];
    let gateway = Server::start(IDENTITY_GATEWAY);
    gateway.answer(move |asked| {
        let host = ["x-forwarded-host", "host"].into_iter().find_map(|name| asked.header(name));
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let is_strangers = host != Some(AUTHORITY) || !query.is_empty();
        Reply::json(&if path == JWKS {
            documents[usize::from(is_strangers)].clone()
        } else {
            let origin =
                if is_strangers { "https://evil.example" } else { "https://auth.example.com" };
            json!({
                "issuer": ISSUER,
                "token_endpoint": format!("{origin}/oidc/token"),
                "jwks_uri": format!("{origin}{JWKS}"),
            })
        })
    });
    gateway
}

/// An API whose Envoy fetches the filter's key set when the first token arrives.
fn api(filter: &Envoy) -> Envoy {
    let jwt_authn = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"ours": {
                "issuer": ISSUER,
                "remote_jwks": {"http_uri": {
                    "uri": format!("http://{AUTHORITY}{JWKS}"), "cluster": "filter", "timeout": "5s",
                }},
            }},
            "rules": [{"match": {"prefix": "/orders"}, "requires": {"provider_name": "ours"}}],
        },
    });
    let listener = Listener::new("api").filter(jwt_authn).answer("/", "orders");
    let filter = Cluster::new("filter", filter.address("gateway"));
    Bootstrap::default().listener(listener).cluster(filter).start()
}

#[test]
fn a_strangers_request_does_not_decide_what_stands_in_for_a_failing_gateway() {
    let strangers = Key::generate(PROVIDER_KEY.alg, "strangers");
    let gateway = gateway_of_tenants(&PROVIDER_KEY, &strangers);
    let envoy = in_front_of(&[&gateway], &keeping(&json!({}))).workers(2).start();
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        wait_for_a_fetch(&gateway, 0, target);
        for (case, query, name, value) in [
            ("Host", "", "host", "evil.example"),
            ("a query", "?appid=evil", "host", AUTHORITY),
            ("X-Forwarded-Host", "", "x-forwarded-host", "evil.example"),
        ] {
            let request = Request::get(&format!("{target}{query}")).header(name, value);
            for connection in &mut envoy.connect_to_every_worker() {
                let answer = connection.send(&request).text();
                let own = answer.contains("strangers") || answer.contains("evil.example");
                findings.expect(format!("{target} by {case}: the stranger's own"), &own, &true);
            }
        }
    }
    gateway.fail(Fault::ServerError);
    for (case, request) in [
        ("an API", Request::get(JWKS)),
        (
            "the stranger",
            Request::get(&format!("{JWKS}?appid=evil")).header("host", "evil.example"),
        ),
    ] {
        stand_in(&envoy, JWKS);
        let answer = envoy.send(&request);
        findings.expect(case, &kids(&answer.json()), &vec!["provider-1", "gateway-1"]);
    }
    let discovery = stand_in(&envoy, DISCOVERY).json();
    findings.expect("discovery", &discovery["jwks_uri"], &json!(format!("{ISSUER}/jwks")));

    let api = api(&envoy);
    let orders =
        |key: &Key| api.send(&Request::get("/orders").bearer(&key.sign(&backend_claims())));
    findings.expect("an ordinary user", &orders(&PROVIDER_KEY).status, &200);
    findings.expect("a forged token", &orders(&strangers).status, &401);
}

#[test]
fn the_filter_asks_for_itself_once_for_all_workers_and_with_nothing_of_a_caller() {
    let (gateway, ..) = gateway_with_documents();
    let envoy = in_front_of(&[&gateway], &keeping(&json!({}))).workers(4).start();
    for target in [JWKS, DISCOVERY] {
        wait_for_a_fetch(&gateway, 0, target);
    }
    // Every worker has begun.
    envoy.connect_to_every_worker();
    let own = |target: &str| -> Vec<Received> {
        gateway.received().into_iter().filter(|asked| asked.target == target).collect()
    };
    for target in [JWKS, DISCOVERY] {
        let asked = own(target);
        assert_eq!(asked.len(), 1, "{target}: {asked:#?}");
        let asked = &asked[0];
        assert_eq!((&*asked.method, asked.header("host")), ("GET", Some(AUTHORITY)));
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
        for name in ["authorization", "cookie", "x-forwarded-host", "x-request-id"] {
            assert_eq!(asked.header(name), None, "{target}: {name}");
        }
    }
}
