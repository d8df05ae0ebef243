//! A live impersonation as the list and the notices show it, and as revocations name it.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::state::impersonations::LiveImpersonation;
use crate::state::revocations::{Impersonation, IssuedAt, Mark};

/// A live impersonation, as people see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listing<'e> {
    pub(super) id: &'e str,
    pub(super) user_id: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor_id: Option<&'e str>,
    pub(super) client_id: &'e str,
    pub(super) caller: &'e str,
    pub(super) resource: &'e str,
    pub(super) scope: &'e str,
    pub(super) jti: &'e str,
    pub(super) issued_at: String,
    pub(super) expires_at: String,
    #[serde(skip_serializing_if = "ListedContext::is_empty")]
    pub(super) context: ListedContext<'e>,
    /// True for a browser session, in the list.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) browser_session: bool,
}

/// The context of the mint, as far as it is shown.
pub(super) enum ListedContext<'e> {
    /// The members that the operator wants to see.
    Excerpt(&'e [(String, String)]),
    /// The whole context.
    Whole(Value),
}

impl ListedContext<'_> {
    const fn is_empty(&self) -> bool {
        matches!(self, Self::Excerpt([]))
    }
}

/// Serialises the members of an excerpt in the order in which the operator named them.
impl Serialize for ListedContext<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Excerpt(members) => {
                serializer.collect_map(members.iter().map(|(name, text)| (name, text)))
            }
            Self::Whole(context) => context.serialize(serializer),
        }
    }
}

impl<'e> Listing<'e> {
    pub(super) fn of(entry: &'e LiveImpersonation) -> Self {
        Self {
            id: &entry.id,
            user_id: &entry.user_id,
            actor_id: entry.actor_id.as_deref(),
            client_id: &entry.client_id,
            caller: &entry.caller,
            resource: &entry.resource,
            scope: &entry.scope,
            jti: &entry.jti,
            issued_at: entry.issued_at().rfc3339().to_string(),
            expires_at: entry.expires_at().rfc3339().to_string(),
            context: ListedContext::Excerpt(&entry.context),
            browser_session: false,
        }
    }
}

/// The facts of a listed impersonation that a revocation can name, and when its access token was
/// issued, as exactly as the token says.
pub(super) fn listed(entry: &LiveImpersonation) -> (Impersonation<'_>, IssuedAt) {
    let Mark { caller, issued, actor_since } = Mark::read(&entry.jti, entry.issued_at().secs());
    let impersonation = Impersonation {
        id: &entry.id,
        user_id: &entry.user_id,
        actor_id: entry.actor_id.as_deref(),
        client_id: &entry.client_id,
        caller,
        resource: &entry.resource,
        session: entry.session.as_deref(),
        actor_since,
    };
    (impersonation, issued)
}
