//! The operator's configuration of the guard: which requests of impersonations reach the APIs.

use std::time::Duration;

use serde_json::Value;

use super::audit::AuditLog;
use super::binding::{CertificateSource, CertificateUse, GuardNonces};
use super::browser_sessions::GuardSessions;
use super::etcd::EtcdSettings;
use super::kinds::{DAY, HOUR, ListOf, NonEmpty, OneOf, SECOND, ScopeToken, Span, Text, Words};
use super::node::Node;
use super::rules::UserPattern;
use super::section::{Kind, Raw, Refined, read_whole, section};
use super::service::{BasePath, IssuerUri, OriginUri, tenant};
use super::{AuthorizeSubjectToken, ConfigEnvironment, ConfigError, CustomClaimsSettings, Problem};
use crate::path::NormalPath;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A whole, valid configuration of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// `iss` of the access tokens and of the revocations.
    pub issuer: String,
    /// The path part of the service's address, without a slash at the end.
    pub base_path: String,
    /// The metadata key under which `jwt_authn` stores the claims.
    pub payload_in_metadata: String,
    /// The store of the revocations.
    pub store: GuardStore,
    /// If requests are refused or only reported.
    pub mode: Mode,
    /// The outcome of a request that no rule matches.
    pub default: DefaultAction,
    /// The rules in order. The first that matches decides.
    pub rules: Vec<GuardRule>,
    /// The headers that tell the API about the impersonation.
    pub headers: GuardHeaders,
    /// The origin of the APIs, as clients see it; `None` if tokens that are bound by a proof are
    /// refused.
    pub public_origin: Option<String>,
    /// The source of the nonces that proofs need; `None` if they need none.
    pub(crate) nonces: Option<GuardNonces>,
    /// Where client certificates are read.
    pub(crate) certificates: CertificateSource,
    /// The browser sessions whose hosts the guard stands before; `None` if it stands before APIs.
    pub browser_session: Option<GuardSessions>,
    /// The places to which audit events are written.
    pub audit_log: AuditLog,
    /// Settings that work but are probably not intended.
    pub warnings: Vec<Problem>,
}

/// The store of the revocations: the one in which the filter of the same service keeps its subject
/// tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardStore {
    /// In Envoy's shared data.
    SharedData,
    /// In etcd, for many Envoys.
    Etcd {
        /// The address of etcd.
        settings: EtcdSettings,
        /// How long etcd may be out of touch. After that the guard no longer knows what was
        /// revoked.
        max_staleness: Duration,
    },
}

/// If requests are refused or only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Refuses requests.
    Enforce,
    /// Passes requests that `Enforce` would refuse, counts them, and writes them to the audit.
    Report,
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("enforce", Self::Enforce), ("report", Self::Report)];
}

/// The outcome that a rule decides for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The request goes on.
    Allow,
    /// The request is refused.
    Deny,
}

impl Words for Action {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}

/// The outcome of a request that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultAction {
    /// The request goes on if its method is GET, HEAD or OPTIONS, which only read.
    ReadOnly,
    /// The request goes on.
    Allow,
    /// The request is refused.
    Deny,
}

impl Words for DefaultAction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("read_only", Self::ReadOnly), ("allow", Self::Allow), ("deny", Self::Deny)];
}

/// A rule. It matches the requests that meet all of its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRule {
    /// The paths that match; `None` for all.
    pub path: Option<PathPattern>,
    /// The methods that match; `None` for all.
    pub methods: Option<Vec<String>>,
    /// Scopes that the access token must all have.
    pub scopes: Vec<String>,
    /// The actors that match; `None` for any actor, and for none.
    pub actors: Option<Vec<UserPattern>>,
    /// The outcome that the rule decides.
    pub action: Action,
    /// How long ago the actor may have signed in, if the rule allows; `None` for any time ago.
    pub(crate) actor_max_age: Option<Duration>,
}

/// A pattern of decoded paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// The path that equals this text.
    Exactly(String),
    /// All paths that begin with this text.
    Prefix(String),
}

/// Headers that decide how a request is read, or who sends it. The guard must not overwrite them.
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
    pub(super) struct GuardMembers {
        /// The filter's `issuer`. A token with `txn` of another issuer is refused.
        issuer: IssuerUri,
        /// The filter's `base_path`. A guard of another `issuer` or `base_path` knows nothing of
        /// the filter's revocations.
        base_path: BasePath = "",
        /// The metadata key under which `jwt_authn` stores the claims (its `payload_in_metadata`).
        payload_in_metadata: Text = "access_token",
        /// The store of the revocations: the one in which the filter keeps its subject tokens.
        store: RevocationStore = {},
        /// `report` refuses nothing and ends no stream: it counts and logs what `enforce` would do.
        /// Begin with `report`.
        mode: OneOf<Mode> = "enforce",
        /// The outcome of requests that no rule matches. `read_only` lets `GET`, `HEAD` and
        /// `OPTIONS` pass.
        default: OneOf<DefaultAction> = "read_only",
        /// The rules in order. The first rule that matches decides.
        rules: Rules = [],
        /// The headers that tell the API about the impersonation. A header that is not named here
        /// is not set. Values are percent-encoded except for visible ASCII other than `%`, `,`,
        /// `;`, `"` and `\`, so that no name can be read as two, or as another header.
        headers: Headers = {},
        /// The origin of the APIs, as clients see it, such as `https://api.example.com`. A proof of
        /// possession (DPoP) must be for this origin and the request's path. [Bound
        /// tokens](binding.md#at-the-guard) need it.
        public_origin: OriginUri => "access tokens that are bound by a proof are refused",
        /// Proofs of possession. It needs `public_origin`.
        dpop: GuardNonces => "a proof is good for 60 s by its `iat`",
        /// Where the certificates of clients are read: [as in the
        /// filter](configuration.md#top-level).
        client_certificate: OneOf<CertificateSource> = "connection",
        /// The guard stands before the hosts of the filter's `browser_sessions`. A request needs
        /// the token of the session whose host it names, and must come from a page of that host.
        browser_session: GuardSessions => "the guard stands before APIs",
        /// The audit of refusals.
        audit: Audit = {},
        /// How long etcd may be out of touch. After that no impersonation passes.
        max_staleness: Span<SECOND, HOUR> => "`10s`",
    }
}

section! {
    /// The audit.
    struct Audit {
        /// Where audit lines are written. Give it the filter's
        /// [`audit.log`](operations.md#one-place-for-the-audit).
        log: OneOf<AuditLog> => "both",
    }
}

/// The default of `max_staleness`.
const DEFAULT_MAX_STALENESS: Duration = Duration::from_secs(10);

section! {
    /// The store of the revocations.
    struct StoreMembers {
        /// Envoy's shared data.
        shared_data: NoMembers => "used, unless `etcd` is given",
        /// An etcd, with the members of [the filter's `store.etcd`](configuration.md#store) and the
        /// same `prefix`: see [below](#in-another-envoy-than-the-filter).
        etcd: EtcdSettings => "not used",
    }
    at_most_one [shared_data, etcd]
}

section! {
    /// An object without members.
    struct NoMembers {}
}

/// The store of the revocations: `Some` for etcd, `None` for shared data.
struct RevocationStore;

impl Refined for RevocationStore {
    type From = StoreMembers;
    type Value = Option<EtcdSettings>;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self::Value> {
        match (members.shared_data, members.etcd) {
            (Some(NoMembers {}) | None, etcd) => Some(etcd),
        }
    }
}

section! {
    /// A rule. It matches the requests that meet all of its conditions.
    pub(super) struct RuleMembers {
        /// The path that matches, in decoded form.
        path: RulePath => "all paths",
        /// The beginning of all paths that match, in decoded form.
        path_prefix: RulePath => "all paths",
        /// The methods that match.
        methods: NonEmpty<Method> => "all methods",
        /// Scopes that the access token must all have.
        scopes: NonEmpty<ScopeToken> => "any scope",
        /// The actors that match. `*` at the end stands for the rest of the name; `*` alone stands
        /// for every named actor.
        actors: NonEmpty<Actor> => "any actor, and none",
        /// The outcome of a request that matches.
        action: OneOf<Action>,
        /// How long ago the actor may have signed in, for a rule that allows ([a recent
        /// sign-in](#rules)).
        actor_max_age: Span<SECOND, { 365 * DAY }> => "any time ago",
    }
    at_most_one [path, path_prefix]
}

section! {
    /// The names of the headers that tell an API about an impersonation.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct GuardHeaders {
        /// The name of the header with the impersonation's id.
        pub id: HeaderName as Option<String> => "not set",
        /// The name of the header with the actor.
        pub actor: HeaderName as Option<String> => "not set",
    }
}

/// The [`GuardHeaders`], with two different names.
struct Headers;

impl Refined for Headers {
    type From = GuardHeaders;
    type Value = GuardHeaders;

    fn refine(headers: Raw<Self>, place: Node<'_>) -> Option<GuardHeaders> {
        if headers.id.is_some() && headers.id == headers.actor {
            return place.member("actor").problem("expected another header than that of id");
        }
        Some(headers)
    }
}

impl GuardConfig {
    /// Reads a configuration, decoded, that refers to no environment variable.
    pub fn from_value(value: &Value) -> Result<Self, ConfigError> {
        Self::with_variables(value, &|_| None)
    }

    /// Reads a configuration, decoded. `variable` looks up an environment variable.
    pub fn with_variables(
        value: &Value,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let (config, warnings) = read_whole::<Self>(value, &Variables(variable))?;
        Ok(Self { warnings, ..config })
    }

    /// Returns the use of client certificates that the listener must know of.
    pub fn certificate_use(&self) -> CertificateUse {
        match self.certificates {
            CertificateSource::Connection => CertificateUse::None,
            CertificateSource::Forwarded => CertificateUse::Forwarded,
        }
    }

    /// Returns the service's name in shared data. It equals the name that the filter uses.
    pub fn tenant(&self) -> String {
        tenant(&self.issuer, &self.base_path)
    }
}

/// The outside world of the guard's parser: it has no scripts.
struct Variables<'v>(&'v dyn Fn(&str) -> Option<String>);

impl ConfigEnvironment for Variables<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    fn try_script(&self, _custom_claims: &CustomClaimsSettings) -> Result<(), String> {
        Ok(())
    }

    fn try_authorizer(&self, _written: &AuthorizeSubjectToken) -> Result<(), String> {
        Ok(())
    }
}

impl Refined for GuardConfig {
    type From = GuardMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let store = match members.store {
            Some(settings) => {
                let max_staleness = members.max_staleness.unwrap_or(DEFAULT_MAX_STALENESS);
                GuardStore::Etcd { settings, max_staleness }
            }
            None => {
                if members.max_staleness.is_some() {
                    place
                        .clone()
                        .member("max_staleness")
                        .warn("has no effect: shared data is never out of touch");
                }
                GuardStore::SharedData
            }
        };
        if members.dpop.is_some() && members.public_origin.is_none() {
            return place
                .member("dpop")
                .problem("needs public_origin: without it no proof is read");
        }
        if members.dpop == Some(GuardNonces::OfThisEnvoy)
            && matches!(store, GuardStore::Etcd { .. })
        {
            return place.member("dpop.secret").problem(
                "is required with store.etcd: a nonce of one Envoy must be good at the others",
            );
        }
        if members.browser_session.is_some() && members.mode == Mode::Report {
            return place.member("mode").problem(
                "expected enforce with browser_session: else every page in the browser could act as the user",
            );
        }
        Some(Self {
            issuer: members.issuer,
            base_path: members.base_path,
            payload_in_metadata: members.payload_in_metadata,
            store,
            mode: members.mode,
            default: members.default,
            rules: members.rules,
            headers: members.headers,
            public_origin: members.public_origin,
            nonces: members.dpop,
            certificates: members.client_certificate,
            browser_session: members.browser_session,
            audit_log: members.audit.log.unwrap_or(AuditLog::Both),
            warnings: Vec::new(),
        })
    }
}

impl GuardRule {
    fn is_about_everything(&self) -> bool {
        let Self { path, methods, scopes, actors, action: _, actor_max_age: _ } = self;
        path.is_none() && methods.is_none() && scopes.is_empty() && actors.is_none()
    }
}

impl Refined for GuardRule {
    type From = RuleMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let RuleMembers { path, path_prefix, methods, scopes, actors, action, actor_max_age } = raw;
        if action == Action::Deny && actor_max_age.is_some() {
            let place = place.member("actor_max_age");
            return place.problem("is for rules that allow: this rule denies in any case");
        }
        if action == Action::Deny && scopes.is_some() {
            place.warn(
                "a client escapes this rule by asking for less scope: leave scopes out, and let rules that allow ask for them",
            );
        }
        let path = path.map(PathPattern::Exactly).or(path_prefix.map(PathPattern::Prefix));
        let scopes = scopes.unwrap_or_default();
        Some(Self { path, methods, scopes, actors, action, actor_max_age })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described
            .with_rule(json!({
                "if": {"properties": {"action": {"const": "deny"}}},
                "then": {"properties": {"actor_max_age": false}},
            }))
            .under(descriptions, "rules", "rules")
    }
}

/// The list of rules.
struct Rules;

impl Refined for Rules {
    type From = ListOf<GuardRule>;
    type Value = Vec<GuardRule>;

    fn refine(rules: Raw<Self>, list: Node<'_>) -> Option<Vec<GuardRule>> {
        let everything = rules.iter().position(GuardRule::is_about_everything);
        if let Some(index) =
            everything.and_then(|index| index.checked_add(1)).filter(|next| *next < rules.len())
        {
            list.item(index).warn("is never used: the rule before it matches every request");
        }
        Some(rules)
    }
}

/// A path in normal form.
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

/// A method (RFC 9110 §9.1). Letter case counts, and registered methods have capitals only.
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

/// An actor's name, or the beginning of one.
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

/// The name of a header that has no meaning of its own in HTTP.
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
