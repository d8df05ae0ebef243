//! The senders of events that end impersonations: identity gateways that report logouts, and
//! transmitters of security events.

use std::marker::PhantomData;

use super::clients::SecretDigest;
use super::kinds::{NonEmpty, Text};
use super::name_prefix::{NamePrefix, Named, keep_apart};
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};
use super::verification::{Jwks, LocalJwks, RemoteJwks, jwks};
use crate::secret::Digest;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A sender of events, and what its events must say.
#[derive(Debug)]
pub struct EventSender {
    /// `iss`, compared exactly.
    pub issuer: String,
    /// The prefix of each name that the sender gives in its own right. `None` for no prefix, if the
    /// list has no other sender.
    pub name_prefix: Option<String>,
    /// One of these must be in `aud`.
    pub audiences: Vec<String>,
    /// The SHA-256 of each `Authorization` header that the sender may send; `None` if it needs
    /// none.
    pub authorization_digests: Option<Vec<Digest>>,
    /// The sender's keys.
    pub keys: Jwks,
}

section! {
    /// An identity gateway whose logout tokens (OpenID Connect Back-Channel Logout 1.0) end
    /// impersonations.
    pub(super) struct LogoutSenderMembers {
        /// `iss` of the logout tokens, compared exactly.
        issuer: Text,
        /// The prefix of the same people in `actor_tokens` ([several
        /// issuers](verifying-tokens.md#several-issuers)). Required if the list has several senders.
        name_prefix: NamePrefix => "nothing, where the list has no other sender",
        /// One of them must be in `aud`: the clients that have the filter's endpoint as their
        /// `backchannel_logout_uri`.
        audiences: NonEmpty<Text>,
        /// The sender's key set, fetched from an address.
        remote_jwks: RemoteJwks => "one of the two",
        /// The sender's key set, `{"keys": [...]}`.
        local_jwks: LocalJwks => "one of the two",
    }
    exactly_one [remote_jwks, local_jwks]
}

section! {
    /// A sender whose events end impersonations: an identity gateway that reports logouts, or a
    /// transmitter of security events (Shared Signals Framework 1.0).
    pub(super) struct TransmitterMembers {
        /// `iss` of the events, compared exactly.
        issuer: Text,
        /// The prefix of the same people in `actor_tokens` ([several
        /// issuers](verifying-tokens.md#several-issuers)). Required if the list has several
        /// senders. A subject with an issuer of its own has that issuer's prefix.
        name_prefix: NamePrefix => "nothing, where the list has no other sender",
        /// One of them must be in `aud`. For logouts, these are the clients that have the filter's
        /// endpoint as their `backchannel_logout_uri`.
        audiences: NonEmpty<Text>,
        /// The SHA-256 of the whole `Authorization` header of each push, in hexadecimal; several
        /// during rotation. `impersonation-filter hash-secret` prints it.
        authorization_sha256: NonEmpty<SecretDigest> => "no header is needed",
        /// The sender's key set, fetched from an address.
        remote_jwks: RemoteJwks => "one of the two",
        /// The sender's key set, `{"keys": [...]}`.
        local_jwks: LocalJwks => "one of the two",
    }
    exactly_one [remote_jwks, local_jwks]
}

/// A sender of logout tokens.
pub(super) struct Logouts;

impl Refined for Logouts {
    type From = LogoutSenderMembers;
    type Value = EventSender;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<EventSender> {
        Some(EventSender {
            issuer: members.issuer,
            name_prefix: members.name_prefix,
            audiences: members.audiences,
            authorization_digests: None,
            keys: jwks(place, members.remote_jwks, members.local_jwks)?,
        })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described.defined_as(descriptions, "sender_of_logouts", "event_senders", "senders")
    }
}

/// A sender of security events.
pub(super) struct SecurityEvents;

impl Refined for SecurityEvents {
    type From = TransmitterMembers;
    type Value = EventSender;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<EventSender> {
        Some(EventSender {
            issuer: members.issuer,
            name_prefix: members.name_prefix,
            audiences: members.audiences,
            authorization_digests: members.authorization_sha256,
            keys: jwks(place, members.remote_jwks, members.local_jwks)?,
        })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described.defined_as(descriptions, "sender_of_security_events", "event_senders", "senders")
    }
}

/// A list of senders of one kind, in which each sender occurs once.
pub(super) struct SenderList<S>(PhantomData<S>);

impl<S: Kind<Value = EventSender>> Refined for SenderList<S> {
    type From = NonEmpty<S>;
    type Value = Vec<EventSender>;

    fn refine(senders: Raw<Self>, list: Node<'_>) -> Option<Vec<EventSender>> {
        for (index, sender) in senders.iter().enumerate() {
            if senders.iter().take(index).any(|earlier| earlier.issuer == sender.issuer) {
                let problem = format!("{:?} is given twice", sender.issuer);
                return list.item(index).member("issuer").problem(problem);
            }
        }
        keep_apart(&list, &names(&senders))?;
        Some(senders)
    }

    #[cfg(test)]
    fn refine_description(described: Described, _: &mut Descriptions) -> Described {
        described.with_rule(json!({
            "if": {"minItems": 2},
            "then": {"items": {"required": ["name_prefix"]}},
        }))
    }
}

/// Returns each sender of a list with its prefix.
pub(super) fn names(senders: &[EventSender]) -> Vec<Named<'_>> {
    senders.iter().map(|one| (&*one.issuer, one.name_prefix.as_deref())).collect()
}
