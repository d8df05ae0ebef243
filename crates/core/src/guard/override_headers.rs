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

/// Whether a request names a method besides its own.
pub(super) fn name_a_method(headers: &[(String, Vec<u8>)], target: &[u8]) -> bool {
    headers.iter().any(|(name, _)| is_one_of(name, &METHODS)) || query_names_a_method(target)
}

/// Whether a request names a path besides its own.
pub(super) fn name_a_path(headers: &[(String, Vec<u8>)]) -> bool {
    headers.iter().any(|(name, _)| is_one_of(name, &PATHS))
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| {
        one.len() == name.len()
            && one
                .bytes()
                .zip(name.bytes())
                .all(|(one, byte)| one == byte.to_ascii_lowercase() || one == b'-' && byte == b'_')
    })
}

fn query_names_a_method(target: &[u8]) -> bool {
    let mut parts = target.splitn(2, |byte| *byte == b'?').skip(1);
    let Some(query) = parts.next() else { return false };
    // Some servers part a query by `;` too.
    query.split(|byte| matches!(byte, b'&' | b';')).any(|pair| {
        form_urlencoded::parse(pair)
            .any(|(name, _)| name.eq_ignore_ascii_case(PARAMETER) || is_one_of(&name, &METHODS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str) -> Vec<(String, Vec<u8>)> {
        vec![("accept".into(), b"*/*".to_vec()), (name.into(), b"DELETE".to_vec())]
    }

    #[test]
    fn a_method_can_stand_in_a_header_or_the_query() {
        for name in METHODS {
            assert!(name_a_method(&headers(name), b"/"), "{name}");
            assert!(name_a_method(&headers(&name.replace('-', "_")), b"/"), "{name}");
        }
        for name in ["x-http-method-overrides", "x-request-method", "method", "x-original-url"] {
            assert!(!name_a_method(&headers(name), b"/"), "{name}");
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
            assert_eq!(name_a_method(&[], target.as_bytes()), names, "{target}");
        }
    }

    #[test]
    fn a_path_can_stand_in_a_header() {
        for (name, names) in
            [("x-original-url", true), ("x_rewrite_url", true), ("x-envoy-original-path", false)]
        {
            assert_eq!(name_a_path(&headers(name)), names, "{name}");
        }
    }
}
