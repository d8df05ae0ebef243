//! The members of the configuration, section by section.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::limits::Limits;
use super::node::{Members, Node, Reading};
use super::rules::{MintRate, Rules, UserPattern};
use super::{
    ActorTokens, AuditLog, AuthorizeSubjectToken, Client, ClientType, Config, ConfigError,
    CustomClaims, DocumentSource, EtcdSettings, ForeignSubjectTokens, HttpUri, Impersonations,
    Introspection, Jwks, JwtIssuer, OnError, OnReplay, RemoteJwks, Resource, SigningKey, Store,
    SubjectTokens, Surroundings, TokenRules, USER_ID_PLACEHOLDER, UserLookup, Userinfo,
    Verification,
};
use crate::jose::{Algorithm, KeySet, PublishedKey, private_from_pem};
use crate::oauth::{scope, uri};
use crate::secret::{Digest, Secret};

/// The most tokens that can be outstanding in shared data: their slots are never given back.
const MAX_CAPACITY: u32 = 10_000_000;

/// The capacity of the store in shared data.
pub(super) const DEFAULT_CAPACITY: u32 = 65_536;

/// How long keys count that cannot be refreshed, where the operator says nothing else.
const DEFAULT_MAX_STALE: Duration = DAY;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The scope that every actor token must carry: it was issued to a user who signed in (OpenID Connect Core §3.1.2.1).
const OPENID: &str = "openid";

pub(super) fn config(
    value: &Value,
    surroundings: &dyn Surroundings,
) -> Result<Config, ConfigError> {
    let reading =
        Reading { surroundings, problems: RefCell::default(), warnings: RefCell::default() };
    let config = root(Node { reading: &reading, path: String::new(), value });
    let problems = reading.problems.into_inner();
    match config {
        Some(config) if problems.is_empty() => {
            Ok(Config { warnings: reading.warnings.into_inner(), ..config })
        }
        _ => Err(ConfigError { problems }),
    }
}

fn root(node: Node<'_>) -> Option<Config> {
    let mut members = node.object()?;
    let issuer = members.required("issuer", issuer);
    let base_path = members.or("base_path", String::new(), base_path);
    let keys = members.required("signing_keys", signing_keys);
    let store = members.or("store", Store::default(), store);
    let in_etcd = matches!(store, Some(Store::Etcd(_)));
    let subject_tokens = members.required("subject_tokens", subject_tokens);
    let impersonations = members
        .or("impersonations", Impersonations::default(), |node| impersonations(node, in_etcd));
    let access_token_lifetime =
        members.or("access_tokens", Duration::from_secs(3600), access_tokens);
    let actor_tokens = members.or("actor_tokens", ActorTokens::default(), actor_tokens);
    let resources = members.required("resources", resources);
    let accepts_actors = actor_tokens.as_ref().is_none_or(|actors| !actors.verification.is_empty());
    let requires_actors = actor_tokens.as_ref().is_none_or(|actors| actors.required);
    let clients = members.required("clients", |node| {
        clients(node, resources.as_ref(), accepts_actors, requires_actors)
    });
    let foreign_subject_tokens =
        members.or("foreign_subject_tokens", ForeignSubjectTokens::Refuse, |node| {
            node.one_of(&[
                ("refuse", ForeignSubjectTokens::Refuse),
                ("pass_through", ForeignSubjectTokens::PassThrough),
            ])
        });
    let custom_claims = members.optional("custom_claims", custom_claims);
    let authorize_subject_token =
        members.optional("authorize_subject_token", authorize_subject_token);
    let audit = members.or("audit", (false, AuditLog::Both), |node| {
        let mut members = node.object()?;
        let context = members.or("context", false, Node::boolean);
        let log = members.or("log", AuditLog::Both, |node| {
            node.one_of(&[("envoy", AuditLog::Envoy), ("access_log", AuditLog::AccessLog)])
        });
        members.finish();
        Some((context?, log?))
    });
    let documents = members.or("identity_gateway", DocumentSource::Merged, identity_gateway);
    members.finish();

    let (signing_key, published_keys) = keys?;
    let (audit_context, audit_log) = audit?;
    Some(Config {
        issuer: issuer?,
        base_path: base_path?,
        signing_key,
        published_keys,
        subject_tokens: subject_tokens?,
        store: store?,
        access_token_lifetime: access_token_lifetime?,
        actor_tokens: actor_tokens?,
        clients: clients?,
        resources: resources?,
        custom_claims: custom_claims?,
        authorize_subject_token: authorize_subject_token?,
        impersonations: impersonations?,
        documents: documents?,
        foreign_subject_tokens: foreign_subject_tokens?,
        audit_context,
        audit_log,
        warnings: Vec::new(),
    })
}

fn identity_gateway(node: Node<'_>) -> Option<DocumentSource> {
    let mut members = node.object()?;
    let documents = members.or("documents", DocumentSource::Merged, |node| {
        node.one_of(&[("merge", DocumentSource::Merged), ("none", DocumentSource::Alone)])
    });
    members.finish();
    documents
}

pub(super) fn issuer(node: Node<'_>) -> Option<String> {
    let text = node.clone().string()?;
    match uri::HttpUrl::parse(text) {
        Some(url) if !url.path.contains('?') && !text.ends_with('/') => Some(text.to_owned()),
        _ => node
            .problem("expected an http or https URL without query, fragment or slash at the end"),
    }
}

pub(super) fn base_path(node: Node<'_>) -> Option<String> {
    let text = node.clone().string()?;
    let valid = text.is_empty()
        || text.starts_with('/')
            && !text.ends_with('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\"<>\\".contains(&byte));
    if valid {
        Some(text.to_owned())
    } else {
        node.problem("expected an empty string, or a path such as /tenant-a")
    }
}

fn signing_keys(node: Node<'_>) -> Option<(SigningKey, Vec<PublishedKey>)> {
    let list = node.clone();
    let keys = node.list(signing_key)?;
    let mut published: Vec<PublishedKey> = Vec::new();
    let mut signing = None;
    for (index, (jwk, public, private)) in keys.into_iter().enumerate() {
        if index == 0 {
            signing = private.map(|algorithm| SigningKey {
                jwk: Secret::new(jwk),
                kid: public.kid.clone(),
                algorithm,
            });
        }
        if published.iter().any(|earlier| earlier.kid == public.kid) {
            return list
                .item(index)
                .problem(format!("another key has the kid {:?} too", public.kid));
        }
        published.push(public);
    }
    match signing {
        Some(signing) => Some((signing, published)),
        None if published.is_empty() => list.problem("expected at least one key"),
        None => list.item(0).problem("expected a private key: the first key signs"),
    }
}

/// A key as it was given, as it is published, and what it signs with if it is private.
fn signing_key(node: Node<'_>) -> Option<(Value, PublishedKey, Option<Algorithm>)> {
    let place = node.clone();
    let mut members = node.object()?;
    let kid = members.optional("kid", Node::non_empty_string);
    let alg = members.optional("alg", Node::non_empty_string);
    let source = members.exactly_one(&["jwk", "environment_variable", "pem"]);
    members.finish();
    let (kid, alg) = (kid?, alg?);
    let (name, source) = source?;
    let jwk = match name {
        "jwk" => match source.value {
            Value::Object(_) => Ok(source.value.clone()),
            _ => return source.problem("expected a JWK: an object"),
        },
        "pem" => private_from_pem(source.clone().string()?),
        _ => {
            let text = variable(&source)?;
            match serde_json::from_str(&text) {
                Ok(jwk @ Value::Object(_)) => Ok(jwk),
                _ => private_from_pem(&text),
            }
        }
    };
    if let Ok(jwk) = &jwk {
        for (name, beside) in [("kid", &kid), ("alg", &alg)] {
            let within = jwk.get(name).and_then(Value::as_str);
            if within.zip(beside.as_deref()).is_some_and(|(within, beside)| within != beside) {
                return place.member(name).problem(format!("the key itself has another {name}"));
            }
        }
    }
    let read = |jwk| {
        let (public, private) = PublishedKey::from_jwk(&jwk, kid.as_deref(), alg.as_deref())?;
        Ok((jwk, public, private.map(|key| key.algorithm())))
    };
    match jwk.and_then(read) {
        Ok(key) => Some(key),
        Err(error) => source.problem(format!("expected {error}")),
    }
}

/// The value of the environment variable that a node names.
fn variable(node: &Node<'_>) -> Option<String> {
    let name = node.clone().non_empty_string()?;
    match node.reading.surroundings.variable(&name).filter(|value| !value.is_empty()) {
        Some(value) => Some(value),
        // The name is not repeated: it may be the secret itself, put here by mistake.
        None => node.problem(
            "expected the name of an environment variable that is set; in Envoy it must be listed in vm_config.environment_variables",
        ),
    }
}

fn subject_tokens(node: Node<'_>) -> Option<SubjectTokens> {
    let mut members = node.object()?;
    let lifetime = members.or("lifetime", Duration::from_secs(600), |node| node.lifetime(DAY));
    let max_context_bytes = members.or("max_context_bytes", 4096, |node| node.integer(2, 65_536));
    let authentication =
        members.required("authentication", |node| authentication(node, Asked::Nothing));
    let user_lookup = members.optional("user_lookup", user_lookup);
    let rules = rules(&mut members);
    // Whoever presents a spent token has what is not theirs.
    let on_replay = members.or("on_replay", OnReplay::Revoke, |node| {
        node.one_of(&[("revoke", OnReplay::Revoke), ("report", OnReplay::Report)])
    });
    members.moved("store", "store");
    members.finish();
    Some(SubjectTokens {
        lifetime: lifetime?,
        max_context_bytes: usize::try_from(max_context_bytes?).ok()?,
        authentication: authentication?,
        user_lookup: user_lookup?,
        rules: rules?,
        on_replay: on_replay?,
    })
}

fn impersonations(node: Node<'_>, in_etcd: bool) -> Option<Impersonations> {
    let mut members = node.object()?;
    let authentication =
        members.required("authentication", |node| authentication(node, Asked::ByTheEndpoint));
    let capacity = members.or("capacity", DEFAULT_CAPACITY, |node| {
        if in_etcd {
            node.warn("etcd has room for all: this says nothing here");
        }
        u32::try_from(node.integer(1, u64::from(MAX_CAPACITY))?).ok()
    });
    members.finish();
    Some(Impersonations { authentication: authentication?, capacity: capacity? })
}

/// The ways to verify who calls an endpoint, of which there must be one.
fn authentication(node: Node<'_>, asked: Asked) -> Option<Verification> {
    let mut members = node.object()?;
    let jwt = members.optional("jwt", |node| jwt_issuers(node, asked));
    let introspection = members.optional("introspection", |node| introspection(node, asked));
    let node = members.node().clone();
    members.finish();
    let authentication = Verification {
        jwt: jwt?.unwrap_or_default(),
        userinfo: None,
        introspection: introspection?,
    };
    if authentication.is_empty() {
        return node.problem("expected a way to verify who calls: jwt or introspection");
    }
    Some(authentication)
}

fn store(node: Node<'_>) -> Option<Store> {
    let mut members = node.object()?;
    let shared_data = members.optional("shared_data", |node| {
        let mut members = node.object()?;
        let capacity = members.or("capacity", DEFAULT_CAPACITY, |node| {
            u32::try_from(node.integer(1, u64::from(MAX_CAPACITY))?).ok()
        });
        members.finish();
        Some(Store::SharedData { capacity: capacity? })
    });
    let etcd = members.optional("etcd", etcd);
    let node = members.node().clone();
    members.finish();
    match (shared_data?, etcd?) {
        (Some(_), Some(_)) => node.problem("expected one of shared_data and etcd, not both"),
        (shared_data, None) => Some(shared_data.unwrap_or_default()),
        (None, Some(etcd)) => Some(Store::Etcd(etcd)),
    }
}

/// Where etcd is: for whoever keeps something there.
pub(super) fn etcd(node: Node<'_>) -> Option<EtcdSettings> {
    // Envoy is told both in one short message: see the plugin's glue for gRPC.
    const LONGEST_NAMES: usize = 120;
    let place = node.clone();
    let mut members = node.object()?;
    let cluster = members.required("cluster", Node::non_empty_string);
    let authority = members.optional("authority", Node::non_empty_string);
    let prefix = members.or("prefix", "/impersonation/".to_owned(), |node| {
        let text = node.clone().non_empty_string()?;
        let printable = text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic());
        if printable {
            Some(text)
        } else {
            node.problem("expected at most 256 printable ASCII characters without spaces")
        }
    });
    let timeout = members.or("timeout", Duration::from_millis(3500), |node| {
        node.duration(Duration::from_millis(100), Duration::from_secs(60))
    });
    members.finish();
    let (cluster, authority) = (cluster?, authority?);
    let names = authority.as_ref().map_or(0, String::len).saturating_add(cluster.len());
    if names > LONGEST_NAMES {
        return place.problem(format!(
            "expected cluster and authority together no longer than {LONGEST_NAMES} bytes"
        ));
    }
    Some(EtcdSettings {
        cluster: cluster.into(),
        prefix: prefix?,
        timeout: timeout?,
        authority: authority.map(Into::into),
    })
}

fn access_tokens(node: Node<'_>) -> Option<Duration> {
    let mut members = node.object()?;
    let lifetime = members.or("lifetime", Duration::from_secs(3600), |node| node.lifetime(DAY));
    members.finish();
    lifetime
}

fn actor_tokens(node: Node<'_>) -> Option<ActorTokens> {
    let mut members = node.object()?;
    let required = members.or("required", false, Node::boolean);
    let jwt = members.optional("jwt", |node| jwt_issuers(node, Asked::Always(OPENID)));
    let userinfo = members.optional("userinfo", userinfo);
    let introspection =
        members.optional("introspection", |node| introspection(node, Asked::Always(OPENID)));
    let node = members.node().clone();
    members.finish();
    let verification = Verification {
        jwt: jwt?.unwrap_or_default(),
        userinfo: userinfo?,
        introspection: introspection?,
    };
    let required = required?;
    if required && verification.is_empty() {
        return node.problem(
            "actor tokens are required, but no way to verify them is given: \
             expected jwt, userinfo or introspection",
        );
    }
    Some(ActorTokens { required, verification })
}

/// An `HttpUri`. `placeholder` may stand in its path.
fn http_uri(node: Node<'_>, placeholder: Option<&str>) -> Option<HttpUri> {
    let mut members = node.object()?;
    let uri = members.required("uri", |node| {
        let text = node.clone().string()?;
        let url = match placeholder {
            Some(name) => uri::HttpUrl::parse_template(text, name),
            None => uri::HttpUrl::parse(text),
        };
        match url {
            Some(url) if placeholder.is_none_or(|name| url.path.matches(name).count() == 1) => {
                Some(url)
            }
            Some(_) => node
                .problem(format!("expected {} once in the path", placeholder.unwrap_or_default())),
            None => {
                node.problem("expected an http or https URL without user information and fragment")
            }
        }
    });
    let cluster = members.required("cluster", Node::non_empty_string);
    let timeout = members.or("timeout", Duration::from_secs(2), |node| {
        node.duration(Duration::from_millis(1), Duration::from_secs(60))
    });
    members.finish();
    let uri = uri?;
    Some(HttpUri {
        cluster: cluster?.into(),
        scheme: uri.scheme.into(),
        authority: uri.authority.into(),
        path: uri.path.to_owned(),
        timeout: timeout?,
    })
}

/// How long an answer about an opaque token is remembered: revocation waits as long.
fn answers_cached_for(members: &mut Members<'_>) -> Option<Duration> {
    const MOST: Duration = Duration::from_secs(10);
    members.or("cache_duration", MOST, |node| node.duration(Duration::ZERO, MOST))
}

fn introspection(node: Node<'_>, asked: Asked) -> Option<Introspection> {
    let mut members = node.object()?;
    let http_uri = members.required("http_uri", |node| http_uri(node, None));
    let client_id = members.required("client_id", Node::non_empty_string);
    let client_secret = members.required("client_secret", |node| {
        let (_, secret) = data_source(node)?;
        Some(Secret::new(secret))
    });
    let required_scopes = required_scopes(&mut members, asked);
    let audiences = members.optional("audiences", audiences);
    if matches!(audiences, Some(None)) {
        members.node().warn("no audiences: a token that is meant for anybody is accepted");
    }
    let client_ids = client_ids(&mut members, asked);
    let cache_duration = answers_cached_for(&mut members);
    members.finish();
    let rules = TokenRules {
        required_scopes: required_scopes?,
        audiences: audiences?,
        client_ids: client_ids?,
    };
    Some(Introspection {
        http_uri: http_uri?,
        client_id: client_id?,
        client_secret: client_secret?,
        rules,
        cache_duration: cache_duration?,
    })
}

fn userinfo(node: Node<'_>) -> Option<Userinfo> {
    let mut members = node.object()?;
    let http_uri = members.required("http_uri", |node| http_uri(node, None));
    let cache_duration = answers_cached_for(&mut members);
    members.finish();
    Some(Userinfo { http_uri: http_uri?, cache_duration: cache_duration? })
}

fn user_lookup(node: Node<'_>) -> Option<UserLookup> {
    let mut members = node.object()?;
    let http_uri = members.required("http_uri", |node| http_uri(node, Some(USER_ID_PLACEHOLDER)));
    let user_id_member = members.optional("user_id_member", Node::non_empty_string);
    members.finish();
    Some(UserLookup { http_uri: http_uri?, user_id_member: user_id_member? })
}

/// The rules for what may be minted, among the members of `subject_tokens`.
fn rules(members: &mut Members<'_>) -> Option<Rules> {
    // A refusal names the member, in an `error_description`.
    let told = |byte: u8| matches!(byte, 0x20..=0x7e) && !b"\"\\".contains(&byte);
    let required_context = members.or("required_context", Vec::new(), |node| {
        node.list(|node| match node.clone().non_empty_string()? {
            name if name.bytes().all(told) => Some(name),
            _ => node.problem("expected printable ASCII without quotes and backslashes"),
        })
    });
    let protected_users = members.or("protected_users", Vec::new(), |node| {
        node.list(|node| match UserPattern::parse(node.clone().string()?) {
            Some(pattern) => Some(pattern),
            None => node.problem("expected a user, or the beginning of a name and * at the end"),
        })
    });
    let max_mints_per_caller = members.optional("max_mints_per_caller", |node| {
        let mut members = node.object()?;
        let count = members.required("count", |node| node.integer(1, u64::from(u32::MAX)));
        let per = members.required("per", |node| node.lifetime(DAY));
        members.finish();
        Some(MintRate { count: u32::try_from(count?).ok()?, per: per? })
    });
    Some(Rules {
        required_context: required_context?,
        protected_users: protected_users?,
        max_mints_per_caller: max_mints_per_caller?,
    })
}

/// What is asked of every token in a place, beside what the operator asks for there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Nothing: whoever has one may mint.
    Nothing,
    /// This scope.
    Always(&'static str),
    /// The scope that the endpoint is for.
    ByTheEndpoint,
}

/// The scopes to ask for. Where none are asked for, anybody may.
fn required_scopes(members: &mut Members<'_>, asked: Asked) -> Option<Rc<[String]>> {
    let always_required = match asked {
        Asked::Always(scope) => Some(scope),
        Asked::Nothing | Asked::ByTheEndpoint => None,
    };
    let mut scopes = members.or("required_scopes", Vec::new(), |node| node.list(scope_token))?;
    let missing = always_required.filter(|scope| !scopes.iter().any(|known| known == scope));
    scopes.extend(missing.map(str::to_owned));
    if scopes.is_empty() && asked == Asked::Nothing {
        members.node().warn("no required_scopes: any token of this issuer may mint");
    }
    Some(scopes.into())
}

/// The clients whose tokens may mint, or list and end. Of actor tokens nobody asks this: they have a scope of their
/// own.
#[expect(clippy::option_option, reason = "a problem and an absence are two things")]
fn client_ids(members: &mut Members<'_>, asked: Asked) -> Option<Option<Vec<String>>> {
    if matches!(asked, Asked::Always(_)) {
        return Some(None);
    }
    let client_ids = members.optional("client_ids", |node| match node.clone().strings()? {
        client_ids if client_ids.is_empty() => node.problem("expected at least one client"),
        client_ids => Some(client_ids),
    });
    if matches!(client_ids, Some(None)) && asked == Asked::Nothing {
        members
            .node()
            .warn("no client_ids: the tokens of any client may mint, those of its users too");
    }
    client_ids
}

fn audiences(node: Node<'_>) -> Option<Vec<String>> {
    match node.clone().strings()? {
        audiences if audiences.is_empty() => node.problem("expected at least one audience"),
        audiences => Some(audiences),
    }
}

/// The text of an Envoy `DataSource`, and where it came from.
fn data_source(node: Node<'_>) -> Option<(Node<'_>, String)> {
    let mut members = node.object()?;
    let source = members.exactly_one(&["inline_string", "environment_variable"]);
    members.finish();
    let (name, source) = source?;
    let text = match name {
        "inline_string" => source.clone().non_empty_string()?,
        _ => variable(&source)?,
    };
    Some((source, text))
}

/// A list of issuers. Each is asked for the same besides its own `required_scopes`.
fn jwt_issuers(node: Node<'_>, asked: Asked) -> Option<Vec<JwtIssuer>> {
    let list = node.clone();
    let issuers = node.list(|node| jwt_issuer(node, asked))?;
    if issuers.is_empty() {
        return list.problem("expected at least one issuer");
    }
    for (index, issuer) in issuers.iter().enumerate() {
        if issuers.iter().take(index).any(|earlier| earlier.issuer == issuer.issuer) {
            let problem = format!("{:?} is given twice", issuer.issuer);
            return list.item(index).member("issuer").problem(problem);
        }
    }
    Some(issuers)
}

fn jwt_issuer(node: Node<'_>, asked: Asked) -> Option<JwtIssuer> {
    let mut members = node.object()?;
    let issuer = members.required("issuer", Node::non_empty_string);
    let audiences = members.required("audiences", audiences);
    let required_scopes = required_scopes(&mut members, asked);
    let client_ids = client_ids(&mut members, asked);
    let clock_skew = members.or("clock_skew", Duration::from_secs(60), |node| {
        node.duration(Duration::ZERO, Duration::from_secs(3600))
    });
    let keys =
        members.exactly_one(&["remote_jwks", "local_jwks"]).and_then(|(name, node)| match name {
            "remote_jwks" => remote_jwks(node),
            _ => local_jwks(node),
        });
    members.finish();
    Some(JwtIssuer {
        issuer: issuer?,
        audiences: audiences?,
        required_scopes: required_scopes?,
        client_ids: client_ids?,
        clock_skew: clock_skew?,
        keys: keys?,
    })
}

fn custom_claims(node: Node<'_>) -> Option<CustomClaims> {
    let mut members = node.object()?;
    let function = OperatorsFunction::read(&mut members);
    let on_error = members.or("on_error", OnError::Refuse, |node| {
        node.one_of(&[("refuse", OnError::Refuse), ("issue_without", OnError::IssueWithout)])
    });
    members.finish();
    let OperatorsFunction { node, script, limits, environment_variables } = function?;
    let custom_claims = CustomClaims { script, environment_variables, limits, on_error: on_error? };
    match node.reading.surroundings.try_script(&custom_claims) {
        Ok(()) => Some(custom_claims),
        Err(problem) => node.problem(problem),
    }
}

/// With the same members, but one that there is no choice in: a decision that failed allows nothing.
fn authorize_subject_token(node: Node<'_>) -> Option<AuthorizeSubjectToken> {
    let mut members = node.object()?;
    let function = OperatorsFunction::read(&mut members);
    let on_error = members.or("on_error", (), |node| node.one_of(&[("refuse", ())]));
    members.finish();
    let OperatorsFunction { node, script, limits, environment_variables } = function?;
    on_error?;
    let written = AuthorizeSubjectToken { script, environment_variables, limits };
    match node.reading.surroundings.try_authorizer(&written) {
        Ok(()) => Some(written),
        Err(problem) => node.problem(problem),
    }
}

/// What is the same for each function that the operator brings.
struct OperatorsFunction<'r> {
    /// Where the script stands.
    node: Node<'r>,
    script: String,
    limits: Limits,
    environment_variables: Secret<BTreeMap<String, String>>,
}

impl<'r> OperatorsFunction<'r> {
    fn read(members: &mut Members<'r>) -> Option<Self> {
        let defaults = Limits::default();
        let script = members.required("script", |node| {
            let text = node.clone().non_empty_string()?;
            Some((node, text))
        });
        let environment_variables = members.or("environment_variables", BTreeMap::new(), |node| {
            node.entries()?
                .into_iter()
                .map(|(name, node)| Some((name, node.string()?.to_owned())))
                .collect()
        });
        let timeout = members.or("timeout", defaults.timeout, |node| {
            node.duration(*Limits::TIMEOUTS.start(), *Limits::TIMEOUTS.end())
        });
        let memory_bytes = members.or("memory_limit_bytes", defaults.memory_bytes, |node| {
            let (least, most) = Limits::MEMORY_BYTES.into_inner();
            usize::try_from(node.integer(least, most)?).ok()
        });
        let (node, script) = script?;
        let limits = Limits { timeout: timeout?, memory_bytes: memory_bytes?, ..defaults };
        let environment_variables = Secret::new(environment_variables?);
        Some(Self { node, script, limits, environment_variables })
    }
}

fn scope_token(node: Node<'_>) -> Option<String> {
    let text = node.clone().string()?;
    if scope::is_scope_token(text) {
        return Some(text.to_owned());
    }
    node.problem("expected one scope: printable ASCII without spaces, quotes or backslashes")
}

fn remote_jwks(node: Node<'_>) -> Option<Jwks> {
    let place = node.clone();
    let mut members = node.object()?;
    let http_uri = members.required("http_uri", |node| http_uri(node, None));
    let cache_duration = members.or("cache_duration", Duration::from_secs(300), |node| {
        node.duration(Duration::from_secs(1), DAY)
    });
    let max_stale = members.or("max_stale", DEFAULT_MAX_STALE, |node| {
        node.duration(Duration::ZERO, DAY.saturating_mul(365))
    });
    members.finish();
    let (cache_duration, max_stale) = (cache_duration?, max_stale?);
    if !max_stale.is_zero() && max_stale < cache_duration {
        return place.member("max_stale").problem("expected at least cache_duration, or 0s");
    }
    Some(Jwks::Remote(RemoteJwks { http_uri: http_uri?, cache_duration, max_stale }))
}

fn local_jwks(node: Node<'_>) -> Option<Jwks> {
    let (source, text) = data_source(node)?;
    let Some(set) = KeySet::parse(text.as_bytes()) else {
        return source.problem("expected a JWK set: {\"keys\": [...]}");
    };
    for (position, error) in &set.broken {
        let _: Option<()> = source.problem(format!("keys[{position}]: {error}"));
    }
    if set.is_empty() && set.broken.is_empty() {
        return source.problem(
            "expected at least one key for RS256, RS384, RS512, PS256, ES256, ES384, EdDSA or Ed25519",
        );
    }
    set.broken.is_empty().then(|| Jwks::Local(Rc::new(set)))
}

fn clients(
    node: Node<'_>,
    resources: Option<&HashMap<String, Resource>>,
    accepts_actors: bool,
    requires_actors: bool,
) -> Option<HashMap<String, Rc<Client>>> {
    let list = node.clone();
    let listed = node.list(|node| client(node, resources, accepts_actors))?;
    if !requires_actors {
        warn_of_weaker_clients(&list, &listed);
    }
    let mut clients = HashMap::new();
    for (index, client) in listed.into_iter().enumerate() {
        let client_id = client.client_id.clone();
        if clients.insert(client_id.clone(), Rc::new(client)).is_some() {
            let problem = format!("{client_id:?} is given twice");
            return list.item(index).member("client_id").problem(problem);
        }
    }
    Some(clients)
}

/// A subject token is not for one client alone: what one is refused because it names no actor, another gets
/// that need not. So a requirement holds for a resource if each client that may ask for it has it.
fn warn_of_weaker_clients(list: &Node<'_>, clients: &[Client]) {
    let share_a_resource = |one: &Client, other: &Client| match (&one.resources, &other.resources) {
        (Some(one), Some(other)) => one.iter().any(|resource| other.contains(resource)),
        (Some(some), None) | (None, Some(some)) => !some.is_empty(),
        (None, None) => true,
    };
    for (index, client) in clients.iter().enumerate() {
        let stricter = clients
            .iter()
            .find(|other| other.actor_token_required && share_a_resource(client, other))
            .filter(|_| !client.actor_token_required);
        if let Some(stricter) = stricter {
            list.clone().item(index).warn(format!(
                "exchanges without an actor token what {:?} must have one for: \
                 set actor_token_required here too, or actor_tokens.required",
                stricter.client_id
            ));
        }
    }
}

fn client(
    node: Node<'_>,
    resources: Option<&HashMap<String, Resource>>,
    accepts_actors: bool,
) -> Option<Client> {
    let mut members = node.object()?;
    let client_id = members.required("client_id", Node::non_empty_string);
    let r#type = members.required("type", |node| {
        node.one_of(&[
            ("traditional_web", ClientType::TraditionalWeb),
            ("machine_to_machine", ClientType::MachineToMachine),
            ("single_page", ClientType::SinglePage),
            ("native", ClientType::Native),
        ])
    });
    let secrets = members.optional("client_secret_sha256", |node| node.list(secret_digest));
    let allowed = members.optional("resources", |node| {
        node.list(|node| {
            let indicator = node.clone().non_empty_string()?;
            match resources {
                Some(resources) if !resources.contains_key(&indicator) => {
                    node.problem("expected the indicator of one of the resources")
                }
                _ => Some(indicator),
            }
        })
    });
    let actor_token_required = members.or("actor_token_required", false, |node| {
        let required = node.clone().boolean()?;
        if required && !accepts_actors {
            return node.problem("no way to verify actor tokens is given in actor_tokens");
        }
        Some(required)
    });
    let node = members.node().clone();
    members.finish();
    let client = Client {
        client_id: client_id?,
        r#type: r#type?,
        secret_digests: secrets.clone()?.unwrap_or_default(),
        resources: allowed?,
        actor_token_required: actor_token_required?,
    };
    if client.is_confidential() && client.secret_digests.is_empty() {
        return node.problem("a confidential client needs client_secret_sha256 (see `impersonation-filter hash-secret`)");
    }
    if !client.is_confidential() && secrets?.is_some() {
        return node.problem("a public client (single_page, native) cannot keep a secret: leave client_secret_sha256 out");
    }
    Some(client)
}

fn secret_digest(node: Node<'_>) -> Option<Digest> {
    match Digest::from_hex(node.clone().string()?) {
        Some(digest) => Some(digest),
        None => node.problem(
            "expected a SHA-256 in 64 hex digits (see `impersonation-filter hash-secret`)",
        ),
    }
}

fn resources(node: Node<'_>) -> Option<HashMap<String, Resource>> {
    let list = node.clone();
    let mut resources = HashMap::new();
    for (index, (indicator, resource)) in node.list(resource)?.into_iter().enumerate() {
        if resources.insert(indicator.clone(), resource).is_some() {
            let problem = format!("{indicator:?} is given twice");
            return list.item(index).member("indicator").problem(problem);
        }
    }
    Some(resources)
}

fn resource(node: Node<'_>) -> Option<(String, Resource)> {
    let mut members = node.object()?;
    let indicator = members.required("indicator", |node| {
        let text = node.clone().string()?;
        if uri::is_absolute(text) {
            return Some(text.to_owned());
        }
        node.problem("expected an absolute URI without a fragment (RFC 8707)")
    });
    let scopes = members.or("scopes", Vec::new(), |node| node.list(scope_token));
    let access_token_lifetime =
        members.optional("access_token_lifetime", |node| node.lifetime(DAY));
    members.finish();
    Some((indicator?, Resource { scopes: scopes?, access_token_lifetime: access_token_lifetime? }))
}

#[cfg(test)]
mod tests;
