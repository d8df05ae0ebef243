//! The members that an impersonation must have to be found. The list and revocations name it by the
//! same ones.

use super::LiveImpersonation;

/// An impersonation is found if it has all members that are given here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'w> {
    /// Who is impersonated.
    pub user_id: Option<&'w str>,
    /// Who acts.
    pub actor_id: Option<&'w str>,
    /// The client that exchanged the subject token.
    pub client_id: Option<&'w str>,
    /// Who minted it.
    pub caller: Option<&'w str>,
    /// Where the access token is good.
    pub resource: Option<&'w str>,
}

impl Wanted<'_> {
    /// Returns whether an impersonation has all of them.
    pub fn has_found(&self, entry: &LiveImpersonation) -> bool {
        let is = |wanted: Option<&str>, value: Option<&str>| wanted.is_none() || wanted == value;
        is(self.user_id, Some(&entry.user_id))
            && is(self.actor_id, entry.actor_id.as_deref())
            && is(self.client_id, Some(&entry.client_id))
            && is(self.caller, Some(&entry.caller))
            && is(self.resource, Some(&entry.resource))
    }
}
