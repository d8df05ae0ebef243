//! Detects requests that some servers read as another request than they appear to be.
//!
//! Frameworks read the method from a header or from the query, and the path from a header. The
//! guard compares names as the most lenient of them do. A server that turns header fields into
//! variables maps all characters except letters and digits to one character. PHP does so with `.`
//! and space in parameter names, drops spaces before a name, and ends a name at a NUL. PHP, Rack
//! and Express's `qs` read `name[]` and `name[x]` as `name`; Rack and `qs` read `[name]` as `name`
//! too.

/// Headers that override the method. Some servers read the same names in the query.
const METHODS: [&str; 7] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "http-method-override",
    "x-override-method",
    "x-forwarded-method",
    "x-tunneled-method",
];

/// Headers that override the path.
const PATHS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// Query parameters that override the method: of PHP and Rails, of Google's APIs (`$httpMethod`),
/// and of Restlet.
const PARAMETERS: [&str; 3] = ["_method", "_httpmethod", "method"];

/// Returns true if a header field of this name overrides the method.
pub(super) fn is_method(name: &[u8]) -> bool {
    is_one_of(name, &METHODS)
}

/// Returns true if a header field of this name overrides the path.
pub(super) fn is_path(name: &[u8]) -> bool {
    is_one_of(name, &PATHS)
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|one| is_spelling_of(name, one))
}

/// Returns true if some server reads `name` as `known`.
pub(super) fn is_spelling_of(name: &[u8], known: &str) -> bool {
    let folded = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => b'_',
    };
    name.len() == known.len()
        && name.iter().zip(known.bytes()).all(|(one, other)| folded(*one) == folded(other))
}

/// Returns true if the query of a request target overrides the method.
pub(super) fn query_has_method(target: &[u8]) -> bool {
    let mut parts = target.splitn(2, |byte| *byte == b'?').skip(1);
    let Some(query) = parts.next() else { return false };
    // Some servers separate parameters with `;` too.
    query
        .split(|byte| matches!(byte, b'&' | b';'))
        .any(|pair| form_urlencoded::parse(pair).any(|(name, _)| is_method_parameter(&name)))
}

/// Returns true if a query parameter of this decoded name overrides the method.
fn is_method_parameter(name: &str) -> bool {
    let is_ignored = |character: char| character.is_whitespace() || character.is_control();
    let is_bracket = |character| matches!(character, '[' | ']');
    let name = name.trim_start_matches(|character| is_ignored(character) || is_bracket(character));
    let end = name.find(|character| character == '\0' || is_bracket(character));
    let name = end.and_then(|end| name.get(..end)).unwrap_or(name).trim_end_matches(is_ignored);
    is_one_of(name.as_bytes(), &PARAMETERS) || is_method(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_can_stand_in_a_header_or_the_query() {
        for name in METHODS {
            assert!(is_method(name.as_bytes()), "{name}");
            assert!(is_method(name.replace('-', "_").as_bytes()), "{name}");
            assert!(is_method(name.replace('-', ".").as_bytes()), "{name}");
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
            ("/?.method=DELETE",                   true),
            ("/?%2Emethod=DELETE",                 true),
            ("/?+_method=DELETE",                  true),
            ("/?%20_method=DELETE",                true),
            ("/?%20.method=DELETE",                true),
            ("/? _method=DELETE",                  true),
            ("/?%09_method=DELETE",                true),
            ("/?_method%00=DELETE",                true),
            ("/?_method%00x=DELETE",               true),
            ("/?.method%00[x]=DELETE",             true),
            ("/?_method+=DELETE",                  true),
            ("/?_method[]=DELETE",                 true),
            ("/?_method[x]=DELETE",                true),
            ("/?_method%5B%5D=DELETE",             true),
            ("/?_method[=DELETE",                  true),
            ("/?[_method]=DELETE",                 true),
            ("/?%5b_method%5d[x]=DELETE",          true),
            ("/?a=b; _Method=DELETE",              true),
            ("/?a&&+.METHOD[]",                    true),
            ("/?x.http.method.override=DELETE",    true),
            ("/?method=DELETE",                    true),
            ("/?+Method[]=DELETE",                 true),
            ("/?_HttpMethod=DELETE",               true),
            ("/?$httpMethod=DELETE",               true),
            ("/?%24httpmethod=DELETE",             true),
            ("/?X-Tunneled-Method=DELETE",         true),
            ("/?http_method=DELETE",               false),
            ("/?methods=GET",                      false),
            ("/?a[_method]=DELETE",                false),
            ("/?__method=DELETE",                  false),
            ("/?_methods=GET",                     false),
            ("/?%00_metho=GET",                    false),
            ("/?",                                 false),
            ("/?=_method",                         false),
            ("/?%FF_method%FF=b",                  false),
            ("/?a=_method",                        false),
            ("/?a=?_method=b",                     false),
        ];
        for (target, names) in cases {
            assert_eq!(query_has_method(target.as_bytes()), names, "{target}");
        }
    }

    #[test]
    fn a_header_can_override_the_path() {
        for (name, names) in
            [("x-original-url", true), ("x_rewrite_url", true), ("x-envoy-original-path", false)]
        {
            assert_eq!(is_path(name.as_bytes()), names, "{name}");
        }
    }
}
