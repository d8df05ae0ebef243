//! A client that proves the possession of a key (RFC 9449), or signs assertions with it (RFC 7523).

use std::sync::LazyLock;

use jsonwebtoken::Algorithm;
use serde_json::{Map, Value, json};

use crate::gateway::now;
use crate::keys::{Key, sha256};

/// The type of a client assertion (RFC 7523 §2.2).
pub const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// An RSA key takes long to make.
static RSA: LazyLock<Holder> = LazyLock::new(|| Holder::new(Algorithm::PS256));

/// A party with a private key of its own.
pub struct Holder {
    pub key: Key,
}

impl Holder {
    pub fn new(alg: Algorithm) -> Self {
        Self { key: Key::generate(alg, "holder") }
    }

    /// The public key alone, as a proof has it.
    pub fn jwk(&self) -> Value {
        let mut jwk = self.key.public_jwk();
        jwk.as_object_mut().unwrap().retain(|name, _| name != "kid" && name != "alg");
        jwk
    }

    /// The thumbprint of the key (RFC 7638): its required members in their order, without spaces.
    pub fn thumbprint(&self) -> String {
        let Value::Object(jwk) = self.jwk() else { panic!("a key is an object") };
        let ordered: std::collections::BTreeMap<_, _> = jwk.into_iter().collect();
        sha256(serde_json::to_string(&ordered).unwrap())
    }

    /// The header of a proof.
    pub fn header(&self) -> Value {
        json!({"typ": "dpop+jwt", "alg": self.key.alg, "jwk": self.jwk()})
    }

    /// A proof for a request without an access token.
    pub fn proof(&self, method: &str, url: &str) -> String {
        self.sign(&proof_claims(method, url))
    }

    /// A proof for a request with this access token.
    pub fn proof_with(&self, token: &str, method: &str, url: &str) -> String {
        let mut claims = proof_claims(method, url);
        claims["ath"] = json!(sha256(token));
        self.sign(&claims)
    }

    /// A proof with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.key.sign_with(&self.header(), claims)
    }

    /// A client assertion with these claims.
    pub fn assert(&self, claims: &Value) -> String {
        self.key.sign_with(&json!({"alg": self.key.alg, "kid": self.key.kid}), claims)
    }
}

/// The claims of a proof that is made now.
pub fn proof_claims(method: &str, url: &str) -> Value {
    json!({"jti": unique(), "htm": method, "htu": url, "iat": now()})
}

/// The claims of an assertion of a client for the service that issues as `audience`.
pub fn assertion_claims(client_id: &str, audience: &str) -> Value {
    json!({
        "iss": client_id, "sub": client_id, "aud": audience,
        "jti": unique(), "iat": now(), "exp": now() + 60,
    })
}

/// The claims with a change: a member that the change sets to null is removed.
pub fn changed(mut claims: Value, changes: &Value) -> Value {
    let members: &mut Map<String, Value> = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
    claims
}

fn unique() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Bad proofs for a request, each with the check of RFC 9449 §4.3 that it fails: the header fields
/// that are sent. `token` is the access token that the request presents.
pub fn bad_proofs(
    method: &str,
    (origin, path): (&str, &str),
    token: Option<&str>,
) -> Vec<(&'static str, Vec<String>)> {
    let url = &format!("{origin}{path}");
    let holder = Holder::new(Algorithm::ES256);
    let rsa = &*RSA;
    let mut claims = proof_claims(method, url);
    if let Some(token) = token {
        claims["ath"] = json!(sha256(token));
    }
    let header = holder.header();
    let with_header =
        |changes: Value| holder.key.sign_with(&changed(header.clone(), &changes), &claims);
    let with_claims = |changes: Value| holder.sign(&changed(claims.clone(), &changes));
    let with_jwk = |changes: Value| with_header(json!({"jwk": changed(holder.jwk(), &changes)}));
    let unsigned = |changes: Value| {
        format!("{}.", crate::keys::unsigned(&changed(header.clone(), &changes), &claims))
    };
    let good = with_claims(json!({}));
    let other = if method == "POST" { "GET" } else { "POST" };
    let at = |url: String| with_claims(json!({"htu": url}));
    let mut proofs = vec![
        ("1: two fields", vec![good.clone(), good.clone()]),
        ("1: two in one field", vec![format!("{good},{good}")]),
        ("2: no JWT", vec!["a proof".into()]),
        ("2: two parts", vec![good.rsplit_once('.').unwrap().0.into()]),
        ("2: padding", vec![format!("{good}=")]),
        ("2: too long", vec![with_claims(json!({"x": "x".repeat(16_384)}))]),
        ("3: no jti", vec![with_claims(json!({"jti": null}))]),
        ("3: no htm", vec![with_claims(json!({"htm": null}))]),
        ("3: no htu", vec![with_claims(json!({"htu": null}))]),
        ("3: no iat", vec![with_claims(json!({"iat": null}))]),
        ("4: no typ", vec![with_header(json!({"typ": null}))]),
        ("4: another typ", vec![with_header(json!({"typ": "JWT"}))]),
        ("5: none", vec![unsigned(json!({"alg": "none"}))]),
        (
            "5: an HMAC",
            vec![unsigned(json!({"alg": "HS256", "jwk": {"kty": "oct", "k": "AAAA"}})) + "AAAA"],
        ),
        (
            "5: RS256",
            vec![
                rsa.key
                    .under(Algorithm::RS256, "")
                    .sign_with(&changed(rsa.header(), &json!({"alg": "RS256"})), &claims),
            ],
        ),
        ("6: no key", vec![with_header(json!({"jwk": null}))]),
        ("6: another key", vec![Holder::new(Algorithm::ES256).key.sign_with(&header, &claims)]),
        ("6: no signature", vec![unsigned(json!({}))]),
        ("6: another curve", vec![with_jwk(json!({"crv": "secp256k1"}))]),
        ("6: P-521", vec![with_jwk(json!({"crv": "P-521"}))]),
        ("6: no point of the curve", vec![with_jwk(json!({"y": holder.jwk()["x"]}))]),
        (
            "6: a small RSA key",
            vec![rsa.key.sign_with(
                &changed(rsa.header(), &json!({"jwk": {"kty": "RSA", "e": "AQAB", "n": "AQAB"}})),
                &claims,
            )],
        ),
        ("7: a private key", vec![with_header(json!({"jwk": holder.key.private_jwk()}))]),
        ("8: another method", vec![with_claims(json!({"htm": other}))]),
        ("8: small letters", vec![with_claims(json!({"htm": method.to_lowercase()}))]),
        ("9: another path", vec![at(format!("{url}/more"))]),
        ("9: a longer spelling", vec![at(format!("{origin}/.{path}"))]),
        ("9: another origin", vec![at(format!("https://evil.example.com{path}"))]),
        ("9: another scheme", vec![at(url.replace("https://", "http://"))]),
        ("9: another port", vec![at(format!("{origin}:8443{path}"))]),
        ("11: too old", vec![with_claims(json!({"iat": now() - 120}))]),
        ("11: in the future", vec![with_claims(json!({"iat": now() + 50}))]),
    ];
    if token.is_some() {
        proofs.extend([
            ("12: no ath", vec![with_claims(json!({"ath": null}))]),
            ("12: another token", vec![with_claims(json!({"ath": sha256("another")}))]),
        ]);
    }
    proofs
}
