//! Media types (RFC 9110 §8.3.1), compared without their parameters.

/// Returns true if there is a `content-type` and its media type is `expected`.
pub fn is(content_type: &Option<Vec<u8>>, expected: &str) -> bool {
    content_type
        .as_deref()
        .is_some_and(|value| essence(value).eq_ignore_ascii_case(expected.as_bytes()))
}

/// Returns true for the media type `application/json` and types built on it (RFC 6839 §3.1).
pub fn is_json(content_type: &[u8]) -> bool {
    let essence = essence(content_type).to_ascii_lowercase();
    essence == b"application/json"
        || essence.starts_with(b"application/") && essence.ends_with(b"+json")
}

/// Returns true if every reader decodes ASCII bytes of the body as ASCII.
///
/// A form is written in ASCII. The URL standard decodes forms as UTF-8 only, so a `charset` such as
/// UTF-16 can hide a form from one reader and show it to the next. Readers also disagree on where a
/// parameter begins, so the function checks everything that could be a `charset`.
pub fn is_ascii_based(content_type: &Option<Vec<u8>>) -> bool {
    let content_type = content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
    let content_type = String::from_utf8_lossy(&content_type);
    content_type.split("charset").skip(1).all(|rest| {
        let Some((_, value)) = rest.split_once('=') else { return true };
        let value = value.trim_start_matches([' ', '\t', '"', '\'']);
        let value = value.split([' ', '\t', '"', '\'', ';', ',']).next().unwrap_or_default();
        matches!(value, "" | "utf-8" | "utf8" | "us-ascii" | "ascii" | "latin1")
            || ["iso-8859-", "windows-125", "cp125"].iter().any(|family| value.starts_with(family))
    })
}

/// Returns true if Envoy may treat a request of this content type as gRPC, and answer it as such.
pub fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    content_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

fn essence(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_by_each_of_its_media_types() {
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

    #[test]
    fn takes_no_charset_that_could_hide_what_a_form_says() {
        #[rustfmt::skip]
        let cases: [(&str, bool); 18] = [
            ("",                                   true),
            ("; a=b",                              true),
            ("; charset",                          true),
            ("; charset=",                         true),
            ("; charset=utf-8",                    true),
            (";Charset=\"UTF-8\"; a=b",            true),
            ("; charset = utf8 ; a=b",             true),
            ("; charset=ISO-8859-15",              true),
            ("; charset=windows-1252",             true),
            ("; charset=utf-16le",                 false),
            ("; charset=\"utf-16\"",               false),
            ("; charset=\"u\\tf-8\"",             false),
            ("; charset=iso-2022-jp",              false),
            ("; charset=ibm037",                   false),
            ("; charset=utf-8; charset=utf-16le",  false),
            ("; a=\"; charset=utf-8\"; CHARSET=x", false),
            (", a/b; charset=utf-16le",            false),
            ("; x-charset=utf-16le",               false),
        ];
        for (parameters, ascii) in cases {
            let content_type = format!("application/x-www-form-urlencoded{parameters}");
            assert_eq!(is_ascii_based(&Some(content_type.into())), ascii, "{parameters}");
        }
        assert!(is_ascii_based(&None));
    }
}
