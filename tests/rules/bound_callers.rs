//! Access tokens of callers, operators and people that are bound to a key: at each endpoint that
//! takes one, the token is good only with a proof of its key (RFC 9449 §4.3, §7.1, §11.1).

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{ISSUER, MANAGEMENT, PROVIDER_KEY, jwks};
use testkit::gateway::{backend_claims, exchange_form, exchange_request, mint_body_request};
use testkit::guarded::filter_configuration;
use testkit::holder::{Holder, bad_proofs, changed};
use testkit::http::{Answer, Request};

const ORIGIN: &str = "https://auth.example.com";

pub(crate) fn start() -> World {
    let people = json!({
        "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    World::start(&filter_configuration().with("/dpop", json!({})).with(
        "/approvals",
        json!({"authentication": {"jwt": [people]}, "required": 0, "protected_users": ["vip-*"]}),
    ))
}

/// A request that needs an access token, and the answer to a good one.
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    body: Option<Value>,
    /// The claims of an access token that may send it.
    pub(crate) claims: Value,
    pub(crate) status: u16,
}

impl Asked {
    pub(crate) fn as_whom(&self, authorization: &[String], proofs: &[String]) -> Request {
        let mut request = Request::new(self.method, &self.path);
        for value in authorization {
            request = request.header("authorization", value);
        }
        for proof in proofs {
            request = request.header("DPoP", proof);
        }
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }
}

/// One request to each endpoint that takes an access token.
pub(crate) fn every_endpoint(world: &World) -> Vec<Asked> {
    let minted = |user: &str| {
        let answer = world.send(&mint_body_request(&json!({"userId": user})));
        assert_eq!(answer.status, 201, "{answer:?}");
        let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1.to_owned();
        (id, answer.member("subjectToken"))
    };
    let backend = backend_claims();
    let person = |name: &str, scope: &str| {
        let of_person = json!({"sub": name, "client_id": "operations", "scope": scope});
        changed(backend.clone(), &of_person)
    };
    let (ours, _) = minted("u-1");
    let (waiting, _) = minted("vip-1");
    let (live, token) = minted("u-1");
    assert_eq!(world.send(&exchange_request(&exchange_form(&token))).status, 200);
    let asked = |method, path: String, body, claims: &Value, status| {
        let claims = claims.clone();
        Asked { method, path, body, claims, status }
    };
    let one = |path: &str, id: &str| format!("{path}/{id}");
    let (tokens, impersonations) = ("/api/subject-tokens", "/api/impersonations");
    let of_nobody = Some(json!({"actorId": "nobody"}));
    let reader = person("operator-1", "impersonations:read");
    let ender = person("operator-1", "impersonations:revoke");
    let approver = person("approver-1", "impersonations:approve");
    let approve = Some(json!({"decision": "approve"}));
    vec![
        asked("POST", tokens.into(), Some(json!({"userId": "u-1"})), &backend, 201),
        asked("GET", one(tokens, &ours), None, &backend, 200),
        asked("DELETE", one(tokens, &ours), None, &backend, 204),
        asked("GET", impersonations.into(), None, &reader, 200),
        asked("POST", one(impersonations, "revocations"), of_nobody, &ender, 201),
        asked("DELETE", one(impersonations, &live), None, &ender, 204),
        asked("GET", "/api/approvals".into(), None, &approver, 200),
        asked("POST", one("/api/approvals", &waiting), approve, &approver, 200),
    ]
}

#[test]
fn a_bound_token_is_good_at_each_endpoint_only_with_a_proof_of_its_key() {
    let world = start();
    let (holder, other) = (Holder::new(Algorithm::ES256), Holder::new(Algorithm::ES256));
    let mut findings = Findings::default();
    for asked in every_endpoint(&world) {
        let Asked { method, path, claims, .. } = &asked;
        let cnf = json!({"cnf": {"jkt": holder.thumbprint()}});
        let token = &PROVIDER_KEY.sign(&changed(claims.clone(), &cnf));
        let plain = &PROVIDER_KEY.sign(claims);
        let url = &format!("{ORIGIN}{path}");
        let elsewhere = |url: &str| vec![holder.proof_with(token, method, url)];
        let good = || elsewhere(url);
        let named = |case: &str| format!("{method} {path}, {case}");
        let send = |scheme: &str, token: &str, proofs: &[String]| {
            world.send(&asked.as_whom(&[format!("{scheme} {token}")], proofs))
        };
        let mut expect = |case: &str, answer: &Answer, error: &str| {
            let told = (answer.refusal(), answer.challenge().0);
            let expected = ((401, error.to_owned()), "DPoP".to_owned());
            findings.expect(named(case), &told, &expected);
        };
        for (case, fields) in bad_proofs(method, (ORIGIN, path), Some(token)) {
            expect(case, &send("DPoP", token, &fields), "invalid_dpop_proof");
        }
        #[rustfmt::skip]
        let cases = [
            ("no proof",                 "DPoP",   token, vec![],                                       "invalid_dpop_proof"),
            ("a downgrade",              "Bearer", token, vec![],                                       "invalid_token"),
            ("a downgrade with a proof", "Bearer", token, good(),                                       "invalid_token"),
            ("another key",              "DPoP",   token, vec![other.proof_with(token, method, url)],   "invalid_token"),
            ("for another token",        "DPoP",   token, vec![holder.proof_with(plain, method, url)],  "invalid_dpop_proof"),
            ("an unbound token",         "DPoP",   plain, vec![holder.proof_with(plain, method, url)],  "invalid_token"),
            ("a proof of an exchange",   "DPoP",   token, elsewhere("https://auth.example.com/oidc/token"), "invalid_dpop_proof"),
            ("for another Envoy",        "DPoP",   token, elsewhere(&format!("https://other.example.com{path}")), "invalid_dpop_proof"),
        ];
        for (case, scheme, token, proofs, error) in cases {
            expect(case, &send(scheme, token, &proofs), error);
        }
        let lie = format!("http://evil.example.com{path}");
        let lying = asked
            .as_whom(&[format!("DPoP {token}")], &elsewhere(&lie))
            .header("host", "evil.example.com")
            .header("x-forwarded-host", "evil.example.com")
            .header("x-forwarded-proto", "http");
        expect("a host that lies", &world.send(&lying), "invalid_dpop_proof");
        let by = |scheme: &str| format!("{scheme} {token}");
        #[rustfmt::skip]
        let odd = [
            ("two headers",             vec![by("DPoP"), by("DPoP")]),
            ("two schemes",             vec![by("Bearer"), by("DPoP")]),
            ("a scheme before it",      vec![by("Foo DPoP")]),
            ("a scheme within another", vec![by("Basic abc,DPoP")]),
            ("no scheme",               vec![token.clone()]),
        ];
        for (case, authorization) in odd {
            let answer = world.send(&asked.as_whom(&authorization, &good()));
            findings.expect(named(case), &answer.status, &401);
        }
        let proofs = good();
        let answer = send("dpop", token, &proofs);
        findings.expect(named("schemes ignore letter case"), &answer.status, &asked.status);
        let again = send("DPoP", token, &proofs);
        findings.expect(named("again"), &again.refusal(), &(401, "invalid_dpop_proof".into()));
        let unbound = send("Bearer", plain, &[]).status;
        findings.expect(named("as before"), &(unbound != 401), &true);
    }
}
