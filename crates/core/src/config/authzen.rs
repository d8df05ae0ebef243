//! The policy decision point that decides about mints (AuthZEN Authorization API 1.0).

use super::http_uri::{HttpUri, Upstream};
use super::node::Node;
use super::section::{Kind, section};
use super::source::Source;
use crate::secret::Secret;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The policy decision point that decides about mints.
#[derive(Debug)]
pub(crate) struct DecisionPoint {
    /// The address of its Access Evaluation API.
    pub(crate) http_uri: HttpUri,
    /// The `Authorization` header of each request; `None` for none.
    pub(crate) authorization: Option<Secret<String>>,
}

section! {
    /// The policy decision point that decides about mints, by the AuthZEN Authorization API 1.0.
    struct DecisionPointMembers {
        /// The address of its Access Evaluation API. The filter sends a `POST`.
        http_uri: Upstream<false>,
        /// The whole `Authorization` header of each request, such as `Bearer …`.
        authorization: HeaderValue => "the requests have none",
    }
}

/// The value of a header field, inline or in an environment variable.
struct HeaderValue;

impl Kind for HeaderValue {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let (place, text) = Source::read_with_place(node)?;
        match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text {
            true => Some(text),
            false => place.problem("expected the value of a header field: printable ASCII"),
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        Source::describe(descriptions)
    }
}

impl Kind for DecisionPoint {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let members = DecisionPointMembers::read(node)?;
        let authorization = members.authorization.map(Secret::new);
        Some(Self { http_uri: members.http_uri, authorization })
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        DecisionPointMembers::describe(descriptions).under(
            descriptions,
            "authzen",
            "decision points",
        )
    }
}
