//! The parts of a request that endpoints read.

use std::fmt;

use crate::browser_session::SessionFields;
use crate::certificate::ClientCertificate;
use crate::secret::redacted;

/// The longest request body that an endpoint accepts, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// The header fields of a request that endpoints read. Each value is unchanged.
#[derive(Clone, Default)]
pub struct Head {
    /// Envoy's id of the request.
    pub request_id: String,
    /// `traceparent`, which every call for the request carries.
    pub traceparent: Option<String>,
    /// The method.
    pub method: Vec<u8>,
    /// The path with its query.
    pub path: Vec<u8>,
    /// `authorization`.
    pub authorization: Option<Vec<u8>>,
    /// `content-type`.
    pub content_type: Option<Vec<u8>>,
    /// `if-none-match`; read for documents only.
    pub(crate) if_none_match: Option<Vec<u8>>,
    /// The fields that decide about a browser session; read on the host of one only.
    pub(crate) session: SessionFields,
    /// `accept-encoding`; read for pages only.
    pub(crate) accept_encoding: Option<Vec<u8>>,
    /// Each header field named `DPoP`; read only where proofs are configured.
    pub(crate) proofs: Vec<Vec<u8>>,
    /// The client's certificate; read only where certificates are configured.
    pub(crate) certificate: Option<ClientCertificate>,
}

/// A request body.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// The whole body.
    Whole(Vec<u8>),
    /// The first bytes of a body that is longer than [`MAX_BODY`].
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
    /// Returns the bytes that were read.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) | Self::TooLong(bytes) => bytes,
        }
    }
}

impl Head {
    /// Returns the last segment of the path.
    pub(super) fn last_segment(&self) -> Option<&str> {
        let path = self.path.split(|byte| *byte == b'?').next()?;
        std::str::from_utf8(path.rsplit(|byte| *byte == b'/').next()?).ok()
    }

    /// Returns the query; empty if the path has none.
    pub(super) fn query(&self) -> &[u8] {
        let mut halves = self.path.splitn(2, |byte| *byte == b'?');
        halves.nth(1).unwrap_or_default()
    }
}

/// The scheme by which a request presents an access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// `Bearer` (RFC 6750 §2.1).
    Bearer,
    /// `DPoP` (RFC 9449 §7.1).
    Dpop,
}

/// Returns the access token of an `Authorization` header, with its scheme; `None` if the header has
/// another scheme. `DPoP` is a scheme only where proofs are read.
pub(super) fn access_token(head: &Head, reads_proofs: bool) -> Option<(Scheme, &str)> {
    let header = std::str::from_utf8(head.authorization.as_deref()?).ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim_matches(' ');
    let scheme = if scheme.eq_ignore_ascii_case("Bearer") {
        Scheme::Bearer
    } else if scheme.eq_ignore_ascii_case("DPoP") && reads_proofs {
        Scheme::Dpop
    } else {
        return None;
    };
    if token.is_empty() { None } else { Some((scheme, token)) }
}

#[cfg(test)]
mod tests;
