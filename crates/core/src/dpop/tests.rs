//! The twelve checks of RFC 9449 §4.3, each broken by one change of a good proof.

use jsonwebtoken::Algorithm as Other;
use serde_json::{Value, json};
use testkit::keys::{Key, unsigned};

use super::proof::CheckedProof;
use super::*;
use crate::confirmation::Possession;
use crate::fakes::FakeHost;
use crate::host::UnixTime;
use crate::secret::{Digest, Secret};

const NOW: u64 = 1_790_000_000;
const TOKEN: &str = "an.access.token";

fn proofs(nonces: Option<Nonces>) -> Proofs {
    let origin = RequestOrigin::of("https://api.example.com").unwrap();
    Proofs::new(origin, AllKeys::new(ALGORITHMS, None), nonces, ("tenant", "test"))
}

fn header(key: &Key) -> Value {
    let mut jwk = key.public_jwk();
    jwk.as_object_mut().unwrap().retain(|name, _| name != "kid" && name != "alg");
    json!({"typ": "dpop+jwt", "alg": key.alg, "jwk": jwk})
}

fn claims() -> Value {
    let ath = Digest::of(TOKEN.as_bytes()).to_base64url();
    json!({
        "jti": "a-jti", "htm": "POST", "htu": "https://api.example.com/orders", "iat": NOW, "ath": ath,
    })
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let members = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match new {
        Value::Null => drop(members.remove(name)),
        new => drop(members.insert(name.to_owned(), new)),
    }
    value
}

fn host_at(now: UnixTime) -> FakeHost {
    let host = FakeHost::default();
    host.now.set(now);
    host
}

fn check(proofs: &Proofs, fields: &[String]) -> Result<CheckedProof, ProofError> {
    check_at(&host_at(UnixTime::from_secs(NOW as i64)), proofs, fields)
}

fn check_at(
    host: &FakeHost,
    proofs: &Proofs,
    fields: &[String],
) -> Result<CheckedProof, ProofError> {
    let fields: Vec<_> = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
    let presented =
        Presented { fields: &fields, method: b"POST", path: b"/orders", token: Some(TOKEN) };
    proofs.check(host, presented)
}

#[test]
fn a_proof_by_each_kind_of_key_is_good() {
    for alg in [Other::ES256, Other::ES384, Other::EdDSA, Other::PS256] {
        let key = Key::generate(alg, "");
        let proof = key.sign_with(&header(&key), &claims());
        let checked =
            check(&proofs(None), &[proof]).unwrap_or_else(|error| panic!("{alg:?}: {error}"));
        let jwk = key.public_jwk();
        assert_eq!(Some(checked.key()), crate::jose::thumbprint(&jwk), "{alg:?}");
    }
}

#[test]
fn each_check_of_a_proof_refuses_it() {
    use ProofError::{
        Algorithm, Claims, Method, Missing, NotAJwt, PrivateKey, Repeated, Signature, Target, Time,
        Token, Type,
    };
    let key = Key::generate(Other::ES256, "");
    let rsa = Key::generate(Other::PS256, "");
    let (header, rsa_header) = (header(&key), header(&rsa));
    let at_header =
        |pointer: &str, new| key.sign_with(&with(header.clone(), pointer, new), &claims());
    let at_claims = |pointer: &str, new| key.sign_with(&header, &with(claims(), pointer, new));
    let good = key.sign_with(&header, &claims());
    let other = Key::generate(Other::ES256, "");
    let none = json!({"typ": "dpop+jwt", "alg": "none", "jwk": header["jwk"]});
    let hmac = json!({"typ": "dpop+jwt", "alg": "HS256", "jwk": {"kty": "oct", "k": "AAAA"}});
    let small = json!({"kty": "RSA", "e": "AQAB", "n": "AQAB"});
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<String>, ProofError)> = vec![
        ("0: no proof",                vec![],                                                   Missing),
        ("1: two fields",              vec![good.clone(), good.clone()],                         Repeated),
        ("1: two in one field",        vec![format!("{good},{good}")],                           NotAJwt),
        ("2: empty",                   vec![String::new()],                                      NotAJwt),
        ("2: two parts",               vec![good.rsplit_once('.').unwrap().0.into()],            NotAJwt),
        ("2: four parts",              vec![format!("{good}.")],                                 NotAJwt),
        ("2: padding",                 vec![format!("{good}=")],                                 NotAJwt),
        ("2: crit",                    vec![at_header("/crit", json!(["x"]))],                   NotAJwt),
        ("2: 64 KiB",                  vec![at_claims("/x", "x".repeat(65_536).into())],         NotAJwt),
        ("3: no jti",                  vec![at_claims("/jti", Value::Null)],                     Claims("jti")),
        ("3: empty jti",               vec![at_claims("/jti", "".into())],                       Claims("jti")),
        ("3: jti a number",            vec![at_claims("/jti", 1.into())],                        Claims("jti")),
        ("3: no htm",                  vec![at_claims("/htm", Value::Null)],                     Claims("htm")),
        ("3: no htu",                  vec![at_claims("/htu", Value::Null)],                     Claims("htu")),
        ("3: no iat",                  vec![at_claims("/iat", Value::Null)],                     Claims("iat")),
        ("3: iat a string",            vec![at_claims("/iat", "now".into())],                    Claims("iat")),
        ("4: no typ",                  vec![at_header("/typ", Value::Null)],                     Type),
        ("4: JWT",                     vec![at_header("/typ", "JWT".into())],                    Type),
        ("4: at+jwt",                  vec![at_header("/typ", "at+jwt".into())],                 Type),
        ("5: none",                    vec![format!("{}.", unsigned(&none, &claims()))],         Algorithm),
        ("5: HS256",                   vec![format!("{}.AAAA", unsigned(&hmac, &claims()))],     Algorithm),
        ("5: RS256",                   vec![rsa.under(Other::RS256, "").sign_with(&with(rsa_header.clone(), "/alg", "RS256".into()), &claims())], Algorithm),
        ("5: no alg",                  vec![format!("{}.AAAA", unsigned(&with(header.clone(), "/alg", Value::Null), &claims()))], Algorithm),
        ("6: no key",                  vec![at_header("/jwk", Value::Null)],                     ProofError::Key),
        ("6: a key by name",           vec![at_header("/jwk", "kid".into())],                    ProofError::Key),
        ("6: another curve",           vec![at_header("/jwk/crv", "secp256k1".into())],          ProofError::Key),
        ("6: P-521",                   vec![at_header("/jwk/crv", "P-521".into())],              ProofError::Key),
        ("6: off the curve",           vec![at_header("/jwk/y", header["jwk"]["x"].clone())],    ProofError::Key),
        ("6: a small RSA key",         vec![rsa.sign_with(&with(rsa_header.clone(), "/jwk", small), &claims())], ProofError::Key),
        ("6: a key for encryption",    vec![at_header("/jwk/use", "enc".into())],                ProofError::Key),
        ("6: a key of another kind",   vec![key.sign_with(&with(header.clone(), "/jwk", rsa_header["jwk"].clone()), &claims())], ProofError::Key),
        ("6: another key",             vec![other.sign_with(&header, &claims())],                Signature),
        ("6: no signature",            vec![format!("{}.", unsigned(&header, &claims()))],       Signature),
        ("7: a private key",           vec![at_header("/jwk", key.private_jwk())],               PrivateKey),
        ("7: a private part",          vec![at_header("/jwk/d", "".into())],                     PrivateKey),
        ("7: a private RSA key",       vec![rsa.sign_with(&with(rsa_header.clone(), "/jwk", rsa.private_jwk()), &claims())], PrivateKey),
        ("8: another method",          vec![at_claims("/htm", "GET".into())],                    Method),
        ("8: in small letters",        vec![at_claims("/htm", "post".into())],                   Method),
        ("9: another path",            vec![at_claims("/htu", "https://api.example.com/".into())], Target),
        ("9: another host",            vec![at_claims("/htu", "https://evil.example/orders".into())], Target),
        ("9: another scheme",          vec![at_claims("/htu", "http://api.example.com/orders".into())], Target),
        ("11: too old",                vec![at_claims("/iat", (NOW - 61).into())],               Time),
        ("11: in the future",          vec![at_claims("/iat", (NOW + 11).into())],               Time),
        ("12: no ath",                 vec![at_claims("/ath", Value::Null)],                     Token),
        ("12: another ath",            vec![at_claims("/ath", Digest::of(b"x").to_base64url().into())], Token),
        ("12: ath in hex",             vec![at_claims("/ath", Digest::of(TOKEN.as_bytes()).to_hex().into())], Token),
    ];
    for (case, fields, error) in cases {
        assert_eq!(
            check(&proofs(None), &fields).map(|checked| checked.key()),
            Err(error),
            "{case}"
        );
    }
    for seconds in [NOW - 60, NOW + 10] {
        let proof = at_claims("/iat", seconds.into());
        assert!(check(&proofs(None), &[proof]).is_ok(), "{seconds}");
    }
}

/// 10: RFC 9449 §8. With a nonce, `iat` decides nothing.
#[test]
fn a_proof_needs_a_nonce_of_ours_where_nonces_are_required() {
    let nonces = |key: u8| Nonces::Of(vec![Secret::new([key; 16])]);
    let now = UnixTime::from_secs(NOW as i64);
    let proofs = proofs(Some(nonces(1)));
    let key = Key::generate(Other::ES256, "");
    let verdict = |nonce: Value, iat: u64| {
        let claims = with(with(claims(), "/nonce", nonce), "/iat", iat.into());
        check(&proofs, &[key.sign_with(&header(&key), &claims)]).map(|_| ())
    };
    let ours = proofs.nonce(&host_at(now)).unwrap();
    assert_eq!(verdict(ours.clone().into(), NOW), Ok(()));
    assert_eq!(verdict(ours.into(), NOW - 86_400), Ok(()), "a wrong clock");
    assert_eq!(verdict(Value::Null, NOW), Err(ProofError::Nonce), "none");
    let others = nonces(2).current(&host_at(now)).unwrap();
    assert_eq!(verdict(others.into(), NOW), Err(ProofError::Nonce), "another's");
    let old = nonces(1).current(&host_at(UnixTime::from_secs(NOW as i64 - 121))).unwrap();
    assert_eq!(verdict(old.into(), NOW), Err(ProofError::Nonce), "an old one");
}

/// RFC 9449 §11.1.
#[test]
fn a_proof_is_good_once() {
    let host = FakeHost::default();
    host.now.set(UnixTime::from_secs(NOW as i64));
    let proofs = proofs(None);
    let key = Key::generate(Other::ES256, "");
    let used = |key: &Key, claims: &Value| {
        check(&proofs, &[key.sign_with(&header(key), claims)])?.first_use(&host, &proofs)
    };
    let first = used(&key, &claims()).unwrap();
    let jwk = key.public_jwk();
    assert_eq!(first, Possession { key: crate::jose::thumbprint(&jwk), certificate: None });
    assert_eq!(used(&key, &claims()), Err(ProofError::Replayed));
    let later = with(claims(), "/iat", (NOW + 5).into());
    assert_eq!(used(&key, &later), Err(ProofError::Replayed), "the same jti, signed anew");
    assert!(used(&Key::generate(Other::ES256, ""), &claims()).is_ok(), "another client's jti");
}

/// Under a flood the memory is full, and forgets nothing before its time. A key can fill its own
/// share of it, and no more.
#[test]
fn a_proof_that_cannot_be_remembered_is_refused() {
    let host = FakeHost::default();
    host.now.set(UnixTime::from_secs(NOW as i64));
    let proofs = Proofs { seen: SeenOnce::with_buckets("tenant", "test", 1), ..proofs(None) };
    let (key, other) = (Key::generate(Other::ES256, ""), Key::generate(Other::ES256, ""));
    let used_by = |key: &Key, number: u64| {
        let claims = with(claims(), "/jti", number.to_string().into());
        let claims = with(claims, "/iat", host.now.get().secs().into());
        check_at(&host, &proofs, &[key.sign_with(&header(key), &claims)])?.first_use(&host, &proofs)
    };
    let used = |number: u64| used_by(&key, number);
    let accepted = (0..100).take_while(|number| used(*number).is_ok()).count();
    assert_eq!(accepted, 32, "half of the bucket");
    let full = ProofError::NotRemembered(crate::state::shared_data::NotRemembered::Full);
    assert_eq!(used(1000), Err(full), "a new proof");
    assert_eq!(used(0), Err(ProofError::Replayed), "an old proof");
    assert!(used_by(&other, 1000).is_ok(), "another key's proof");
    host.now.set(UnixTime::from_secs(NOW as i64 + 59));
    assert_eq!(used(1000), Err(full), "the others could still be presented");
    host.now.set(UnixTime::from_secs(NOW as i64 + 61));
    assert!(used(1000).is_ok(), "the others are too old");
}

/// The sender of a proof chooses its key, and so the time that its verification takes.
#[test]
fn a_key_that_costs_much_to_verify_with_is_refused() {
    let key = Key::generate(Other::PS256, "");
    let with_jwk = |name: &str, new: &str| {
        let header = with(header(&key), &format!("/jwk/{name}"), new.into());
        check(&proofs(None), &[key.sign_with(&header, &claims())]).map(|checked| checked.key())
    };
    let of_bits = |bits: usize| {
        let mut modulus = vec![0xff; bits / 8];
        modulus[bits / 8 - 1] = 0xfd;
        base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, modulus)
    };
    assert_eq!(with_jwk("n", &of_bits(3072)), Err(ProofError::Signature), "the longest");
    assert_eq!(with_jwk("n", &of_bits(3080)), Err(ProofError::Key), "longer");
    assert_eq!(with_jwk("e", "AQAB"), Ok(crate::jose::thumbprint(&key.public_jwk()).unwrap()));
    assert_eq!(with_jwk("e", "Aw"), Err(ProofError::Key), "an exponent of 3");
    assert_eq!(with_jwk("e", "AQAAAAE"), Err(ProofError::Key), "an exponent of 2^32+1");
}
