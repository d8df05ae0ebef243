//! The operator's functions: `getCustomJwtClaims` adds claims to an access token, and
//! `authorizeSubjectToken` decides about a mint.
//!
//! Operators bring functions that they wrote for their identity service. A function gets the same
//! input as there, but can do less harm. It has no network, no files, and bounded time, memory and
//! stack. It keeps nothing from one call to the next, and cannot set the claims that the token
//! depends on. A script that fails costs its own exchange and no other.
//!
//! The engine makes up half of the Wasm module, so it is behind a feature of the crate. Without the
//! feature, [`Script::compile`] refuses every script.

#[cfg(not(feature = "custom-claims"))]
mod absent;
mod authorize;
#[cfg(feature = "custom-claims")]
mod reserved;
#[cfg(feature = "custom-claims")]
mod script;

#[cfg(not(feature = "custom-claims"))]
pub use absent::Script;
pub use authorize::{Authorizer, AuthorizerInput, NotAuthorized};
#[cfg(feature = "custom-claims")]
pub use script::Script;

pub use crate::config::Limits;

/// The input of `getCustomJwtClaims`.
///
/// The two JSON texts are not checked, because the calling code wrote them.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The claims about to be issued, as a JSON object. `accountId` and `clientId` are added to it.
    pub token: &'a str,
    /// `context.grant.type`.
    pub grant_type: &'a str,
    /// `context.grant.subjectTokenContext`, as a JSON object.
    pub subject_token_context: &'a str,
}

/// Why a script could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CompileError {
    /// A description of the error.
    pub message: String,
    /// Line and column of the error, counted from 1, if it has a position.
    pub position: Option<(u32, u32)>,
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        at(f, self.position)?;
        f.write_str(&self.message)
    }
}

/// Why a call of a script failed.
///
/// `Display` is for the operator's log. It has the text that the script threw, and nothing else of
/// the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// The script called `api.denyAccess`. The message is a valid `error_description`.
    #[error("the script denied access: {0}")]
    Denied(String),
    /// The script threw, or rejected its promise.
    #[error("the script threw: {0}")]
    Threw(Thrown),
    /// The script ran for longer than its timeout.
    #[error("the script timed out")]
    TimedOut,
    /// The script used more memory than its limit.
    #[error("the script ran out of memory")]
    OutOfMemory,
    /// The script recursed too deeply.
    #[error("the script overflowed its stack")]
    StackOverflow,
    /// The script returned a promise that nothing will resolve.
    #[error("the script returned a promise that never resolves")]
    NeverResolved,
    /// The script returned something that is not an object.
    #[error("the script returned no object")]
    NotAnObject,
    /// The script returned something that cannot be converted to JSON.
    #[error("what the script returned is no JSON: {0}")]
    NotSerializable(Thrown),
    /// The script returned half a surrogate pair, or JSON with more than a hundred levels.
    #[error("what the script returned is not JSON that every consumer can read")]
    NotPortable,
    /// The script returned more than the limit.
    #[error("the claims are too long")]
    TooLarge,
    /// The script set a reserved claim.
    #[error("the script may not set the claim {0}")]
    Reserved(&'static str),
}

/// An exception of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thrown {
    /// The exception's name and message, on one line.
    pub message: String,
    /// Line and column, counted from 1.
    pub position: Option<(u32, u32)>,
}

impl std::fmt::Display for Thrown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        at(f, self.position)?;
        f.write_str(&self.message)
    }
}

fn at(f: &mut std::fmt::Formatter<'_>, position: Option<(u32, u32)>) -> std::fmt::Result {
    match position {
        Some((line, column)) => write!(f, "line {line}, column {column}: "),
        None => Ok(()),
    }
}
