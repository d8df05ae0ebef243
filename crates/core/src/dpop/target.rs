//! The address that a proof is for (`htu`, RFC 9449 §4.2).
//!
//! The origin is configured. The path is the request's, as Envoy has normalised it. RFC 9449 §4.3
//! has both sides compared after the normalisation of RFC 3986 §6.2.2 and §6.2.3; query and
//! fragment of `htu` are ignored.

use crate::oauth::uri::HttpUrl;

/// The origin of the requests that proofs are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    is_https: bool,
    /// Host and port in lower case, without the scheme's default port.
    authority: String,
}

impl RequestOrigin {
    /// Reads the origin of a URL; `None` if the URL is not a proper one of `http` or `https`.
    pub fn of(url: &str) -> Option<Self> {
        Some(Self::new(&HttpUrl::parse(url)?))
    }

    fn new(url: &HttpUrl<'_>) -> Self {
        let is_https = url.scheme.eq_ignore_ascii_case("https");
        let authority = url.authority.to_ascii_lowercase();
        let default = if is_https { ":443" } else { ":80" };
        let bare = authority.strip_suffix(default).or_else(|| authority.strip_suffix(':'));
        Self { is_https, authority: bare.unwrap_or(&authority).to_owned() }
    }

    /// Returns true if `htu` is the address of `path` at this origin.
    pub(super) fn has(&self, htu: &str, path: &[u8]) -> bool {
        let htu = htu.split(['?', '#']).next().unwrap_or_default();
        // A scheme ignores letter case (RFC 3986 §3.1).
        let Some((scheme, rest)) = htu.split_once("://") else { return false };
        let htu = format!("{}://{rest}", scheme.to_ascii_lowercase());
        HttpUrl::parse(&htu).is_some_and(|url| {
            Self::new(&url) == *self && normal(url.path.as_bytes()) == normal(path)
        })
    }
}

/// Normalises the percent-encoding of a path: unreserved characters stand for themselves, and
/// digits are capitals (RFC 3986 §6.2.2).
fn normal(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            normal.push(*first);
            continue;
        }
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let byte = digit(0)
            .zip(digit(1))
            .and_then(|(high, low)| u8::try_from(high.checked_mul(16)?.checked_add(low)?).ok());
        match byte {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                normal.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                normal.push(b'%');
                let digits = after.get(..2).unwrap_or(after);
                normal.extend(digits.iter().map(u8::to_ascii_uppercase));
                rest = after.get(2..).unwrap_or_default();
            }
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_compared_after_normalisation_and_without_its_query() {
        #[rustfmt::skip]
        let cases = [
            ("https://auth.example.com/oidc/token",            "/oidc/token", true),
            ("https://auth.example.com/oidc/token?a=b",        "/oidc/token", true),
            ("https://auth.example.com/oidc/token#a",          "/oidc/token", true),
            ("https://auth.example.com:443/oidc/token",        "/oidc/token", true),
            ("https://auth.example.com:/oidc/token",           "/oidc/token", true),
            ("HTTPS://AUTH.example.com/oidc/token",            "/oidc/token", true),
            ("https://auth.example.com/%6Fidc/token",          "/oidc/token", true),
            ("https://auth.example.com/a%c3%a9",               "/a%C3%A9",    true),
            ("https://auth.example.com/a%2fb",                 "/a%2Fb",      true),
            ("https://auth.example.com",                       "/",           true),
            ("http://auth.example.com/oidc/token",             "/oidc/token", false),
            ("https://auth.example.com:8443/oidc/token",       "/oidc/token", false),
            ("https://auth.example.com:80/oidc/token",         "/oidc/token", false),
            ("https://other.example.com/oidc/token",           "/oidc/token", false),
            ("https://auth.example.com.evil.example/oidc/token", "/oidc/token", false),
            ("https://auth.example.com@evil.example/oidc/token", "/oidc/token", false),
            ("https://evil@auth.example.com/oidc/token",       "/oidc/token", false),
            ("https://auth.example.com/oidc/token/",           "/oidc/token", false),
            ("https://auth.example.com/OIDC/token",            "/oidc/token", false),
            ("https://auth.example.com/oidc//token",           "/oidc/token", false),
            ("https://auth.example.com/oidc/./token",          "/oidc/token", false),
            ("https://auth.example.com/oidc%2Ftoken",          "/oidc/token", false),
            ("https://auth.example.com/oidc/token;a",          "/oidc/token", false),
            ("https://auth.example.com/oidc/token%",           "/oidc/token", false),
            ("//auth.example.com/oidc/token",                  "/oidc/token", false),
            ("/oidc/token",                                    "/oidc/token", false),
            ("auth.example.com/oidc/token",                    "/oidc/token", false),
            ("",                                               "/",           false),
        ];
        let origin = RequestOrigin::of("https://auth.example.com/oidc").unwrap();
        for (htu, path, same) in cases {
            assert_eq!(origin.has(htu, path.as_bytes()), same, "{htu}");
        }
        assert_eq!(RequestOrigin::of("https://AUTH.example.com:443"), Some(origin));
        assert_eq!(RequestOrigin::of("mailto:a@example.com"), None);
    }
}
