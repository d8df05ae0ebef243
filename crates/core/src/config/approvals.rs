//! Which mints need the approval of other people, and who may approve.

use std::time::Duration;

use super::kinds::{Integer, Lifetime, ListOf};
use super::node::Node;
use super::rules::{Rules, UserPattern};
use super::section::{Raw, Refined, section};
use super::subject_tokens::{ContextMember, ProtectedUser};
use super::verification::{Authentication, Operators, Verification};

/// The most people who must approve one impersonation.
pub const MOST_APPROVALS: u64 = 5;

/// Which mints need the approval of other people, and who may approve.
#[derive(Debug)]
pub struct Approvals {
    /// How approvers and users are verified.
    pub authentication: Verification,
    /// The number of people who must approve each mint.
    pub(crate) required: u8,
    /// Users whose impersonation at least one person must approve.
    protected_users: Vec<UserPattern>,
    /// How long a subject token can wait and be exchanged.
    pub lifetime: Duration,
    /// How a mint goes without approval; `None` if none may.
    pub break_glass: Option<BreakGlass>,
}

/// How a mint goes without approval.
#[derive(Debug)]
pub struct BreakGlass {
    /// The members that the context must have, beside those of every mint.
    pub rules: Rules,
}

impl Approvals {
    /// Returns how many people must approve the impersonation of this user.
    pub fn required_for(&self, user_id: &str) -> u8 {
        let is_protected = self.protected_users.iter().any(|pattern| pattern.matches(user_id));
        self.required.max(u8::from(is_protected))
    }
}

section! {
    /// Which mints need the approval of other people, and who may approve.
    pub(super) struct ApprovalsMembers under "approvals", "approvals" {
        /// How approvers and consenting users are verified. Approving needs the scope
        /// `impersonations:approve`, in addition to `required_scopes`.
        authentication: Authentication<Operators>,
        /// How many people must approve each mint. With 0: only mints of protected users, and those
        /// for which the mint or the function asks.
        required: Integer<0, MOST_APPROVALS> = 1,
        /// Users whose impersonation at least one person must approve, written as in
        /// `subject_tokens.protected_users`, which still refuses its own.
        protected_users: ListOf<ProtectedUser> = [],
        /// How long a subject token that needs a decision can be exchanged, the wait included, in
        /// place of `subject_tokens.lifetime`.
        lifetime: Lifetime = "3600s",
        /// Allows a mint with `"breakGlass": true` to go without approval, with an alarm.
        break_glass: BreakGlassMembers => "such a mint is refused",
    }
}

section! {
    /// How a mint goes without approval.
    struct BreakGlassMembers {
        /// Members that the context of such a mint must have, in addition to
        /// `subject_tokens.required_context`.
        required_context: ListOf<ContextMember> = [],
    }
}

impl Refined for Approvals {
    type From = ApprovalsMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let break_glass = members.break_glass.map(|BreakGlassMembers { required_context }| {
            BreakGlass { rules: Rules { required_context, ..Rules::default() } }
        });
        Some(Self {
            authentication: members.authentication,
            required: u8::try_from(members.required).ok()?,
            protected_users: members.protected_users,
            lifetime: members.lifetime,
            break_glass,
        })
    }
}
