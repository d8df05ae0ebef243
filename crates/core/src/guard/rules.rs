//! The operator's rules, held against a request.
//!
//! What denies is read wide, what allows narrow. A server may know two spellings for one thing; so a rule that denies
//! `/account/password` means `/Account/Password/` too, and one that allows `/orders/search` means that and nothing
//! else. Where a request does not say what it is (a path that is not normal, a method that a header overrides, an
//! actor that nobody named), it is all of what is denied, and nothing of what is allowed.

use super::claims::Claims;
use crate::config::{Action, DefaultAction, GuardConfig, GuardRule, PathPattern};
use crate::path::NormalPath;

/// A request, as far as rules are about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'r> {
    /// `None` for one that is not normal.
    pub(super) path: Option<&'r NormalPath<'r>>,
    pub(super) method: Method<'r>,
    pub(super) claims: &'r Claims<'r>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method<'r> {
    /// What the request says.
    Plain(&'r [u8]),
    /// What the server behind takes it for: a header or the query names another method.
    Overridden,
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decider {
    /// The rule with this index.
    Rule(usize),
    /// None.
    Default,
}

/// Why a request does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// It is what the rule, or the default, denies.
    ByRule,
    /// It may be, as nobody knows where its path leads.
    PathNotNormal,
    /// It says two methods to what distinguishes them.
    MethodOverride,
}

/// Whether a request goes on, and what decided that.
pub(super) fn decide(config: &GuardConfig, asked: Asked<'_>) -> (Result<(), Denied>, Decider) {
    for (index, rule) in config.rules.iter().enumerate() {
        if let Some(outcome) = rule.decide(asked) {
            return (outcome, Decider::Rule(index));
        }
    }
    let outcome = match (config.default, asked.method) {
        (DefaultAction::Allow, _)
        | (DefaultAction::ReadOnly, Method::Plain(b"GET" | b"HEAD" | b"OPTIONS")) => Ok(()),
        (DefaultAction::ReadOnly, Method::Overridden) => Err(Denied::MethodOverride),
        (DefaultAction::ReadOnly | DefaultAction::Deny, _) => Err(asked.denied()),
    };
    (outcome, Decider::Default)
}

impl Asked<'_> {
    fn denied(self) -> Denied {
        if self.path.is_none() { Denied::PathNotNormal } else { Denied::ByRule }
    }
}

impl GuardRule {
    /// What this rule says about a request; `None` if it is not about it.
    fn decide(&self, asked: Asked<'_>) -> Option<Result<(), Denied>> {
        let claims = asked.claims;
        if !self.scopes.iter().all(|scope| claims.has_scope(scope)) {
            return None;
        }
        let about = match self.action {
            Action::Allow => self.is_narrowly_about(asked),
            Action::Deny => self.is_widely_about(asked),
        };
        if !about {
            return None;
        }
        Some(match (self.action, &self.methods, asked.method) {
            (_, Some(_), Method::Overridden) => Err(Denied::MethodOverride),
            (Action::Allow, ..) => Ok(()),
            (Action::Deny, ..) => Err(asked.denied()),
        })
    }

    fn is_narrowly_about(&self, asked: Asked<'_>) -> bool {
        let Some(path) = asked.path.map(NormalPath::as_str) else { return false };
        let is_path = match &self.path {
            None => true,
            Some(PathPattern::Exactly(pattern)) => path == pattern,
            Some(PathPattern::Prefix(pattern)) => {
                path.strip_prefix(&**pattern).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('/') || pattern.ends_with('/')
                })
            }
        };
        let is_method = self.methods.as_ref().is_none_or(|methods| match asked.method {
            Method::Plain(method) => methods.iter().any(|one| one.as_bytes() == method),
            Method::Overridden => true,
        });
        let is_actor = self.actors.as_ref().is_none_or(|actors| {
            let acts = |actor| actors.iter().any(|pattern| pattern.matches(actor));
            asked.claims.actor_id.is_some_and(acts)
        });
        is_path && is_method && is_actor
    }

    fn is_widely_about(&self, asked: Asked<'_>) -> bool {
        let is_path = match (&self.path, asked.path) {
            (None, _) | (Some(_), None) => true,
            (Some(PathPattern::Exactly(pattern)), Some(path)) => {
                let (path, pattern) = (bare(path.as_str()), bare(pattern));
                begins_alike(path, pattern) && begins_alike(pattern, path)
            }
            (Some(PathPattern::Prefix(pattern)), Some(path)) => {
                begins_alike(path.as_str(), bare(pattern))
            }
        };
        let is_method = self.methods.as_ref().is_none_or(|methods| match asked.method {
            Method::Plain(method) => {
                methods.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(method))
            }
            Method::Overridden => true,
        });
        let is_actor = self.actors.as_ref().is_none_or(|actors| {
            let acts = |actor| actors.iter().any(|pattern| pattern.matches(actor));
            asked.claims.actor_id.is_none_or(acts)
        });
        is_path && is_method && is_actor
    }
}

/// Without a slash at the end.
fn bare(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Whether a path begins so, whatever the letter case.
fn begins_alike(path: &str, beginning: &str) -> bool {
    if path.is_ascii() && beginning.is_ascii() {
        path.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
    } else {
        path.to_lowercase().starts_with(&beginning.to_lowercase())
    }
}

#[cfg(test)]
mod tests;
