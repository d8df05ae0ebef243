//! The review of a subject token: what people must decide before the token can be exchanged, and
//! what they have decided.
//!
//! A review only moves forward. Each decision adds to it, and after the last approval, or after one
//! denial, nobody may write it again. So a token that was found approved stays approved until it is
//! spent or taken back, and a token that was denied is never exchanged.

use serde::{Deserialize, Serialize};

use crate::host::UnixTime;
use crate::policy::is_user_id;

/// A decision of one person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The name of the person, with their issuer's prefix.
    pub by: String,
    /// The time of the decision, in milliseconds since the epoch.
    pub at_millis: u64,
}

/// The decisions that a token needs, and those that were made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// The number of people who must approve.
    pub(crate) approvals: u8,
    /// True if the user must consent.
    pub consent: bool,
    /// The person or the account whose access token minted the subject token, if the caller has
    /// another name.
    pub(crate) minted_by: Option<String>,
    /// The people who approved. No name occurs twice.
    pub approved: Vec<Decided>,
    /// When the user consented, in milliseconds since the epoch.
    pub(crate) consented_at_millis: Option<u64>,
    /// The person who denied.
    pub denied: Option<Decided>,
}

/// The result of all decisions until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A decision is missing.
    Pending,
    /// Nobody is missing.
    Approved,
    /// Somebody denied.
    Denied,
}

/// The people whom the token is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    /// The caller that minted the token.
    pub(crate) caller: &'a str,
    /// The user who will be impersonated.
    pub(crate) user_id: &'a str,
    /// The user who must be acting, if the token is bound to one.
    pub(crate) actor_id: Option<&'a str>,
}

/// A person who decides.
#[derive(Debug, Clone, Copy)]
pub struct Person<'p> {
    /// The name of the person, with their issuer's prefix.
    pub name: &'p str,
    /// The client that the person's access token was issued to.
    pub client_id: Option<&'p str>,
    /// True if the person may approve impersonations of other users.
    pub may_approve: bool,
}

/// The decision of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The impersonation may begin, as far as this person is concerned.
    Approve,
    /// The impersonation must not begin.
    Deny,
}

impl Choice {
    /// All choices.
    pub const ALL: [Self; 2] = [Self::Approve, Self::Deny];

    /// The word for a choice at the endpoints.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// Why a person's choice is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceRefused {
    /// The person may not approve, and is not the user whose consent is needed.
    NotAllowed,
    /// The person would approve for themselves.
    OwnRequest,
    /// The token is decided.
    Decided,
    /// The token needs no further approval: only the user's consent is missing.
    NotNeeded,
}

impl Review {
    /// Makes the review of a token about which nobody has decided.
    pub const fn needing(approvals: u8, consent: bool, minted_by: Option<String>) -> Self {
        let approved = Vec::new();
        Self { approvals, consent, minted_by, approved, consented_at_millis: None, denied: None }
    }

    /// Returns how many approvals are missing.
    pub fn missing(&self) -> u8 {
        let given = u8::try_from(self.approved.len()).unwrap_or(u8::MAX);
        self.approvals.saturating_sub(given)
    }

    /// Returns the result of all decisions until now.
    pub(crate) fn verdict(&self) -> Verdict {
        let is_complete = self.missing() == 0 && (!self.consent || self.has_consent());
        match &self.denied {
            Some(_) => Verdict::Denied,
            None if is_complete => Verdict::Approved,
            None => Verdict::Pending,
        }
    }

    /// Returns true if the user has consented.
    pub const fn has_consent(&self) -> bool {
        self.consented_at_millis.is_some()
    }

    /// The names of the people who approved.
    pub fn approvers(&self) -> Vec<String> {
        self.approved.iter().map(|approval| approval.by.clone()).collect()
    }

    /// Returns true if this person has approved.
    pub fn has_approval_of(&self, name: &str) -> bool {
        self.approved.iter().any(|approval| approval.by == name)
    }

    /// Returns true if the review has this choice of the person, who is the user if `is_user`.
    pub fn has_choice_of(&self, name: &str, is_user: bool, choice: Choice) -> bool {
        match choice {
            Choice::Approve if is_user => self.has_consent(),
            Choice::Approve => self.has_approval_of(name),
            Choice::Deny => self.denied.as_ref().is_some_and(|denied| denied.by == name),
        }
    }

    /// Returns true if a filter can have stored these names.
    pub(super) fn has_good_names(&self) -> bool {
        let people = self.approved.iter().chain(&self.denied).map(|decided| &decided.by);
        people.chain(&self.minted_by).all(|name| is_user_id(name))
    }

    /// Adds the choice of a person to the review of a token. Returns `None` if the review has this
    /// choice already: the person repeats it.
    ///
    /// Nobody approves for themselves: not the caller, not the holder of the token that minted, not
    /// the actor if the token is bound to one, and not the user, who can only consent.
    pub(crate) fn with(
        &self,
        about: About<'_>,
        person: &Person<'_>,
        choice: Choice,
        now: UnixTime,
    ) -> Result<Option<Self>, ChoiceRefused> {
        let is_user = person.name == about.user_id;
        if !(person.may_approve || is_user && self.consent) {
            return Err(ChoiceRefused::NotAllowed);
        }
        if is_user && !self.consent {
            return Err(ChoiceRefused::OwnRequest);
        }
        let is_repeated = self.has_choice_of(person.name, is_user, choice);
        if is_repeated && (self.verdict() == Verdict::Denied) == (choice == Choice::Deny) {
            return Ok(None);
        }
        if choice == Choice::Approve && !is_user && self.is_own_request(about, person) {
            return Err(ChoiceRefused::OwnRequest);
        }
        if self.verdict() != Verdict::Pending {
            return Err(ChoiceRefused::Decided);
        }
        let mut next = self.clone();
        let decided = Decided { by: person.name.to_owned(), at_millis: now.millis() };
        match choice {
            Choice::Deny => next.denied = Some(decided),
            Choice::Approve if is_user => next.consented_at_millis = Some(now.millis()),
            Choice::Approve if self.missing() == 0 => return Err(ChoiceRefused::NotNeeded),
            Choice::Approve => next.approved.push(decided),
        }
        Ok(Some(next))
    }

    /// Returns true if the person asked for the token, or will act with it. A token that was issued
    /// to the caller's client is in the caller's hands.
    fn is_own_request(&self, about: About<'_>, person: &Person<'_>) -> bool {
        let own = [Some(about.caller), self.minted_by.as_deref(), about.actor_id];
        own.contains(&Some(person.name)) || person.client_id == Some(about.caller)
    }
}

#[cfg(test)]
mod tests;
