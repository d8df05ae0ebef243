//! The address of an upstream, as in Envoy's `HttpUri`.

use std::rc::Rc;
use std::time::Duration;

use super::kinds::{MINUTE, Span, Text};
use super::node::Node;
use super::section::{Raw, Refined, section};
use crate::oauth::uri;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The address of an upstream: its Envoy cluster, and the URL that is requested.
#[derive(Debug, Clone)]
pub struct HttpUri {
    /// The Envoy cluster that is called.
    pub cluster: Rc<str>,
    /// `http` or `https`.
    pub scheme: Rc<str>,
    /// Host and port.
    pub authority: Rc<str>,
    /// Path and query.
    pub path: String,
    /// How long Envoy waits for the answer.
    pub timeout: Duration,
}

/// Placeholder for the user in the URL of [`UserLookup`](super::UserLookup).
pub const USER_ID_PLACEHOLDER: &str = "{userId}";

section! {
    /// The address of an upstream, as in Envoy's `HttpUri`.
    pub(super) struct HttpUriMembers {
        /// An http or https URL without user information and fragment.
        uri: Text,
        /// The Envoy cluster to call. It must exist.
        cluster: Text,
        /// How long an answer may take. After that the filter treats the upstream as down.
        timeout: Span<1, MINUTE> = "2s",
    }
}

/// Reads an [`HttpUri`]. If `OF_A_USER`, its path must hold [`USER_ID_PLACEHOLDER`] exactly once.
pub(super) struct UpstreamUri<const OF_A_USER: bool>;

impl<const OF_A_USER: bool> Refined for UpstreamUri<OF_A_USER> {
    type From = HttpUriMembers;
    type Value = HttpUri;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<HttpUri> {
        let place = place.member("uri");
        let url = if OF_A_USER {
            uri::HttpUrl::parse_template(&members.uri, USER_ID_PLACEHOLDER)
        } else {
            uri::HttpUrl::parse(&members.uri)
        };
        let Some(url) = url else {
            if let Some(other) = placeholder(&members.uri).filter(|_| OF_A_USER) {
                let wrong = format!("expected {USER_ID_PLACEHOLDER} in the path, not {other:?}");
                return place.problem(wrong);
            }
            return place
                .problem("expected an http or https URL without user information and fragment");
        };
        if OF_A_USER && url.path.matches(USER_ID_PLACEHOLDER).count() != 1 {
            return place.problem(format!("expected {USER_ID_PLACEHOLDER} once in the path"));
        }
        Some(HttpUri {
            cluster: members.cluster.into(),
            scheme: url.scheme.into(),
            authority: url.authority.into(),
            path: url.path.to_owned(),
            timeout: members.timeout,
        })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        let described = described.with("uri", json!({"pattern": "^https?://"}));
        described.under(descriptions, "http_uri", "HTTP URIs")
    }
}

/// Returns the first part in braces that is not [`USER_ID_PLACEHOLDER`].
fn placeholder(uri: &str) -> Option<&str> {
    let parts = uri.match_indices('{').filter_map(|(start, _)| uri.get(start..));
    let mut parts = parts.filter_map(|rest| rest.get(..=rest.find('}')?));
    parts.find(|part| *part != USER_ID_PLACEHOLDER)
}
