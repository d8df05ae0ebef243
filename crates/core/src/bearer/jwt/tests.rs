//! Tokens that are good, tokens that want to be taken for good ones (RFC 8725 §2), and what is remembered
//! of both.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm as Other, EncodingKey};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Jwks;
use crate::fakes::FakeHost;
use crate::host::Host;
use crate::jose::KeySet;
use crate::jose::tests::host::{AwsLc, Manner};
use crate::jose::tests::{keys_of_all_kinds, signing_key};
use crate::step::{Step, Task};
use testkit::keys::{Key, unsigned};

const ISSUER: &str = "https://auth.example.com/oidc";
const AUDIENCE: &str = "https://auth.example.com/api";
const NOW: u64 = 1_790_000_000;
const SKEW: u64 = 60;

type Verdict = Result<Rc<VerifiedToken>, BearerError>;

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
fn verify_on(host: &Rc<FakeHost>, verifier: &Rc<JwtVerifier>, token: &str) -> Verdict {
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

fn verify_with(jwks: &[Value], token: &str) -> Verdict {
    verify_on(&host_at(NOW * 1000), &verifier(vec![issuer(jwks)]), token)
}

#[test]
fn a_token_by_any_accepted_algorithm_is_good() {
    for (algorithm, key) in keys_of_all_kinds() {
        let verified = verify_with(&[key.public_jwk()], &key.sign(&claims()));
        let verified = verified.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        assert_eq!(verified.subject.as_deref(), Some("backend"));
        assert_eq!(verified.scopes, ["openid", "impersonate"]);
    }
}

/// RFC 8725 §2.1 and §3.1: the token does not choose how it is verified.
#[test]
fn a_token_that_chooses_its_own_algorithm_is_refused() {
    let rsa = Key::generate(Other::RS256, "k");
    let jwk = rsa.public_jwk();
    let verify = |token: &str| verify_with(std::slice::from_ref(&jwk), token).unwrap_err();

    for name in ["none", "None", "nOnE", "NONE", "", "HS256", "HS512", "ES512", "PS512", "rs256"] {
        let header = json!({"alg": name, "kid": "k"});
        for signature in ["", "AA", "c2lnbmF0dXJl"] {
            let token = format!("{}.{signature}", unsigned(&header, &claims()));
            assert_eq!(verify(&token), BearerError::Algorithm(name.to_owned()), "{token}");
        }
    }
    for alg in [json!(null), json!(["RS256"]), json!({})] {
        let token = format!("{}.AA", unsigned(&json!({"alg": alg}), &claims()));
        assert_eq!(verify(&token), BearerError::NotAJwt, "{alg}");
    }
    let nameless = format!("{}.AA", unsigned(&json!({"kid": "k"}), &claims()));
    assert_eq!(verify(&nameless), BearerError::NotAJwt);

    // The public key, in every form in which an attacker has it, as the secret of an HMAC.
    let pem = rsa.pem();
    let modulus = jwk["n"].as_str().unwrap();
    let secrets: [Vec<u8>; 5] = [
        jwk.to_string().into_bytes(),
        modulus.as_bytes().to_vec(),
        BASE64_URL_SAFE_NO_PAD.decode(modulus).unwrap(),
        pem.as_bytes().to_vec(),
        BASE64_STANDARD
            .decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>())
            .unwrap(),
    ];
    for secret in secrets {
        let input = unsigned(&json!({"alg": "HS256", "kid": "k"}), &claims());
        let secret = EncodingKey::from_secret(&secret);
        let signature =
            jsonwebtoken::crypto::sign(input.as_bytes(), &secret, Other::HS256).unwrap();
        let token = format!("{input}.{signature}");
        assert_eq!(verify(&token), BearerError::Algorithm("HS256".to_owned()));
    }

    // Signed with one of the algorithms of its key, and labelled with another.
    for name in ["RS384", "RS512", "PS256"] {
        let token = rsa.sign_with(&json!({"alg": name, "kid": "k"}), &claims());
        assert_eq!(verify(&token), BearerError::NoKey, "the key is for RS256 only, not {name}");
        let mut any = jwk.clone();
        any.as_object_mut().unwrap().remove("alg");
        assert_eq!(verify_with(&[any], &token).unwrap_err(), BearerError::Signature, "{name}");
    }
    for name in ["ES256", "ES384", "EdDSA"] {
        let token = rsa.sign_with(&json!({"alg": name, "kid": "k"}), &claims());
        assert_eq!(verify(&token), BearerError::NoKey, "{name}");
    }
}

/// RFC 8725 §3.10: a `kid` chooses among the issuer's keys and nothing else, and a header brings none.
#[test]
fn a_token_that_chooses_its_own_key_is_refused() {
    let (first, second) = (Key::generate(Other::ES256, "a"), Key::generate(Other::ES256, "b"));
    let attacker = Key::generate(Other::ES256, "a");
    let jwks = [first.public_jwk(), second.public_jwk()];
    let verify = |token: &str| verify_with(&jwks, token);
    let header = |kid: &str| json!({"alg": "ES256", "kid": kid});

    assert!(verify(&first.sign(&claims())).is_ok());
    assert!(verify(&second.sign_with(&json!({"alg": "ES256"}), &claims())).is_ok(), "without kid");
    let crossed = second.sign_with(&header("a"), &claims());
    assert_eq!(verify(&crossed).unwrap_err(), BearerError::Signature);
    for kid in ["c", "", "../b", "b\0", "b' OR '1'='1", "B"] {
        let token = second.sign_with(&header(kid), &claims());
        assert_eq!(verify(&token).unwrap_err(), BearerError::NoKey, "{kid:?}");
    }
    for (member, value) in [
        ("jwk", attacker.public_jwk()),
        ("jku", json!("https://evil.example/jwks")),
        ("x5u", json!("https://evil.example/cert")),
        ("x5c", json!(["MIIB"])),
    ] {
        for kid in ["a", "b"] {
            let mut header = header(kid);
            header[member] = value.clone();
            let token = attacker.sign_with(&header, &claims());
            assert_eq!(verify(&token).unwrap_err(), BearerError::Signature, "{member} {kid}");
        }
    }
    let public = verify_with(&[], &first.sign(&claims()));
    assert_eq!(public.unwrap_err(), BearerError::NoKey);
}

/// RFC 7515 §4.1.11.
#[test]
fn a_token_that_must_be_understood_is_refused() {
    let key = Key::generate(Other::EdDSA, "k");
    for crit in [
        json!(["b64"]),
        json!(["exp"]),
        json!([]),
        json!("b64"),
        json!({}),
        json!(true),
        json!(null),
    ] {
        let header = json!({"alg": "EdDSA", "kid": "k", "crit": crit, "b64": false});
        let token = key.sign_with(&header, &claims());
        let verdict = verify_with(&[key.public_jwk()], &token);
        assert_eq!(verdict.unwrap_err(), BearerError::Critical, "{crit}");
    }
}

/// RFC 8725 §3.8: the keys of one issuer do not sign for another.
#[test]
fn an_issuer_signs_for_itself_only() {
    let (ours, theirs) = (Key::generate(Other::EdDSA, "k"), Key::generate(Other::EdDSA, "k"));
    let other =
        JwtIssuer { issuer: "https://b.example".to_owned(), ..issuer(&[theirs.public_jwk()]) };
    let verifier = verifier(vec![issuer(&[ours.public_jwk()]), other]);
    let verify = |token: &str| verify_on(&host_at(NOW * 1000), &verifier, token);
    assert!(verify(&ours.sign(&claims())).is_ok());
    assert!(verify(&theirs.sign(&with("iss", "https://b.example"))).is_ok());
    assert_eq!(verify(&theirs.sign(&claims())).unwrap_err(), BearerError::Signature);
    let crossed = ours.sign(&with("iss", "https://b.example"));
    assert_eq!(verify(&crossed).unwrap_err(), BearerError::Signature);
    for name in ["https://auth.example.com/oidc/", "https://AUTH.example.com/oidc", "", " "] {
        let verdict = verify(&ours.sign(&with("iss", name)));
        assert_eq!(verdict.unwrap_err(), BearerError::Issuer(name.to_owned()));
    }
    let anonymous = verify(&ours.sign(&without("iss")));
    assert_eq!(anonymous.unwrap_err(), BearerError::Issuer(String::new()));
    assert_eq!(verify(&ours.sign(&with("iss", json!([ISSUER])))).unwrap_err(), BearerError::Claims);
}

#[test]
fn what_is_not_three_parts_of_base64_is_no_jwt() {
    let key = Key::generate(Other::EdDSA, "k");
    let good = key.sign(&claims());
    let (input, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = input.split_once('.').unwrap();
    let not_json = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
    #[rustfmt::skip]
    let cases = [
        ("nothing",               String::new()),
        ("dots",                  "..".to_owned()),
        ("two parts",             input.to_owned()),
        ("four parts",            format!("{good}.AA")),
        ("padding",               format!("{good}==")),
        ("a space",               format!("{good} ")),
        ("the other alphabet",    format!("{input}.{}", signature.replace(['-', '_'], "+"))),
        ("bits left over",        format!("{input}.{}B", signature.get(..85).unwrap())),
        ("a header like text",    format!("{}.{payload}.{signature}", not_json(b"EdDSA"))),
        ("a header like a list",  format!("{}.{payload}.{signature}", not_json(b"[]"))),
        ("two algorithms",        format!("{}.{payload}.{signature}", not_json(br#"{"alg":"none","alg":"EdDSA"}"#))),
        ("encrypted inside",      key.sign_with(&json!({"alg": "EdDSA", "cty": "JWT"}), &claims())),
        ("no header",             format!(".{payload}.{signature}")),
    ];
    for (case, token) in cases {
        if token == good {
            continue;
        }
        assert_eq!(
            verify_with(&[key.public_jwk()], &token).unwrap_err(),
            BearerError::NotAJwt,
            "{case}"
        );
    }
    let unsigned = format!("{header}.{payload}.");
    assert_eq!(verify_with(&[key.public_jwk()], &unsigned).unwrap_err(), BearerError::Signature);
    let changed =
        format!("{header}.{}.{signature}", not_json(with("sub", "root").to_string().as_bytes()));
    assert_eq!(verify_with(&[key.public_jwk()], &changed).unwrap_err(), BearerError::Signature);
}

#[test]
fn time_is_checked_with_the_skew_of_the_issuers_clock() {
    let key = Key::generate(Other::EdDSA, "k");
    let exp = |value: Value| with("exp", value);
    let nbf = |value: Value| with("nbf", value);
    use BearerError::*;
    #[rustfmt::skip]
    let cases = [
        ("ends now",                exp(json!(NOW)),                    0,  None),
        ("ended, a millisecond of skew left", exp(json!(NOW - SKEW)),  -1,  None),
        ("ended, skew used up",     exp(json!(NOW - SKEW)),             0,  Some(Expired)),
        ("ended with a fraction",   exp(json!(NOW as f64 - 59.5)),      0,  Some(Expired)),
        ("ends with a fraction",    exp(json!(NOW as f64 - 58.5)),      0,  None),
        ("ended long ago",          exp(json!(0)),                      0,  Some(Expired)),
        ("ended before the epoch",  exp(json!(-1)),                     0,  Some(Expired)),
        ("ends in the year 9999",   exp(json!(253_402_300_799_i64)),    0,  None),
        ("never ends",              without("exp"),                     0,  Some(NoExpiry)),
        ("ends beyond all time",    exp(json!(u64::MAX)),               0,  Some(Claims)),
        ("ends soon",               exp(json!("1790000600")),           0,  Some(Claims)),
        ("ends at nothing",         exp(Value::Null),                   0,  Some(Claims)),
        ("begins now",              nbf(json!(NOW)),                    0,  None),
        ("begins within the skew",  nbf(json!(NOW + SKEW)),             0,  None),
        ("begins a millisecond later", nbf(json!(NOW + SKEW)),         -1,  Some(NotYetValid)),
        ("begins later",            nbf(json!(NOW + SKEW + 1)),         0,  Some(NotYetValid)),
        ("began before the epoch",  nbf(json!(-1)),                     0,  None),
        ("begins at some time",     nbf(json!("now")),                  0,  Some(Claims)),
        ("issued in the future",    with("iat", json!(NOW + 999)),      0,  None),
    ];
    for (case, claims, offset, refused) in cases {
        let host = host_at((NOW * 1000).saturating_add_signed(offset));
        let verdict =
            verify_on(&host, &verifier(vec![issuer(&[key.public_jwk()])]), &key.sign(&claims));
        assert_eq!(verdict.err(), refused, "{case}");
    }
}

#[test]
fn the_claims_must_name_us_and_somebody() {
    let key = Key::generate(Other::EdDSA, "k");
    use BearerError::*;
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
        ("aud, a number",         with("aud", 1),                                  Some(Claims)),
        ("aud, a list of lists",  with("aud", json!([[AUDIENCE]])),                Some(Claims)),
        ("no scope",              without("scope"),                                lacks_scope()),
        ("scope, empty",          with("scope", ""),                               lacks_scope()),
        ("scope, almost",         with("scope", "impersonate2 Impersonate"),       lacks_scope()),
        ("scope, last",           with("scope", "a  b impersonate"),               None),
        ("scope, a list",         with("scope", json!(["impersonate"])),           Some(Claims)),
        ("scp, a string",         scp(json!("a impersonate")),                     None),
        ("scp, a list",           scp(json!(["a", "impersonate"])),                None),
        ("scp, words in an item", scp(json!(["a impersonate"])),                   lacks_scope()),
        ("scp, a number",         scp(json!(1)),                                   Some(Claims)),
        ("act",                   with("act", json!({"sub": "x"})),                Some(Delegated)),
        ("act, empty",            with("act", json!({})),                          Some(Delegated)),
        ("act, a string",         with("act", "x"),                                Some(Delegated)),
        ("act, false",            with("act", false),                              Some(Delegated)),
        ("act, null",             with("act", Value::Null),                        Some(Delegated)),
        ("cnf",                   with("cnf", json!({"jkt": "x"})),                Some(SenderConstrained)),
        ("cnf, empty",            with("cnf", json!({})),                          Some(SenderConstrained)),
        ("cnf, null",             with("cnf", Value::Null),                        Some(SenderConstrained)),
        ("sub of 255 characters", with("sub", "\u{e4}".repeat(255)),               None),
        ("sub of 256 characters", with("sub", "a".repeat(256)),                    Some(Identifier)),
        ("sub of two lines",      with("sub", "a\nb"),                             Some(Identifier)),
        ("client_id, too long",   with("client_id", "a".repeat(256)),              Some(Identifier)),
        ("azp with a control",    with("azp", "a\u{85}b"),                         Some(Identifier)),
        ("client_id alone",       by_client,                                       None),
        ("azp alone",             by_azp,                                          None),
        ("nobody",                nobody,                                          Some(Nobody)),
        ("sub, empty",            with("sub", ""),                                 Some(Nobody)),
        ("sub, a number",         with("sub", 42),                                 Some(Claims)),
        ("no object",             json!(["iss", ISSUER]),                          Some(Claims)),
    ];
    for (case, claims, refused) in cases {
        assert_eq!(verify_with(&[key.public_jwk()], &key.sign(&claims)).err(), refused, "{case}");
    }
    let input = unsigned(&json!({"alg": "EdDSA", "kid": "k"}), &json!({}));
    let (header, _) = input.split_once('.').unwrap();
    let twice = claims().to_string().replace("\"sub\"", "\"sub\":\"root\",\"sub\"");
    let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(twice));
    let pem = EncodingKey::from_ed_pem(key.pem().as_bytes()).unwrap();
    let signature = jsonwebtoken::crypto::sign(input.as_bytes(), &pem, Other::EdDSA).unwrap();
    let verdict = verify_with(&[key.public_jwk()], &format!("{input}.{signature}"));
    assert_eq!(verdict.unwrap_err(), BearerError::Claims, "a claim that is given twice");
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
fn what_says_that_it_is_something_else_is_no_access_token() {
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
        let refused = (!accepted).then(|| BearerError::NotAnAccessToken(typ.to_string()));
        assert_eq!(verify_with(&[key.public_jwk()], &token).err(), refused, "{typ}");
    }
    for typ in [json!(1), json!(["JWT"])] {
        let token = key.sign_with(&json!({"alg": "EdDSA", "kid": "k", "typ": typ}), &claims());
        let refused = verify_with(&[key.public_jwk()], &token).unwrap_err();
        assert_eq!(refused, BearerError::NotAJwt, "{typ}");
    }
}

/// The signature holds for all of them. Another parser reads them, perhaps in another way.
#[test]
fn what_two_parsers_may_read_differently_is_refused() {
    let key = Key::generate(Other::EdDSA, "k");
    let pem = EncodingKey::from_ed_pem(key.pem().as_bytes()).unwrap();
    let verdict = |header: &[u8], payload: &[u8]| {
        let part = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
        let input = format!("{}.{}", part(header), part(payload));
        let signature = jsonwebtoken::crypto::sign(input.as_bytes(), &pem, Other::EdDSA).unwrap();
        verify_with(&[key.public_jwk()], &format!("{input}.{signature}")).err()
    };
    let header = r#"{"alg":"EdDSA","kid":"k"}"#;
    let payload = claims().to_string();
    assert_eq!(verdict(header.as_bytes(), payload.as_bytes()), None);
    assert_eq!(verdict(b" {\n\"alg\":\"EdDSA\"}\t", format!("\r {payload} ").as_bytes()), None);

    let first = |json: &str, more: &str| json.replacen('{', &format!("{{{more},"), 1).into_bytes();
    let in_header = |more: &str| first(header, more);
    let in_payload = |more: &str| first(&payload, more);
    let broken = |json: &str| [b"{\"x\":\"\xff\",", &json.as_bytes()[1..]].concat();
    let deep = format!(r#""x":{}1{}"#, "[".repeat(200), "]".repeat(200));
    use BearerError::*;
    #[rustfmt::skip]
    let headers = [
        ("kid twice",              in_header(r#""kid":"other""#),              NotAJwt),
        ("kid twice, one escaped", in_header(r#""\u006bid":"other""#),         NotAJwt),
        ("any member twice",       in_header(r#""x":1,"x":1"#),                NotAJwt),
        ("a member twice, deeper", in_header(r#""x":[{"y":1,"y":1}]"#),        NotAJwt),
        ("crit, escaped",          in_header(r#""\u0063rit":["exp"]"#),        Critical),
        ("b64 without crit",       in_header(r#""b64":false"#),                Critical),
        ("a nested JWT",           in_header(r#""cty":"JWT""#),                NotAJwt),
        ("a byte order mark",      format!("\u{feff}{header}").into_bytes(),   NotAJwt),
        ("not UTF-8",              broken(header),                             NotAJwt),
        ("more behind it",         format!("{header}{{}}").into_bytes(),       NotAJwt),
    ];
    for (case, header, refused) in headers {
        assert_eq!(verdict(&header, payload.as_bytes()), Some(refused), "{case}");
    }
    #[rustfmt::skip]
    let payloads = [
        ("two issuers",            in_payload(r#""iss":"https://other.example""#), Claims),
        ("two issuers, one null",  in_payload(r#""iss":null"#),                    Claims),
        ("one issuer twice",       in_payload(&format!(r#""iss":"{ISSUER}""#)),    Claims),
        ("two users, one escaped", in_payload(r#""s\u0075b":"root""#),             Claims),
        ("two actors",             in_payload(r#""act":{},"act":{}"#),             Claims),
        ("an actor, escaped",      in_payload(r#""\u0061ct":{"sub":"x"}"#),        Delegated),
        ("a key, escaped",         in_payload(r#""\u0063nf":null"#),               SenderConstrained),
        ("any claim twice",        in_payload(r#""x":1,"x":1"#),                   Claims),
        ("a claim twice, deeper",  in_payload(r#""x":{"y":[{"z":1,"z":1}]}"#),     Claims),
        ("a byte order mark",      format!("\u{feff}{payload}").into_bytes(),      Claims),
        ("not UTF-8",              broken(&payload),                               Claims),
        ("half a surrogate",       in_payload(r#""x":"\ud800""#),                  Claims),
        ("a number without end",   in_payload(r#""x":1e999"#),                     Claims),
        ("no number",              in_payload(r#""x":NaN"#),                       Claims),
        ("a comma to spare",       payload.replace('}', ",}").into_bytes(),        Claims),
        ("a comment",              in_payload(r#"/**/"x":1"#),                     Claims),
        ("more behind it",         format!("{payload}{{}}").into_bytes(),          Claims),
        ("deeper than many go",    in_payload(&deep),                              Claims),
    ];
    for (case, payload, refused) in payloads {
        assert_eq!(verdict(header.as_bytes(), &payload), Some(refused), "{case}");
    }
}

/// What is no JWT is asked about; what could be one to somebody else is not.
#[test]
fn only_what_nobody_reads_as_a_signed_token_is_opaque() {
    let key = Key::generate(Other::EdDSA, "k");
    let good = key.sign(&claims());
    let (input, _) = good.rsplit_once('.').unwrap();
    let (header, _) = input.split_once('.').unwrap();
    let encrypted = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#);
    #[rustfmt::skip]
    let cases = [
        ("opaque",                      "0123456789".to_owned(),          Ok(false)),
        ("with a dot",                  "ya29.a0AfB_x".to_owned(),        Ok(false)),
        ("with dots",                   "a.b.c.d".to_owned(),             Ok(false)),
        ("JSON without a dot",          header.to_owned(),                Ok(false)),
        ("encrypted",                   format!("{encrypted}.a.b.c.d"),   Ok(false)),
        ("a JWT",                       good.clone(),                     Ok(true)),
        ("three parts",                 "a.b.c".to_owned(),               Ok(true)),
        ("dots alone",                  "..".to_owned(),                  Ok(true)),
        ("no signature",                input.to_owned(),                 Err(BearerError::NotAJwt)),
        ("a part to spare",             format!("{good}.x"),              Err(BearerError::NotAJwt)),
        ("a dot to spare",              format!("{good}."),               Err(BearerError::NotAJwt)),
        ("two parts to spare",          format!("{good}.x.y"),            Err(BearerError::NotAJwt)),
        ("a header with padding",       format!("{header}=.a.b.c"),       Err(BearerError::NotAJwt)),
        ("encrypted, a part to spare",  format!("{encrypted}.a.b.c.d.e"), Err(BearerError::NotAJwt)),
    ];
    for (case, token, expected) in cases {
        assert_eq!(is_jwt(&token), expected, "{case}");
    }
}

/// What a caller is called in the log.
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
fn counting_host(key: &Key) -> (Rc<FakeHost>, Rc<std::cell::Cell<u32>>) {
    let crypto = AwsLc::new(Manner::Honest);
    let verified = Rc::clone(&crypto.verified);
    let host = FakeHost::with_native(crypto.tested(&signing_key(&key.private_jwk())));
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

    // It is remembered that it lacks the scope, and said each time.
    let lacking = key.sign(&with("scope", "openid"));
    for _ in 0..2 {
        let refused = verify_on(&host, &verifier, &lacking).unwrap_err();
        assert!(matches!(refused, BearerError::InsufficientScope(_)));
    }
    assert_eq!(verified.get(), 3);

    // It is over when it is over, although nobody verifies again.
    host.now.set(UnixTime::from_millis((NOW + 600 + SKEW) * 1000 - 1));
    assert!(verify_on(&host, &verifier, &token).is_ok());
    host.now.set(UnixTime::from_millis((NOW + 600 + SKEW) * 1000));
    assert_eq!(verify_on(&host, &verifier, &token).unwrap_err(), BearerError::Expired);
}

#[test]
fn what_was_refused_is_not_remembered() {
    let key = Key::generate(Other::ES256, "k");
    let (host, verified) = counting_host(&key);
    let verifier = verifier(vec![issuer(&[key.public_jwk()])]);
    let early = key.sign(&with("nbf", NOW + SKEW + 1));
    for _ in 0..2 {
        assert_eq!(verify_on(&host, &verifier, &early).unwrap_err(), BearerError::NotYetValid);
    }
    assert_eq!(verified.get(), 2);
    host.now.set(UnixTime::from_millis((NOW + 1) * 1000));
    assert!(verify_on(&host, &verifier, &early).is_ok());
}

#[test]
fn what_is_remembered_is_bounded() {
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
fn a_new_configuration_remembers_nothing() {
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
    assert_eq!(verify_on(&host, &verifier, &token).unwrap_err(), BearerError::Signature);
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
