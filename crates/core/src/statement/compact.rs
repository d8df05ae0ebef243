//! A compact JWS (RFC 7515 §3.1), taken apart strictly. Nothing in it has been verified.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::strict_json::Strict;

/// The length of the longest JWT that is read, in bytes. Reading takes a worker's time before a
/// signature is verified, and Envoy lets a stranger send 60 KiB.
const LONGEST: usize = 16 * 1024;

/// The most values in one part of a JWT. An access token can name 200 groups.
const MOST_VALUES: usize = 1024;

/// Returns true if a text is too long to be read as a JWT.
pub(super) const fn is_too_long(token: &str) -> bool {
    token.len() > LONGEST
}

/// The parts of a JWT in its one canonical form, without critical header parameters.
pub(crate) struct Compact<'t> {
    /// The text that the signature covers.
    pub(crate) signed: &'t str,
    /// The header.
    pub(crate) header: Map<String, Value>,
    /// The claims.
    pub(crate) claims: Map<String, Value>,
    /// The signature.
    pub(crate) signature: Vec<u8>,
}

impl<'t> Compact<'t> {
    /// Takes a JWT apart; `None` if the text is not a JWT in canonical form, is too long, or has
    /// header parameters that must be understood (RFC 7515 §4.1.11, RFC 7797 §7).
    pub(crate) fn parse(token: &'t str) -> Option<Self> {
        if is_too_long(token) {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = object(header)?;
        if header.contains_key("crit") || header.contains_key("b64") {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Self { signed, header, claims: object(claims)?, signature })
    }
}

/// Parses one part of a token as a JSON object. Base64url and UTF-8 are read strictly, and no
/// member may occur twice: RFC 7519 §4 lets a parser take the last of two, and some parsers take
/// the first. An object of more than [`MOST_VALUES`] values is not parsed.
pub(super) fn object(part: &str) -> Option<Map<String, Value>> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    let separators = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    if separators.count() > MOST_VALUES {
        return None;
    }
    match serde_json::from_slice(&json) {
        Ok(Strict(Value::Object(members))) => Some(members),
        _ => None,
    }
}
