//! What the operator writes, in the form in which it cannot be wrong any more.
//!
//! [`Config::from_value`] reads everything before it gives up and reports every problem with its path. A
//! member that nobody reads is a problem too: in security software a misspelt `required` must not
//! silently mean `false`.
//!
//! A configuration is data: nothing in it has fetched, remembered or run anything. What does is built from it by
//! [`Service`](crate::issuer::Service).

mod audit;
mod clients;
#[cfg(test)]
mod describe;
mod etcd;
mod filter;
mod functions;
mod guard;
mod http_uri;
mod impersonations;
mod kinds;
mod limits;
mod name_prefix;
mod node;
mod resources;
mod rules;
mod section;
mod service;
mod signing_keys;
mod source;
mod store;
mod subject_tokens;
mod verification;
mod wire;

use std::fmt;

pub use audit::AuditLog;
pub use clients::{Client, ClientAuthentication, ClientType};
pub use etcd::EtcdSettings;
pub use filter::{Config, DocumentSource, ForeignSubjectTokens};
pub use functions::{AuthorizeSubjectToken, CustomClaims, OnError};
pub use guard::{
    Action, DefaultAction, GuardConfig, GuardHeaders, GuardRule, GuardStore, Mode, PathPattern,
};
pub use http_uri::{HttpUri, USER_ID_PLACEHOLDER};
pub use impersonations::Impersonations;
pub use limits::{LONGEST_ACCESS_TOKEN_LIFETIME, LONGEST_SUBJECT_TOKEN_LIFETIME, Limits};
pub use node::Problem;
pub use resources::Resource;
pub use rules::{MintRate, Rules, UserPattern};
pub use signing_keys::SigningKey;
pub use store::Store;
pub use subject_tokens::{OnReplay, SubjectTokens, UserLookup};
pub use verification::{
    ActorTokens, Introspection, Jwks, JwtIssuer, RemoteJwks, TokenRules, Userinfo, Verification,
};
pub use wire::{WireError, decode};

/// Why a configuration was refused: everything that is wrong with it, at least one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong, and where.
    pub problems: Vec<Problem>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        formatter.write_str(&problems.join("; "))
    }
}

impl From<WireError> for ConfigError {
    fn from(error: WireError) -> Self {
        Problem { path: String::new(), expected: error.to_string() }.into()
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// What a configuration is read with.
pub trait Surroundings {
    /// Looks an environment variable up.
    fn variable(&self, name: &str) -> Option<String>;

    /// Says what is wrong with a script, which shows when it is compiled: in this way it is reported with all the
    /// rest.
    fn try_script(&self, custom_claims: &CustomClaims) -> Result<(), String>;

    /// The same for the script that decides about mints.
    fn try_authorizer(&self, written: &AuthorizeSubjectToken) -> Result<(), String>;
}
