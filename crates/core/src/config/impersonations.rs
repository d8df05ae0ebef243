//! The operators who may list and end impersonations, and the capacity of the list.

use super::events::{EventSender, Logouts, SecurityEvents, SenderList};
use super::kinds::SmallInteger;
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};
use super::store::{DEFAULT_CAPACITY, MAX_CAPACITY};
use super::verification::{Authentication, Operators, Verification};

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The operators who may list and end impersonations.
#[derive(Debug, Default)]
pub struct Impersonations {
    /// How the callers are verified. If no method is configured, nobody may list or end
    /// impersonations.
    pub authentication: Verification,
    /// The most impersonations that are listed in shared data; `None` if the operator sets no
    /// limit.
    pub(super) capacity: Option<u32>,
    /// The members of a mint's context that are listed.
    pub context: Vec<String>,
    /// The identity gateways whose logout tokens end impersonations.
    pub back_channel_logout: Vec<EventSender>,
    /// The transmitters whose security events end impersonations.
    pub security_events: Vec<EventSender>,
}

impl Impersonations {
    /// Returns the most impersonations that are listed in shared data.
    pub fn capacity(&self) -> u32 {
        self.capacity.unwrap_or(DEFAULT_CAPACITY)
    }
}

section! {
    /// The operators who may list the live impersonations and end them.
    pub(super) struct ImpersonationsMembers under "impersonations", "impersonations" {
        /// How operators are verified. Listing needs the scope `impersonations:read`, ending
        /// `impersonations:revoke`, in addition to `required_scopes`.
        authentication: Authentication<Operators>,
        /// How many impersonations are listed at one time. Further ones work, and the list says
        /// `"complete": false`. No effect with `store.etcd`.
        capacity: SmallInteger<MAX_CAPACITY> => "`65536`",
        /// Members of the `context` that the list shows, each cut at 128 characters. At most 8
        /// names of at most 64 bytes.
        context: ListedContext = [],
        /// The identity providers whose logout tokens end impersonations (OpenID Connect
        /// Back-Channel Logout 1.0).
        back_channel_logout: SenderList<Logouts> => "no logout ends an impersonation",
        /// The transmitters whose security events end impersonations (Shared Signals Framework 1.0,
        /// by push).
        security_events: SenderList<SecurityEvents> => "no event ends an impersonation",
    }
}

/// The most members of a context that the list of impersonations keeps, which bounds its memory.
const MOST_LISTED_MEMBERS: usize = 8;

/// The longest name of a listed member of the context, in bytes.
const LONGEST_LISTED_NAME: usize = 64;

/// Names of members of a context, each name once.
struct ListedContext;

impl Kind for ListedContext {
    type Value = Vec<String>;

    fn read(node: Node<'_>) -> Option<Vec<String>> {
        let names = node.clone().list(|node| match node.clone().non_empty_string()? {
            name if name.len() <= LONGEST_LISTED_NAME => Some(name),
            _ => node.problem(format!("expected a name of at most {LONGEST_LISTED_NAME} bytes")),
        })?;
        if names.len() > MOST_LISTED_MEMBERS {
            return node.problem(format!("expected at most {MOST_LISTED_MEMBERS} names"));
        }
        for (index, name) in names.iter().enumerate() {
            if names.iter().take(index).any(|earlier| earlier == name) {
                return node.item(index).problem("is named twice");
            }
        }
        Some(names)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let name = json!({"type": "string", "minLength": 1, "maxLength": LONGEST_LISTED_NAME});
        let schema = json!({"type": "array", "items": name, "maxItems": MOST_LISTED_MEMBERS, "uniqueItems": true});
        Described::plain("list of strings", schema)
    }
}

impl Refined for Impersonations {
    type From = ImpersonationsMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self> {
        Some(Self {
            authentication: members.authentication,
            capacity: members.capacity,
            context: members.context,
            back_channel_logout: members.back_channel_logout.unwrap_or_default(),
            security_events: members.security_events.unwrap_or_default(),
        })
    }
}
