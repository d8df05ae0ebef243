//! The operator's say in what is minted: `authorizeSubjectToken`.
//!
//! It runs before a token is stored, in the engine and within the limits of custom claims. It can deny and narrow;
//! what it returns is read as bounds and put on top of those of the mint, so that it can never widen. Whatever it
//! does that is neither is a failure, and a failure mints nothing. So is a bound that JSON would leave out or change: an
//! `actorId` that is `undefined` would make a token without that bound.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ClaimsError, CompileError, Limits, Script};
use crate::policy::{Bounds, BoundsError};

/// A script that decides about mints. It remembers nothing from call to call.
#[derive(Debug)]
pub struct Authorizer(Script);

/// What the function is called with.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizerInput<'a> {
    /// The client whose access token asks.
    pub client_id: Option<&'a str>,
    /// That token's `sub`.
    pub subject: Option<&'a str>,
    /// Its scopes, with one space between them.
    pub scope: &'a str,
    /// Who is to be impersonated, as the gateway calls them where it was asked.
    pub user_id: &'a str,
    /// What the gateway says of them; `null` where it was not asked, or said nothing.
    pub user: &'a Value,
    /// The mint's context, as a JSON object. It is not checked: it is the caller's own.
    pub context: &'a str,
    /// What the mint asks for.
    pub bounds: &'a Bounds,
}

/// Why a function that was called allowed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthorized {
    /// It denied, or it failed.
    #[error(transparent)]
    Script(#[from] ClaimsError),
    /// What it returned is no bounds.
    #[error("what the script returned is no bounds: {0}")]
    Bounds(#[from] BoundsError),
}

impl Authorizer {
    /// Compiles a script, and runs what is outside of its functions.
    pub fn compile(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Script::compile_authorizer(source, limits, environment_variables).map(Self)
    }

    /// Calls the function: what it returns is to be narrowed by. What it logs comes before, line by line.
    pub fn run(
        &self,
        input: &AuthorizerInput<'_>,
        log: &mut dyn FnMut(&str),
    ) -> Result<Bounds, NotAuthorized> {
        match self.0.call(&as_json(input), log)? {
            None => Ok(Bounds::default()),
            Some(json) => match serde_json::from_str(&json) {
                Ok(Value::Object(bounds)) => Ok(Bounds::read(&bounds)?),
                Ok(_) => Err(ClaimsError::NotAnObject.into()),
                Err(_) => Err(ClaimsError::NotPortable.into()),
            },
        }
    }
}

fn as_json(input: &AuthorizerInput<'_>) -> String {
    let AuthorizerInput { client_id, subject, scope, user_id, user, context, bounds } = input;
    let caller = json!({"clientId": client_id, "subject": subject, "scope": scope});
    let (user_id, bounds) = (Value::from(*user_id), json!(bounds));
    format!(
        r#"{{"caller":{caller},"userId":{user_id},"user":{user},"context":{context},"bounds":{bounds}}}"#
    )
}

#[cfg(test)]
mod tests;
