//! What the operator writes, in the form in which it cannot be wrong any more.
//!
//! [`Config::parse`] reads everything before it gives up and reports every problem with its path. A
//! member that nobody reads is a problem too: in security software a misspelt `required` must not
//! silently mean `false`.

mod node;
mod parse;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

pub use node::Problem;
pub use wire::{WireError, decode};

use crate::bearer::Verifier;
use crate::claims::Script;
use crate::jose::{PublishedKey, SigningKey};
use crate::secret::Digest;
use crate::step::HttpCall;
use crate::upstream::HttpUri;

/// A whole, valid configuration.
pub struct Config {
    /// `iss` of what is issued.
    pub issuer: String,
    /// The path part of the service's address, without a slash at the end.
    pub base_path: String,
    /// The key that signs.
    pub signing_key: SigningKey,
    /// All keys that are published.
    pub published_keys: Vec<PublishedKey>,
    /// Minting.
    pub subject_tokens: SubjectTokens,
    /// Where they are kept.
    pub store: Store,
    /// How long an access token is good for, where its resource says nothing else.
    pub access_token_lifetime: Duration,
    /// Who is acting.
    pub actor_tokens: ActorTokens,
    /// By `client_id`.
    pub clients: HashMap<String, Rc<Client>>,
    /// By indicator.
    pub resources: HashMap<String, Resource>,
    /// The operator's say in the claims; `None` for none.
    pub custom_claims: Option<CustomClaims>,
    /// Whether there is a gateway behind us whose documents ours are merged into.
    pub documents: DocumentSource,
    /// What becomes of subject tokens that are not ours.
    pub foreign_subject_tokens: ForeignSubjectTokens,
    /// Whether the audit log gets the free-form context.
    pub audit_context: bool,
    /// What works but is probably not meant.
    pub warnings: Vec<Problem>,
}

/// How subject tokens are minted and kept.
#[derive(Debug)]
pub struct SubjectTokens {
    /// How long a token can be exchanged.
    pub lifetime: Duration,
    /// The most bytes of a context as compact JSON.
    pub max_context_bytes: usize,
    /// Verifies who mints: whose machine-to-machine tokens are good for it.
    pub callers: Verifier,
    /// How to ask whether a user exists; `None` to believe the caller.
    pub user_lookup: Option<UserLookup>,
}

/// Where subject tokens are until they are exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In Envoy's shared data.
    SharedData {
        /// The most outstanding tokens.
        capacity: u32,
    },
}

impl Default for Store {
    fn default() -> Self {
        Self::SharedData { capacity: parse::DEFAULT_CAPACITY }
    }
}

/// How acting users are recognised.
#[derive(Debug, Default)]
pub struct ActorTokens {
    /// Refuse every exchange without an actor.
    pub required: bool,
    /// Verifies who acts.
    pub verifier: Verifier,
}

/// Asks the identity gateway about a user.
#[derive(Debug)]
pub struct UserLookup {
    /// Its path holds `{userId}`.
    pub http_uri: HttpUri,
}

impl UserLookup {
    /// The request about one user, on behalf of the caller whose `authorization` it carries. `None` for a
    /// name that cannot stand in a path: every path normaliser reads a dot segment as something else.
    pub fn call(&self, user_id: &str, authorization: &str) -> Option<HttpCall> {
        if matches!(user_id, "." | "..") {
            return None;
        }
        let segment = utf8_percent_encode(user_id, UNRESERVED).to_string();
        let headers = vec![
            ("authorization", authorization.to_owned()),
            ("accept", "application/json".to_owned()),
        ];
        let call = self.http_uri.call("GET", headers, Vec::new());
        Some(HttpCall { path: call.path.replace(USER_ID_PLACEHOLDER, &segment), ..call })
    }
}

/// Stands for the user in the address of [`UserLookup`].
pub const USER_ID_PLACEHOLDER: &str = "{userId}";

/// All but the unreserved characters of RFC 3986 §2.3 are encoded in a path segment.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What kind of application a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientType {
    /// Confidential: runs on a server.
    TraditionalWeb,
    /// Confidential: no user in front of it.
    MachineToMachine,
    /// Public: runs in a browser.
    SinglePage,
    /// Public: runs on a device.
    Native,
}

/// A client that may exchange subject tokens.
#[derive(Debug)]
pub struct Client {
    /// Its name.
    pub client_id: String,
    /// What it is; decides whether it has secrets.
    pub r#type: ClientType,
    /// SHA-256 of each secret that is good; several during rotation.
    pub secret_digests: Vec<Digest>,
    /// The resources that it may ask for; `None` for all.
    pub resources: Option<Vec<String>>,
    /// Refuse its exchanges without an actor.
    pub actor_token_required: bool,
}

impl Client {
    /// Whether it can keep a secret (RFC 6749 §2.1).
    pub const fn is_confidential(&self) -> bool {
        matches!(self.r#type, ClientType::TraditionalWeb | ClientType::MachineToMachine)
    }
}

/// A resource that access tokens are issued for.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The scopes that can be granted.
    pub scopes: Vec<String>,
    /// How long its access tokens are good for, if not as long as the others.
    pub access_token_lifetime: Option<Duration>,
}

/// What becomes of an exchange whose subject token is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignSubjectTokens {
    /// It is refused.
    Refuse,
    /// It goes on to the identity gateway.
    PassThrough,
}

/// The function that adds claims.
#[derive(Debug)]
pub struct CustomClaims {
    /// The compiled script.
    pub script: Script,
    /// What becomes of an exchange if it fails.
    pub on_error: OnError,
}

/// What becomes of an exchange whose custom claims failed. A script that denies access has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// It is refused, and its subject token stays unspent.
    Refuse,
    /// The token is issued without the claims.
    IssueWithout,
}

/// Where the key set and the metadata come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentSource {
    /// The identity gateway's, with ours added.
    Merged,
    /// Ours alone: there is no gateway.
    Alone,
}

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

impl Config {
    /// Reads a configuration as it arrives in a plugin. `environment` looks a variable up.
    pub fn parse(
        bytes: &[u8],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let value = wire::decode(bytes).map_err(|error| ConfigError {
            problems: vec![Problem { path: String::new(), expected: error.to_string() }],
        })?;
        Self::from_value(&value, environment)
    }

    /// Reads a configuration that was decoded already.
    pub fn from_value(
        value: &Value,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        parse::config(value, environment)
    }

    /// What names this service among those that share Envoy's shared data. It stays the same over changed
    /// configurations, so that they keep the outstanding tokens.
    pub fn tenant(&self) -> String {
        format!("{}\n{}", self.issuer, self.base_path)
    }
}
