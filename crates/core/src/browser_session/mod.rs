//! Browser sessions, as a request shows them: the host, the page that caused the request, and the
//! cookie.
//!
//! An agent sees an application as the user, in a tab of its own. Each session has a host of its
//! own, `{txn}.<domain>`: a browser then keeps cookies and storage of two sessions apart. The
//! access token is in a cookie, which the browser sends along whatever page causes the request.
//! `SameSite=Strict` does not stop the pages of sibling hosts. So each request must come from a
//! page of the session's own host.
//!
//! The browser says in `Sec-Fetch-Site` where a request comes from (Fetch Metadata). Chromium
//! leaves the field out of the handshake of a WebSocket, and then `Origin` decides (RFC 6454 §7). A
//! request without both can only read.

mod cookie;

use cookie::{is_token, pairs, value};

pub use cookie::{COOKIE, LONGEST_TOKEN, expired, holding};

/// The header fields that decide about a request of a browser session. A field that comes twice is
/// one with a comma between, and equals no good value.
#[derive(Clone, Default)]
pub struct SessionFields {
    authority: Option<Vec<u8>>,
    scheme: Option<Vec<u8>>,
    origin: Option<Vec<u8>>,
    fetch_site: Option<Vec<u8>>,
    fetch_mode: Option<Vec<u8>>,
    fetch_dest: Option<Vec<u8>>,
    cookie: Option<Vec<u8>>,
}

impl SessionFields {
    /// Keeps a header field if it decides.
    pub fn see(&mut self, name: &[u8], value: &[u8]) {
        let (field, between) = match name {
            b":authority" => (&mut self.authority, ", "),
            b":scheme" => (&mut self.scheme, ", "),
            b"origin" => (&mut self.origin, ", "),
            b"sec-fetch-site" => (&mut self.fetch_site, ", "),
            b"sec-fetch-mode" => (&mut self.fetch_mode, ", "),
            b"sec-fetch-dest" => (&mut self.fetch_dest, ", "),
            // RFC 9113 §8.2.3.
            b"cookie" => (&mut self.cookie, "; "),
            _ => return,
        };
        match field {
            Some(before) => before.extend([between.as_bytes(), value].concat()),
            None => *field = Some(value.to_vec()),
        }
    }

    /// Returns the part of the host before `domain`; `None` if the host is not below the domain. A
    /// session's host has one label there: the id of the impersonation.
    pub fn label(&self, domain: &str) -> Option<&str> {
        label(self.authority.as_deref()?, domain)
    }

    /// Returns true if a page of the session's own host caused the request. `method` is `CONNECT`
    /// for the handshake of a WebSocket.
    pub fn is_same_origin(&self, method: &[u8]) -> bool {
        match (&self.fetch_site, &self.origin) {
            // `none`: a person typed the address, or chose it from the bookmarks.
            (Some(site), _) => matches!(&**site, b"same-origin" | b"none"),
            (None, Some(origin)) => self.own_origin().is_some_and(|own| own == *origin),
            (None, None) => matches!(method, b"GET" | b"HEAD"),
        }
    }

    /// Returns true if a page of one of these origins navigates to this request, in a tab.
    pub fn navigates_from(&self, origins: &[String]) -> bool {
        let from = |origin: &[u8]| origins.iter().any(|one| one.as_bytes() == origin);
        let is = |field: &Option<Vec<u8>>, good: &str| {
            field.as_ref().is_none_or(|field| field == good.as_bytes())
        };
        self.origin.as_deref().is_some_and(from)
            && is(&self.fetch_mode, "navigate")
            && is(&self.fetch_dest, "document")
    }

    /// Returns the access token in the cookie; `None` if there is none, or more than one.
    pub fn token(&self) -> Option<&str> {
        let mut tokens = pairs(self.cookie.as_deref()?).filter(|pair| is_token(pair));
        let token = tokens.next()?;
        if tokens.next().is_some() {
            return None;
        }
        str::from_utf8(value(token)).ok()
    }

    /// Returns the cookies of the application, as the value of a field `cookie`; empty if it has
    /// none. `None` if the session's cookie is not among the cookies.
    pub(crate) fn cookies_of_application(&self) -> Option<String> {
        let cookie = self.cookie.as_deref()?;
        if !pairs(cookie).any(is_token) {
            return None;
        }
        // A cookie has ASCII characters only (RFC 6265 §4.1.1).
        let others = pairs(cookie).filter(|pair| !is_token(pair));
        let others: Vec<_> = others.filter_map(|pair| str::from_utf8(pair).ok()).collect();
        Some(others.join("; "))
    }

    /// Returns the origin of the session's host. Without TLS only `localhost` has one, and the
    /// hosts below it: browsers trust no other.
    fn own_origin(&self) -> Option<Vec<u8>> {
        let (scheme, authority) = (self.scheme.as_deref()?, self.authority.as_deref()?);
        let is_trusted = match scheme {
            b"https" => true,
            b"http" => {
                let host = str::from_utf8(without_port(authority)).ok()?;
                host == "localhost" || host.ends_with(".localhost")
            }
            _ => false,
        };
        is_trusted.then(|| [scheme, b"://", authority].concat())
    }
}

/// Returns the part of a host before `domain`; `None` if the host is not below the domain.
pub fn label<'a>(authority: &'a [u8], domain: &str) -> Option<&'a str> {
    let host = str::from_utf8(without_port(authority)).ok()?;
    let label = host.strip_suffix(domain)?.strip_suffix('.')?;
    (!label.is_empty()).then_some(label)
}

fn without_port(authority: &[u8]) -> &[u8] {
    let digits = authority.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = authority.get(..authority.len().saturating_sub(digits)).unwrap_or_default();
    rest.strip_suffix(b":").unwrap_or(authority)
}

/// Returns true if a session may begin at this address: a path of the session's own host, with a
/// query or without, that no browser reads as the address of another host.
pub fn is_landing(address: &str) -> bool {
    // A browser reads `\` as `/`, and leaves out tabs and line breaks.
    address.starts_with('/')
        && !address.starts_with("//")
        && address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests;
