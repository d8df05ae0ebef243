//! Access tokens that different readers may take for different things: the filter, a service that
//! it asks, or a library.
//!
//! The services here say yes to everything, as forgiving services do. The tests check which tokens
//! are never sent to them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::bound_callers;
use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, jwks};
use testkit::gateway::{
    actor_claims, backend_claims, exchange_by, exchange_form, exchange_request, mint_by, minted,
    now, raw_part,
};
use testkit::holder::changed;
use testkit::http::Request;
use testkit::keys::{Key, unsigned};
use testkit::server::Reply;
use testkit::services::{introspection, userinfo};

const MINTERS: &str = "/subject_tokens/authentication/introspection";

/// An issuer that the configuration does not list, so that a service is asked about its tokens.
const UNLISTED: &str = "https://unlisted.example.com";

/// A filter that asks `introspection` about minters and `userinfo` about actors. Both say yes to
/// every token.
struct Forgiving {
    world: World,
}

impl Forgiving {
    fn start(change: impl FnOnce(Configuration) -> Configuration) -> Self {
        let configuration = Configuration::default()
            .with(MINTERS, introspection("0s", json!(["impersonate"])))
            .with("/actor_tokens/userinfo", userinfo("0s"));
        let world = World::start(&change(configuration));
        world.upstream("introspection").answer_always(Reply::json(&json!({
            "active": true, "scope": "impersonate", "client_id": "support-backend",
        })));
        world.upstream("userinfo").answer_always(Reply::json(&json!({"sub": "agent-1"})));
        Self { world }
    }

    fn calls(&self) -> usize {
        ["introspection", "userinfo"].iter().map(|name| self.world.upstream(name).calls()).sum()
    }

    /// Returns how often a mint was refused with this error and reason.
    fn refusals(&self, error: &str, reason: &str) -> u64 {
        self.world.counted(&format!(
            "impersonation_refusals_total.endpoint.subject_tokens.error.{error}.reason.{reason}"
        ))
    }

    /// Returns the status of a mint with this token, and of an exchange with it as actor token.
    fn present(&self, token: &str) -> (u16, u16) {
        let subject_token = self.world.mint();
        let minting = self.world.send(&mint_by(token, "u-1")).status;
        (minting, self.world.send(&exchange_by(&subject_token, token)).status)
    }
}

/// Writes the same JWT in ways that only a forgiving parser accepts. The signature does not cover
/// the difference.
fn disguises(token: &str) -> Vec<(&'static str, String)> {
    let (input, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = input.split_once('.').unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // The last of 342 characters carries 2 of the bits of the 256 bytes and has 4 to spare.
    let spare_bit = |part: &str| {
        let (rest, last) = part.split_at(part.len() - 1);
        let place = alphabet.find(last).unwrap();
        format!("{rest}{}", &alphabet[place + 1..place + 2])
    };
    assert_eq!(signature.len() % 4, 2, "{signature}");
    #[rustfmt::skip]
    let disguised = vec![
        ("padding",                   format!("{token}==")),
        ("half the padding",          format!("{token}=")),
        ("bits to spare",             format!("{input}.{}", spare_bit(signature))),
        ("the other alphabet",        format!("{input}.{}", signature.replace('-', "+").replace('_', "/"))),
        ("something in between",      format!("{input}.~{signature}")),
        ("a part to spare",           format!("{token}.x")),
        ("a dot to spare",            format!("{token}.")),
        ("two parts to spare",        format!("{token}.x.y")),
        ("a padded header",           format!("{header}==.{payload}.{signature}")),
        ("a padded payload",          format!("{header}.{payload}==.{signature}")),
    ];
    // A signature that is the same in both alphabets is no disguise.
    disguised.into_iter().filter(|(_, disguised)| disguised != token).collect()
}

#[test]
fn a_disguised_jwt_is_sent_to_no_service() {
    let gateway_key = Key::generate(Algorithm::RS256, "gateway-rs");
    let forgiving = Forgiving::start(|configuration| {
        configuration.with("/signing_keys/0/jwk", gateway_key.private_jwk())
    });
    // An impersonation's token: ours, and issued without an actor.
    let subject_token = forgiving.world.mint_for("u-victim");
    let ours = forgiving.world.send(&exchange_request(&exchange_form(&subject_token)));
    let other_audience = |mut claims: Value| {
        claims["aud"] = json!("https://elsewhere.example.com");
        PROVIDER_KEY.sign(&claims)
    };
    let tokens = [
        ("a backend's, for others", other_audience(backend_claims())),
        ("a user's, for others", other_audience(actor_claims("agent-1"))),
        ("an impersonation", ours.member("access_token")),
    ];
    let mut findings = Findings::default();
    for (whose, token) in tokens {
        findings.expect(whose, &forgiving.present(&token), &(401, 400));
        for (disguise, token) in disguises(&token) {
            findings.expect(
                format!("{whose}, {disguise}"),
                &forgiving.present(&token),
                &(401, 400),
            );
        }
    }
    findings.expect("no service was asked", &forgiving.calls(), &0);
    // A disguise does not make a good token better either.
    for (disguise, token) in disguises(&PROVIDER_KEY.sign(&backend_claims())) {
        findings.expect(disguise, &forgiving.world.send(&mint_by(&token, "u-1")).status, &401);
    }
    findings.expect("still no service was asked", &forgiving.calls(), &0);
    let told = forgiving.refusals("invalid_token", "not_a_jwt") > 0;
    findings.expect("refused for the right reason", &told, &true);
}

#[test]
fn an_ambiguous_token_is_sent_to_no_service() {
    let forgiving = Forgiving::start(|configuration| configuration);
    let stranger = Key::generate(Algorithm::EdDSA, "stranger");
    let part = |json: &[u8]| URL_SAFE_NO_PAD.encode(json);
    let header = part(br#"{"alg":"EdDSA","kid":"stranger"}"#);
    let with_payload = |json: &[u8]| format!("{header}.{}.c2ln", part(json));
    let claims = json!({"iss": UNLISTED, "sub": "x"});
    let with_header = |header: Value| stranger.sign_with(&header, &claims);
    #[rustfmt::skip]
    let cases = [
        ("three words",             "a.b.c".to_owned()),
        ("dots",                    "..".to_owned()),
        ("two issuers",             with_payload(br#"{"iss":"https://a.example","iss":"https://b.example","sub":"x"}"#)),
        ("two subjects",            with_payload(br#"{"sub":"x","s\u0075b":"y"}"#)),
        ("two actors",              with_payload(br#"{"sub":"x","act":null,"act":{}}"#)),
        ("a list of issuers",       with_payload(br#"{"iss":["https://a.example"],"sub":"x"}"#)),
        ("a byte order mark",       with_payload("\u{feff}{\"sub\":\"x\"}".as_bytes())),
        ("not UTF-8",               with_payload(b"{\"sub\":\"\xff\"}")),
        ("no object",               with_payload(b"[1]")),
        ("two algorithms",          format!("{}.{}.c2ln", part(br#"{"alg":"none","alg":"EdDSA"}"#), part(b"{}"))),
        ("an unencoded payload",    format!("{}.hello.c2ln", part(br#"{"alg":"EdDSA","b64":false,"crit":["b64"]}"#))),
        ("b64",                     with_header(json!({"alg": "EdDSA", "b64": true}))),
        ("crit",                    with_header(json!({"alg": "EdDSA", "crit": []}))),
        ("a nested token",          with_header(json!({"alg": "EdDSA", "cty": "JWT"}))),
        ("a logout token",          with_header(json!({"alg": "EdDSA", "typ": "logout+jwt"}))),
        ("no signature",            format!("{}.", unsigned(&json!({"alg": "none"}), &claims))),
    ];
    let mut findings = Findings::default();
    for (case, token) in cases {
        findings.expect(case, &forgiving.present(&token), &(401, 400));
        findings.expect(format!("{case}: calls"), &forgiving.calls(), &0);
    }
    // For comparison: the service is asked about every token of the unlisted issuer, whatever its
    // algorithm, and about tokens that are encrypted for it.
    let encrypted = format!("{}.a.b.c.d", part(br#"{"alg":"dir","enc":"A256GCM"}"#));
    let symmetric =
        format!("{}.c2ln", unsigned(&json!({"alg": "HS256", "typ": "at+JWT"}), &claims));
    for (case, token) in [
        ("readable", stranger.sign(&claims)),
        ("symmetric", symmetric),
        ("encrypted", encrypted),
        ("opaque", "2YotnFZFEjr1zCsicMWpAA".to_owned()),
        ("opaque, with dots", "v1.2YotnFZ.FEjr1zC.sicMWpAA".to_owned()),
    ] {
        findings.expect(case, &forgiving.present(&token), &(201, 200));
    }
    findings.expect("each is asked about", &forgiving.calls(), &10);
}

/// RFC 8693 §4.1: a token with `act` already acts for somebody.
#[test]
fn a_delegated_token_can_neither_mint_nor_act() {
    let forgiving = Forgiving::start(|configuration| configuration);
    let stranger = Key::generate(Algorithm::EdDSA, "stranger");
    let mut findings = Findings::default();
    let actors =
        [json!({"sub": "agent-1"}), json!({}), json!(""), json!(false), json!(0), json!(null)];
    for act in actors {
        let token = stranger.sign(&json!({"iss": UNLISTED, "sub": "u-victim", "act": act}));
        findings.expect(&act, &forgiving.present(&token), &(401, 400));
    }
    // `txn` marks the tokens of every filter.
    for txn in [json!("an-id"), json!(""), json!(null)] {
        let token = stranger.sign(&json!({"iss": UNLISTED, "sub": "u-victim", "txn": txn}));
        findings.expect(format!("txn {txn}"), &forgiving.present(&token), &(401, 400));
    }
    findings.expect("refused as", &forgiving.refusals("invalid_token", "delegated"), &9);
    // OpenID Connect Core §2, §3.3.2.11: an ID token.
    for name in ["nonce", "at_hash", "c_hash"] {
        let token = stranger.sign(&json!({"iss": UNLISTED, "sub": "u-victim", name: "x"}));
        findings.expect(name, &forgiving.present(&token), &(401, 400));
    }
    let refusals = forgiving.refusals("invalid_token", "not_an_access_token");
    findings.expect("refused as", &refusals, &3);
    // A token that is bound to a key is not a bearer token: RFC 9449, RFC 8705, RFC 7800.
    for cnf in [json!({"jkt": "x"}), json!({"x5t#S256": "x"}), json!({}), json!(null)] {
        let token = stranger.sign(&json!({"iss": UNLISTED, "sub": "agent-1", "cnf": cnf}));
        findings.expect(&cnf, &forgiving.present(&token), &(401, 400));
        let mut listed = backend_claims();
        listed["cnf"] = cnf.clone();
        let answer = forgiving.world.send(&mint_by(&PROVIDER_KEY.sign(&listed), "u-1"));
        findings.expect(format!("{cnf}, of a listed issuer"), &answer.status, &401);
    }
    let refusals = forgiving.refusals("invalid_token", "sender_constrained");
    findings.expect("refused as", &refusals, &8);
    findings.expect("no service was asked", &forgiving.calls(), &0);
}

#[test]
fn an_answer_of_userinfo_is_held_to_the_rules_of_a_jwt() {
    let forgiving = Forgiving::start(|configuration| configuration);
    #[rustfmt::skip]
    let cases = [
        (json!({"sub": "agent-1"}),                          200),
        (json!({"sub": "a".repeat(255)}),                    200),
        (json!({"sub": "\u{e4}".repeat(255), "act": null}),  200),
        (json!({"sub": "a".repeat(256)}),                    400),
        (json!({"sub": "a".repeat(100_000)}),                400),
        (json!({"sub": "agent\n1"}),                         400),
        (json!({"sub": "agent\u{0}"}),                       400),
        (json!({"sub": "agent\u{9b}31m"}),                   400),
        (json!({"sub": "u-1", "act": {"sub": "agent-1"}}),   400),
        (json!({"sub": "u-1", "txn": "an-id"}),              400),
    ];
    let mut findings = Findings::default();
    for (answer, status) in cases {
        forgiving.world.upstream("userinfo").answer_always(Reply::json(&answer));
        let subject_token = forgiving.world.mint_for("u-2");
        let exchanged = forgiving.world.send(&exchange_by(&subject_token, "opaque"));
        let case: String = answer.to_string().chars().take(60).collect();
        findings.expect(&case, &exchanged.status, &status);
        if exchanged.status == 200 {
            let claims = raw_part(&exchanged.member("access_token"), 1);
            findings.expect(&case, &claims["act"]["sub"], &answer["sub"]);
        }
    }
}

#[test]
fn an_introspection_answer_is_held_to_the_rules_of_a_jwt() {
    let configuration = Configuration::default()
        .with(MINTERS, introspection("0s", json!(["impersonate"])))
        .with(&format!("{MINTERS}/audiences"), json!([MANAGEMENT, "urn:second"]))
        .with(&format!("{MINTERS}/client_ids"), json!(["integrator-backend", "nightly-job"]));
    let world = World::start(&configuration);
    let service = world.upstream("introspection");
    let active = |changes: Value| {
        let mut answer = json!({
            "active": true, "scope": "impersonate", "client_id": "integrator-backend",
            "aud": MANAGEMENT, "iss": ISSUER, "token_type": "Bearer",
        });
        answer.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        answer
    };
    let long = "a".repeat(256);
    #[rustfmt::skip]
    let cases = [
        (json!({}),                                             201, ""),
        (json!({"aud": ["x", "urn:second"]}),                   201, ""),
        (json!({"aud": "x"}),                                   401, "audience"),
        (json!({"aud": ["x", format!("{MANAGEMENT}/")]}),       401, "audience"),
        (json!({"aud": []}),                                    401, "audience"),
        (json!({"aud": null}),                                  401, "audience"),
        (json!({"aud": {MANAGEMENT: true}}),                    401, "audience"),
        (json!({"client_id": "nightly-job"}),                   201, ""),
        (json!({"client_id": "support-portal"}),                401, "client"),
        (json!({"client_id": "support-portal", "azp": "integrator-backend"}), 401, "client"),
        (json!({"client_id": null, "azp": "integrator-backend"}), 201, ""),
        (json!({"client_id": null, "sub": "integrator-backend"}), 401, "client"),
        (json!({"client_id": long}),                            401, "identifier"),
        (json!({"sub": long}),                                  401, "identifier"),
        (json!({"sub": "a\u{1b}[2J"}),                          401, "identifier"),
        (json!({"token_type": "bearer"}),                       201, ""),
        (json!({"token_type": null}),                           201, ""),
        (json!({"token_type": "access_token"}),                 201, ""),
        (json!({"token_type": "urn:ietf:params:oauth:token-type:access_token"}), 201, ""),
        (json!({"token_type": "refresh_token"}),                401, "not_an_access_token"),
        (json!({"token_type": "urn:ietf:params:oauth:token-type:refresh_token"}), 401, "not_an_access_token"),
        (json!({"token_type": "DPoP"}),                         401, "not_an_access_token"),
        (json!({"token_type": "N_A"}),                          401, "not_an_access_token"),
        (json!({"token_type": ""}),                             401, "not_an_access_token"),
        (json!({"token_use": "access_token"}),                  201, ""),
        (json!({"token_use": "refresh_token"}),                 401, "not_an_access_token"),
        (json!({"typ": "Bearer"}),                              201, ""),
        (json!({"typ": "Refresh"}),                             401, "not_an_access_token"),
        (json!({"typ": "ID"}),                                  401, "not_an_access_token"),
        (json!({"cnf": {"jkt": "x"}}),                          401, "sender_constrained"),
        (json!({"cnf": {}}),                                    401, "sender_constrained"),
        (json!({"cnf": null}),                                  201, ""),
        (json!({"act": {}}),                                    401, "delegated"),
        (json!({"act": null}),                                  201, ""),
        (json!({"txn": "an-id"}),                               401, "delegated"),
        (json!({"nonce": "n"}),                                 401, "not_an_access_token"),
        (json!({"at_hash": "h"}),                               401, "not_an_access_token"),
        (json!({"c_hash": "h"}),                                401, "not_an_access_token"),
        // An opaque token: only the answer says who its subject is.
        (json!({"iss": "https://another.example.com"}),         201, ""),
    ];
    let mut findings = Findings::default();
    let refusals = |reason: &str| {
        world.counted(&format!(
            "impersonation_refusals_total.endpoint.subject_tokens.error.invalid_token.reason.{reason}"
        ))
    };
    for (changes, status, reason) in cases {
        let case: String = changes.to_string().chars().take(80).collect();
        service.answer_always(Reply::json(&active(changes)));
        let before = refusals(reason);
        findings.expect(&case, &world.send(&mint_by("opaque", "u-1")).status, &status);
        if status != 201 {
            findings.expect(format!("{case}: as {reason}"), &(refusals(reason) - before), &1);
        }
    }
    // A JWT names its own issuer: an answer about another issuer's token does not apply to it.
    let stranger = Key::generate(Algorithm::EdDSA, "stranger");
    #[rustfmt::skip]
    let cases = [
        (json!(UNLISTED),                  201),
        (json!(null),                      201),
        (json!(format!("{UNLISTED}/")),    401),
        (json!(ISSUER),                    401),
    ];
    for (iss, status) in cases {
        service.answer_always(Reply::json(&active(json!({"iss": iss}))));
        let token = stranger.sign(&json!({"iss": UNLISTED, "sub": "x"}));
        findings.expect(iss, &world.send(&mint_by(&token, "u-1")).status, &status);
    }
}

#[test]
fn only_tokens_of_the_listed_clients_mint() {
    let world = World::start(&Configuration::default().with(
        "/subject_tokens/authentication/jwt/0/client_ids",
        json!(["support-backend", "nightly-job"]),
    ));
    let status = |changes: Value| {
        let mut claims = backend_claims();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims.as_object_mut().unwrap().retain(|_, claim| !claim.is_null());
        world.send(&mint_by(&PROVIDER_KEY.sign(&claims), "u-1")).refusal()
    };
    let refused = || (401, "invalid_token".to_owned());
    let minted = || (201, "-".to_owned());
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        (json!({}),                                                       minted()),
        (json!({"client_id": "nightly-job"}),                             minted()),
        (json!({"client_id": null, "azp": "support-backend"}),            minted()),
        // A user's token has the right scope and audience, and is still a user's.
        (json!({"client_id": "support-portal", "sub": "agent-1"}),        refused()),
        (json!({"client_id": "support-portal", "azp": "support-backend"}), refused()),
        (json!({"client_id": null, "sub": "support-backend"}),            refused()),
        (json!({"client_id": null, "azp": "support-portal"}),             refused()),
    ];
    for (changes, expected) in cases {
        findings.expect(&changes, &status(changes.clone()), &expected);
    }
}

/// Another filter of the same issuer signs with the issuer's key, so the signature alone does not
/// tell its tokens from those of callers. An ID token is signed with that key, too.
#[test]
fn an_impersonation_of_another_filter_and_an_id_token_are_good_at_no_endpoint() {
    let world = bound_callers::start();
    let mut findings = Findings::default();
    let changes = [
        json!({"txn": "an-id"}),
        json!({"txn": "an-id", "act": {"sub": "agent-1"}}),
        json!({"nonce": "n"}),
        json!({"at_hash": "h"}),
        json!({"c_hash": "h"}),
    ];
    for asked in bound_callers::every_endpoint(&world) {
        let send = |claims: &Value| {
            let bearer = format!("Bearer {}", PROVIDER_KEY.sign(claims));
            world.send(&asked.as_whom(&[bearer], &[]))
        };
        for change in &changes {
            let case = format!("{} {}, {change}", asked.method, asked.path);
            let answer = send(&changed(asked.claims.clone(), change));
            findings.expect(case, &answer.refusal(), &(401, "invalid_token".into()));
        }
        let case = format!("{} {}", asked.method, asked.path);
        findings.expect(case, &send(&asked.claims).status, &asked.status);
    }
    let subject_token = world.mint();
    for change in &changes {
        let actor = PROVIDER_KEY.sign(&changed(actor_claims("agent-1"), change));
        let answer = world.send(&exchange_by(&subject_token, &actor));
        findings.expect(
            format!("an actor, {change}"),
            &answer.refusal(),
            &(400, "invalid_request".into()),
        );
    }
    let actor = PROVIDER_KEY.sign(&actor_claims("agent-1"));
    findings.expect("an actor", &world.send(&exchange_by(&subject_token, &actor)).status, &200);
}

/// An ID token need not have `nonce`, `at_hash` or `c_hash`, and its audience may be listed.
#[test]
fn a_user_without_scope_consents_only_with_an_access_token() {
    let people = json!({"authentication": {"jwt": [{
        "issuer": ISSUER, "name_prefix": "", "audiences": ["console"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    }]}, "required": 0});
    let world = World::start(&Configuration::default().with("/approvals", people));
    let claims = |more: Value| {
        let mut claims = json!({"iss": ISSUER, "sub": "u-1", "aud": "console", "exp": now() + 600});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claims
    };
    let signed = |typ: Value, more: Value| {
        let header = json!({"alg": "RS256", "kid": PROVIDER_KEY.kid, "typ": typ});
        let header = changed(header, &if typ.is_null() { json!({"typ": null}) } else { json!({}) });
        PROVIDER_KEY.sign_with(&header, &claims(more))
    };
    #[rustfmt::skip]
    let cases = [
        ("an ID token, no typ",        signed(json!(null), json!({})),                          403),
        ("an ID token",                signed(json!("JWT"), json!({"email": "a@example.com", "azp": "console"})), 403),
        ("null claims",                signed(json!("JWT"), json!({"scope": null, "client_id": null})), 403),
        ("at+jwt",                     signed(json!("at+jwt"), json!({})),                      200),
        ("the whole media type",       signed(json!("application/at+jwt"), json!({})),          200),
        ("a scope",                    signed(json!("JWT"), json!({"scope": "openid"})),        200),
        ("scopes in a list",           signed(json!("JWT"), json!({"scope": ["openid"]})),      200),
        ("a client_id",                signed(json!(null), json!({"client_id": "console"})),    200),
    ];
    let mut findings = Findings::default();
    for (case, token, status) in cases {
        let mint =
            Request::post("/api/subject-tokens").bearer(&PROVIDER_KEY.sign(&backend_claims()));
        let answer = world.send(&mint.json(&json!({"userId": "u-1", "consent": true})));
        let id = answer.header("location").unwrap().rsplit_once('/').unwrap().1.to_owned();
        let decide = Request::post(&format!("/api/approvals/{id}")).bearer(&token);
        let decided = world.send(&decide.json(&json!({"decision": "approve"})));
        findings.expect(case, &decided.status, &status);
        let listed = world.send(&Request::get("/api/approvals").bearer(&token));
        findings.expect(format!("{case}, the list"), &listed.status, &status);
        if status == 403 {
            findings.expect(case, &decided.refusal().1, &"insufficient_scope".to_owned());
            let exchanged = world.send(&exchange_request(&exchange_form(&minted(&answer))));
            findings.expect(case, &exchanged.refusal().1, &"authorization_pending".to_owned());
        }
    }
}

/// RFC 9068 §4, RFC 8725 §3.11.
#[test]
fn a_token_of_another_type_is_no_access_token() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    let subject_token = world.mint();
    #[rustfmt::skip]
    let cases = [
        ("at+jwt", true), ("AT+JWT", true), ("application/at+jwt", true), ("JWT", true), ("jwt", true),
        ("logout+jwt", false), ("dpop+jwt", false), ("secevent+jwt", false), ("", false), ("at+jwt ", false),
    ];
    for (typ, accepted) in cases {
        let header = json!({"alg": "RS256", "kid": PROVIDER_KEY.kid, "typ": typ});
        let bearer = PROVIDER_KEY.sign_with(&header, &backend_claims());
        let status = if accepted { 201 } else { 401 };
        findings.expect(typ, &world.send(&mint_by(&bearer, "u-1")).status, &status);
        if !accepted {
            let actor = PROVIDER_KEY.sign_with(&header, &actor_claims("agent-1"));
            findings.expect(typ, &world.send(&exchange_by(&subject_token, &actor)).status, &400);
        }
    }
    world.assert_spendable(&subject_token, "after all of them");
}

/// RFC 9864 §2.2.
#[test]
fn ed25519_is_another_name_for_eddsa() {
    let provider = Key::generate(Algorithm::EdDSA, "provider-ed");
    let signing = Key::generate(Algorithm::EdDSA, "signing-ed");
    let renamed = |mut jwk: Value, name: &str| {
        jwk["alg"] = json!(name);
        jwk
    };
    let mut findings = Findings::default();
    for of_key in ["EdDSA", "Ed25519"] {
        let set = json!({"keys": [renamed(provider.public_jwk(), of_key)]}).to_string();
        let set = json!({"inline_string": set});
        let world = World::start(
            &Configuration::default()
                .with("/subject_tokens/authentication/jwt/0/local_jwks", set)
                .with("/signing_keys/0/jwk", renamed(signing.private_jwk(), of_key)),
        );
        for of_token in ["EdDSA", "Ed25519"] {
            let header = json!({"alg": of_token, "typ": "at+jwt", "kid": provider.kid});
            let bearer = provider.sign_with(&header, &backend_claims());
            let answer = world.send(&mint_by(&bearer, "u-1"));
            findings.expect(format!("{of_token} by a key for {of_key}"), &answer.status, &201);
            if answer.status != 201 {
                continue;
            }
            let form = exchange_form(&minted(&answer));
            let token = world.exchange(&form).member("access_token");
            findings.expect("issued with", &raw_part(&token, 0)["alg"], &json!(of_key));
            let published = world.send(&Request::get("/oidc/jwks")).json();
            findings.expect("published as", &published["keys"][0]["alg"], &json!(of_key));
        }
        let other =
            provider.sign_with(&json!({"alg": "Ed448", "kid": provider.kid}), &backend_claims());
        findings.expect("Ed448", &world.send(&mint_by(&other, "u-1")).status, &401);
    }
}

/// The name of an actor ends up in tokens, records and logs, so it must be a valid `userId`.
#[test]
fn names_of_actors_and_callers_in_a_jwt_are_bounded() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    let subject_token = world.mint();
    for sub in ["a".repeat(256), "agent\n1".to_owned(), "agent\u{85}".to_owned()] {
        let actor = PROVIDER_KEY.sign(&actor_claims(&sub));
        let answer = world.send(&exchange_by(&subject_token, &actor));
        findings.expect(sub.escape_debug(), &answer.status, &400);
        let mut claims = backend_claims();
        claims["client_id"] = json!(sub);
        let answer = world.send(&mint_by(&PROVIDER_KEY.sign(&claims), "u-1"));
        findings.expect(sub.escape_debug(), &answer.status, &401);
    }
    let longest = PROVIDER_KEY.sign(&actor_claims(&"\u{e4}".repeat(255)));
    let answer = world.send(&exchange_by(&subject_token, &longest));
    findings.expect("255 characters", &answer.status, &200);
}
