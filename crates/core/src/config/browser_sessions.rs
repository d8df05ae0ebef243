//! Browser sessions: where they are.

use super::node::Node;
use super::section::{Kind, section};

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

section! {
    /// Browser sessions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GuardSessions {
        /// The filter's `browser_sessions.domain`.
        pub domain: DomainName as String,
    }
}

/// The name of a domain, as browsers write it: in small letters, without a port.
struct DomainName;

impl Kind for DomainName {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        /// A session's host has one more label, of up to 32 characters.
        const LONGEST: usize = 220;
        let text = node.clone().string()?;
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if text.len() <= LONGEST && text.split('.').all(is_label) {
            return Some(text.to_owned());
        }
        node.problem("expected a domain in small letters, such as shop-as-user.example")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
        let pattern = format!(r"^{label}(\.{label})*$");
        let schema = json!({"type": "string", "pattern": pattern, "maxLength": 220});
        Described::plain("domain", schema)
    }
}
