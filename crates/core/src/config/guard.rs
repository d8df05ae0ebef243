//! What the operator writes for the guard: which requests of an impersonation reach the APIs.

use std::time::Duration;

use serde_json::Value;

use super::audit::AuditLog;
use super::etcd::EtcdSettings;
use super::kinds::{HOUR, List, NonEmpty, OneOf, SECOND, Scope, Span, Text, Words};
use super::node::Node;
use super::rules::UserPattern;
use super::section::{Kind, read_whole, section};
use super::service::{BasePath, Issuer, tenant};
use super::{AuthorizeSubjectToken, ConfigError, CustomClaims, Problem, Surroundings};
use crate::path::NormalPath;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A whole, valid configuration of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// `iss` of the access tokens that it looks at, and of the revocations.
    pub issuer: String,
    /// The path part of the service's address, without a slash at the end.
    pub base_path: String,
    /// Where `jwt_authn` puts the claims.
    pub payload_in_metadata: String,
    /// Where the revocations are.
    pub store: GuardStore,
    /// Whether anything is refused.
    pub mode: Mode,
    /// What becomes of a request that no rule is about.
    pub default: DefaultAction,
    /// The first that matches decides.
    pub rules: Vec<GuardRule>,
    /// What the API is told.
    pub headers: GuardHeaders,
    /// Where audit events are written down.
    pub audit_log: AuditLog,
    /// What works but is probably not meant.
    pub warnings: Vec<Problem>,
}

/// Where the revocations are: where the filter of the same service keeps its subject tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardStore {
    /// In Envoy's shared data.
    SharedData,
    /// In etcd, for many Envoys.
    Etcd {
        /// Where that is.
        settings: EtcdSettings,
        /// How long ago it may have been heard of last. After that nobody knows what was revoked.
        max_staleness: Duration,
    },
}

/// Whether anything is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What is to be refused is refused.
    Enforce,
    /// It goes on, and is counted and written down.
    Report,
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("enforce", Self::Enforce), ("report", Self::Report)];
}

/// What a rule does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    Allow,
    /// It is refused.
    Deny,
}

impl Words for Action {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}

/// What becomes of a request that no rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultAction {
    /// It goes on if it only reads: GET, HEAD and OPTIONS.
    ReadOnly,
    /// It goes on.
    Allow,
    /// It is refused.
    Deny,
}

impl Words for DefaultAction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("read_only", Self::ReadOnly), ("allow", Self::Allow), ("deny", Self::Deny)];
}

/// One rule. It is about the requests that meet all of its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRule {
    /// Which paths; `None` for all.
    pub path: Option<PathPattern>,
    /// Which methods; `None` for all.
    pub methods: Option<Vec<String>>,
    /// Scopes that the access token must all have.
    pub scopes: Vec<String>,
    /// Who must be acting; `None` for whoever it is, known or not.
    pub actors: Option<Vec<UserPattern>>,
    /// What it does.
    pub action: Action,
}

/// Paths, as they read when decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// One.
    Exactly(String),
    /// All that begin so.
    Prefix(String),
}

/// Headers that say how a request is to be read, or who sends it.
const TAKEN_HEADERS: [&str; 13] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

section! {
    /// Configuration of the guard, which stands before the APIs.
    struct GuardMembers {
        /// The filter's `issuer`. A token with `txn` of another issuer is refused.
        issuer: Issuer,
        /// The filter's `base_path`. Two guards and filters that differ in `issuer` or `base_path` know
        /// nothing of each other.
        base_path: BasePath = "",
        /// Where `jwt_authn` puts the claims.
        payload_in_metadata: Text = "access_token",
        /// Where the revocations are: where the filter keeps its subject tokens.
        store: Store = {},
        /// `report` refuses nothing and ends no stream, not even of what has ended: it counts and writes
        /// down what it would do. Begin with it.
        mode: OneOf<Mode> = "enforce",
        /// What becomes of requests that no rule is about. `read_only` lets `GET`, `HEAD` and `OPTIONS`
        /// pass.
        default: OneOf<DefaultAction> = "read_only",
        /// The first rule that matches decides.
        rules: Rules = [],
        /// The headers by which the API learns of an impersonation; one that is absent is not set. What
        /// is no visible ASCII, and `%`, `,`, `;`, `"`, `\`, is percent-encoded, so that no name can be
        /// taken for two, or for another header.
        headers: Headers = {},
        /// What is written down about refusals.
        audit: Audit = {},
        /// How long etcd may be out of touch. After that nobody knows what was revoked, and no
        /// impersonation passes. Shared data is never out of touch.
        max_staleness: Span<SECOND, HOUR> => "`10s`",
    }
}

section! {
    /// The audit.
    struct Audit {
        /// Where the audit lines go, as the filter's
        /// [`audit.log`](operations.md#one-place-for-the-audit), and to be set to the same. The filter state
        /// `guard` is there for access logs in any case.
        log: OneOf<AuditLog> => "both",
    }
}

/// How long etcd may be out of touch, where the operator says nothing else.
const DEFAULT_MAX_STALENESS: Duration = Duration::from_secs(10);

section! {
    /// Where the revocations are.
    struct StoreMembers {
        /// In Envoy's shared data.
        shared_data: NoMembers => "used, unless `etcd` is given",
        /// In etcd, with the members of [the filter's](configuration.md#store), and the same `prefix`: see
        /// [below](#in-another-envoy-than-the-filter).
        etcd: EtcdSettings => "not used",
    }
    at_most_one [shared_data, etcd]
}

section! {
    /// There is nothing to say.
    struct NoMembers {}
}

/// Where the revocations are: in etcd, as the filter says it, or in shared data.
struct Store;

impl Kind for Store {
    type Value = Option<EtcdSettings>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        let members = StoreMembers::read(node)?;
        match (members.shared_data, members.etcd) {
            (Some(NoMembers {}) | None, etcd) => Some(etcd),
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        StoreMembers::describe(descriptions)
    }
}

section! {
    /// A rule is about the requests that meet all of its conditions.
    struct RuleMembers {
        /// One path, as it reads when decoded.
        path: RulePath => "all paths",
        /// All paths that begin so.
        path_prefix: RulePath => "all paths",
        /// Which methods.
        methods: NonEmpty<Method> => "all methods",
        /// Scopes that the access token must all have.
        scopes: NonEmpty<Scope> => "any scope",
        /// Who must be acting: one of these. `*` at the end stands for the rest of the name, `*` alone
        /// for every actor that is named.
        actors: NonEmpty<Actor> => "whoever acts, known or not",
        /// What becomes of the request.
        action: OneOf<Action>,
    }
    at_most_one [path, path_prefix]
}

section! {
    /// The names of the headers by which an API learns of an impersonation.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct GuardHeaders {
        /// The header with the impersonation's id.
        pub id: HeaderName as Option<String> => "not set",
        /// The header with the actor.
        pub actor: HeaderName as Option<String> => "not set",
    }
}

/// The same, of which no two are one.
struct Headers;

impl Kind for Headers {
    type Value = GuardHeaders;

    fn read(node: Node<'_>) -> Option<GuardHeaders> {
        let place = node.clone();
        let headers = GuardHeaders::read(node)?;
        if headers.id.is_some() && headers.id == headers.actor {
            return place.member("actor").problem("expected another header than that of id");
        }
        Some(headers)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        GuardHeaders::describe(descriptions)
    }
}

impl GuardConfig {
    /// Reads a configuration, decoded.
    pub fn from_value(value: &Value) -> Result<Self, ConfigError> {
        let (config, warnings) = read_whole::<Self>(value, &Nowhere)?;
        Ok(Self { warnings, ..config })
    }

    /// What names the service whose revocations count: as the filter's own.
    pub fn tenant(&self) -> String {
        tenant(&self.issuer, &self.base_path)
    }
}

/// The guard has no secrets and runs no scripts.
struct Nowhere;

impl Surroundings for Nowhere {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn try_script(&self, _custom_claims: &CustomClaims) -> Result<(), String> {
        Ok(())
    }

    fn try_authorizer(&self, _written: &AuthorizeSubjectToken) -> Result<(), String> {
        Ok(())
    }
}

impl Kind for GuardConfig {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let place = node.clone();
        let members = GuardMembers::read(node)?;
        let store = match members.store {
            Some(settings) => {
                let max_staleness = members.max_staleness.unwrap_or(DEFAULT_MAX_STALENESS);
                GuardStore::Etcd { settings, max_staleness }
            }
            None => {
                if members.max_staleness.is_some() {
                    place
                        .member("max_staleness")
                        .warn("has no effect: shared data is never out of touch");
                }
                GuardStore::SharedData
            }
        };
        Some(Self {
            issuer: members.issuer,
            base_path: members.base_path,
            payload_in_metadata: members.payload_in_metadata,
            store,
            mode: members.mode,
            default: members.default,
            rules: members.rules,
            headers: members.headers,
            audit_log: members.audit.log.unwrap_or(AuditLog::Both),
            warnings: Vec::new(),
        })
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        GuardMembers::describe(descriptions)
    }
}

impl GuardRule {
    fn is_about_everything(&self) -> bool {
        let Self { path, methods, scopes, actors, action: _ } = self;
        path.is_none() && methods.is_none() && scopes.is_empty() && actors.is_none()
    }
}

impl Kind for GuardRule {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let place = node.clone();
        let RuleMembers { path, path_prefix, methods, scopes, actors, action } =
            RuleMembers::read(node)?;
        if action == Action::Deny && scopes.is_some() {
            place.warn(
                "a client escapes this rule by asking for less scope: leave scopes out, and let rules that allow ask for them",
            );
        }
        let path = path.map(PathPattern::Exactly).or(path_prefix.map(PathPattern::Prefix));
        Some(Self { path, methods, scopes: scopes.unwrap_or_default(), actors, action })
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        RuleMembers::describe(descriptions).under(descriptions, "rules", "rules")
    }
}

/// All rules.
struct Rules;

impl Kind for Rules {
    type Value = Vec<GuardRule>;

    fn read(node: Node<'_>) -> Option<Vec<GuardRule>> {
        let list = node.clone();
        let rules = List::<GuardRule>::read(node)?;
        let everything = rules.iter().position(GuardRule::is_about_everything);
        if let Some(index) =
            everything.and_then(|index| index.checked_add(1)).filter(|next| *next < rules.len())
        {
            list.item(index).warn("is never looked at: the rule before it is about every request");
        }
        Some(rules)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        List::<GuardRule>::describe(descriptions)
    }
}

/// A path that is normal.
struct RulePath;

impl Kind for RulePath {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        match NormalPath::parse(node.clone().string()?.as_bytes()) {
            Some(path) => Some(path.as_str().to_owned()),
            None => node.problem(
                "expected a path such as /orders/, without a query, an encoded slash, `;`, empty or dot segments",
            ),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("path", json!({"type": "string", "pattern": "^/"}))
    }
}

/// A method (RFC 9110 §9.1): letter case counts, and no method has small letters.
struct Method;

impl Kind for Method {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
            Some(text.to_owned())
        } else {
            node.problem("expected a method such as POST")
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("method", json!({"type": "string", "pattern": "^[A-Z-]+$"}))
    }
}

/// An actor, or the beginning of a name.
struct Actor;

impl Kind for Actor {
    type Value = UserPattern;

    fn read(node: Node<'_>) -> Option<UserPattern> {
        let text = node.clone().string()?;
        if text == "*" {
            return Some(UserPattern::Prefix(String::new()));
        }
        match UserPattern::parse(text) {
            Some(pattern) => Some(pattern),
            None => node.problem("expected an actor, or the beginning of a name and `*`"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("string", json!({"type": "string", "pattern": r"^([^*]+\*?|\*)$"}))
    }
}

/// The name of a header that means nothing to anybody else.
struct HeaderName;

impl Kind for HeaderName {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        let valid = !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !TAKEN_HEADERS.contains(&text);
        if valid {
            Some(text.to_owned())
        } else {
            node.problem(
                "expected the name of a header of your own in small letters, such as x-impersonator",
            )
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        let schema = descriptions.define(
            "header",
            json!({
                "description": "The name of a header of your own in small letters, such as x-impersonator.",
                "type": "string",
                "pattern": "^[a-z0-9-]+$",
            }),
        );
        Described::plain("header name", schema)
    }
}

#[cfg(test)]
pub(super) mod tests;
