//! The cookie of a browser session, which holds the access token.
//!
//! The prefix makes sure that the cookie belongs to one host alone: a browser takes such a cookie
//! from no other host, and with TLS only (RFC 6265bis §4.1.3.2).

/// The name of the cookie.
pub const COOKIE: &str = "__Host-impersonation";

/// The longest access token, in bytes. A browser drops a cookie of which name and value have more
/// than 4096 bytes, and tells nobody.
pub const LONGEST_TOKEN: usize = 4096 - COOKIE.len();

/// The attributes of the cookie, before its lifetime in seconds.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age";

/// Returns the value of `set-cookie` that keeps a token for so many seconds.
pub fn holding(token: &str, lifetime: u64) -> String {
    format!("{COOKIE}={token}; {ATTRIBUTES}={lifetime}")
}

/// Returns the value of `set-cookie` that takes the token away.
pub fn expired() -> String {
    holding("", 0)
}

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

/// Returns the value of a pair.
pub(super) fn value(pair: &[u8]) -> &[u8] {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    halves.nth(1).unwrap_or_default()
}
