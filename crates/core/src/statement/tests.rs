//! Signed statements that are believed, and forgeries that are not (RFC 8725 §2).

use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm as Other, EncodingKey};
use serde_json::{Value, json};

use super::*;
use crate::config::Jwks;
use crate::fakes::FakeHost;
use crate::host::UnixTime;
use crate::jose::KeySet;
use crate::step::{Step, Task};
use testkit::keys::{Key, unsigned};

const ISSUER: &str = "https://auth.example.com/oidc";
const NOW: u64 = 1_790_000_000;
const SKEW: u64 = 60;

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "backend", "iat": NOW, "exp": NOW + 600})
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

/// Issuers with their keys.
fn issuers(list: &[(&'static str, &[Value])]) -> Issuers<(&'static str, Jwks)> {
    let rules = list.iter().map(|(name, jwks)| {
        let set = KeySet::parse(json!({"keys": jwks}).to_string().as_bytes()).unwrap();
        (*name, Jwks::Local(Rc::new(set)))
    });
    Issuers::new(rules.collect(), |(name, keys)| (name, keys))
}

/// Verifies a statement as a profile does.
fn verify_at(
    millis: u64,
    issuers: Issuers<(&'static str, Jwks)>,
    token: &str,
) -> Result<(), StatementError> {
    let token = token.to_owned();
    let now = UnixTime::from_millis(millis);
    let step = Task::start(Rc::new(FakeHost::default()), None, |context| async move {
        let statement = Untrusted::parse(&token)?;
        let (_, issuer) = issuers.find(statement.issuer()?)?;
        let verified = issuer.verify(&context, None, &statement, now).await?;
        verified.check_times(now, Duration::from_secs(SKEW)).map(drop)
    });
    let Step::Done(verdict) = step else { panic!("it calls") };
    verdict
}

fn verify_with(jwks: &[Value], token: &str) -> Result<(), StatementError> {
    verify_at(NOW * 1000, issuers(&[(ISSUER, jwks)]), token)
}

/// RFC 8725 §2.1 and §3.1: the token does not choose how it is verified.
#[test]
fn a_statement_that_chooses_its_own_algorithm_is_refused() {
    let rsa = Key::generate(Other::RS256, "k");
    let jwk = rsa.public_jwk();
    let verify = |token: &str| verify_with(std::slice::from_ref(&jwk), token).unwrap_err();

    for name in ["none", "None", "nOnE", "NONE", "", "HS256", "HS512", "ES512", "PS512", "rs256"] {
        let header = json!({"alg": name, "kid": "k"});
        for signature in ["", "AA", "c2lnbmF0dXJl"] {
            let token = format!("{}.{signature}", unsigned(&header, &claims()));
            assert_eq!(verify(&token), StatementError::Algorithm(name.to_owned()), "{token}");
        }
    }
    for alg in [json!(null), json!(["RS256"]), json!({})] {
        let token = format!("{}.AA", unsigned(&json!({"alg": alg}), &claims()));
        assert_eq!(verify(&token), StatementError::NotAJwt, "{alg}");
    }
    let nameless = format!("{}.AA", unsigned(&json!({"kid": "k"}), &claims()));
    assert_eq!(verify(&nameless), StatementError::NotAJwt);

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
        assert_eq!(verify(&token), StatementError::Algorithm("HS256".to_owned()));
    }

    // Signed with one of the algorithms of its key, and labelled with another.
    for name in ["RS384", "RS512", "PS256"] {
        let token = rsa.sign_with(&json!({"alg": name, "kid": "k"}), &claims());
        assert_eq!(verify(&token), StatementError::NoKey, "the key is for RS256 only, not {name}");
        let mut any = jwk.clone();
        any.as_object_mut().unwrap().remove("alg");
        assert_eq!(verify_with(&[any], &token).unwrap_err(), StatementError::Signature, "{name}");
    }
    for name in ["ES256", "ES384", "EdDSA"] {
        let token = rsa.sign_with(&json!({"alg": name, "kid": "k"}), &claims());
        assert_eq!(verify(&token), StatementError::NoKey, "{name}");
    }
}

/// RFC 8725 §3.10: a `kid` chooses among the issuer's keys and nothing else, and a header brings
/// none.
#[test]
fn a_statement_that_chooses_its_own_key_is_refused() {
    let (first, second) = (Key::generate(Other::ES256, "a"), Key::generate(Other::ES256, "b"));
    let attacker = Key::generate(Other::ES256, "a");
    let jwks = [first.public_jwk(), second.public_jwk()];
    let verify = |token: &str| verify_with(&jwks, token);
    let header = |kid: &str| json!({"alg": "ES256", "kid": kid});

    assert!(verify(&first.sign(&claims())).is_ok());
    assert!(verify(&second.sign_with(&json!({"alg": "ES256"}), &claims())).is_ok(), "without kid");
    let crossed = second.sign_with(&header("a"), &claims());
    assert_eq!(verify(&crossed).unwrap_err(), StatementError::Signature);
    for kid in ["c", "", "../b", "b\0", "b' OR '1'='1", "B"] {
        let token = second.sign_with(&header(kid), &claims());
        assert_eq!(verify(&token).unwrap_err(), StatementError::NoKey, "{kid:?}");
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
            assert_eq!(verify(&token).unwrap_err(), StatementError::Signature, "{member} {kid}");
        }
    }
    let public = verify_with(&[], &first.sign(&claims()));
    assert_eq!(public.unwrap_err(), StatementError::NoKey);
}

/// RFC 7515 §4.1.11.
#[test]
fn a_statement_with_critical_header_parameters_is_refused() {
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
        assert_eq!(verdict.unwrap_err(), StatementError::Critical, "{crit}");
    }
}

/// RFC 8725 §3.8: the keys of one issuer do not sign for another.
#[test]
fn an_issuer_signs_for_itself_only() {
    let (ours, theirs) = (Key::generate(Other::EdDSA, "k"), Key::generate(Other::EdDSA, "k"));
    let (our_keys, their_keys) = ([ours.public_jwk()], [theirs.public_jwk()]);
    let verify = |token: &str| {
        let issuers = issuers(&[(ISSUER, &our_keys), ("https://b.example", &their_keys)]);
        verify_at(NOW * 1000, issuers, token)
    };
    assert!(verify(&ours.sign(&claims())).is_ok());
    assert!(verify(&theirs.sign(&with("iss", "https://b.example"))).is_ok());
    assert_eq!(verify(&theirs.sign(&claims())).unwrap_err(), StatementError::Signature);
    let crossed = ours.sign(&with("iss", "https://b.example"));
    assert_eq!(verify(&crossed).unwrap_err(), StatementError::Signature);
    for name in ["https://auth.example.com/oidc/", "https://AUTH.example.com/oidc", "", " "] {
        let verdict = verify(&ours.sign(&with("iss", name)));
        assert_eq!(verdict.unwrap_err(), StatementError::Issuer(name.to_owned()));
    }
    let anonymous = verify(&ours.sign(&without("iss")));
    assert_eq!(anonymous.unwrap_err(), StatementError::Issuer(String::new()));
    assert_eq!(
        verify(&ours.sign(&with("iss", json!([ISSUER])))).unwrap_err(),
        StatementError::Claims
    );
}

#[test]
fn a_jwt_has_three_parts_of_canonical_base64url() {
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
            StatementError::NotAJwt,
            "{case}"
        );
    }
    let unsigned = format!("{header}.{payload}.");
    assert_eq!(verify_with(&[key.public_jwk()], &unsigned).unwrap_err(), StatementError::Signature);
    let changed =
        format!("{header}.{}.{signature}", not_json(with("sub", "root").to_string().as_bytes()));
    assert_eq!(verify_with(&[key.public_jwk()], &changed).unwrap_err(), StatementError::Signature);
}

#[test]
fn time_is_checked_with_the_skew_of_the_issuers_clock() {
    let key = Key::generate(Other::EdDSA, "k");
    let exp = |value: Value| with("exp", value);
    let nbf = |value: Value| with("nbf", value);
    use StatementError::*;
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
        let millis = (NOW * 1000).saturating_add_signed(offset);
        let keys = [key.public_jwk()];
        let verdict = verify_at(millis, issuers(&[(ISSUER, &keys)]), &key.sign(&claims));
        assert_eq!(verdict.err(), refused, "{case}");
    }
}

/// JSON text may have DEL and the controls after it as they are. A log line may not.
#[test]
fn the_text_of_an_error_has_no_control_characters() {
    let key = Key::generate(Other::EdDSA, "k");
    let said = "a\u{7f}\u{85}\u{9b}\n\u{202e}b";
    let token = key.sign(&claims());
    let header = |name: &str| {
        let mut header = json!({"alg": "EdDSA", "kid": "k"});
        header[name] = json!(said);
        let header = BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
        format!("{header}.{}", token.split_once('.').unwrap().1)
    };
    let untrusted = |token: &str| {
        let statement = Untrusted::parse(token)?;
        statement.check_type(&["at+jwt"])?;
        issuers(&[]).find(statement.issuer()?).map(drop)
    };
    let errors = [
        untrusted(&header("typ")).unwrap_err(),
        untrusted(&key.sign(&with("iss", said))).unwrap_err(),
        verify_with(&[key.public_jwk()], &header("alg")).unwrap_err(),
    ];
    for (error, reason) in errors.iter().zip(["type", "issuer", "algorithm"]) {
        assert_eq!(error.reason(), reason);
        let text = error.to_string();
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        assert!(text.contains(r"a\u{7f}\u{85}\u{9b}\n\u{202e}b"), "{text}");
    }
}

/// The signature holds for all of them. Another parser reads them, perhaps in another way.
#[test]
fn a_statement_that_two_parsers_may_read_differently_is_refused() {
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
    let many = format!(r#""x":[1{}]"#, ",1".repeat(1024));
    use StatementError::*;
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
        ("more than 1024 values",  in_payload(&many),                              Claims),
    ];
    for (case, payload, refused) in payloads {
        assert_eq!(verdict(header.as_bytes(), &payload), Some(refused), "{case}");
    }
}

/// An endpoint is asked about opaque tokens only, never about a token that another parser reads as
/// a JWT.
#[test]
fn a_token_is_opaque_only_if_no_parser_reads_it_as_a_signed_one() {
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
        ("no signature",                input.to_owned(),                 Err(StatementError::NotAJwt)),
        ("a part to spare",             format!("{good}.x"),              Err(StatementError::NotAJwt)),
        ("a dot to spare",              format!("{good}."),               Err(StatementError::NotAJwt)),
        ("two parts to spare",          format!("{good}.x.y"),            Err(StatementError::NotAJwt)),
        ("a header with padding",       format!("{header}=.a.b.c"),       Err(StatementError::NotAJwt)),
        ("encrypted, a part to spare",  format!("{encrypted}.a.b.c.d.e"), Err(StatementError::NotAJwt)),
    ];
    for (case, token, expected) in cases {
        assert_eq!(is_jwt(&token), expected, "{case}");
    }
}
