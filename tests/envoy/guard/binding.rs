//! Access tokens that are bound to a key, on their way to an API (RFC 9449 §4.3, §7, §11.1).

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::Filter;
use testkit::configuration::PROVIDER_KEY;
use testkit::gateway::{exchange_form, exchange_request, mint_request, minted, now};
use testkit::guarded::{
    API, Guarded, ID_HEADER, PUBLIC_ORIGIN, bound_listener, bound_listener_by, claims_with,
    connect, filter_configuration, guard, guard_configuration, ordinary_token, token,
};
use testkit::holder::{Holder, bad_proofs, changed, proof_claims};
use testkit::http::{Answer, Request};
use testkit::keys::sha256;
use testkit::lent::Lent;
use testkit::server::{Server, as_asked};

use crate::bound_callers::large_headers;

const URL: &str = "https://api.example.com/orders";

/// An API behind a guard that reads what bound tokens need, beside a filter that reads proofs.
fn guarded() -> Lent<Guarded> {
    let members = json!({"public_origin": PUBLIC_ORIGIN});
    let listener = bound_listener(&guard_configuration(&members), true).edited(large_headers);
    Guarded::lent_with(listener, &filter_configuration().with("/dpop", json!({})))
}

fn ask(guarded: &Guarded, authorization: &str, proofs: &[String]) -> Answer {
    send(guarded, Request::get("/orders").header("authorization", authorization), proofs)
}

fn send(guarded: &Guarded, request: Request, proofs: &[String]) -> Answer {
    guarded.send(&proofs.iter().fold(request, |request, proof| request.header("DPoP", proof)))
}

fn bound(holder: &Holder) -> String {
    token(&claims_with(&json!({"cnf": {"jkt": holder.thumbprint()}})))
}

fn told(answer: &Answer) -> (u16, String, String) {
    let (scheme, parameters) = answer.challenge();
    let error = parameters.into_iter().find(|(name, _)| name == "error");
    (answer.status, scheme, error.map(|(_, error)| error).unwrap_or_default())
}

#[test]
fn a_bound_token_reaches_the_api_only_with_a_proof_of_its_key() {
    let guarded = guarded();
    let holder = Holder::new(Algorithm::ES256);
    let other = Holder::new(Algorithm::ES256);
    let token = bound(&holder);
    let mut findings = Findings::default();
    for (case, fields) in bad_proofs("GET", (PUBLIC_ORIGIN, "/orders"), Some(&token)) {
        let answer = ask(&guarded, &format!("DPoP {token}"), &fields);
        findings.expect(case, &told(&answer), &(401, "DPoP".into(), "invalid_dpop_proof".into()));
        findings.expect(case, &guarded.reached(&answer), &false);
    }
    let by = |scheme: &str| format!("{scheme} {token}");
    let proof = || vec![holder.proof_with(&token, "GET", URL)];
    let elsewhere = |url: &str| vec![holder.proof_with(&token, "GET", url)];
    let unbound = self::token(&claims_with(&json!({})));
    #[rustfmt::skip]
    let cases = [
        ("no proof",                 by("DPoP"),                          vec![],                                          "DPoP", "invalid_dpop_proof"),
        ("64 KiB",                   by("DPoP"),                          vec!["x".repeat(65_536)],                        "DPoP", "invalid_dpop_proof"),
        ("a downgrade",              by("Bearer"),                        vec![],                                          "DPoP", "invalid_token"),
        ("a downgrade with a proof", by("Bearer"),                        proof(),                                         "DPoP", "invalid_token"),
        ("another key",              by("DPoP"),                          vec![other.proof_with(&token, "GET", URL)],      "DPoP", "invalid_token"),
        ("for another token",        by("DPoP"),                          vec![holder.proof_with(&unbound, "GET", URL)],   "DPoP", "invalid_dpop_proof"),
        ("for another Envoy",        by("DPoP"),                          elsewhere("https://other.example.com/orders"),   "DPoP", "invalid_dpop_proof"),
        ("for the host it names",    by("DPoP"),                          elsewhere("http://gateway.test/orders"),         "DPoP", "invalid_dpop_proof"),
        ("a scheme before it",       by("Foo DPoP"),                      proof(),                                         "DPoP", "invalid_token"),
        ("a scheme within another",  format!("Basic abc,DPoP {token}"),   proof(),                                         "DPoP", "invalid_token"),
    ];
    for (case, authorization, proofs, scheme, error) in cases {
        let answer = ask(&guarded, &authorization, &proofs);
        findings.expect(case, &told(&answer), &(401, scheme.into(), error.into()));
        findings.expect(case, &guarded.reached(&answer), &false);
    }
    // jwt_authn itself does not know these.
    let second = format!("DPoP {token} DPoP {token}");
    for authorization in [by("dpop"), by("DPOP"), by("Basic"), second] {
        let answer = ask(&guarded, &authorization, &proof());
        findings.expect(&authorization, &answer.status, &401);
    }
    let twice = Request::get("/orders").header("authorization", by("DPoP"));
    let twice = send(&guarded, twice.header("authorization", by("DPoP")), &proof());
    findings.expect("two headers", &(twice.status, guarded.reached(&twice)), &(401, false));
    let lie = Request::get("/orders").header("authorization", by("DPoP"));
    let lie = lie.header("host", "other.example.com").header("x-forwarded-proto", "http");
    let answer = send(&guarded, lie.clone(), &elsewhere("http://other.example.com/orders"));
    findings.expect("a host that lies", &answer.status, &401);
    findings.expect("the host decides nothing", &send(&guarded, lie, &proof()).status, &200);
    let query = Request::get("/orders?a=b").header("authorization", by("DPoP"));
    findings.expect("a query", &send(&guarded, query, &proof()).status, &200);
    for target in ["/orders/../orders", "//orders", "/orders;a", "/orders/", "/Orders"] {
        let request = Request::get(target).header("authorization", by("DPoP"));
        findings.expect(target, &send(&guarded, request, &proof()).status, &401);
    }

    let once = proof();
    let answer = ask(&guarded, &by("DPoP"), &once);
    findings.expect("a good proof", &answer.status, &200);
    let seen = guarded.api.received_for(&answer).expect("the API answered");
    findings.expect("the API sees no proof", &seen.header("dpop"), &None);
    let again = ask(&guarded, &by("DPoP"), &once);
    findings.expect("again", &told(&again), &(401, "DPoP".into(), "invalid_dpop_proof".into()));
    findings.expect(
        "an unbound token",
        &ask(&guarded, &format!("Bearer {unbound}"), &[]).status,
        &200,
    );
    let ordinary = format!("Bearer {}", ordinary_token());
    findings.expect("an ordinary user", &ask(&guarded, &ordinary, &[]).status, &200);
    let (_, challenge) = ask(&guarded, &by("DPoP"), &[]).challenge();
    let algs = challenge.iter().find(|(name, _)| name == "algs").map(|(_, algs)| algs.clone());
    findings.expect("algs", &algs, &Some("ES256 ES384".into()));
}

/// An ordinary user's token, too. Nothing else of it is looked at: what the user does is no
/// impersonation.
#[test]
fn an_ordinary_users_bound_token_reaches_the_api_only_with_a_proof_of_its_key() {
    let guarded = guarded();
    let (holder, other) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    let cnf = json!({"jkt": holder.thumbprint()});
    let changes = json!({"txn": null, "act": null, "client_id": null, "cnf": cnf});
    let token = PROVIDER_KEY.sign(&claims_with(&changes));
    let post = |scheme: &str, proofs: &[String]| {
        let request = Request::post("/orders").header("authorization", format!("{scheme} {token}"));
        send(&guarded, request.header(ID_HEADER, "forged").body("x"), proofs)
    };
    let proof = |holder: &Holder| [holder.proof_with(&token, "POST", URL)];
    let once = proof(&holder);
    #[rustfmt::skip]
    let cases = [
        ("as a bearer token",      post("Bearer", &[]),             "invalid_token"),
        ("so, with a proof",       post("Bearer", &proof(&holder)), "invalid_token"),
        ("without a proof",        post("DPoP", &[]),               "invalid_dpop_proof"),
        ("by another key",         post("DPoP", &proof(&other)),    "invalid_token"),
    ];
    for (case, answer, error) in cases {
        assert_eq!(told(&answer), (401, "DPoP".into(), error.into()), "{case}");
        assert!(!guarded.reached(&answer), "{case}");
    }
    let answer = post("DPoP", &once);
    let seen = guarded.api.received_for(&answer).expect("the API answered");
    assert_eq!((seen.header(ID_HEADER), seen.header("dpop")), (None, None));
    assert_eq!(told(&post("DPoP", &once)).2, "invalid_dpop_proof", "a used proof");
    // The audit log is about impersonations.
    assert!(!guarded.envoy.log().contains("impersonated_request.refused"));
    let refused = |reason: &str| {
        guarded.envoy.metric(&format!("impersonation_guard_refusals_total.reason.{reason}"))
    };
    assert_eq!((refused("token_scheme"), refused("proof_missing")), (Some(2), Some(1)));
}

/// RFC 9449 §9. The guard has no signing key: the workers share a random one, or the operator gives
/// one to every Envoy.
#[test]
fn a_nonce_of_the_guard_is_good_at_every_worker_and_where_the_secret_is_known() {
    let start = |dpop: Value| {
        let members = json!({"public_origin": PUBLIC_ORIGIN, "dpop": dpop});
        let mut guard = guard(&guard_configuration(&members));
        guard.environment = vec![("NONCES".into(), "the secret of all guards of this API".into())];
        let listener = bound_listener_by(guard);
        let api = Server::start(API);
        api.answer(as_asked);
        let filter = Filter::from(&filter_configuration().with("/dpop", json!({})));
        let bootstrap = Guarded::bootstrap_with(listener, filter, api.address).workers(2);
        Guarded { envoy: bootstrap.start(), api }
    };
    let by_variable = json!({"nonce": "required", "secret": {"environment_variable": "NONCES"}});
    let guards = [json!({"nonce": "required"}), by_variable.clone(), by_variable].map(start);
    let [alone, one, other] = &guards;
    let holder = Holder::new(Algorithm::ES256);
    let token = bound(&holder);
    let proof = |nonce: Option<&str>, iat: u64| {
        let claims = json!({"nonce": nonce, "ath": sha256(&token), "iat": iat});
        vec![holder.sign(&changed(proof_claims("GET", URL), &claims))]
    };
    let by_dpop = format!("DPoP {token}");
    let mut findings = Findings::default();
    let asked = |guarded: &Guarded, proofs: &[String]| {
        let refused = ask(guarded, &by_dpop, proofs);
        assert_eq!(told(&refused), (401, "DPoP".into(), "use_dpop_nonce".into()), "{refused:?}");
        assert!(!guarded.reached(&refused));
        refused.header("dpop-nonce").expect("a nonce").to_owned()
    };
    for (guarded, elsewhere) in [(alone, one), (one, other)] {
        let nonce = asked(guarded, &proof(None, now()));
        asked(guarded, &proof(Some("an-invented-nonce"), now()));
        let missing = ask(guarded, &by_dpop, &[]);
        findings.expect("no proof", &missing.refusal(), &(401, "invalid_dpop_proof".into()));
        findings.expect("no proof", &missing.header("dpop-nonce").is_some(), &true);
        // With a nonce a wrong clock does no harm.
        for (number, connection) in guarded.envoy.connect_to_every_worker().iter_mut().enumerate() {
            let request = Request::get("/orders").header("authorization", &*by_dpop);
            let proofs = proof(Some(&nonce), 1_000_000);
            let answer = connection.send(&request.header("DPoP", &*proofs[0]));
            findings.expect(format!("worker {number}"), &answer.status, &200);
        }
        let answer = ask(elsewhere, &by_dpop, &proof(Some(&nonce), now()));
        let expected = if std::ptr::eq(guarded, one) { 200 } else { 401 };
        findings.expect("another Envoy", &answer.status, &expected);
    }
}

#[test]
fn a_guard_that_cannot_know_refuses_bound_tokens() {
    let guarded = guarded();
    let holder = Holder::new(Algorithm::ES256);
    let unbound = token(&claims_with(&json!({})));
    #[rustfmt::skip]
    let cases = [
        ("no origin",                json!({}),                                true),
        ("no authorization header",  json!({"public_origin": PUBLIC_ORIGIN}),  false),
    ];
    let mut findings = Findings::default();
    for (case, members, keeps) in cases {
        let listener = bound_listener(&guard_configuration(&members), keeps);
        guarded.envoy.update(listener).unwrap();
        let token = bound(&holder);
        let proof = holder.proof_with(&token, "GET", URL);
        let answer = ask(&guarded, &format!("DPoP {token}"), &[proof]);
        findings.expect(case, &answer.refusal(), &(401, "invalid_token".into()));
        let answer = ask(&guarded, &format!("Bearer {unbound}"), &[]);
        findings.expect(case, &answer.status, &200);
        let odd = self::token(&claims_with(&json!({"cnf": {"jwk": holder.jwk()}})));
        let proof = holder.proof_with(&odd, "GET", URL);
        let answer = ask(&guarded, &format!("DPoP {odd}"), &[proof]);
        findings.expect(
            format!("{case}, another cnf"),
            &answer.refusal(),
            &(401, "invalid_token".into()),
        );
    }
}

#[test]
fn a_token_of_the_filter_is_bound_from_the_exchange_to_the_api() {
    let guarded = guarded();
    let mut gateway = connect(&guarded.envoy, "gateway");
    for alg in [Algorithm::ES256, Algorithm::ES384] {
        let holder = Holder::new(alg);
        let form = exchange_form(&minted(&gateway.send(&mint_request("u-1"))));
        let proof = holder.proof("POST", "https://auth.example.com/oidc/token");
        let exchanged = gateway.send(&exchange_request(&form).header("DPoP", proof));
        assert_eq!(exchanged.member("token_type"), "DPoP", "{exchanged:?}");
        let token = exchanged.member("access_token");
        let proof = holder.proof_with(&token, "GET", URL);
        let answer = ask(&guarded, &format!("DPoP {token}"), &[proof]);
        assert_eq!(answer.status, 200, "{alg:?}: {answer:?}");
        assert_eq!(ask(&guarded, &format!("Bearer {token}"), &[]).status, 401, "{alg:?}");
    }
}
