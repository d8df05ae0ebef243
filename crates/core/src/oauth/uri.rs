//! Absolute URIs, as far as resource indicators need them (RFC 8707 §2, RFC 3986 §4.3).

/// Whether `text` is an absolute URI without a fragment.
pub fn is_absolute(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut scheme = scheme.bytes();
    scheme.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && scheme.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !rest.is_empty()
        && rest != "//"
        && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(&byte))
}

/// An `http` or `https` URL in the parts that a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and port, without user information.
    pub authority: &'a str,
    /// Path and query; `/` where there is none.
    pub path: &'a str,
}

impl<'a> HttpUrl<'a> {
    /// Splits a URL; `None` if it is not one, or has user information or a fragment.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let valid = matches!(scheme, "http" | "https")
            && !authority.is_empty()
            && authority
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte))
            && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
            && !path.starts_with('?');
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
        ];
        for (text, parts) in cases {
            assert_eq!(HttpUrl::parse(text), parts, "{text:?}");
        }
    }
}
