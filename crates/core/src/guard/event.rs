//! The audit line about a request that does not reach the API.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::claims::Claims;
use super::refusal::GuardRefusal;
use super::rules::Decider;
use super::streams::Watched;
use crate::audit_log::legible;
use crate::one_line::one_line;
use crate::path::without_query;

/// The facts of a refusal.
pub(super) struct RefusedCall<'h> {
    pub(super) watched: &'h Watched,
    pub(super) claims: Option<&'h Claims<'h>>,
    pub(super) refusal: &'h GuardRefusal,
    pub(super) enforced: bool,
}

/// One line of the audit log. Its members have the same names as in the filter's audit.
#[derive(Debug, Serialize)]
pub(super) struct GuardEvent<'h> {
    event: &'static str,
    request_id: Cow<'h, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_token_id: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_id: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Cow<'h, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<&'h str>,
    method: Cow<'h, str>,
    /// The path without the query, which may hold secrets.
    path: Cow<'h, str>,
    error: &'static str,
    reason: &'static str,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// False if the guard only reports the refusal and lets the request go on.
    enforced: bool,
    #[serde(skip)]
    guard: String,
}

impl<'h> GuardEvent<'h> {
    pub(super) fn of(happening: &RefusedCall<'h>) -> Self {
        let RefusedCall { watched, claims, refusal, enforced } = happening;
        let rule = refusal.decider().map(|decider| decider.to_string());
        let outcome = if *enforced { "refused" } else { "reported" };
        let by = rule.as_deref().unwrap_or(refusal.reason());
        Self {
            event: "impersonated_request.refused",
            request_id: legible(&watched.request_id),
            subject_token_id: claims.map(|claims| claims.id),
            user_id: claims.map(|claims| claims.user_id),
            actor_id: claims.and_then(|claims| claims.actor_id),
            client_id: claims.map(|claims| claims.client_id),
            resource: claims.map(|claims| claims.resource),
            scope: claims.map(|claims| claims.scope.text()),
            jti: claims.map(|claims| claims.jti),
            method: legible(&watched.own_method),
            path: legible(without_query(&watched.target)),
            error: refusal.error(),
            reason: refusal.reason(),
            guard: format!("{outcome}: {by}"),
            rule,
            enforced: *enforced,
        }
    }

    /// Returns the outcome and what decided it. Access logs print it for every impersonated
    /// request.
    pub(super) fn guard(&self) -> &str {
        &self.guard
    }

    /// Returns the members that an access log can print, by name.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("event", Some(self.event)),
            ("subject_token_id", self.subject_token_id),
            ("user_id", self.user_id),
            ("actor_id", self.actor_id),
            ("client_id", self.client_id),
            ("resource", self.resource),
            ("jti", self.jti),
            ("error", Some(self.error)),
            ("reason", Some(self.reason)),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    /// Returns the audit line.
    pub(super) fn to_json(&self) -> String {
        one_line(self)
    }
}

impl fmt::Display for Decider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(index) => write!(formatter, "rules[{index}]"),
            Self::Default => formatter.write_str("default"),
        }
    }
}
