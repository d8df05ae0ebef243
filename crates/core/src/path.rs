//! Normal paths: request paths that every server reads in the same way.
//!
//! A decision about a path is only valid if the server behind reads the same path. Servers differ
//! in their treatment of an encoded slash, a `;`, an empty segment, and a dot at the end of a
//! segment. A path with any of these is not normal, and no rule can know where it leads. Normal
//! paths are compared in decoded form (RFC 3986 §6.2.2.2).

use std::borrow::Cow;

/// A normal path in decoded form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NormalPath<'p>(Cow<'p, str>);

impl<'p> NormalPath<'p> {
    /// Parses a path without a query. Returns `None` if the path is not normal.
    pub(crate) fn parse(path: &'p [u8]) -> Option<Self> {
        let decoded = decode(path)?;
        let mut segments = decoded.strip_prefix('/')?.split('/').peekable();
        while let Some(segment) = segments.next() {
            // This also excludes `.` and `..`. Windows ignores dots and spaces at the end of a
            // name.
            let odd = segment.ends_with(['.', ' ']);
            if odd || segment.is_empty() && segments.peek().is_some() {
                return None;
            }
        }
        Some(Self(decoded))
    }

    /// Returns the decoded path.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the path of a request target, without the query.
pub fn without_query(target: &[u8]) -> &[u8] {
    target.split(|byte| *byte == b'?').next().unwrap_or_default()
}

fn decode(path: &[u8]) -> Option<Cow<'_, str>> {
    if path.iter().copied().all(stands_plain) {
        return str::from_utf8(path).ok().map(Cow::Borrowed);
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let byte = u8::try_from(digit()?.checked_mul(16)?.checked_add(digit()?)?).ok()?;
            if !stands_encoded(byte) {
                return None;
            }
            decoded.push(byte);
        } else if stands_plain(byte) {
            decoded.push(byte);
        } else {
            return None;
        }
    }
    // Some servers accept invalid UTF-8, and read `%C0%AF` as a slash.
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// Returns true for the characters of a path (RFC 3986 §3.3) except `;`. Servers disagree if the
/// text behind a `;` belongs to the path.
const fn stands_plain(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'/' | b':'
                | b'@'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b'='
        )
}

/// Returns true for bytes that may be percent-encoded without changing the meaning of the path.
const fn stands_encoded(byte: u8) -> bool {
    !is_unreserved(byte)
        && !byte.is_ascii_control()
        && !matches!(byte, b'/' | b'\\' | b';' | b'%' | b'?' | b'#')
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_normal_if_it_has_only_one_reading() {
        #[rustfmt::skip]
        let cases: [(&[u8], Option<&str>); 44] = [
            (b"/",                      Some("/")),
            (b"/orders",                Some("/orders")),
            (b"/orders/",               Some("/orders/")),
            (b"/orders/7/items",        Some("/orders/7/items")),
            (b"/a-b_c~d.e",             Some("/a-b_c~d.e")),
            (b"/.well-known/x",         Some("/.well-known/x")),
            (b"/users/a@b.example",     Some("/users/a@b.example")),
            (b"/users/a%40b.example",   Some("/users/a@b.example")),
            (b"/a%20b",                 Some("/a b")),
            (b"/caf%C3%A9",             Some("/caf\u{e9}")),
            (b"/caf%c3%a9",             Some("/caf\u{e9}")),
            (b"/%7B%22a%22%7D",         Some("/{\"a\"}")),
            // No path, or an incomplete one.
            (b"",                       None),
            (b"orders",                 None),
            (b"*",                      None),
            (b"/a%",                    None),
            (b"/a%2",                   None),
            (b"/a%zz",                  None),
            (b"/a%+1",                  None),
            // Segments.
            (b"//",                     None),
            (b"//orders",               None),
            (b"/orders//7",             None),
            (b"/.",                     None),
            (b"/..",                    None),
            (b"/orders/../account",     None),
            (b"/orders/./7",            None),
            (b"/orders/...",            None),
            (b"/orders./7",             None),
            (b"/orders%20",             None),
            // Encoded without need, or hiding another path.
            (b"/%6frders",              None),
            (b"/orders/%2e%2e/account", None),
            (b"/orders/.%2E/account",   None),
            (b"/orders%2F7",            None),
            (b"/orders%2f7",            None),
            (b"/orders%5c7",            None),
            (b"/orders\\7",             None),
            (b"/orders;a=b",            None),
            (b"/orders%3ba",            None),
            (b"/orders%252F7",          None),
            (b"/orders%3Fa",            None),
            (b"/orders%00",             None),
            (b"/orders%0a",             None),
            // Invalid UTF-8, or UTF-8 that is not encoded.
            (b"/%C0%AF",                None),
            (b"/caf\xc3\xa9",           None),
        ];
        for (path, read) in cases {
            let normal = NormalPath::parse(path);
            let normal = normal.as_ref().map(NormalPath::as_str);
            assert_eq!(normal, read, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn the_query_is_not_part_of_the_path() {
        for (target, path) in [("/a?b", "/a"), ("/a", "/a"), ("?", ""), ("/a?/b?c", "/a")] {
            assert_eq!(without_query(target.as_bytes()), path.as_bytes(), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = NormalPath::parse(&bytes);
        }

        #[test]
        fn a_normal_path_has_no_second_reading(path in "(/|[a-c.;%\\\\]|%[0-9a-f]{2}|\u{e9}){0,12}") {
            if let Some(normal) = NormalPath::parse(path.as_bytes()) {
                let read = normal.as_str();
                prop_assert!(read.starts_with('/'));
                prop_assert!(!read.contains(['\\', ';', '%', '?', '#', '\0']));
                prop_assert!(!read.contains("//"));
                prop_assert!(read.split('/').all(|segment| !segment.ends_with('.')));
                prop_assert_eq!(read.matches('/').count(), path.matches('/').count());
            }
        }
    }
}
