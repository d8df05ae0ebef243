//! The thumbprint of a public key (RFC 7638).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::secret::Digest;

/// Returns the thumbprint of a public key; `None` if a member is missing, or is not base64url in
/// its one canonical form.
pub(crate) fn thumbprint(jwk: &Value) -> Option<Digest> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let number = |name: &str| text(name).filter(|text| BASE64_URL_SAFE_NO_PAD.decode(text).is_ok());
    // The names of curves and the digits need no escape. RFC 7638 §3.2: the required members, in
    // the order of their names.
    let curve = text("crv")
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    let canonical = match text("kty")? {
        "EC" => {
            let (crv, x, y) = (curve?, number("x")?, number("y")?);
            format!(r#"{{"crv":"{crv}","kty":"EC","x":"{x}","y":"{y}"}}"#)
        }
        "OKP" => format!(r#"{{"crv":"{}","kty":"OKP","x":"{}"}}"#, curve?, number("x")?),
        "RSA" => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, number("e")?, number("n")?),
        _ => return None,
    };
    Some(Digest::of(canonical.as_bytes()))
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm as Other;
    use jwt_compact::jwk::JsonWebKey;
    use serde::Deserialize as _;
    use serde_json::json;
    use sha2::Sha256;
    use testkit::keys::Key;

    use super::*;

    #[test]
    fn a_thumbprint_is_that_of_the_required_members() {
        for alg in [Other::ES256, Other::ES384, Other::EdDSA, Other::PS256] {
            let jwk = Key::generate(alg, "a").public_jwk();
            let other = JsonWebKey::deserialize(&jwk).unwrap().thumbprint::<Sha256>();
            assert_eq!(thumbprint(&jwk).unwrap().as_bytes()[..], other[..], "{alg:?}");
        }
    }

    #[test]
    fn a_malformed_key_has_no_thumbprint() {
        for jwk in [
            json!({"kty": "OKP", "crv": "Ed25519"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AA="}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AB"}),
            json!({"kty": "OKP", "crv": "a\"b", "x": "AA"}),
            json!({"kty": "oct", "k": "AA"}),
            json!({"crv": "P-256", "x": "AA", "y": "AA"}),
            json!("a"),
        ] {
            assert_eq!(thumbprint(&jwk), None, "{jwk}");
        }
    }
}
