//! The operator's functions: `getCustomJwtClaims`, which adds claims to an access token, and
//! `authorizeSubjectToken`, which has a say in what is minted.
//!
//! Operators bring a function that they wrote for their identity service. It is given what it is
//! given there, and less to do harm with: no network, no files, bounded
//! time, memory and stack, nothing kept from one exchange to the next, and no say in the claims that
//! make the token what it is. A script that fails costs its own exchange and no other.
//!
//! The engine is behind a feature of the crate, because it is half of the module. Without it there is
//! no [`Script`], and [`Script::compile`] says so.

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

/// What the function is called with.
///
/// The two JSON texts are not checked: they are the caller's own.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The claims about to be issued, as a JSON object. `accountId` and `clientId` are added to it.
    pub token: &'a str,
    /// `context.grant.type`.
    pub grant_type: &'a str,
    /// `context.grant.subjectTokenContext`, as a JSON object.
    pub subject_token_context: &'a str,
}

/// Why a script is not fit to be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CompileError {
    /// What is wrong.
    pub message: String,
    /// Line and column, counted from 1, where it is wrong in one place.
    pub position: Option<(u32, u32)>,
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        at(f, self.position)?;
        f.write_str(&self.message)
    }
}

/// Why there are no claims.
///
/// `Display` is for the operator's log. It has what the script said when it threw, and nothing else of
/// the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// The script called `api.denyAccess`. The message is fit to be an `error_description`.
    #[error("the script denied access: {0}")]
    Denied(String),
    /// It threw, or rejected its promise.
    #[error("the script threw: {0}")]
    Threw(Thrown),
    /// It ran for longer than its timeout.
    #[error("the script timed out")]
    TimedOut,
    /// It used more memory than its limit.
    #[error("the script ran out of memory")]
    OutOfMemory,
    /// It called itself too deep.
    #[error("the script overflowed its stack")]
    StackOverflow,
    /// It returned a promise that nothing will resolve.
    #[error("the script returned a promise that never resolves")]
    NeverResolved,
    /// It returned no object.
    #[error("the script returned no object")]
    NotAnObject,
    /// It returned something that cannot be turned into JSON.
    #[error("what the script returned is no JSON: {0}")]
    NotSerializable(Thrown),
    /// It returned half a surrogate pair, or more than a hundred levels.
    #[error("what the script returned is not JSON that every consumer can read")]
    NotPortable,
    /// It returned more than fits.
    #[error("the claims are too long")]
    TooLarge,
    /// It set a claim that is not its own to set.
    #[error("the script may not set the claim {0}")]
    Reserved(&'static str),
}

/// What a script threw, and where.
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
