//! What the operator writes for the guard: which requests of an impersonation reach the APIs.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::Value;

use super::node::{Members, Node, Reading};
use super::parse::{base_path, etcd, issuer};
use super::rules::UserPattern;
use super::{
    AuthorizeSubjectToken, ConfigError, CustomClaims, EtcdSettings, Problem, Surroundings,
};
use crate::oauth::scope;
use crate::path::NormalPath;

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

/// What a rule does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    Allow,
    /// It is refused.
    Deny,
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

/// The names of the headers by which an API learns of an impersonation; `None` for those that it does not get.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardHeaders {
    /// Which impersonation it is.
    pub id: Option<String>,
    /// Who is acting.
    pub actor: Option<String>,
}

/// The longest that the guard may be out of touch, where the operator says nothing else.
const DEFAULT_MAX_STALENESS: Duration = Duration::from_secs(10);

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

impl GuardConfig {
    /// Reads a configuration, decoded.
    pub fn from_value(value: &Value) -> Result<Self, ConfigError> {
        let reading = Reading {
            surroundings: &Nowhere,
            problems: RefCell::default(),
            warnings: RefCell::default(),
        };
        let config = root(Node { reading: &reading, path: String::new(), value });
        let problems = reading.problems.into_inner();
        match config {
            Some(config) if problems.is_empty() => {
                Ok(Self { warnings: reading.warnings.into_inner(), ..config })
            }
            _ => Err(ConfigError { problems }),
        }
    }

    /// What names the service whose revocations count: as the filter's own.
    pub fn tenant(&self) -> String {
        super::tenant(&self.issuer, &self.base_path)
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

fn root(node: Node<'_>) -> Option<GuardConfig> {
    let mut members = node.object()?;
    let issuer = members.required("issuer", issuer);
    let base_path = members.or("base_path", String::new(), base_path);
    let payload = members.or("payload_in_metadata", "access_token".into(), Node::non_empty_string);
    let store = members.or("store", None, store);
    let mode = members.or("mode", Mode::Enforce, |node| {
        node.one_of(&[("enforce", Mode::Enforce), ("report", Mode::Report)])
    });
    let default = members.or("default", DefaultAction::ReadOnly, |node| {
        node.one_of(&[
            ("read_only", DefaultAction::ReadOnly),
            ("allow", DefaultAction::Allow),
            ("deny", DefaultAction::Deny),
        ])
    });
    let rules = members.or("rules", Vec::new(), rules);
    let headers = members.or("headers", GuardHeaders::default(), headers);
    let max_staleness = members.or("max_staleness", DEFAULT_MAX_STALENESS, |node| {
        if store == Some(None) {
            node.warn("shared data is never out of touch: this says nothing here");
        }
        node.duration(Duration::from_secs(1), Duration::from_secs(3600))
    });
    members.finish();
    let max_staleness = max_staleness?;
    Some(GuardConfig {
        issuer: issuer?,
        base_path: base_path?,
        payload_in_metadata: payload?,
        store: store?.map_or(GuardStore::SharedData, |settings| GuardStore::Etcd {
            settings,
            max_staleness,
        }),
        mode: mode?,
        default: default?,
        rules: rules?,
        headers: headers?,
        warnings: Vec::new(),
    })
}

/// Where the revocations are: in etcd, as the filter says it, or in shared data, which has no settings here.
#[expect(clippy::option_option, reason = "a problem and an absence are two things")]
fn store(node: Node<'_>) -> Option<Option<EtcdSettings>> {
    let mut members = node.object()?;
    let shared_data = members.optional("shared_data", |node| {
        node.object()?.finish();
        Some(())
    });
    let etcd = members.optional("etcd", etcd);
    let node = members.node().clone();
    members.finish();
    match (shared_data?, etcd?) {
        (Some(()), Some(_)) => node.problem("expected one of shared_data and etcd, not both"),
        (_, etcd) => Some(etcd),
    }
}

fn rules(node: Node<'_>) -> Option<Vec<GuardRule>> {
    let list = node.clone();
    let rules = node.list(rule)?;
    let everything = rules.iter().position(GuardRule::is_about_everything);
    if let Some(index) =
        everything.and_then(|index| index.checked_add(1)).filter(|next| *next < rules.len())
    {
        list.item(index).warn("is never looked at: the rule before it is about every request");
    }
    Some(rules)
}

impl GuardRule {
    fn is_about_everything(&self) -> bool {
        let Self { path, methods, scopes, actors, action: _ } = self;
        path.is_none() && methods.is_none() && scopes.is_empty() && actors.is_none()
    }
}

fn rule(node: Node<'_>) -> Option<GuardRule> {
    let mut members = node.object()?;
    let path = at_most_one_path(&mut members);
    let methods = members.optional("methods", |node| some(node, method));
    let scopes = members.or("scopes", Vec::new(), |node| some(node, scope_token));
    let actors = members.optional("actors", |node| some(node, actor));
    let action = members.required("action", |node| {
        node.one_of(&[("allow", Action::Allow), ("deny", Action::Deny)])
    });
    members.finish();
    Some(GuardRule {
        path: path?,
        methods: methods?,
        scopes: scopes?,
        actors: actors?,
        action: action?,
    })
}

#[expect(clippy::option_option, reason = "a problem and an absence are two things")]
fn at_most_one_path(members: &mut Members<'_>) -> Option<Option<PathPattern>> {
    let exactly = members.optional("path", normal_path);
    let prefix = members.optional("path_prefix", normal_path);
    match (exactly?, prefix?) {
        (Some(_), Some(_)) => members.node().problem("expected path or path_prefix, not both"),
        (Some(path), None) => Some(Some(PathPattern::Exactly(path))),
        (None, Some(prefix)) => Some(Some(PathPattern::Prefix(prefix))),
        (None, None) => Some(None),
    }
}

fn normal_path(node: Node<'_>) -> Option<String> {
    match NormalPath::parse(node.clone().string()?.as_bytes()) {
        Some(path) => Some(path.as_str().to_owned()),
        None => node.problem(
            "expected a path such as /orders/, without a query, an encoded slash, `;`, empty or dot segments",
        ),
    }
}

/// A list with something in it: an empty one would say the opposite of what it looks like.
fn some<'r, T>(node: Node<'r>, read: impl Fn(Node<'r>) -> Option<T>) -> Option<Vec<T>> {
    let list = node.clone();
    match node.list(read)? {
        items if items.is_empty() => {
            list.problem("expected a list with something in it, or nothing at all")
        }
        items => Some(items),
    }
}

/// RFC 9110 §9.1: letter case counts, and no method has small letters.
fn method(node: Node<'_>) -> Option<String> {
    let text = node.clone().string()?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        Some(text.to_owned())
    } else {
        node.problem("expected a method such as POST")
    }
}

fn scope_token(node: Node<'_>) -> Option<String> {
    let text = node.clone().string()?;
    if scope::is_scope_token(text) {
        Some(text.to_owned())
    } else {
        node.problem("expected a scope token (RFC 6749, section 3.3)")
    }
}

fn actor(node: Node<'_>) -> Option<UserPattern> {
    let text = node.clone().string()?;
    if text == "*" {
        return Some(UserPattern::Prefix(String::new()));
    }
    match UserPattern::parse(text) {
        Some(pattern) => Some(pattern),
        None => node.problem("expected an actor, or the beginning of a name and `*`"),
    }
}

fn headers(node: Node<'_>) -> Option<GuardHeaders> {
    let mut members = node.object()?;
    let id = members.optional("id", header_name);
    let actor = members.optional("actor", header_name);
    let node = members.node().clone();
    members.finish();
    let headers = GuardHeaders { id: id?, actor: actor? };
    if headers.id.is_some() && headers.id == headers.actor {
        return node.member("actor").problem("expected another header than that of id");
    }
    Some(headers)
}

fn header_name(node: Node<'_>) -> Option<String> {
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
pub(super) mod tests;
