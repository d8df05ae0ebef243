//! `authorizeSubjectToken`: the operator's function that decides about mints.
//!
//! The function runs before a subject token is stored, in the same engine and within the same
//! limits as custom claims. It can deny a mint or narrow it. The filter reads the returned object
//! as bounds and adds them to the bounds of the mint, so the function can never widen a mint. Any
//! other result is a failure, and a failed mint stores nothing. A bound that JSON would drop or
//! change is a failure too: an `actorId` that is `undefined` would otherwise make a token without
//! that bound.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ClaimsError, CompileError, Limits, Script};
use crate::policy::{Bounds, BoundsError};

/// A script that decides about mints. It keeps nothing from call to call.
#[derive(Debug)]
pub struct Authorizer(Script);

/// The input of `authorizeSubjectToken`.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizerInput<'a> {
    /// The client of the caller's access token.
    pub client_id: Option<&'a str>,
    /// The `sub` of the caller's access token.
    pub subject: Option<&'a str>,
    /// The scopes of the caller's access token, with one space between them.
    pub scope: &'a str,
    /// The user to impersonate, by the gateway's identifier if the gateway was asked.
    pub user_id: &'a str,
    /// The gateway's JSON about the user; `null` if it was not asked, or returned none.
    pub user: &'a Value,
    /// The mint's context, as a JSON object. It is not checked, because the calling code wrote it.
    pub context: &'a str,
    /// The bounds that the mint asks for.
    pub bounds: &'a Bounds,
    /// The mint goes without approval.
    pub breaks_glass: bool,
}

/// Why a call of the function did not allow the mint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthorized {
    /// The function denied the mint, or failed.
    #[error(transparent)]
    Script(#[from] ClaimsError),
    /// The function returned an object that is not bounds.
    #[error("what the script returned is no bounds: {0}")]
    Bounds(#[from] BoundsError),
    /// The function asked for approvals or consent of a mint that goes without.
    #[error("the script asks for people, and the mint breaks the glass")]
    NeedsPeople,
}

impl Authorizer {
    /// Compiles a script, and runs its top-level code.
    pub fn compile(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Script::compile_authorizer(source, limits, environment_variables).map(Self)
    }

    /// Calls the function, and returns the bounds by which the mint is narrowed. Passes each line
    /// that the function logs to `log`.
    pub fn run(
        &self,
        input: &AuthorizerInput<'_>,
        log: &mut dyn FnMut(&str),
    ) -> Result<Bounds, NotAuthorized> {
        let Some(json) = self.0.call(&as_json(input), log)? else { return Ok(Bounds::default()) };
        let bounds = match serde_json::from_str(&json) {
            Ok(Value::Object(bounds)) => Bounds::read(&bounds)?,
            Ok(_) => return Err(ClaimsError::NotAnObject.into()),
            Err(_) => return Err(ClaimsError::NotPortable.into()),
        };
        // What the function asks for is never dropped.
        if input.breaks_glass && bounds.asks_for() != (0, false) {
            return Err(NotAuthorized::NeedsPeople);
        }
        Ok(bounds)
    }
}

fn as_json(input: &AuthorizerInput<'_>) -> String {
    let AuthorizerInput { client_id, subject, scope, user_id, user, context, bounds, breaks_glass } =
        input;
    let caller = json!({"clientId": client_id, "subject": subject, "scope": scope});
    let (user_id, bounds) = (Value::from(*user_id), json!(bounds));
    format!(
        r#"{{"caller":{caller},"userId":{user_id},"user":{user},"context":{context},"bounds":{bounds},"breakGlass":{breaks_glass}}}"#
    )
}

#[cfg(test)]
mod tests;
