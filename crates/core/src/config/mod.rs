//! The operator's configuration, parsed: every value of these types is valid.
//!
//! [`Config::from_value`] reads the whole configuration before it fails, and reports every problem
//! with its path. An unknown member is a problem too: in security software a misspelt `required`
//! must not silently mean `false`.
//!
//! A configuration is plain data: it has fetched, remembered and run nothing. The issuer's
//! `Service` builds the parts that do from it.

mod approvals;
mod audit;
mod authzen;
mod binding;
mod browser_sessions;
mod clients;
mod console;
#[cfg(test)]
mod describe;
mod etcd;
mod events;
mod filter;
mod functions;
mod guard;
mod http_uri;
mod impersonations;
mod kinds;
mod limits;
mod name_prefix;
mod node;
mod notifications;
mod paths;
mod profile;
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

use crate::host::{Host, Level};

pub use binding::CertificateUse;
pub use browser_sessions::{BrowserSessions, GuardSessions};
pub use etcd::EtcdSettings;
pub use filter::Config;
pub use guard::{Action, DefaultAction, GuardConfig, GuardRule, GuardStore, Mode, PathPattern};
pub use limits::Limits;
pub use paths::Paths;
pub use rules::UserPattern;
pub use source::is_no_secret;
pub use store::StoreSettings;
pub use wire::decode;

pub use approvals::{BreakGlass, MOST_APPROVALS};
pub(crate) use audit::AuditLog;
pub use authzen::DecisionPoint;
pub use binding::{CertificateSource, GuardNonces, NonceRule, TokenBinding};
pub use clients::ClientType;
pub use clients::{CertificateName, Client, ClientAuthentication};
pub use events::EventSender;
pub use filter::{DocumentSource, ForeignSubjectTokens};
pub use functions::{AuthorizeSubjectToken, CustomClaimsSettings, OnError};
pub(crate) use guard::GuardHeaders;
pub use http_uri::{HttpUri, USER_ID_PLACEHOLDER};
pub use limits::{LONGEST_ACCESS_TOKEN_LIFETIME, LONGEST_SUBJECT_TOKEN_LIFETIME};
pub use node::Problem;
pub use notifications::{Happening, Hook};
pub use profile::Profile;
pub use resources::Resource;
pub use rules::{MintRate, Rules};
pub use signing_keys::SigningJwk;
pub use subject_tokens::{OnReplay, UserLookup};
pub use verification::{
    Introspection, Jwks, JwtIssuer, RemoteJwks, SignInRules, TokenRules, Userinfo, Verification,
};
pub(crate) use wire::WireError;

/// The reasons why a configuration was refused: all its problems, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Each problem, with its path.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Tells the operator why the configuration was refused.
    pub fn log(&self, host: &dyn Host) {
        for problem in &self.problems {
            host.log(Level::Error, &format!("configuration refused: {problem}"));
        }
    }
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

/// The outside world that the parser of a configuration consults.
pub trait ConfigEnvironment {
    /// Looks up an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// Compiles the script of `custom_claims` and returns what is wrong with it. The parser then
    /// reports a broken script together with all other problems.
    fn try_script(&self, custom_claims: &CustomClaimsSettings) -> Result<(), String>;

    /// Compiles the script of `authorize_subject_token` and returns what is wrong with it.
    fn try_authorizer(&self, written: &AuthorizeSubjectToken) -> Result<(), String>;
}
