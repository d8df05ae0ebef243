//! The headers that tell an API about an impersonation.
//!
//! The API believes these headers, so a caller must not be able to set them. The guard removes the
//! caller's own fields of these names, and of every spelling that some server treats as the same
//! name. Servers that turn header fields into variables (CGI, and PHP, WSGI and Rack after it) read
//! `x_impersonator` and `x-impersonator` as one name, and which of the two they keep varies.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::claims::Claims;
use super::elsewhere;
use crate::config::GuardHeaders;
use crate::http_stream::HttpRequest;

/// The headers to set on one request, and the caller's spellings to remove.
pub(super) struct ToldHeaders<'g> {
    names: &'g GuardHeaders,
    /// The other spellings of the names that the caller sent.
    forged: Vec<String>,
}

impl<'g> ToldHeaders<'g> {
    pub(super) const fn new(names: &'g GuardHeaders) -> Self {
        Self { names, forged: Vec::new() }
    }

    /// Checks the name of a header field that the caller sent.
    pub(super) fn see(&mut self, name: &[u8]) {
        let is_spelling =
            |known: &String| elsewhere::is_spelling_of(name, known) && name != known.as_bytes();
        let GuardHeaders { id, actor } = self.names;
        if id.iter().chain(actor).any(is_spelling)
            && let Ok(name) = str::from_utf8(name)
        {
            self.forged.push(name.to_owned());
        }
    }

    /// Sets the headers, after removing all that the caller sent under their names.
    pub(super) fn tell(&self, request: &dyn HttpRequest, claims: Option<&Claims<'_>>) {
        for name in &self.forged {
            request.remove_request_header(name);
        }
        let tell = |name: Option<&str>, value: Option<&str>| match (name, value) {
            (Some(name), Some(value)) => request.set_request_header(name, &header_value(value)),
            (Some(name), None) => request.remove_request_header(name),
            (None, _) => {}
        };
        tell(self.names.id.as_deref(), claims.map(|claims| claims.id));
        tell(self.names.actor.as_deref(), claims.and_then(|claims| claims.actor_id));
    }
}

/// Characters that a header field cannot hold, or that some reader takes for a separator.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b',').add(b';').add(b'"').add(b'\\');

/// Encodes text as the value of a header field: visible ASCII as it is, the rest percent-encoded as
/// UTF-8.
fn header_value(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, UNSAFE).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_encoded_only_where_a_reader_could_misread_it() {
        #[rustfmt::skip]
        let cases = [
            ("agent-7",                 "agent-7"),
            ("auth0|5f7c",              "auth0|5f7c"),
            ("ana@example.com",         "ana@example.com"),
            ("https://idp/users/7?a=b", "https://idp/users/7?a=b"),
            ("agent-7\r\nx-admin: yes", "agent-7%0D%0Ax-admin:%20yes"),
            ("agent-7, agent-1",        "agent-7%2C%20agent-1"),
            ("a;b\"c\\d\0",            "a%3Bb%22c%5Cd%00"),
            ("100%",                    "100%25"),
            ("J\u{fc}rgen",             "J%C3%BCrgen"),
        ];
        for (name, value) in cases {
            assert_eq!(header_value(name), value);
        }
    }

    proptest! {
        #[test]
        fn every_name_becomes_one_value_that_decodes_to_it(name: String) {
            let value = header_value(&name).into_owned();
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','));
            let read = percent_encoding::percent_decode_str(&value).decode_utf8().unwrap();
            prop_assert_eq!(&read, &*name);
        }
    }
}
