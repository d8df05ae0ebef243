//! The cookie of a browser session, which holds the access token.
//!
//! The prefix makes sure that the cookie belongs to one host alone: a browser takes such a cookie
//! from no other host, and with TLS only (RFC 6265bis §4.1.3.2).

/// The name of the cookie.
const COOKIE: &str = "__Host-impersonation";

/// Iterates over the pairs of a field `cookie`.
pub(super) fn pairs(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty())
}

/// Returns true for the pair that holds the token.
pub(super) fn is_token(pair: &[u8]) -> bool {
    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    name.trim_ascii() == COOKIE.as_bytes()
}
