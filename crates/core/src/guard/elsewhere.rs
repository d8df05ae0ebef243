//! What makes some servers take a request for another than it says it is.
//!
//! Frameworks read the method from a header, or from the query, and the path from a header. Names are compared as the
//! most forgiving of them does: to those that know headers as variables, `_` and `-` are one.

/// Headers that name a method.
const METHODS: [&str; 4] =
    ["x-http-method", "x-http-method-override", "x-method-override", "http-method-override"];

/// Headers that name a path.
const PATHS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// The parameter of a query that does.
const PARAMETER: &str = "_method";

/// Whether a header field of this name names a method.
pub(super) fn is_method(name: &[u8]) -> bool {
    is_one_of(name, &METHODS)
}

/// Whether a header field of this name names a path.
pub(super) fn is_path(name: &[u8]) -> bool {
    is_one_of(name, &PATHS)
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|one| {
        one.len() == name.len()
            && one
                .bytes()
                .zip(name)
                .all(|(one, byte)| one == byte.to_ascii_lowercase() || one == b'-' && *byte == b'_')
    })
}

/// Whether the query of a request target names a method.
pub(super) fn query_has_method(target: &[u8]) -> bool {
    let mut parts = target.splitn(2, |byte| *byte == b'?').skip(1);
    let Some(query) = parts.next() else { return false };
    // Some servers part a query by `;` too.
    query.split(|byte| matches!(byte, b'&' | b';')).any(|pair| {
        form_urlencoded::parse(pair)
            .any(|(name, _)| name.eq_ignore_ascii_case(PARAMETER) || is_method(name.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_can_stand_in_a_header_or_the_query() {
        for name in METHODS {
            assert!(is_method(name.as_bytes()), "{name}");
            assert!(is_method(name.replace('-', "_").as_bytes()), "{name}");
        }
        for name in ["x-http-method-overrides", "x-request-method", "method", "x-original-url"] {
            assert!(!is_method(name.as_bytes()), "{name}");
        }
        #[rustfmt::skip]
        let cases = [
            ("/",                                  false),
            ("/_method=DELETE",                    false),
            ("/?_method=DELETE",                   true),
            ("/?a=b&_METHOD=DELETE",               true),
            ("/?a=b;_method=DELETE",               true),
            ("/?%5Fmethod=DELETE",                 true),
            ("/?x-http-method-override=DELETE",    true),
            ("/?X_HTTP_Method_Override",           true),
            ("/?method=DELETE",                    false),
            ("/?a=_method",                        false),
            ("/?a=?_method=b",                     false),
        ];
        for (target, names) in cases {
            assert_eq!(query_has_method(target.as_bytes()), names, "{target}");
        }
    }

    #[test]
    fn a_path_can_stand_in_a_header() {
        for (name, names) in
            [("x-original-url", true), ("x_rewrite_url", true), ("x-envoy-original-path", false)]
        {
            assert_eq!(is_path(name.as_bytes()), names, "{name}");
        }
    }
}
