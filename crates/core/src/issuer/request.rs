//! A request, as far as an endpoint looks at it.

use std::fmt;

use crate::secret::redacted;

/// The most bytes of a request body that is ours.
pub const MAX_BODY: usize = 64 * 1024;

/// The head of a request, as far as it matters.
#[derive(Clone, Default)]
pub struct Head {
    /// Envoy's id of the request.
    pub request_id: String,
    /// Its `traceparent`, which every call made for it carries on.
    pub traceparent: Option<String>,
    /// The path with its query, as it came.
    pub path: Vec<u8>,
    /// `authorization`, as it came.
    pub authorization: Option<Vec<u8>>,
    /// `content-type`, as it came.
    pub content_type: Option<Vec<u8>>,
    /// `if-none-match`, as it came.
    pub if_none_match: Option<Vec<u8>>,
}

/// A request body.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of one that is longer than [`MAX_BODY`].
    TooLong(Vec<u8>),
}

impl fmt::Debug for Head {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Head").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) = match self {
            Self::Whole(bytes) => ("Whole", bytes),
            Self::TooLong(bytes) => ("TooLong", bytes),
        };
        formatter.debug_tuple(name).field(&redacted(bytes)).finish()
    }
}

impl Body {
    /// What is there of it.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) | Self::TooLong(bytes) => bytes,
        }
    }
}

impl Head {
    /// What stands behind the last slash of the path.
    pub(super) fn last_segment(&self) -> Option<&str> {
        let path = self.path.split(|byte| *byte == b'?').next()?;
        std::str::from_utf8(path.rsplit(|byte| *byte == b'/').next()?).ok()
    }

    /// The query; empty where there is none.
    pub(super) fn query(&self) -> &[u8] {
        let mut halves = self.path.splitn(2, |byte| *byte == b'?');
        halves.nth(1).unwrap_or_default()
    }
}

/// The token of an `Authorization: Bearer` header (RFC 6750 §2.1); `None` for anything else.
pub(super) fn bearer_token(head: &Head) -> Option<&str> {
    let header = std::str::from_utf8(head.authorization.as_deref()?).ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
