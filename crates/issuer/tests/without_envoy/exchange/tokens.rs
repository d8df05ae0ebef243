//! Introspection and revocation of the filter's own tokens (RFC 7662, RFC 7009): the client is
//! authenticated before a signature is verified, and a signature is verified once.

use std::cell::Cell;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::fakes::CountingCrypto;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{CLIENT_SECRET, ExchangeForm, ISSUER, configured, with, without};
use crate::driver::{Gateway, Request};
use testkit::keys::{Key, verify_es256};

const REVOCATION: &str = "/oidc/token/revocation";
const INTROSPECTION: &str = "/oidc/token/introspection";
const PATHS: [&str; 2] = [REVOCATION, INTROSPECTION];

/// A service that signs with ES256, one of its access tokens, and the count of verified signatures.
struct Setting {
    gateway: Gateway,
    key: Key,
    access_token: String,
    verified: Rc<Cell<u32>>,
}

impl Setting {
    fn new() -> Self {
        let key = Key::generate(Algorithm::ES256, "filter-1");
        let configuration = configured("/signing_keys", json!([{"jwk": key.private_jwk()}]));
        let verified = Rc::<Cell<u32>>::default();
        let crypto = CountingCrypto { verified: Rc::clone(&verified), verify: verify_es256 };
        let gateway = Gateway::with_crypto(&Rc::default(), &configuration, Some(Box::new(crypto)));
        let answer = gateway.exchange(&ExchangeForm::new(&gateway.mint()).portal());
        let access_token = answer.text("access_token").to_owned();
        verified.set(0);
        Self { gateway, key, access_token, verified }
    }

    fn claims(&self) -> Value {
        let payload = self.access_token.split('.').nth(1).unwrap();
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
    }

    /// The token, signed with another key of the same `kid`.
    fn forged(&self) -> String {
        Key::generate(Algorithm::ES256, "filter-1").sign(&self.claims())
    }

    /// Returns the number of signatures that were verified since the last call.
    fn verified(&self) -> u32 {
        self.verified.take()
    }
}

/// Puts a client's credentials into a form.
type Client = fn(ExchangeForm) -> ExchangeForm;

/// A form about a token, with the client's credentials.
fn request(path: &str, token: &str, client: Client) -> Request {
    let mut form = client(ExchangeForm::new(""));
    form.parameters.0.retain(|(name, _)| matches!(&**name, "client_id" | "client_secret"));
    let form = form.set("token", token);
    Request { path: path.to_owned(), ..form.request() }
}

fn portal(form: ExchangeForm) -> ExchangeForm {
    form.portal()
}

#[test]
fn a_stranger_makes_the_filter_verify_no_signature() {
    let setting = Setting::new();
    #[rustfmt::skip]
    let strangers: [(&str, u16, Client); 5] = [
        ("no client",         400, |form| form.without("client_id")),
        ("an unknown client", 401, |form| form.without("client_id").basic("somebody", "else")),
        ("a wrong secret",    401, |form| form.without("client_id").basic("portal", "guess")),
        ("no secret",         401, |form| form.set("client_id", "portal")),
        ("the wrong method",  401, |form| form.set("client_id", "portal").set("client_secret", CLIENT_SECRET)),
    ];
    for path in PATHS {
        for (case, status, stranger) in strangers {
            for token in [&setting.access_token, &setting.forged()] {
                let answer = setting.gateway.send(&request(path, token, stranger));
                assert_eq!(answer.status, status, "{path}: {case}: {answer:?}");
                assert_eq!(answer.reason(), "client_authentication", "{path}: {case}");
                assert_eq!(setting.verified(), 0, "{path}: {case}");
            }
        }
    }
    let by_public = |form: ExchangeForm| form.set("client_id", "console");
    let answer = setting.gateway.send(&request(INTROSPECTION, &setting.access_token, by_public));
    assert_eq!((answer.status, setting.verified()), (401, 0), "a public client: {answer:?}");
}

#[test]
fn the_signature_of_a_clients_token_is_verified_once() {
    let setting = Setting::new();
    let answer = setting.gateway.send(&request(INTROSPECTION, &setting.access_token, portal));
    assert_eq!((answer.status, &answer.body["active"]), (200, &json!(true)));
    assert_eq!(setting.verified(), 1);
    let answer = setting.gateway.send(&request(REVOCATION, &setting.access_token, portal));
    assert_eq!(
        (answer.status, answer.event["event"].as_str()),
        (200, Some("impersonation.revoked"))
    );
    assert_eq!(setting.verified(), 1);
    let answer = setting.gateway.send(&request(INTROSPECTION, &setting.access_token, portal));
    assert_eq!((answer.status, &answer.body), (200, &json!({"active": false})));
    assert_eq!(setting.verified(), 1);
}

#[test]
fn a_forged_token_of_a_client_goes_on_to_the_gateway() {
    let setting = Setting::new();
    for path in PATHS {
        let events = setting.gateway.world.events.borrow().len();
        let answer = setting.gateway.try_send(&request(path, &setting.forged(), portal));
        assert!(answer.is_none(), "{path}: {answer:?}");
        assert_eq!(setting.verified(), 1, "{path}");
        assert_eq!(setting.gateway.world.events.borrow().len(), events, "{path}");
    }
}

/// Any client may ask the gateway about the gateway's tokens.
#[test]
fn a_token_that_cannot_be_ours_goes_on_unverified() {
    let setting = Setting::new();
    let (key, claims) = (&setting.key, setting.claims());
    let header = |name: &str, value: Value| {
        with(json!({"alg": "ES256", "typ": "at+jwt", "kid": "filter-1"}), name, value)
    };
    let other_algorithm = Key::generate(Algorithm::EdDSA, "filter-1");
    #[rustfmt::skip]
    let cases = [
        ("another issuer",   key.sign(&with(claims.clone(), "iss", "https://other.example.com"))),
        ("no issuer",        key.sign(&without(claims.clone(), "iss"))),
        ("no txn",           key.sign(&without(claims.clone(), "txn"))),
        ("another key",      Key::generate(Algorithm::ES256, "gateway-1").sign(&claims)),
        ("another alg",      other_algorithm.sign(&claims)),
        ("no kid",           key.sign_with(&without(header("x", json!(1)), "kid"), &claims)),
        ("another typ",      key.sign_with(&header("typ", json!("logout+jwt")), &claims)),
        ("critical headers", key.sign_with(&header("crit", json!([])), &claims)),
        ("padding",          format!("{}=", setting.access_token)),
        ("opaque",           "opaque".to_owned()),
    ];
    assert_eq!(claims["iss"], ISSUER);
    let stranger = |form: ExchangeForm| form.without("client_id").basic("somebody", "else");
    for path in PATHS {
        for (case, token) in &cases {
            for client in [stranger, portal] {
                let answer = setting.gateway.try_send(&request(path, token, client));
                assert!(answer.is_none(), "{path}: {case}: {answer:?}");
                assert_eq!(setting.verified(), 0, "{path}: {case}");
            }
        }
    }
}
