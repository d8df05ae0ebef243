//! The members by which the list is searched. Revocations name impersonations by the same members.

use super::LiveImpersonation;

/// The members that an impersonation must have to be found. A member that is `None` matches every
/// value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'w> {
    /// The user who is impersonated.
    pub user_id: Option<&'w str>,
    /// The acting user.
    pub actor_id: Option<&'w str>,
    /// The client that exchanged the subject token.
    pub client_id: Option<&'w str>,
    /// The caller that minted the subject token.
    pub caller: Option<&'w str>,
    /// The resource at which the access token is good.
    pub resource: Option<&'w str>,
}

impl Wanted<'_> {
    /// Returns true if an impersonation has all of these members.
    pub fn has_found(&self, entry: &LiveImpersonation) -> bool {
        let is = |wanted: Option<&str>, value: Option<&str>| wanted.is_none() || wanted == value;
        is(self.user_id, Some(&entry.user_id))
            && is(self.actor_id, entry.actor_id.as_deref())
            && is(self.client_id, Some(&entry.client_id))
            && is(self.caller, Some(&entry.caller))
            && is(self.resource, Some(&entry.resource))
    }
}
