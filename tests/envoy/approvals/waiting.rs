//! Tokens that wait for a decision, in both stores: who sees them, and what becomes of them when
//! they are revoked.

use std::cell::Cell;
use std::ops::Deref;

use serde_json::{Value, json};

use super::{approver, configuration, decision, minted, person};
use testkit::Findings;
use testkit::configuration::{ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, jwks};
use testkit::gateway::{Gateway, backend_claims, exchange_form, store_in_etcd};
use testkit::http::{Answer, Request};
use testkit::lent::Lent;

/// A gateway, and the name of its store.
struct Started {
    gateway: Lent<Gateway>,
    store: &'static str,
}

impl Deref for Started {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

/// Lends a gateway with each store. Operators may end impersonations.
fn with_each_store() -> [Started; 2] {
    let operators = json!([{
        "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
    }]);
    let configuration = configuration().with("/impersonations/authentication/jwt", operators);
    let in_etcd = configuration.clone().with("/store", store_in_etcd());
    [
        Started { gateway: Gateway::lent(&configuration), store: "shared data" },
        Started { gateway: Gateway::lent_with_etcd(&in_etcd), store: "etcd" },
    ]
}

/// The access token of the backend with this name.
fn backend(name: &str) -> String {
    let (mut claims, name) = (backend_claims(), json!(name));
    (claims["sub"], claims["client_id"]) = (name.clone(), name);
    PROVIDER_KEY.sign(&claims)
}

fn list(gateway: &Gateway, token: &str, query: &str) -> Answer {
    gateway.send(&Request::get(&format!("/api/approvals{query}")).bearer(token))
}

/// The ids in a list.
fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let rows = answer.json()["approvals"].clone();
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_person_for_whom_nothing_waits_is_refused_however_many_tokens_wait() {
    const QUERIES: [&str; 5] = ["", "?cursor=x", "?cursor=0.1", "?limit=0", "?unknown=1"];
    for gateway in with_each_store() {
        let (store, mut findings) = (gateway.store, Findings::default());
        let (mut connection, callers) = (gateway.connect(), ["one", "another"].map(backend));
        for number in 0..1205 {
            let body = json!({"userId": format!("u-{}", number % 300), "approvals": 1});
            let caller = &callers[number % callers.len()];
            let request = Request::post("/api/subject-tokens").bearer(caller).json(&body);
            assert_eq!(connection.send(&request).status, 201);
        }
        let (user, nobody) = (person("u-asked", "openid"), person("u-nobody", "openid"));
        let mut refuses = |who: &str, token: &str| {
            for query in QUERIES {
                let answer = list(&gateway, token, query);
                let case = format!("{store}, {who}, {query:?}");
                findings.expect(case, &answer.refusal(), &(403, "insufficient_scope".into()));
            }
        };
        refuses("nobody", &nobody);
        refuses("not yet", &user);
        let asks = json!({"userId": "u-asked", "consent": true});
        let mut asked: Vec<_> = (0..3).map(|_| minted(&gateway, &asks).0).collect();
        refuses("nobody, again", &nobody);

        // The user reads what is theirs, page after page.
        let first = list(&gateway, &user, "?limit=2");
        let cursor = first.member("cursor");
        let rest = list(&gateway, &user, &format!("?limit=2&cursor={cursor}"));
        assert_eq!(rest.json()["cursor"], Value::Null, "{store}");
        let mut found = [ids(&first), ids(&rest)].concat();
        asked.sort();
        found.sort();
        assert_eq!(found, asked, "{store}");
        // Nothing waits after the decisions.
        for id in &asked {
            let request = Request::post(&format!("/api/approvals/{id}")).bearer(&user);
            let answer = gateway.send(&request.json(&json!({"decision": "approve"})));
            assert_eq!(answer.status, 200, "{store}: {answer:?}");
        }
        refuses("not any more", &user);
    }
}

/// The list of live impersonations refuses before it reads the query, too.
#[test]
fn a_cursor_opens_no_list_to_a_person_without_a_right() {
    for gateway in with_each_store() {
        let mut claims = backend_claims();
        claims["scope"] = json!("openid");
        let token = PROVIDER_KEY.sign(&claims);
        for query in ["", "?cursor=x", "?limit=0", "?unknown=1"] {
            let request = Request::get(&format!("/api/impersonations{query}")).bearer(&token);
            let answer = gateway.send(&request);
            assert_eq!(answer.refusal().0, 403, "{}, {query:?}: {answer:?}", gateway.store);
        }
    }
}

#[test]
fn no_answer_tells_a_stranger_if_an_id_waits() {
    let mut findings = Findings::default();
    for gateway in with_each_store() {
        let ids = [
            ("waits for approval", minted(&gateway, &json!({"approvals": 1})).0),
            ("waits for consent", minted(&gateway, &json!({"consent": true})).0),
            ("waits for nobody", minted(&gateway, &json!({})).0),
            ("unknown", "0123456789abcdef01234567".to_owned()),
            ("of a slot that is free", "0123456789abcdef01234567ffff".to_owned()),
            ("not an id", "0123".to_owned()),
        ];
        let (stranger, other) = (person("u-2", "openid"), backend("another-backend"));
        let decide = |id: &str, choice: &str| {
            let request = Request::post(&format!("/api/approvals/{id}")).bearer(&stranger);
            request.json(&json!({"decision": choice}))
        };
        let of_caller = |method: &str, id: &str| {
            Request::new(method, &format!("/api/subject-tokens/{id}")).bearer(&other)
        };
        type Asked<'a> = (&'a str, u16, &'a dyn Fn(&str) -> Request);
        let requests: [Asked<'_>; 4] = [
            ("approve", 403, &|id| decide(id, "approve")),
            ("deny", 403, &|id| decide(id, "deny")),
            ("show", 404, &|id| of_caller("GET", id)),
            ("take back", 404, &|id| of_caller("DELETE", id)),
        ];
        for (what, status, request) in requests {
            let told = |id: &str| {
                let answer = gateway.send(&request(id));
                let mut headers = answer.headers.clone();
                headers.retain(|(name, _)| !["date", "x-request-id"].contains(&&**name));
                (answer.status, headers, answer.text())
            };
            let unknown = told(&ids[3].1);
            assert_eq!(unknown.0, status, "{what}");
            for (case, id) in &ids {
                findings.expect(format!("{}, {what}, {case}", gateway.store), &told(id), &unknown);
            }
        }
    }
}

#[test]
fn a_token_that_is_revoked_while_it_waits_is_invalid() {
    let mut findings = Findings::default();
    for gateway in with_each_store() {
        let ahead = Cell::new(0);
        let revoke = |body: &Value| {
            let mut claims = backend_claims();
            claims["scope"] = json!("impersonations:revoke");
            let operator = PROVIDER_KEY.sign(&claims);
            let request = Request::post("/api/impersonations/revocations").bearer(&operator);
            let answer = gateway.send(&request.json(body));
            assert_eq!(answer.status, 201, "{answer:?}");
            // The millisecond of the revocation ends.
            ahead.set(ahead.get() + 1);
            gateway.envoy.clock().set(ahead.get());
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

#[test]
fn the_list_says_what_a_person_may_decide() {
    for gateway in with_each_store() {
        let rows = [
            ("one", json!({"approvals": 1})),
            ("consent", json!({"consent": true})),
            ("both", json!({"approvals": 1, "consent": true})),
            ("own", json!({"approvals": 1, "actorId": "dana"})),
        ];
        let rows = rows.map(|(name, members)| (name, minted(&gateway, &members).0));
        let ids_of =
            |wanted: &str| rows.iter().find(|(name, _)| *name == wanted).unwrap().1.clone();
        let may = |token: &str, name: &str| {
            let listed = list(&gateway, token, "").json()["approvals"].clone();
            let id = json!(ids_of(name));
            let row = listed.as_array().unwrap().iter().find(|row| row["id"] == id).cloned();
            row.map_or_else(String::new, |row| row["mayDecide"].to_string())
        };
        let (dana, user) = (approver("dana"), person("u-1", "openid"));
        const BOTH: &str = r#"["approve","deny"]"#;
        for (who, name, expected) in [
            (&dana, "one", BOTH),
            (&dana, "consent", r#"["deny"]"#),
            (&dana, "both", BOTH),
            (&dana, "own", r#"["deny"]"#),
            (&user, "one", "[]"),
            (&user, "consent", BOTH),
            (&user, "both", BOTH),
        ] {
            assert_eq!(may(who, name), expected, "{}, {name}", gateway.store);
        }
        // What is not offered is refused, in true words.
        let answer = gateway.send(&decision("dana", &ids_of("consent"), "approve"));
        assert_eq!(answer.refusal(), (409, "already_decided".into()));
        let told = "no approval is missing: only the consent of the user is";
        assert_eq!(answer.member("error_description"), told);
        let approved = gateway.send(&decision("dana", &ids_of("both"), "approve"));
        assert_eq!(approved.status, 200);
        assert_eq!(may(&dana, "both"), r#"["deny"]"#, "nobody approves twice");
        assert_eq!(may(&approver("eli"), "both"), r#"["deny"]"#, "only the consent is missing");
    }
}
