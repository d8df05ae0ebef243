//! Keys made for one run, and JWTs signed with them, both well-formed and malformed.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Map, Value, json};

/// A private key for one algorithm.
pub struct Key {
    pub alg: Algorithm,
    pub kid: String,
    pem: String,
    public: Map<String, Value>,
    private: Map<String, Value>,
    signer: EncodingKey,
}

impl Key {
    pub fn generate(alg: Algorithm, kid: &str) -> Self {
        let (pkcs8, public, private) = match alg {
            Algorithm::EdDSA => ed25519(),
            Algorithm::ES256 | Algorithm::ES384 => ec(alg),
            _ => rsa(),
        };
        let pem = pem("PRIVATE KEY", &pkcs8);
        let signer = match alg {
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem.as_bytes()),
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem.as_bytes()),
            _ => EncodingKey::from_rsa_pem(pem.as_bytes()),
        };
        Self { alg, kid: kid.into(), pem, public, private, signer: signer.unwrap() }
    }

    /// Returns the private key under another algorithm and `kid`: an RSA key serves six algorithms.
    pub fn under(&self, alg: Algorithm, kid: &str) -> Self {
        let (pem, signer) = (self.pem.clone(), self.signer.clone());
        let (public, private) = (self.public.clone(), self.private.clone());
        Self { alg, kid: kid.into(), pem, public, private, signer }
    }

    /// One key for each algorithm that the filter accepts.
    pub fn of_all_kinds() -> [Self; 7] {
        let rsa = Self::generate(Algorithm::RS256, "rs256");
        [
            Self::generate(Algorithm::EdDSA, "eddsa"),
            Self::generate(Algorithm::ES256, "es256"),
            Self::generate(Algorithm::ES384, "es384"),
            rsa.under(Algorithm::RS384, "rs384"),
            rsa.under(Algorithm::RS512, "rs512"),
            rsa.under(Algorithm::PS256, "ps256"),
            rsa,
        ]
    }

    /// PKCS#8, as `openssl genpkey` writes it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn public_jwk(&self) -> Value {
        let mut jwk = self.public.clone();
        jwk.extend([("kid".into(), json!(self.kid)), ("alg".into(), json!(self.alg))]);
        Value::Object(jwk)
    }

    pub fn private_jwk(&self) -> Value {
        let mut jwk = self.public_jwk();
        jwk.as_object_mut().unwrap().extend(self.private.clone());
        jwk
    }

    /// The private members alone, which must never be printed.
    pub fn secrets(&self) -> Vec<String> {
        let pem_lines = self.pem.lines().filter(|line| !line.starts_with("-----")).map(Into::into);
        pem_lines.chain(self.private.values().map(|part| part.as_str().unwrap().into())).collect()
    }

    /// A JWT with this key's `alg` and `kid`.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": self.alg, "typ": "at+jwt", "kid": self.kid}), claims)
    }

    /// A JWT with any header, and a signature of this key.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let input = unsigned(header, claims);
        let signature =
            jsonwebtoken::crypto::sign(input.as_bytes(), &self.signer, self.alg).unwrap();
        format!("{input}.{signature}")
    }
}

/// Returns true if this is the signature (in DER) of the message.
pub fn verify_es256(public_key: &[u8], signature: &[u8], message: &[u8]) -> bool {
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key);
    key.verify(message, signature).is_ok()
}

/// Header and claims, without the second dot and the signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn ed25519() -> (Vec<u8>, Map<String, Value>, Map<String, Value>) {
    let key = Ed25519KeyPair::generate().unwrap();
    let pkcs8 = key.to_pkcs8v1().unwrap().as_ref().to_vec();
    let seed = key.seed().unwrap().as_be_bytes().unwrap();
    let public = [("kty", json!("OKP")), ("crv", json!("Ed25519")), ("x", b64(key.public_key()))];
    (pkcs8, members(public), members([("d", b64(seed.as_ref()))]))
}

fn ec(alg: Algorithm) -> (Vec<u8>, Map<String, Value>, Map<String, Value>) {
    let (curve, crv) = match alg {
        Algorithm::ES256 => (&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
        _ => (&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
    };
    let key = EcdsaKeyPair::generate(curve).unwrap();
    let pkcs8 = key.to_pkcs8v1().unwrap().as_ref().to_vec();
    // An uncompressed point: 4, x, y.
    let (x, y) = key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
    let d: EcPrivateKeyBin<'_> = key.private_key().as_be_bytes().unwrap();
    let public = [("kty", json!("EC")), ("crv", json!(crv)), ("x", b64(x)), ("y", b64(y))];
    (pkcs8, members(public), members([("d", b64(d.as_ref()))]))
}

fn rsa() -> (Vec<u8>, Map<String, Value>, Map<String, Value>) {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let pkcs8: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pkcs8 = pkcs8.as_ref().to_vec();
    // PrivateKeyInfo { version, algorithm, OCTET STRING of RSAPrivateKey { version, n, e, d, … } }
    let (info, _) = der(&pkcs8);
    let (_, rest) = der(info);
    let (_, rest) = der(rest);
    let (octets, _) = der(rest);
    let (mut rest, _) = der(octets);
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (integer, next) = der(rest);
        let padding = integer.iter().take_while(|&&byte| byte == 0).count();
        parts.push(b64(&integer[padding..]));
        rest = next;
    }
    let mut named =
        ["version", "n", "e", "d", "p", "q", "dp", "dq", "qi"].into_iter().zip(parts).skip(1);
    let mut public = members([("kty", json!("RSA"))]);
    public.extend(members(named.by_ref().take(2)));
    (pkcs8, public, members(named))
}

/// The content of the first DER element, and what follows it.
fn der(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, header) = match bytes[1] {
        short @ ..0x80 => (usize::from(short), 2),
        long => {
            let count = usize::from(long & 0x7f);
            let length =
                bytes[2..2 + count].iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            (length, 2 + count)
        }
    };
    bytes[header..].split_at(length)
}

fn members<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

fn b64(bytes: impl AsRef<[u8]>) -> Value {
    URL_SAFE_NO_PAD.encode(bytes).into()
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The SHA-256 of a text or of bytes, in base64url.
pub fn sha256(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_ref()))
}

/// Returns true if a JWT is in the text, or the beginning of one. It begins with the base64url of a
/// JSON object, `{"`. Random text has these letters now and then, but is not JSON further on.
pub fn has_jwt(text: &str) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    text.match_indices("eyJ").any(|(at, _)| {
        let begin: Vec<_> = text[at..].bytes().take_while(allowed).take(16).collect();
        let decoded = URL_SAFE_NO_PAD.decode(begin).unwrap_or_default();
        decoded.len() == 12 && decoded.iter().all(|byte| (b' '..=b'~').contains(byte))
    })
}
