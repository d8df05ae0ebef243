//! What waits for a decision, in both stores: what becomes of it when it is revoked.

use std::ops::Deref;

use serde_json::{Value, json};

use super::{configuration, decision, minted};
use testkit::Findings;
use testkit::bootstrap::Cluster;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, jwks};
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, Options, backend_claims, exchange_form};
use testkit::http::Request;

/// A gateway, with an etcd of its own if it needs one.
struct Started {
    // Fields are dropped in order: Envoy ends before its store.
    gateway: Gateway,
    store: &'static str,
    _etcd: Option<Etcd>,
}

impl Deref for Started {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

/// Starts a gateway with each store. Operators may end impersonations.
fn with_each_store() -> [Started; 2] {
    let operators = json!([{
        "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
    }]);
    let configuration = configuration().with("/impersonations/authentication/jwt", operators);
    let start = |store, configuration: &Configuration, etcd: Option<Etcd>| {
        let clusters = etcd.iter().map(|etcd| Cluster::new("etcd", etcd.address).http2()).collect();
        let options = Options { clusters, ..Options::default() };
        let gateway = Gateway::try_start(configuration, &options).unwrap();
        Started { gateway, store, _etcd: etcd }
    };
    let in_etcd = configuration.clone().with("/store", json!({"etcd": {"cluster": "etcd"}}));
    [start("shared data", &configuration, None), start("etcd", &in_etcd, Some(Etcd::start()))]
}

#[test]
fn a_token_that_is_revoked_while_it_waits_is_invalid() {
    let mut findings = Findings::default();
    for gateway in with_each_store() {
        let revoke = |body: &Value| {
            let mut claims = backend_claims();
            claims["scope"] = json!("impersonations:revoke");
            let operator = PROVIDER_KEY.sign(&claims);
            let request = Request::post("/api/impersonations/revocations").bearer(&operator);
            let answer = gateway.send(&request.json(body));
            assert_eq!(answer.status, 201, "{answer:?}");
            // The millisecond of the revocation ends.
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        let exchange = |token: &str| gateway.exchange(&exchange_form(token)).refusal();
        let pending = (400, "authorization_pending".to_owned());
        let client = "support-console";
        // A token that is bound to no client can be approved for the others.
        for (bounds, revoked, decided) in [
            (json!({"userId": "u-revoked", "approvals": 1}), json!({"userId": "u-revoked"}), 404),
            (json!({"userId": "u-asked", "consent": true}), json!({"userId": "u-asked"}), 404),
            (json!({"actorId": "a-1", "approvals": 1}), json!({"actorId": "a-1"}), 404),
            (json!({"clientId": client, "approvals": 1}), json!({"clientId": client}), 404),
            (json!({"approvals": 1}), json!({"clientId": client, "userId": "u-1"}), 200),
            (json!({"resource": ORDERS, "approvals": 1}), json!({"resource": ORDERS}), 404),
            (json!({"approvals": 1}), json!({"resource": ORDERS, "userId": "u-1"}), 200),
            (json!({"approvals": 1}), json!({"caller": "support-backend"}), 404),
            (json!({"approvals": 1}), json!({"all": true}), 404),
        ] {
            let case = format!("{}, {bounds}, {revoked}", gateway.store);
            let (id, token) = minted(&gateway, &bounds);
            let (_, other) = minted(&gateway, &json!({"userId": "u-other", "approvals": 1}));
            findings.expect(format!("{case}, before"), &exchange(&token), &pending);
            revoke(&revoked);
            let invalid = (400, "invalid_request".to_owned());
            findings.expect(&case, &exchange(&token), &invalid);
            let late = gateway.send(&decision("dana", &id, "approve")).status;
            findings.expect(format!("{case}, decided"), &late, &decided);
            findings.expect(format!("{case}, afterwards"), &exchange(&token), &invalid);
            if ["userId", "actorId"].iter().any(|name| revoked.get(name).is_some()) {
                findings.expect(format!("{case}, another"), &exchange(&other), &pending);
            }
        }
    }
}
