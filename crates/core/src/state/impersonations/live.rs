//! A live impersonation, as the list has it.

use serde::{Deserialize, Serialize};

use crate::host::UnixTime;
use crate::policy::is_user_id;

/// A live impersonation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveImpersonation {
    /// The subject token's id: `txn` of the access token.
    pub id: String,
    /// The user who is impersonated.
    pub user_id: String,
    /// The acting user, if there is one.
    pub actor_id: Option<String>,
    /// The client that exchanged the subject token.
    pub client_id: String,
    /// The caller that minted the subject token.
    pub caller: String,
    /// The resource at which the access token is good.
    pub resource: String,
    /// The session in which the acting user signed in, if it is known.
    pub session: Option<String>,
    /// The scope of the access token.
    pub scope: String,
    /// The `jti` of the access token.
    pub jti: String,
    /// The members of the mint's context that the operator wants to see in the list.
    pub context: Vec<(String, String)>,
    /// The time of issue, in milliseconds since the epoch.
    pub issued_at_millis: u64,
    /// The time of expiry, in milliseconds since the epoch.
    pub expires_at_millis: u64,
}

impl LiveImpersonation {
    /// The time of expiry.
    pub const fn expires_at(&self) -> UnixTime {
        UnixTime::from_millis(self.expires_at_millis)
    }

    /// The time of issue.
    pub const fn issued_at(&self) -> UnixTime {
        UnixTime::from_millis(self.issued_at_millis)
    }

    /// Returns true if the impersonation has not expired.
    pub(crate) fn is_live(&self, now: UnixTime) -> bool {
        now < self.expires_at()
    }

    /// Returns true if a filter can have stored these names. Access logs print the names as they
    /// are, so a control character in a name could forge a line.
    pub(crate) fn has_good_names(&self) -> bool {
        let names = [Some(&self.user_id), self.actor_id.as_ref(), Some(&self.caller)];
        names.into_iter().flatten().all(|name| is_user_id(name))
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok()
    }
}
