//! The members that identify a service. The filter and its guards must have the same values.

use super::node::Node;
use super::section::Kind;
use crate::oauth::uri;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// `iss` of the access tokens. It is compared whole, so a slash at its end counts. Auth0's issuers
/// have one.
pub(super) struct IssuerUri;

impl Kind for IssuerUri {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        match uri::HttpUrl::parse(text) {
            Some(url) if !url.path.contains('?') => Some(text.to_owned()),
            _ => node.problem("expected an http or https URL without query and fragment"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "pattern": "^https?://[^?#]*[^?#]$"});
        Described::plain("http(s) URI", schema)
    }
}

/// An origin (RFC 6454): scheme, host and port of a URL, without a path.
pub(super) struct OriginUri;

impl Kind for OriginUri {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        match uri::HttpUrl::parse(text) {
            Some(url) if url.path == "/" && !text.ends_with('/') => Some(text.to_owned()),
            _ => node.problem("expected an origin such as https://api.example.com, without a path"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "pattern": "^https?://[^/?#]+$"});
        Described::plain("origin", schema)
    }
}

/// The path part of the service's address.
pub(super) struct BasePath;

impl Kind for BasePath {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        let valid = text.is_empty()
            || text.starts_with('/')
                && !text.ends_with('/')
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"?#%\"<>\\".contains(&byte));
        if valid {
            Some(text.to_owned())
        } else {
            node.problem("expected an empty string, or a path such as /tenant-a")
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let pattern = r#"^(/([^?#%\"<>\\]*[^?#%\"<>\\/])?)?$"#;
        Described::plain("string", json!({"type": "string", "pattern": pattern}))
    }
}

/// Returns the service's name in shared data. Two services that differ in either part share
/// nothing.
pub(super) fn tenant(issuer: &str, base_path: &str) -> String {
    format!("{issuer}\n{base_path}")
}
