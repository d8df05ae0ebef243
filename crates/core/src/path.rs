//! The path of a request, where it means the same to everybody who reads it.
//!
//! Whoever decides by the path must have read the one that the server behind will read. Servers differ in what they
//! make of an encoded slash, a `;`, an empty segment, a dot at the end of one: a path that has any of these is not
//! normal, and nothing is known of what it leads to. What is left is compared as it reads after decoding
//! (RFC 3986 §6.2.2.2).

use std::borrow::Cow;

/// A path that is normal, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalPath<'p>(Cow<'p, str>);

impl<'p> NormalPath<'p> {
    /// Reads a path without its query; `None` if it is not normal.
    pub fn parse(path: &'p [u8]) -> Option<Self> {
        let decoded = decode(path)?;
        let mut segments = decoded.strip_prefix('/')?.split('/').peekable();
        while let Some(segment) = segments.next() {
            // `.` and `..` end in a dot too; what else does, Windows knows by the name without it.
            let odd = segment.ends_with(['.', ' ']);
            if odd || segment.is_empty() && segments.peek().is_some() {
                return None;
            }
        }
        Some(Self(decoded))
    }

    /// As it reads.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path of a request target, without the query.
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
    // Not every server refuses what is no UTF-8: to some `%C0%AF` is a slash.
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// RFC 3986 §3.3, but for `;`: what is behind it belongs to the path for some servers, and to others does not.
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

/// What has to be encoded, or may be, and then means nothing but itself.
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
    fn a_path_is_normal_if_nobody_can_read_it_otherwise() {
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
            // No path, or none that is whole.
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
            // What is encoded for nothing, or hides something.
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
            // What is no UTF-8, encoded or not.
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
    fn the_query_is_no_part_of_the_path() {
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
        fn what_is_normal_has_no_second_reading(path in "(/|[a-c.;%\\\\]|%[0-9a-f]{2}|\u{e9}){0,12}") {
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
