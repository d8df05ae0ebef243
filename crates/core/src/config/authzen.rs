//! The policy decision point that decides about mints (AuthZEN Authorization API 1.0).

use super::http_uri::{HttpUri, UpstreamUri};
use super::node::Node;
use super::section::{Raw, Refined, section};
use super::source::DataSource;
use crate::secret::Secret;

/// The policy decision point that decides about mints.
#[derive(Debug)]
pub struct DecisionPoint {
    /// The address of its Access Evaluation API.
    pub http_uri: HttpUri,
    /// The `Authorization` header of each request; `None` for none.
    pub authorization: Option<Secret<String>>,
}

section! {
    /// The policy decision point that decides about mints, by the AuthZEN Authorization API 1.0.
    pub(super) struct DecisionPointMembers under "authzen", "decision points" {
        /// The address of its Access Evaluation API. The filter sends a `POST`.
        http_uri: UpstreamUri<false>,
        /// The whole `Authorization` header of each request, such as `Bearer …`.
        authorization: HeaderValue => "the requests have none",
    }
}

/// The value of a header field, inline or in an environment variable.
struct HeaderValue;

impl Refined for HeaderValue {
    type From = DataSource;
    type Value = String;

    fn refine(source: Raw<Self>, place: Node<'_>) -> Option<String> {
        let (place, text) = (place.member(source.member), source.text);
        match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text {
            true => Some(text),
            false => place.problem("expected the value of a header field: printable ASCII"),
        }
    }
}

impl Refined for DecisionPoint {
    type From = DecisionPointMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let authorization = members.authorization.map(Secret::new);
        Some(Self { http_uri: members.http_uri, authorization })
    }
}
