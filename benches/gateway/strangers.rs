//! Measures what a stranger's request costs Envoy, at each endpoint that a stranger can reach,
//! beside a request for a path that there is not. A stranger has no credentials, and chooses the
//! request: its key, its length, its signatures that fail.
//!
//! No request may cost more than [`LIMIT`] times a 404, or [`LIMIT_OF_OPERATORS`] where the
//! operator has registered the key that makes it costly.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::guard::start;
use crate::lane::Lane;
use crate::load::leave_envoy_alone;
use testkit::bootstrap::{Filter, Listener};
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, SIGNING_KEY, jwks};
use testkit::gateway::{backend_claims, exchange_form, exchange_request, now};
use testkit::holder::{ASSERTION_TYPE, Holder, assertion_claims, proof_claims};
use testkit::http::{Form, Request};
use testkit::keys::{Key, unsigned};

const ROUNDS: usize = 10;
const TURN: usize = 300;

const LIMIT: f64 = 20.0;
const LIMIT_OF_OPERATORS: f64 = 30.0;

const TOKEN_URL: &str = "https://auth.example.com/oidc/token";
const LOGOUT: &str = "/oidc/backchannel-logout";

/// A request of a stranger, and its answer.
struct Row {
    name: &'static str,
    status: u16,
    limit: f64,
    request: Request,
}

pub(crate) fn run() {
    leave_envoy_alone();
    let registered = [Algorithm::ES256, Algorithm::ES384, Algorithm::PS256].map(Holder::new);
    let filter = Filter::from(&configuration(&registered));
    // Nothing is behind the filter, so a request that it passes on is a 404.
    let listener = Listener::new("gateway").filter(filter).answer("/there", "is something");
    let envoy = start(|bootstrap| bootstrap.listener(listener.clone()));
    let rows = rows(&registered);
    let mut lanes: Vec<_> = rows
        .iter()
        .map(|row| {
            let lane = Lane::new(row.name, &envoy, envoy.address("gateway"), row.status);
            (lane, vec![row.request.to_bytes(); TURN])
        })
        .collect();
    for round in 0..=ROUNDS {
        for (lane, requests) in &mut lanes {
            lane.turn(requests);
            if round == 0 {
                lane.forget();
            }
        }
    }
    println!("\nstrangers, one worker, {ROUNDS} turns each");
    println!("{:<48}{:>10}{:>12}{:>8}", "", "CPU us", "times 404", "limit");
    let nothing = lanes[0].0.cpu();
    let mut above = Vec::new();
    for ((lane, _), Row { name, limit, .. }) in lanes.iter().zip(&rows) {
        let times = lane.cpu() / nothing;
        println!("{name:<48}{:>10.1}{times:>12.1}{limit:>8.0}", lane.cpu() * 1e6);
        if times > *limit {
            above.push(*name);
        }
    }
    assert!(above.is_empty(), "above the limit: {above:?}");
}

fn configuration(registered: &[Holder; 3]) -> Configuration {
    let of_issuer = |more: Value| {
        let mut entry = json!({
            "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
        });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([entry])
    };
    let configuration = Configuration::default()
        .with("/dpop", json!({}))
        .with("/impersonations/authentication/jwt", of_issuer(json!({})))
        .with("/impersonations/back_channel_logout", of_issuer(json!({})))
        .with("/impersonations/security_events", of_issuer(json!({})))
        .with("/approvals", json!({"authentication": {"jwt": of_issuer(json!({}))}, "required": 0}))
        .with("/console", json!({"client_id": "oncall", "scopes": ["openid"]}));
    registered.iter().fold(configuration, |configuration, holder| {
        let client = json!({
            "client_id": client_of(holder), "type": "traditional_web",
            "authentication": "private_key_jwt", "local_jwks": jwks(&[&holder.key]),
        });
        configuration.with("/clients/-", client)
    })
}

fn client_of(holder: &Holder) -> String {
    format!("signs-{:?}", holder.key.alg)
}

fn rows(registered: &[Holder; 3]) -> Vec<Row> {
    let row = |name, status, request| Row { name, status, limit: LIMIT, request };
    let forger = Key::generate(PROVIDER_KEY.alg, &PROVIDER_KEY.kid);
    let bearer = forger.sign(&backend_claims());
    let of_length = |claims: usize| {
        let mut long = backend_claims();
        long["x"] = json!(vec!["y"; claims]);
        forger.sign(&long)
    };
    let mint = |bearer: &str| {
        Request::post("/api/subject-tokens").bearer(bearer).json(&json!({"userId": "u-1"}))
    };
    let post = |path: &str, form: &Form| form_request(path, form.encode());
    let unknown = || exchange_form("sub_0123456789012345678901234567890123456789012");
    let with_proof = |proof: String| exchange_request(&unknown()).header("DPoP", proof);
    let es256 = Holder::new(Algorithm::ES256);
    let asked = Form::default().set("client_id", "support-console");
    let logout = forger.sign_with(
        &json!({"alg": forger.alg, "kid": forger.kid, "typ": "logout+jwt"}),
        &json!({
            "iss": ISSUER, "sub": "agent-1", "aud": MANAGEMENT, "iat": now(), "exp": now() + 60,
            "jti": "1", "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        }),
    );
    let event = forger.sign_with(
        &json!({"alg": forger.alg, "kid": forger.kid, "typ": "secevent+jwt"}),
        &json!({"iss": ISSUER, "aud": MANAGEMENT, "iat": now(), "jti": "1", "events": {"urn:x": {}}}),
    );
    let send_event = |event: String| {
        let request = Request::post("/api/security-events");
        request.header("content-type", "application/secevent+jwt").body(event)
    };
    let ours = Key::generate(SIGNING_KEY.alg, &SIGNING_KEY.kid).sign_with(
        &json!({"alg": SIGNING_KEY.alg, "kid": SIGNING_KEY.kid, "typ": "at+jwt"}),
        &json!({
            "iss": ISSUER, "sub": "u-1", "aud": "https://api.example.com", "jti": "j", "txn": "t",
            "client_id": "support-console", "iat": now(), "exp": now() + 60,
        }),
    );
    let many = "a=&".repeat(21_000);
    let other_names: Vec<_> = (0..10_000).map(|number| format!("{number}=")).collect();
    let revocations = json!({"all": true});
    let mut rows = vec![
        row("a path that there is not", 404, Request::get("/nothing")),
        row("the key set", 200, Request::get("/oidc/jwks")),
        row("discovery", 200, Request::get("/oidc/.well-known/openid-configuration")),
        row("the page", 200, Request::get("/impersonations/")),
        row("a mint without a token", 401, Request::post("/api/subject-tokens").json(&json!({}))),
        row("a mint with a forged token", 401, mint(&bearer)),
        row("a mint with a forged token of 1000 values", 401, mint(&of_length(1000))),
        row("a mint with a forged token of 16 kB", 401, mint(&of_length(2800))),
        row("a mint with a forged token of 48 kB", 401, mint(&of_length(9000))),
        row(
            "a look at a subject token",
            401,
            Request::get("/api/subject-tokens/x").bearer(&bearer),
        ),
        row("the list of impersonations", 401, Request::get("/api/impersonations").bearer(&bearer)),
        row("an end", 401, Request::new("DELETE", "/api/impersonations/x").bearer(&bearer)),
        row(
            "a revocation of all",
            401,
            Request::post("/api/impersonations/revocations").bearer(&bearer).json(&revocations),
        ),
        row("the list of approvals", 401, Request::get("/api/approvals").bearer(&bearer)),
        row(
            "a decision",
            401,
            Request::post("/api/approvals/x").bearer(&bearer).json(&json!({"decision": "deny"})),
        ),
        row(
            "an exchange, unknown client",
            401,
            exchange_request(&unknown().set("client_id", "nobody")),
        ),
        row(
            "an exchange, wrong secret",
            401,
            exchange_request(&unknown()).basic("support-portal", "wrong"),
        ),
        row("an exchange, public client", 400, exchange_request(&unknown())),
        row(
            "an exchange, a form of many parameters",
            400,
            form_request(
                "/oidc/token",
                format!("{}&{}", unknown().encode(), other_names.join("&")),
            ),
        ),
        row(
            "an exchange, a form that repeats one",
            400,
            form_request("/oidc/token", format!("{}&{many}", unknown().encode())),
        ),
        row("an exchange, a proof by ES256", 400, with_proof(es256.proof("POST", TOKEN_URL))),
        row("an exchange, a proof by RSA 4096, e = 2^33-1", 400, with_proof(costly_proof())),
        row(
            "a revocation, no token of ours",
            404,
            post("/oidc/token/revocation", &asked.clone().set("token", "x")),
        ),
        row(
            "a revocation, a forged token of ours",
            404,
            post("/oidc/token/revocation", &asked.clone().set("token", &ours)),
        ),
        row(
            "introspection, wrong secret",
            401,
            post("/oidc/token/introspection", &asked.set("token", &ours))
                .basic("support-portal", "wrong"),
        ),
        row(
            "a forged logout token",
            400,
            post(LOGOUT, &Form::default().set("logout_token", &logout)),
        ),
        row("a forged security event", 400, send_event(event)),
        row("a security event of 60 kB", 400, send_event("x".repeat(60_000))),
    ];
    for holder in registered {
        let stranger = Key::generate(holder.key.alg, &holder.key.kid);
        let forged = stranger.sign_with(
            &json!({"alg": stranger.alg, "kid": stranger.kid}),
            &assertion_claims(&client_of(holder), ISSUER),
        );
        let form = unknown()
            .without("client_id")
            .set("client_assertion_type", ASSERTION_TYPE)
            .set("client_assertion", &forged);
        let (name, limit) = match holder.key.alg {
            Algorithm::ES256 => ("a forged assertion by ES256", LIMIT),
            Algorithm::ES384 => ("a forged assertion by ES384", LIMIT_OF_OPERATORS),
            _ => ("a forged assertion by PS256", LIMIT_OF_OPERATORS),
        };
        rows.push(Row { name, status: 401, limit, request: exchange_request(&form) });
    }
    rows
}

fn form_request(path: &str, body: String) -> Request {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    request.body(body)
}

/// A proof by the key with which a verification takes longest. Nobody has the private key.
fn costly_proof() -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let mut modulus = [0xff; 512];
    modulus[511] = 0xfd;
    let jwk =
        json!({"kty": "RSA", "n": encode(&modulus), "e": encode(&[1, 0xff, 0xff, 0xff, 0xff])});
    let header = json!({"typ": "dpop+jwt", "alg": "PS256", "jwk": jwk});
    format!("{}.{}", unsigned(&header, &proof_claims("POST", TOKEN_URL)), encode(&[0x7f; 512]))
}
