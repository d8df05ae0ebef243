//! What the operator writes, in the form in which it cannot be wrong any more.
//!
//! [`Config::from_value`] reads everything before it gives up and reports every problem with its path. A
//! member that nobody reads is a problem too: in security software a misspelt `required` must not
//! silently mean `false`.
//!
//! A configuration is data: nothing in it has fetched, remembered or run anything. What does is built from it by
//! [`Service`](crate::issuer::Service).

mod guard;
mod limits;
mod node;
mod parse;
mod rules;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

pub use guard::{
    Action, DefaultAction, GuardConfig, GuardHeaders, GuardRule, GuardStore, Mode, PathPattern,
};
pub use limits::Limits;
pub use node::Problem;
pub use rules::{MintRate, Rules, UserPattern};
pub use wire::{WireError, decode};

use crate::jose::{Algorithm, KeySet, PublishedKey};
use crate::secret::{Digest, Secret};

/// A whole, valid configuration.
#[derive(Debug)]
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
    /// The operator's say in what is minted; `None` for none.
    pub authorize_subject_token: Option<AuthorizeSubjectToken>,
    /// Who may list and end impersonations, and how many are listed.
    pub impersonations: Impersonations,
    /// Whether there is a gateway behind us whose documents ours are merged into.
    pub documents: DocumentSource,
    /// What becomes of subject tokens that are not ours.
    pub foreign_subject_tokens: ForeignSubjectTokens,
    /// Whether the audit log gets the free-form context.
    pub audit_context: bool,
    /// Where audit events are written down.
    pub audit_log: AuditLog,
    /// What works but is probably not meant.
    pub warnings: Vec<Problem>,
}

/// The key that signs.
#[derive(Debug)]
pub struct SigningKey {
    /// The private key, which was found to be one.
    pub jwk: Secret<Value>,
    /// Its name.
    pub kid: String,
    /// What it signs with.
    pub algorithm: Algorithm,
}

/// How subject tokens are minted.
#[derive(Debug)]
pub struct SubjectTokens {
    /// How long a token can be exchanged.
    pub lifetime: Duration,
    /// The most bytes of a context as compact JSON.
    pub max_context_bytes: usize,
    /// How it is verified who mints: whose machine-to-machine tokens are good for it.
    pub authentication: Verification,
    /// How to ask whether a user exists; `None` to believe the caller.
    pub user_lookup: Option<UserLookup>,
    /// Which mints are refused, whoever asks.
    pub rules: Rules,
    /// What becomes of an impersonation whose subject token is presented once more.
    pub on_replay: OnReplay,
}

/// What becomes of an impersonation whose subject token is presented once more: somebody has what is not theirs, then
/// or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReplay {
    /// It ends (RFC 9700 §2.1.1, RFC 6749 §4.1.2).
    Revoke,
    /// It goes on; the alarm says so.
    Report,
}

/// Who may list and end impersonations.
#[derive(Debug)]
pub struct Impersonations {
    /// How it is verified who does. With no way nobody may.
    pub authentication: Verification,
    /// The most that are listed.
    pub capacity: u32,
}

impl Default for Impersonations {
    fn default() -> Self {
        Self { authentication: Verification::default(), capacity: parse::DEFAULT_CAPACITY }
    }
}

/// Where audit events are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLog {
    /// In Envoy's log, and member by member for an access log.
    Both,
    /// In Envoy's log.
    Envoy,
    /// In an access log, whole. What comes of a request whose caller has left is in Envoy's log.
    AccessLog,
}

/// Where subject tokens are until they are exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In Envoy's shared data.
    SharedData {
        /// The most outstanding tokens.
        capacity: u32,
    },
    /// In etcd, for many Envoys.
    Etcd(EtcdSettings),
}

/// Where etcd is, and what is ours there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The Envoy cluster, which speaks HTTP/2.
    pub cluster: Rc<str>,
    /// What every key begins with.
    pub prefix: String,
    /// How long a look-up, a mint or a spend may take, all attempts together.
    pub timeout: Duration,
    /// The `:authority`; the cluster's name where there is none.
    pub authority: Option<Rc<str>>,
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
    /// How it is verified who acts.
    pub verification: Verification,
}

/// The ways in which a presented token can be verified; the first that applies decides.
#[derive(Debug, Default)]
pub struct Verification {
    /// For JWTs of issuers that we know.
    pub jwt: Vec<JwtIssuer>,
    /// For all others, where a user is wanted.
    pub userinfo: Option<Userinfo>,
    /// For all others.
    pub introspection: Option<Introspection>,
}

impl Verification {
    /// Whether there is any way.
    pub const fn is_empty(&self) -> bool {
        self.jwt.is_empty() && self.userinfo.is_none() && self.introspection.is_none()
    }
}

/// An issuer whose tokens are accepted, and for what.
#[derive(Debug)]
pub struct JwtIssuer {
    /// `iss`, compared exactly.
    pub issuer: String,
    /// One of these must be in `aud` (RFC 9068 §4).
    pub audiences: Vec<String>,
    /// All of these must be in `scope` or `scp`.
    pub required_scopes: Rc<[String]>,
    /// The clients that it may be issued to: `client_id`, or `azp` where there is none. `None` for any.
    pub client_ids: Option<Vec<String>>,
    /// How far the issuer's clock may be from ours.
    pub clock_skew: Duration,
    /// The issuer's keys.
    pub keys: Jwks,
}

/// Where an issuer's keys come from.
#[derive(Debug, Clone)]
pub enum Jwks {
    /// The configuration.
    Local(Rc<KeySet>),
    /// The issuer.
    Remote(RemoteJwks),
}

/// A key set that is fetched.
#[derive(Debug, Clone)]
pub struct RemoteJwks {
    /// Where from.
    pub http_uri: HttpUri,
    /// How long it is good for.
    pub cache_duration: Duration,
    /// How long keys count that cannot be refreshed; zero for ever.
    pub max_stale: Duration,
}

/// Asks an introspection endpoint.
#[derive(Debug)]
pub struct Introspection {
    /// Where it is.
    pub http_uri: HttpUri,
    /// Who asks.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Secret<String>,
    /// What an answer must say.
    pub rules: TokenRules,
    /// How long an answer is remembered.
    pub cache_duration: Duration,
}

/// What an introspection endpoint must say beside `active`.
#[derive(Debug)]
pub struct TokenRules {
    /// All of these must be in `scope`.
    pub required_scopes: Rc<[String]>,
    /// One of these must be in `aud`. `None` for not looking at it.
    pub audiences: Option<Vec<String>>,
    /// The clients that the token may be issued to: `client_id`, or `azp` where there is none. `None` for
    /// any.
    pub client_ids: Option<Vec<String>>,
}

/// Asks a userinfo endpoint.
#[derive(Debug)]
pub struct Userinfo {
    /// Where it is.
    pub http_uri: HttpUri,
    /// How long an answer is remembered.
    pub cache_duration: Duration,
}

/// Asks the identity gateway about a user.
#[derive(Debug)]
pub struct UserLookup {
    /// Its path holds `{userId}`.
    pub http_uri: HttpUri,
    /// The member of the answer that names the user; `None` where the user is called as the caller does.
    pub user_id_member: Option<String>,
}

/// Where an upstream is, as in Envoy's `HttpUri`.
#[derive(Debug, Clone)]
pub struct HttpUri {
    /// The Envoy cluster that is called.
    pub cluster: Rc<str>,
    /// `http` or `https`.
    pub scheme: Rc<str>,
    /// Host and port.
    pub authority: Rc<str>,
    /// Path and query.
    pub path: String,
    /// When Envoy gives up.
    pub timeout: Duration,
}

/// Stands for the user in the address of [`UserLookup`].
pub const USER_ID_PLACEHOLDER: &str = "{userId}";

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
    /// The script that declares it.
    pub script: String,
    /// What the script finds as `environmentVariables`. Secrets may be among them.
    pub environment_variables: Secret<BTreeMap<String, String>>,
    /// What one call may use up.
    pub limits: Limits,
    /// What becomes of an exchange if it fails.
    pub on_error: OnError,
}

/// The function that decides about mints. What it fails to decide is not minted.
#[derive(Debug)]
pub struct AuthorizeSubjectToken {
    /// The script that declares it.
    pub script: String,
    /// What the script finds as `environmentVariables`. Secrets may be among them.
    pub environment_variables: Secret<BTreeMap<String, String>>,
    /// What one call may use up.
    pub limits: Limits,
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

impl Config {
    /// Reads a configuration, decoded.
    pub fn from_value(value: &Value, surroundings: &dyn Surroundings) -> Result<Self, ConfigError> {
        parse::config(value, surroundings)
    }

    /// How long an access token can be good for.
    pub fn longest_access_token_lifetime(&self) -> Duration {
        let lifetimes =
            self.resources.values().filter_map(|resource| resource.access_token_lifetime);
        lifetimes.fold(self.access_token_lifetime, Duration::max)
    }

    /// What names this service among those that share Envoy's shared data. It stays the same over changed
    /// configurations, so that they keep the outstanding tokens.
    pub fn tenant(&self) -> String {
        tenant(&self.issuer, &self.base_path)
    }
}

/// What names a service in shared data: two that differ in either have nothing to do with each other.
fn tenant(issuer: &str, base_path: &str) -> String {
    format!("{issuer}\n{base_path}")
}
