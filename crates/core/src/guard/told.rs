//! The headers by which an API learns whose request this really is.
//!
//! The API believes them, so nobody else may set them: what a caller sent by their names is gone, and by what a server
//! takes for their names. A server that hands header fields on as variables (CGI, and PHP, WSGI and Rack after it) knows
//! `x_impersonator` and `x-impersonator` by one name, and which of the two it keeps is up to it.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::claims::Claims;
use super::{ApiRequest, elsewhere};
use crate::config::GuardHeaders;

/// What an API is to be told in one request, and what it must not be told.
pub(super) struct Told<'g> {
    names: &'g GuardHeaders,
    /// The caller's own spellings of the names.
    forged: Vec<String>,
}

impl<'g> Told<'g> {
    pub(super) const fn new(names: &'g GuardHeaders) -> Self {
        Self { names, forged: Vec::new() }
    }

    /// Looks at the name of a header field that the caller sent.
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

    /// Tells the API. What the caller said about that is gone.
    pub(super) fn tell(&self, request: &dyn ApiRequest, claims: Option<&Claims<'_>>) {
        for name in &self.forged {
            request.remove_header(name);
        }
        let tell = |name: Option<&str>, value: Option<&str>| match (name, value) {
            (Some(name), Some(value)) => request.set_header(name, &header_value(value)),
            (Some(name), None) => request.remove_header(name),
            (None, _) => {}
        };
        tell(self.names.id.as_deref(), claims.map(|claims| claims.id));
        tell(self.names.actor.as_deref(), claims.and_then(|claims| claims.actor_id));
    }
}

/// What a header field cannot hold, or some reader could take for the end of it, or for another.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b',').add(b';').add(b'"').add(b'\\');

/// Text as the value of a header field: visible ASCII, the rest percent-encoded as UTF-8.
fn header_value(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, UNSAFE).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_a_header_as_it_is_unless_some_reader_could_take_it_for_more() {
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
        fn whatever_the_name_it_is_one_value_that_reads_back(name: String) {
            let value = header_value(&name).into_owned();
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','));
            let read = percent_encoding::percent_decode_str(&value).decode_utf8().unwrap();
            prop_assert_eq!(&read, &*name);
        }
    }
}
