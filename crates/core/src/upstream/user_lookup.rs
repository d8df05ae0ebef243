//! The call that asks whether a user exists.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::config::{USER_ID_PLACEHOLDER, UserLookup};
use crate::step::HttpCall;

/// The characters that are encoded in a path segment: all but the unreserved ones of RFC 3986 §2.3.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl UserLookup {
    /// Creates the request about one user, with the `authorization` of the caller. Returns `None`
    /// for a dot segment, which cannot stand for a user: path normalization would remove it.
    pub fn call(&self, user_id: &str, authorization: &str) -> Option<HttpCall> {
        if matches!(user_id, "." | "..") {
            return None;
        }
        let segment = utf8_percent_encode(user_id, UNRESERVED).to_string();
        let headers = vec![
            ("authorization", authorization.to_owned()),
            ("accept", "application/json".to_owned()),
        ];
        let call = self.http_uri.call("GET", headers, Vec::new());
        Some(HttpCall { path: call.path.replace(USER_ID_PLACEHOLDER, &segment), ..call })
    }
}
