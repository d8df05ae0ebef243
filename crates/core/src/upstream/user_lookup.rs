//! Whether a user exists.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::config::{USER_ID_PLACEHOLDER, UserLookup};
use crate::step::HttpCall;

/// All but the unreserved characters of RFC 3986 §2.3 are encoded in a path segment.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl UserLookup {
    /// The request about one user, on behalf of the caller whose `authorization` it carries. `None` for a
    /// name that cannot stand in a path: every path normaliser reads a dot segment as something else.
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
