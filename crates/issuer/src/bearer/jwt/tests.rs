//! Access tokens that are accepted, access tokens that are refused, and the memory of both.

use std::cell::Cell;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm as Other, EncodingKey};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Jwks;
use crate::fakes::{CountingCrypto, FakeHost};
use crate::host::Host;
use crate::jose::{KeySet, PublishedKey, TestedCrypto};
use crate::statement::{NameError, is_jwt};
use crate::step::{Step, Task};
use testkit::keys::{Key, verify_es256};

const ISSUER: &str = "https://auth.example.com/oidc";
const AUDIENCE: &str = "https://auth.example.com/api";
const NOW: u64 = 1_790_000_000;
const SKEW: u64 = 60;

type TokenVerdict = Result<Rc<VerifiedToken>, BearerError>;

fn key_source(jwks: &[Value]) -> Jwks {
    let set = KeySet::parse(json!({"keys": jwks}).to_string().as_bytes()).unwrap();
    Jwks::Local(Rc::new(set))
}

fn issuer(jwks: &[Value]) -> JwtIssuer {
    JwtIssuer {
        issuer: ISSUER.to_owned(),
        name_prefix: None,
        audiences: vec![AUDIENCE.to_owned(), "other".to_owned()],
        required_scopes: Rc::new(["impersonate".to_owned()]),
        client_ids: None,
        clock_skew: Duration::from_secs(SKEW),
        keys: key_source(jwks),
    }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "backend", "aud": AUDIENCE, "iat": NOW, "exp": NOW + 600,
        "scope": "openid impersonate",
    })
}

fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

/// Verifies a token as a request does that presents it.
fn verify_on(host: &Rc<FakeHost>, verifier: &Rc<JwtVerifier>, token: &str) -> TokenVerdict {
    let (verifier, token) = (Rc::clone(verifier), token.to_owned());
    let (world, host) = (Rc::clone(host) as Rc<dyn Host>, Rc::clone(host));
    let step = Task::start(world, None, |context| async move {
        let (own_keys, names) = (KeySet::default(), Names::default());
        verifier.verify(&context, host.native.as_ref(), &own_keys, &names, &token).await
    });
    let Step::Done(verdict) = step else { panic!("it calls") };
    verdict
}

fn host_at(millis: u64) -> Rc<FakeHost> {
    let host = FakeHost::default();
    host.now.set(UnixTime::from_millis(millis));
    Rc::new(host)
}

fn verifier(issuers: Vec<JwtIssuer>) -> Rc<JwtVerifier> {
    Rc::new(JwtVerifier::new(issuers))
}

fn verify_with(jwks: &[Value], token: &str) -> TokenVerdict {
    verify_on(&host_at(NOW * 1000), &verifier(vec![issuer(jwks)]), token)
}

#[test]
fn a_token_by_any_accepted_algorithm_is_good() {
    for key in Key::of_all_kinds() {
        let verified = verify_with(&[key.public_jwk()], &key.sign(&claims()));
        let verified = verified.unwrap_or_else(|error| panic!("{:?}: {error}", key.alg));
        assert_eq!(verified.subject.as_deref(), Some("backend"));
        assert_eq!(verified.scopes, ["openid", "impersonate"]);
    }
}

#[test]
fn a_token_must_name_our_audience_a_scope_and_somebody() {
    let key = Key::generate(Other::EdDSA, "k");
    use BearerError::*;
    let malformed = || Statement(StatementError::Claims);
    let lacks_scope = || Some(InsufficientScope(Rc::new(["impersonate".to_owned()])));
    let mut nobody = without("sub");
    let mut by_client = without("sub");
    by_client["client_id"] = json!("c");
    let mut by_azp = without("sub");
    by_azp["azp"] = json!("c");
    nobody["client_id"] = json!("");
    let scp = |value: Value| {
        let mut claims = without("scope");
        claims["scp"] = value;
        claims
    };
    #[rustfmt::skip]
    let cases = [
        ("aud, a string",         with("aud", AUDIENCE),                           None),
        ("aud, another of ours",  with("aud", "other"),                            None),
        ("aud, a list",           with("aud", json!([AUDIENCE])),                  None),
        ("aud, among others",     with("aud", json!(["x", AUDIENCE, "y"])),        None),
        ("aud of others",         with("aud", json!(["x", "y"])),                  Some(Audience)),
        ("aud of nobody",         with("aud", json!([])),                          Some(Audience)),
        ("aud, empty",            with("aud", ""),                                 Some(Audience)),
        ("aud with a slash",      with("aud", format!("{AUDIENCE}/")),             Some(Audience)),
        ("no aud",                without("aud"),                                  Some(Audience)),
        ("aud, a number",         with("aud", 1),                                  Some(malformed())),
        ("aud, a list of lists",  with("aud", json!([[AUDIENCE]])),                Some(malformed())),
        ("no scope",              without("scope"),                                lacks_scope()),
        ("scope, empty",          with("scope", ""),                               lacks_scope()),
        ("scope, almost",         with("scope", "impersonate2 Impersonate"),       lacks_scope()),
        ("scope, last",           with("scope", "a  b impersonate"),               None),
        ("scope, a list",         with("scope", json!(["a", "impersonate"])),      None),
        ("scope, words in an item", with("scope", json!(["a impersonate"])),       lacks_scope()),
        ("scope, a mixed list",   with("scope", json!(["impersonate", 1])),        Some(malformed())),
        ("scp, a string",         scp(json!("a impersonate")),                     None),
        ("scp, a list",           scp(json!(["a", "impersonate"])),                None),
        ("scp, words in an item", scp(json!(["a impersonate"])),                   lacks_scope()),
        ("scp, a number",         scp(json!(1)),                                   Some(malformed())),
        ("act",                   with("act", json!({"sub": "x"})),                Some(Delegated)),
        ("act, empty",            with("act", json!({})),                          Some(Delegated)),
        ("act, a string",         with("act", "x"),                                Some(Delegated)),
        ("act, false",            with("act", false),                              Some(Delegated)),
        ("act, null",             with("act", Value::Null),                        Some(Delegated)),
        ("txn",                   with("txn", "t"),                                Some(Delegated)),
        ("txn, null",             with("txn", Value::Null),                        Some(Delegated)),
        ("nonce",                 with("nonce", "n"),                              Some(NotAnAccessToken("nonce".into()))),
        ("nonce, null",           with("nonce", Value::Null),                      Some(NotAnAccessToken("nonce".into()))),
        ("at_hash",               with("at_hash", "h"),                            Some(NotAnAccessToken("at_hash".into()))),
        ("c_hash",                with("c_hash", "h"),                             Some(NotAnAccessToken("c_hash".into()))),
        ("cnf",                   with("cnf", json!({"jkt": "x"})),                Some(SenderConstrained)),
        ("cnf, empty",            with("cnf", json!({})),                          Some(SenderConstrained)),
        ("cnf, null",             with("cnf", Value::Null),                        Some(SenderConstrained)),
        ("sub of 255 characters", with("sub", "\u{e4}".repeat(255)),               None),
        ("sub of 256 characters", with("sub", "a".repeat(256)),                    Some(Name(NameError::Malformed))),
        ("sub of two lines",      with("sub", "a\nb"),                             Some(Name(NameError::Malformed))),
        ("client_id, too long",   with("client_id", "a".repeat(256)),              Some(Name(NameError::Malformed))),
        ("azp with a control",    with("azp", "a\u{85}b"),                         Some(Name(NameError::Malformed))),
        ("client_id alone",       by_client,                                       None),
        ("azp alone",             by_azp,                                          None),
        ("nobody",                nobody,                                          Some(Nobody)),
        ("sub, empty",            with("sub", ""),                                 Some(Nobody)),
        ("sub, a number",         with("sub", 42),                                 Some(malformed())),
        ("not an object",         json!(["iss", ISSUER]),                          Some(malformed())),
    ];
    for (case, claims, refused) in cases {
        assert_eq!(verify_with(&[key.public_jwk()], &key.sign(&claims)).err(), refused, "{case}");
    }
}

/// JSON may write a claim's name with escapes.
#[test]
fn an_escaped_act_or_cnf_is_recognized() {
    let key = Key::generate(Other::EdDSA, "k");
    let pem = EncodingKey::from_ed_pem(key.pem().as_bytes()).unwrap();
    #[rustfmt::skip]
    let cases = [
        (r#""\u0061ct":{"sub":"x"}"#, BearerError::Delegated),
        (r#""\u0063nf":null"#,        BearerError::SenderConstrained),
    ];
    for (claim, refused) in cases {
        let claims = claims().to_string().replacen('{', &format!("{{{claim},"), 1);
        let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k"}"#);
        let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let signature = jsonwebtoken::crypto::sign(input.as_bytes(), &pem, Other::EdDSA).unwrap();
        let verdict = verify_with(&[key.public_jwk()], &format!("{input}.{signature}"));
        assert_eq!(verdict.unwrap_err(), refused, "{claim}");
    }
}

#[test]
fn a_token_is_for_the_clients_that_it_may_be_issued_to() {
    let key = Key::generate(Other::EdDSA, "k");
    let listed = || JwtIssuer {
        client_ids: Some(vec!["backend".to_owned(), "job".to_owned()]),
        ..issuer(&[key.public_jwk()])
    };
    let changed = |changes: &[(&str, &str)]| {
        let mut claims = claims();
        for (name, value) in changes {
            claims[*name] = json!(value);
        }
        claims
    };
    #[rustfmt::skip]
    let cases = [
        ("client_id",             changed(&[("client_id", "job")]),                     true),
        ("azp",                   changed(&[("azp", "job")]),                           true),
        ("azp beside an empty client_id", changed(&[("client_id", ""), ("azp", "job")]), true),
        ("another client",        changed(&[("client_id", "portal")]),                  false),
        ("another azp",           changed(&[("azp", "portal")]),                        false),
        ("client_id decides",     changed(&[("client_id", "portal"), ("azp", "job")]),  false),
        ("another case",          changed(&[("client_id", "Job")]),                     false),
        ("two names in one",      changed(&[("client_id", "job backend")]),             false),
        ("sub alone",             changed(&[("sub", "job")]),                           false),
    ];
    for (case, claims, accepted) in cases {
        let verifier = verifier(vec![listed()]);
        let verdict = verify_on(&host_at(NOW * 1000), &verifier, &key.sign(&claims));
        assert_eq!(verdict.err(), (!accepted).then_some(BearerError::Client), "{case}");
    }
}

/// RFC 9068 §4, RFC 8725 §3.11.
#[test]
fn a_token_whose_typ_is_another_is_no_access_token() {
    let key = Key::generate(Other::EdDSA, "k");
    #[rustfmt::skip]
    let cases = [
        (json!("at+jwt"),                  true),
        (json!("AT+JWT"),                  true),
        (json!("application/at+jwt"),      true),
        (json!("Application/AT+JWT"),      true),
        (json!("JWT"),                     true),
        (json!("jwt"),                     true),
        (json!("logout+jwt"),              false),
        (json!("dpop+jwt"),                false),
        (json!("secevent+jwt"),            false),
        (json!("token-introspection+jwt"), false),
        (json!("oauth-authz-req+jwt"),     false),
        (json!("text/at+jwt"),             false),
        (json!("at+jwt; a=b"),             false),
        (json!(" at+jwt"),                 false),
        (json!(""),                        false),
        (json!(null),                      false),
    ];
    for (typ, accepted) in cases {
        let token = key.sign_with(&json!({"alg": "EdDSA", "kid": "k", "typ": typ}), &claims());
        let said = typ.as_str().unwrap_or("null").to_owned();
        let refused = (!accepted).then_some(BearerError::NotAnAccessToken(said));
        assert_eq!(verify_with(&[key.public_jwk()], &token).err(), refused, "{typ}");
    }
    for typ in [json!(1), json!(["JWT"])] {
        let token = key.sign_with(&json!({"alg": "EdDSA", "kid": "k", "typ": typ}), &claims());
        let refused = verify_with(&[key.public_jwk()], &token).unwrap_err();
        assert_eq!(refused, BearerError::Statement(StatementError::NotAJwt), "{typ}");
    }
}

/// The audit log names the caller in this way.
#[test]
fn a_client_is_accountable_before_its_user() {
    let key = Key::generate(Other::EdDSA, "k");
    let caller = |claims: &Value| {
        let verified = verify_with(&[key.public_jwk()], &key.sign(claims)).unwrap();
        verified.caller().unwrap().to_owned()
    };
    assert_eq!(caller(&with("client_id", "c")), "c");
    assert_eq!(caller(&with("azp", "z")), "z");
    assert_eq!(caller(&with("client_id", "")), "backend");
    let mut both = with("azp", "z");
    both["client_id"] = json!("c");
    assert_eq!(caller(&both), "c");
}

/// A host whose cryptography counts how often it is asked.
fn counting_host(key: &Key) -> (Rc<FakeHost>, Rc<Cell<u32>>) {
    let verified = Rc::default();
    let crypto = CountingCrypto { verified: Rc::clone(&verified), verify: verify_es256 };
    let (_, signing) = PublishedKey::from_jwk(&key.private_jwk(), None, None).unwrap();
    let host = FakeHost::with_native(TestedCrypto::new(Box::new(crypto), &signing.unwrap()));
    host.now.set(UnixTime::from_millis(NOW * 1000));
    verified.set(0);
    (Rc::new(host), verified)
}

#[test]
fn a_token_is_verified_once() {
    let key = Key::generate(Other::ES256, "k");
    let (host, verified) = counting_host(&key);
    let verifier = verifier(vec![issuer(&[key.public_jwk()])]);
    let (token, other) = (key.sign(&claims()), key.sign(&with("sub", "other")));
    for _ in 0..3 {
        assert_eq!(
            verify_on(&host, &verifier, &token).unwrap().subject.as_deref(),
            Some("backend")
        );
    }
    assert_eq!(verified.get(), 1);
    assert_eq!(verify_on(&host, &verifier, &other).unwrap().subject.as_deref(), Some("other"));
    assert_eq!(verified.get(), 2, "another token");

    // The verifier remembers a token that lacks the scope, and refuses it each time.
    let lacking = key.sign(&with("scope", "openid"));
    for _ in 0..2 {
        let refused = verify_on(&host, &verifier, &lacking).unwrap_err();
        assert!(matches!(refused, BearerError::InsufficientScope(_)));
    }
    assert_eq!(verified.get(), 3);

    // A remembered token expires at its time.
    host.now.set(UnixTime::from_millis((NOW + 600 + SKEW) * 1000 - 1));
    assert!(verify_on(&host, &verifier, &token).is_ok());
    host.now.set(UnixTime::from_millis((NOW + 600 + SKEW) * 1000));
    assert_eq!(
        verify_on(&host, &verifier, &token).unwrap_err(),
        BearerError::Statement(StatementError::Expired)
    );
}

#[test]
fn a_refused_token_is_not_remembered() {
    let key = Key::generate(Other::ES256, "k");
    let (host, verified) = counting_host(&key);
    let verifier = verifier(vec![issuer(&[key.public_jwk()])]);
    let early = key.sign(&with("nbf", NOW + SKEW + 1));
    for _ in 0..2 {
        assert_eq!(
            verify_on(&host, &verifier, &early).unwrap_err(),
            BearerError::Statement(StatementError::NotYetValid)
        );
    }
    assert_eq!(verified.get(), 2);
    host.now.set(UnixTime::from_millis((NOW + 1) * 1000));
    assert!(verify_on(&host, &verifier, &early).is_ok());
}

#[test]
fn the_memory_of_verified_tokens_is_bounded() {
    let key = Key::generate(Other::ES256, "k");
    let (host, verified) = counting_host(&key);
    let verifier = verifier(vec![issuer(&[key.public_jwk()])]);
    let tokens: Vec<_> =
        (0..=CACHE_CAPACITY).map(|number| key.sign(&with("sub", number.to_string()))).collect();
    for token in &tokens {
        assert!(verify_on(&host, &verifier, token).is_ok());
    }
    let all = u32::try_from(tokens.len()).unwrap();
    assert_eq!(verified.get(), all);
    for token in &tokens[1..] {
        assert!(verify_on(&host, &verifier, token).is_ok());
    }
    assert_eq!(verified.get(), all, "the last {CACHE_CAPACITY} are remembered");
    assert!(verify_on(&host, &verifier, &tokens[0]).is_ok());
    assert_eq!(verified.get(), all + 1, "the first is not");
}

#[test]
fn a_new_configuration_starts_with_an_empty_memory() {
    let key = Key::generate(Other::ES256, "k");
    let (host, verified) = counting_host(&key);
    let token = key.sign(&claims());
    for _ in 0..2 {
        let verifier = verifier(vec![issuer(&[key.public_jwk()])]);
        assert!(verify_on(&host, &verifier, &token).is_ok());
    }
    assert_eq!(verified.get(), 2);
    let another = Key::generate(Other::ES256, "k");
    let verifier = verifier(vec![issuer(&[another.public_jwk()])]);
    assert_eq!(
        verify_on(&host, &verifier, &token).unwrap_err(),
        BearerError::Statement(StatementError::Signature)
    );
}

/// Any JSON, with the names that a token has.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        proptest::sample::select(vec![ISSUER, AUDIENCE, "EdDSA", "impersonate", "k"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z]{1,3}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn changes(names: &'static [&'static str]) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    vec((proptest::sample::select(names), any_json()), 0..4)
}

proptest! {
    #[test]
    fn no_text_makes_the_verifier_panic(text in "\\PC*", parts in vec("[A-Za-z0-9_=-]{0,20}", 0..5)) {
        for token in [text, parts.join(".")] {
            let _ = is_jwt(&token);
            prop_assert!(verify_with(&[], &token).is_err());
        }
    }

    /// Even a trusted issuer may write anything into its tokens.
    #[test]
    fn no_header_and_no_claims_make_the_verifier_panic(
        header in changes(&["alg", "kid", "typ", "cty", "crit", "x5t", "x5t#S256", "jku", "x"]),
        claims in changes(&["iss", "sub", "aud", "exp", "nbf", "iat", "scope", "scp", "client_id", "act", "x"]),
    ) {
        thread_local! {
            static KEY: Key = Key::generate(Other::EdDSA, "k");
        }
        let (jwk, token, now) = KEY.with(|key| {
            let mut named = json!({"alg": "EdDSA", "kid": "k"});
            for (name, value) in header {
                named[name] = value;
            }
            let mut said = self::claims();
            for (name, value) in claims {
                said[name] = value;
            }
            (key.public_jwk(), key.sign_with(&named, &said), UnixTime::from_millis(NOW * 1000))
        });
        if let Ok(verified) = verify_with(&[jwk], &token) {
            prop_assert!(verified.expires_at > now);
            prop_assert!(verified.caller().is_some_and(|caller| !caller.is_empty()));
            prop_assert!(verified.scopes.iter().any(|scope| scope == "impersonate"));
        }
    }
}
