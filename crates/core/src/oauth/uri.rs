//! Absolute URIs for resource indicators (RFC 8707 §2, RFC 3986 §4.3), and `http` URLs for
//! requests.

use fluent_uri::Uri;
use fluent_uri::component::Authority;

/// Returns true if `text` is an absolute URI without a fragment.
pub fn is_absolute(text: &str) -> bool {
    let Ok(uri) = Uri::parse(text) else { return false };
    let names_something = match uri.authority() {
        Some(authority) => is_whole(&authority) || !uri.path().is_empty(),
        None => !uri.path().is_empty() || uri.query().is_some(),
    };
    !uri.has_fragment() && names_something
}

/// Returns true if an authority has a host, and a valid port if it has any.
fn is_whole(authority: &Authority<'_>) -> bool {
    !authority.host().is_empty() && authority.port_to_u16().is_ok()
}

/// An `http` or `https` URL, split into the parts that a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and port, without user information.
    pub authority: &'a str,
    /// Path and query; `/` if the URL has neither.
    pub(crate) path: &'a str,
}

impl<'a> HttpUrl<'a> {
    /// Splits a URL; `None` if it is malformed, or has user information or a fragment.
    pub fn parse(text: &'a str) -> Option<Self> {
        let uri = Uri::parse(text).ok()?;
        let scheme = uri.scheme().as_str();
        let authority = uri.authority()?;
        let valid = matches!(scheme, "http" | "https")
            && is_whole(&authority)
            && !authority.has_userinfo()
            && !uri.has_fragment();
        // A path after an authority is empty or begins with a slash.
        let bare = uri.path().is_empty();
        if !valid || bare && uri.has_query() {
            return None;
        }
        let authority = authority.as_str();
        let (_, path) = text.split_once("://")?.1.split_at_checked(authority.len())?;
        Some(Self { scheme, authority, path: if bare { "/" } else { path } })
    }

    /// Splits a URL whose path may hold `placeholder`, which is no valid part of a URI. The
    /// placeholder stays in the path.
    pub(crate) fn parse_template(text: &'a str, placeholder: &str) -> Option<Self> {
        let filled = text.replace(placeholder, &"_".repeat(placeholder.len()));
        let url = HttpUrl::parse(&filled)?;
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_at_checked(url.authority.len())?;
        let valid = authority == url.authority;
        valid.then_some(Self { scheme, authority, path: if path.is_empty() { "/" } else { path } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_an_absolute_uri_without_fragment() {
        #[rustfmt::skip]
        let cases = [
            ("https://api.example.com/orders", true),
            ("https://api.example.com",        true),
            ("urn:example:orders",             true),
            ("https://api.example.com/?a=b",   true),
            ("/orders",                        false),
            ("orders",                         false),
            ("",                               false),
            ("https:",                         false),
            ("https://",                       false),
            ("1https://a",                     false),
            ("https://api.example.com/#a",     false),
            ("https://api.example.com/a b",    false),
            ("https://api.example.com:b",      false),
            ("https://a:b:c/",                 false),
            ("https://api.example.com/%4",     false),
        ];
        for (text, absolute) in cases {
            assert_eq!(is_absolute(text), absolute, "{text:?}");
        }
    }

    #[test]
    fn a_url_is_split_for_a_request() {
        let url = |scheme, authority, path| Some(HttpUrl { scheme, authority, path });
        #[rustfmt::skip]
        let cases = [
            ("https://a.example/oidc/jwks",  url("https", "a.example", "/oidc/jwks")),
            ("http://127.0.0.1:8080",        url("http", "127.0.0.1:8080", "/")),
            ("http://[::1]:80/a?b=c",        url("http", "[::1]:80", "/a?b=c")),
            ("https://user@a.example/",      None),
            ("ftp://a.example/",             None),
            ("https:///path",                None),
            ("https://a.example/#f",         None),
            ("a.example",                    None),
            ("https://a:b:c/",               None),
            ("https://a.example:99999/",     None),
            ("https://a.example:/",          url("https", "a.example:", "/")),
            ("https://[::1/",                None),
            ("https://a.example?b=c",        None),
            ("https://a.example/%4",         None),
            ("https://a.example/{userId}",   None),
        ];
        for (text, parts) in cases {
            assert_eq!(HttpUrl::parse(text), parts, "{text:?}");
        }
    }

    #[test]
    fn a_placeholder_may_stand_only_in_the_path() {
        let url = |scheme, authority, path| Some(HttpUrl { scheme, authority, path });
        #[rustfmt::skip]
        let cases = [
            ("https://a.example/users/{userId}?a", url("https", "a.example", "/users/{userId}?a")),
            ("https://a.example",                  url("https", "a.example", "/")),
            ("https://{userId}/{userId}",          None),
            ("https://a.example/{user}",           None),
        ];
        for (text, parts) in cases {
            assert_eq!(HttpUrl::parse_template(text, "{userId}"), parts, "{text:?}");
        }
    }
}
