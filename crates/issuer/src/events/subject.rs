//! Subject identifiers (RFC 9493): whom a security event is about.

use serde_json::{Map, Value};

use super::senders::Sender;
use crate::state::revocations::Revocation;

/// The id by which Keycloak 26.7 means all sessions of a user. Taken as the name of one session, it
/// would end nothing when an administrator ends all sessions.
const ALL_SESSIONS: &str = "ALL";

/// A person, a session, or a person in a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// The name of a person, with its issuer's prefix.
    pub(super) person: Option<String>,
    /// The session, with its issuer's prefix.
    pub(super) session: Option<String>,
}

impl Subject {
    /// Reads a subject identifier; `None` if the filter cannot name whom it means.
    ///
    /// A `complex` subject is read by `user` and `session`. Its other members narrow the subject to
    /// a device, a tenant and the like, which the filter does not know: without them more ends, not
    /// less.
    pub(super) fn read(sender: &Sender<'_>, identifier: &Value) -> Option<Self> {
        let identifier = identifier.as_object()?;
        if text(identifier, "format")? != "complex" {
            return Some(Self { person: Some(name(sender, identifier)?), session: None });
        }
        let member = |name: &str| identifier.get(name).filter(|value| !value.is_null());
        let simple = |value: &Value| name(sender, value.as_object()?);
        let person = match member("user") {
            Some(user) => Some(simple(user)?),
            None => None,
        };
        let session = match member("session").filter(|session| !is_all_sessions(session)) {
            Some(session) => Some(simple(session)?),
            None => None,
        };
        (person.is_some() || session.is_some()).then_some(Self { person, session })
    }

    /// The revocation of the impersonations in which the subject acts.
    pub(super) fn as_actor(&self) -> Revocation {
        Revocation {
            actor_id: self.person.clone(),
            session: self.session.clone(),
            ..Revocation::default()
        }
    }

    /// The revocations of the impersonations in which the subject acts, in any session, and of
    /// those of the subject. Of a subject that is only a session, the session's impersonations.
    pub(super) fn as_account(&self) -> Vec<Revocation> {
        let Some(person) = &self.person else { return vec![self.as_actor()] };
        let person = || Some(person.clone());
        vec![
            Revocation { actor_id: person(), ..Revocation::default() },
            Revocation { user_id: person(), ..Revocation::default() },
        ]
    }
}

/// Returns true if the identifier of a session means all sessions of the user beside it.
fn is_all_sessions(session: &Value) -> bool {
    let text = |name: &str| text(session.as_object()?, name);
    text("format") == Some("opaque") && text("id") == Some(ALL_SESSIONS)
}

/// The name in a simple identifier, with its issuer's prefix.
fn name(sender: &Sender<'_>, identifier: &Map<String, Value>) -> Option<String> {
    let (prefix, name) = match text(identifier, "format")? {
        "iss_sub" => (sender.prefix_of(text(identifier, "iss")?)?, text(identifier, "sub")?),
        "opaque" => (sender.prefix(), text(identifier, "id")?),
        "email" => (sender.prefix(), text(identifier, "email")?),
        _ => return None,
    };
    sender.names.qualify(prefix, name).ok()
}

fn text<'i>(identifier: &'i Map<String, Value>, name: &str) -> Option<&'i str> {
    identifier.get(name)?.as_str().filter(|text| !text.is_empty())
}
