//! Media types (RFC 9110 §8.3.1), whatever their parameters.

/// Whether the media type of a `content-type`, if there is one, is `expected`.
pub fn is(content_type: &Option<Vec<u8>>, expected: &str) -> bool {
    content_type
        .as_deref()
        .is_some_and(|value| essence(value).eq_ignore_ascii_case(expected.as_bytes()))
}

/// Whether a `content-type` says JSON: `application/json`, or any type built on it (RFC 6839 §3.1).
pub fn is_json(content_type: &[u8]) -> bool {
    let essence = essence(content_type).to_ascii_lowercase();
    essence == b"application/json"
        || essence.starts_with(b"application/") && essence.ends_with(b"+json")
}

fn essence(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_json_by_any_of_its_names() {
        #[rustfmt::skip]
        let cases: [(&[u8], bool); 7] = [
            (b"application/json",                true),
            (b"Application/JSON; charset=utf-8", true),
            (b"application/jwk-set+json",        true),
            (b"text/html",                       false),
            (b"text/json",                       false),
            (b"application/jsonp",               false),
            (b"\xff",                            false),
        ];
        for (content_type, json) in cases {
            assert_eq!(is_json(content_type), json, "{}", content_type.escape_ascii());
        }
    }
}
