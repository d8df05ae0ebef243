//! The operator's functions: the resources they may use, and the outcome of a request if one fails.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kinds::{Integer, OneOf, SECOND, Span, Text, Variables, Words};
use super::limits::Limits;
use super::node::Node;
use super::section::{Raw, Refined, section};
use crate::secret::Secret;

/// The operator's function that adds claims to access tokens.
#[derive(Debug)]
pub struct CustomClaimsSettings {
    /// The script that declares the function.
    pub script: String,
    /// The `environmentVariables` that the script sees. Secrets may be among them.
    pub environment_variables: Secret<BTreeMap<String, String>>,
    /// The bounds of one call.
    pub limits: Limits,
    /// The outcome of the exchange if the function fails.
    pub on_error: OnError,
}

/// The operator's function that decides about mints. If it fails, the mint is refused.
#[derive(Debug)]
pub struct AuthorizeSubjectToken {
    /// The script that declares the function.
    pub script: String,
    /// The `environmentVariables` that the script sees. Secrets may be among them.
    pub environment_variables: Secret<BTreeMap<String, String>>,
    /// The bounds of one call.
    pub limits: Limits,
}

/// The outcome of an exchange whose custom claims failed. A script that denies access has not
/// failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The exchange is refused, and its subject token stays unspent.
    Refuse,
    /// The token is issued without the claims.
    IssueWithout,
}

impl Words for OnError {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Self::Refuse), ("issue_without", Self::IssueWithout)];
}

/// The only word of an `on_error` that cannot allow anything.
#[derive(Clone, Copy)]
struct AlwaysRefuse;

impl Words for AlwaysRefuse {
    const WORDS: &'static [(&'static str, Self)] = &[("refuse", Self)];
}

/// The least and the most memory of one call, in bytes.
const LEAST_MEMORY: u64 = 1024 * 1024;
const MOST_MEMORY: u64 = 64 * LEAST_MEMORY;

section! {
    /// The function that adds claims to the access token.
    pub(super) struct CustomClaimsMembers under "custom_claims", "functions" {
        /// JavaScript that declares `getCustomJwtClaims`.
        script: Text,
        /// The values that the function finds as `environmentVariables`.
        environment_variables: Variables = {},
        /// If the function fails, the exchange is refused, or its token is issued without the
        /// claims.
        on_error: OneOf<OnError> = "refuse",
        /// How long one call may run.
        timeout: Span<1, SECOND> = "10ms",
        /// How much memory one call may use.
        memory_limit_bytes: Integer<LEAST_MEMORY, MOST_MEMORY> = 8_388_608,
    }
}

section! {
    /// The operator's function that is called before a subject token is minted.
    pub(super) struct AuthorizeMembers under "authorize_subject_token", "functions" {
        /// JavaScript that declares `authorizeSubjectToken`.
        script: Text,
        /// The values that the function finds as `environmentVariables`.
        environment_variables: Variables = {},
        /// If the function fails, the mint is refused.
        on_error: OneOf<AlwaysRefuse> = "refuse",
        /// How long one call may run.
        timeout: Span<1, SECOND> = "10ms",
        /// How much memory one call may use.
        memory_limit_bytes: Integer<LEAST_MEMORY, MOST_MEMORY> = 8_388_608,
    }
}

fn limits(timeout: Duration, memory_bytes: u64) -> Option<Limits> {
    let memory_bytes = usize::try_from(memory_bytes).ok()?;
    Some(Limits { timeout, memory_bytes, ..Limits::default() })
}

impl Refined for CustomClaimsSettings {
    type From = CustomClaimsMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let place = place.member("script");
        let custom_claims = Self {
            script: members.script,
            environment_variables: Secret::new(members.environment_variables),
            limits: limits(members.timeout, members.memory_limit_bytes)?,
            on_error: members.on_error,
        };
        match place.reading.environment.try_script(&custom_claims) {
            Ok(()) => Some(custom_claims),
            Err(problem) => place.problem(problem),
        }
    }
}

impl Refined for AuthorizeSubjectToken {
    type From = AuthorizeMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let place = place.member("script");
        let AlwaysRefuse = members.on_error;
        let written = Self {
            script: members.script,
            environment_variables: Secret::new(members.environment_variables),
            limits: limits(members.timeout, members.memory_limit_bytes)?,
        };
        match place.reading.environment.try_authorizer(&written) {
            Ok(()) => Some(written),
            Err(problem) => place.problem(problem),
        }
    }
}
