//! Matches a request against the operator's rules.
//!
//! Deny rules match broadly; allow rules match exactly. A server may treat two spellings as one
//! path. So a rule that denies `/account/password` also denies `/Account/Password/`, and a rule
//! that allows `/orders/search` allows nothing else. If a request is ambiguous (its path is not
//! normal, a header overrides its method, or its token has no actor), every deny rule that could
//! match it does, and no allow rule does.

use std::time::Duration;

use super::claims::Claims;
use crate::config::{Action, DefaultAction, GuardConfig, GuardRule, PathPattern};
use crate::host::UnixTime;
use crate::path::NormalPath;

/// The facts about a request that rules match.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestFacts<'r> {
    /// `None` if the path is not normal.
    pub(super) path: Option<&'r NormalPath<'r>>,
    pub(super) method: RequestMethod<'r>,
    pub(super) claims: &'r Claims<'r>,
    pub(super) now: UnixTime,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestMethod<'r> {
    /// The method in the request line.
    Plain(&'r [u8]),
    /// A header or the query names another method, which the server behind may use.
    Overridden,
}

/// The part of the configuration that decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decider {
    /// The rule with this index.
    Rule(usize),
    /// No rule matched.
    Default,
}

/// Why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// A rule or the default denies the request.
    ByRule,
    /// A rule may deny the request, because servers may read its path differently.
    PathNotNormal,
    /// The request names two methods, and the rule depends on the method.
    MethodOverride,
    /// The rule allows the request after a sign-in that is at most so long ago.
    SignInTooOld(Duration),
}

/// Decides if a request goes on, and returns what decided.
pub(super) fn decide(
    config: &GuardConfig,
    facts: RequestFacts<'_>,
) -> (Result<(), Denied>, Decider) {
    for (index, rule) in config.rules.iter().enumerate() {
        if let Some(outcome) = rule.decide(facts) {
            return (outcome, Decider::Rule(index));
        }
    }
    let outcome = match (config.default, facts.method) {
        (DefaultAction::Allow, _)
        | (DefaultAction::ReadOnly, RequestMethod::Plain(b"GET" | b"HEAD" | b"OPTIONS")) => Ok(()),
        (DefaultAction::ReadOnly, RequestMethod::Overridden) => Err(Denied::MethodOverride),
        (DefaultAction::ReadOnly | DefaultAction::Deny, _) => Err(facts.denied()),
    };
    (outcome, Decider::Default)
}

impl RequestFacts<'_> {
    fn denied(self) -> Denied {
        if self.path.is_none() { Denied::PathNotNormal } else { Denied::ByRule }
    }
}

impl GuardRule {
    /// Returns what this rule decides about a request, or `None` if it does not match.
    fn decide(&self, facts: RequestFacts<'_>) -> Option<Result<(), Denied>> {
        let claims = facts.claims;
        if !self.scopes.iter().all(|scope| claims.has_scope(scope)) {
            return None;
        }
        let about = match self.action {
            Action::Allow => self.matches_exactly(facts),
            Action::Deny => self.matches_broadly(facts),
        };
        if !about {
            return None;
        }
        Some(match (self.action, &self.methods, facts.method) {
            (_, Some(_), RequestMethod::Overridden) => Err(Denied::MethodOverride),
            (Action::Allow, ..) => self.check_sign_in(facts),
            (Action::Deny, ..) => Err(facts.denied()),
        })
    }

    /// Refuses an actor who signed in too long ago, or at an unknown time.
    fn check_sign_in(&self, facts: RequestFacts<'_>) -> Result<(), Denied> {
        let Some(max_age) = self.actor_max_age else { return Ok(()) };
        let signed_in_at = facts.claims.signed_in_at;
        let is_recent = signed_in_at.is_some_and(|time| facts.now <= time.after(max_age));
        if is_recent { Ok(()) } else { Err(Denied::SignInTooOld(max_age)) }
    }

    fn matches_exactly(&self, facts: RequestFacts<'_>) -> bool {
        let Some(path) = facts.path.map(NormalPath::as_str) else { return false };
        let is_path = match &self.path {
            None => true,
            Some(PathPattern::Exactly(pattern)) => path == pattern,
            Some(PathPattern::Prefix(pattern)) => {
                path.strip_prefix(&**pattern).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('/') || pattern.ends_with('/')
                })
            }
        };
        let is_method = self.methods.as_ref().is_none_or(|methods| match facts.method {
            RequestMethod::Plain(method) => methods.iter().any(|one| one.as_bytes() == method),
            RequestMethod::Overridden => true,
        });
        let is_actor = self.actors.as_ref().is_none_or(|actors| {
            let acts = |actor| actors.iter().any(|pattern| pattern.matches(actor));
            facts.claims.actor_id.is_some_and(acts)
        });
        is_path && is_method && is_actor
    }

    fn matches_broadly(&self, facts: RequestFacts<'_>) -> bool {
        let is_path = match (&self.path, facts.path) {
            (None, _) | (Some(_), None) => true,
            (Some(PathPattern::Exactly(pattern)), Some(path)) => {
                let (path, pattern) = (bare(path.as_str()), bare(pattern));
                begins_alike(path, pattern) && begins_alike(pattern, path)
            }
            (Some(PathPattern::Prefix(pattern)), Some(path)) => {
                begins_alike(path.as_str(), bare(pattern))
            }
        };
        let is_method = self.methods.as_ref().is_none_or(|methods| match facts.method {
            RequestMethod::Plain(method) => {
                methods.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(method))
            }
            RequestMethod::Overridden => true,
        });
        let is_actor = self.actors.as_ref().is_none_or(|actors| {
            let acts = |actor| actors.iter().any(|pattern| pattern.matches(actor));
            facts.claims.actor_id.is_none_or(acts)
        });
        is_path && is_method && is_actor
    }
}

/// Removes a slash at the end.
fn bare(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns true if the path begins with `beginning`, ignoring letter case.
fn begins_alike(path: &str, beginning: &str) -> bool {
    if path.is_ascii() && beginning.is_ascii() {
        path.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
    } else {
        path.to_lowercase().starts_with(&beginning.to_lowercase())
    }
}

#[cfg(test)]
mod tests;
