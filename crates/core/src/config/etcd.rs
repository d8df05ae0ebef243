//! The address of etcd, for the parts that keep something there.

use std::rc::Rc;
use std::time::Duration;

use super::kinds::{MINUTE, Span, Text};
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The address of etcd, and the part of its keys that belongs to this service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The Envoy cluster of etcd, which speaks HTTP/2.
    pub cluster: Rc<str>,
    /// The beginning of every key.
    pub prefix: String,
    /// How long a look-up, a mint or a spend may take, including all attempts.
    pub timeout: Duration,
    /// The `:authority` of the calls; `None` for the cluster's name.
    pub authority: Option<Rc<str>>,
}

section! {
    /// The address of etcd.
    pub(super) struct EtcdMembers {
        /// The Envoy cluster of etcd, with HTTP/2. Its name and `authority` have at most 120 bytes
        /// together.
        cluster: Text,
        /// The beginning of every key: at most 256 printable ASCII characters without spaces.
        prefix: Prefix = "/impersonation/",
        /// How long a look-up, a mint or a spend may take, including all attempts.
        timeout: Span<100, MINUTE> = "3.5s",
        /// The `:authority` of the calls.
        authority: Text => "the cluster's name",
    }
}

/// The beginning of every key.
struct Prefix;

impl Kind for Prefix {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().non_empty_string()?;
        let printable = text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic());
        if printable {
            Some(text)
        } else {
            node.problem("expected at most 256 printable ASCII characters without spaces")
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 256});
        Described::plain("string", schema)
    }
}

/// The most bytes of cluster and authority together. Both go to Envoy in one short message: see
/// `send_grpc` in `crates/envoy/src/host.rs`.
const LONGEST_NAMES: usize = 120;

impl Refined for EtcdSettings {
    type From = EtcdMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let EtcdMembers { cluster, prefix, timeout, authority } = raw;
        let names = authority.as_ref().map_or(0, String::len).saturating_add(cluster.len());
        if names > LONGEST_NAMES {
            return place.problem(format!(
                "expected cluster and authority together no longer than {LONGEST_NAMES} bytes"
            ));
        }
        let authority = authority.map(Into::into);
        Some(Self { cluster: cluster.into(), prefix, timeout, authority })
    }
}
