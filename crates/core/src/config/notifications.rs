//! The hooks that are told what happens to impersonations (CloudEvents 1.0, Standard Webhooks).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::http_uri::{HttpUri, UpstreamUri};
use super::kinds::{Boolean, NonEmpty, OneOf, Words};
use super::node::Node;
use super::section::{Raw, Refined, section};
use super::source::DataSource;
use crate::secret::Secret;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// An event in the life of an impersonation that a hook can ask to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A subject token waits for a decision.
    ApprovalRequested,
    /// A person has approved, or the user has consented.
    ApprovalGiven,
    /// A person has denied.
    ApprovalDenied,
    /// A subject token was minted without the approvals that it needed.
    BreakGlassUsed,
    /// A subject token was exchanged.
    Began,
    /// Somebody has ended an impersonation.
    Ended,
}

impl Words for Happening {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("approval.requested", Self::ApprovalRequested),
        ("approval.given", Self::ApprovalGiven),
        ("approval.denied", Self::ApprovalDenied),
        ("break_glass.used", Self::BreakGlassUsed),
        ("impersonation.began", Self::Began),
        ("impersonation.ended", Self::Ended),
    ];
}

/// A hook that is told what happens.
#[derive(Debug)]
pub struct Hook {
    /// The address of the hook.
    pub http_uri: HttpUri,
    /// The events that the hook is told; `None` for all.
    events: Option<Vec<Happening>>,
    /// True if what the hook cannot be told does not happen.
    pub required: bool,
    /// The key of the signatures.
    pub secret: Secret<Vec<u8>>,
}

impl Hook {
    /// A hook that is told everything.
    #[cfg(any(test, feature = "fakes"))]
    pub fn for_tests(required: bool) -> Self {
        let http_uri = HttpUri {
            cluster: "hooks".into(),
            scheme: "https".into(),
            authority: "hooks.example.com".into(),
            path: "/".into(),
            timeout: std::time::Duration::from_secs(2),
        };
        Self { http_uri, events: None, required, secret: Secret::new(vec![7; 24]) }
    }

    /// Returns true if the hook is told of this.
    pub fn wants(&self, happening: Happening) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(&happening))
    }
}

section! {
    /// A hook that is told what happens to impersonations: CloudEvents 1.0 over HTTP, signed as
    /// Standard Webhooks.
    pub(super) struct HookMembers {
        /// The address of the hook. The filter sends a `POST`, and every 2xx is a success.
        http_uri: UpstreamUri<false>,
        /// The events that the hook is told. One that takes back another
        /// (`impersonation.not_begun`, `approval.not_given`, `approval.not_denied`) goes to the
        /// hooks that were told the other.
        events: NonEmpty<OneOf<Happening>> => "all",
        /// If true, what the hook cannot be told does not happen: the request is answered with 503.
        /// An ending never waits for a hook.
        required: Boolean = false,
        /// The key of the signatures: `whsec_` and the base64 of 24 to 64 random bytes.
        secret: WebhookSecret,
    }
}

/// The key of a hook's signatures, as Standard Webhooks writes it.
struct WebhookSecret;

impl Refined for WebhookSecret {
    type From = DataSource;
    type Value = Secret<Vec<u8>>;

    fn refine(source: Raw<Self>, place: Node<'_>) -> Option<Secret<Vec<u8>>> {
        let (place, text) = (place.member(source.member), source.text);
        let key = text.strip_prefix("whsec_").and_then(|text| BASE64_STANDARD.decode(text).ok());
        match key.filter(|key| (24..=64).contains(&key.len())) {
            Some(key) => Some(Secret::new(key)),
            None => place.problem("expected whsec_ and the base64 of 24 to 64 bytes"),
        }
    }
}

impl Refined for Hook {
    type From = HookMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self> {
        Some(Self {
            http_uri: members.http_uri,
            events: members.events,
            required: members.required,
            secret: members.secret,
        })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described.defined_as(descriptions, "hook", "notifications", "hooks")
    }
}
