//! The filter's configuration as a whole.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::audit::AuditLog;
use super::clients::{Client, Clients, check_actors, check_resources, warn_of_weaker_clients};
use super::functions::{AuthorizeSubjectToken, CustomClaims};
use super::impersonations::Impersonations;
use super::kinds::{Boolean, Lifetime, OneOf, Words};
use super::name_prefix::warn_of_two_names;
use super::node::Node;
use super::resources::{Resource, Resources};
use super::section::{Kind, read_whole, section};
use super::service::{BasePath, Issuer, tenant};
use super::signing_keys::{Keys, SigningKey, SigningKeys};
use super::store::Store;
use super::subject_tokens::SubjectTokens;
use super::verification::{ActorTokens, names};
use super::{ConfigError, Problem, Surroundings};
use crate::jose::PublishedKey;
use crate::secret::Secret;

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
    /// What authenticates records in etcd: one for each private key, in their order.
    pub record_keys: Vec<Secret<[u8; 16]>>,
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

/// What becomes of an exchange whose subject token is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignSubjectTokens {
    /// It is refused.
    Refuse,
    /// It goes on to the identity gateway.
    PassThrough,
}

impl Words for ForeignSubjectTokens {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Self::Refuse), ("pass_through", Self::PassThrough)];
}

/// Where the key set and the metadata come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentSource {
    /// The identity gateway's, with ours added.
    Merged,
    /// Ours alone: there is no gateway.
    Alone,
}

impl Words for DocumentSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("merge", Self::Merged), ("none", Self::Alone)];
}

section! {
    /// Configuration of the impersonation filter.
    struct FilterMembers {
        /// `iss` of the access tokens. No query, no fragment, no slash at the end. Behind an identity
        /// gateway: the gateway's issuer.
        issuer: Issuer,
        /// The path part of the service's address, such as `/tenant-a`: what comes before
        /// `/api/subject-tokens` and `/oidc/token`.
        base_path: BasePath = "",
        /// The first key signs, all are published.
        signing_keys: SigningKeys,
        /// How subject tokens are minted.
        subject_tokens: SubjectTokens,
        /// Who may list and end impersonations.
        impersonations: Impersonations => "nobody may",
        /// Where subject tokens are until they are exchanged.
        store: Store = {},
        /// How long access tokens are good for.
        access_tokens: AccessTokens = {},
        /// Who is acting.
        actor_tokens: ActorTokens => "none is accepted",
        /// Who may exchange subject tokens.
        clients: Clients,
        /// What access tokens may be for.
        resources: Resources,
        /// What becomes of a token exchange whose subject token does not begin with `sub_`: it is
        /// answered with `invalid_request`, or goes on to the identity gateway.
        foreign_subject_tokens: OneOf<ForeignSubjectTokens> = "refuse",
        /// What is behind the filter.
        identity_gateway: IdentityGateway = {},
        /// What is written down about requests.
        audit: Audit = {},
        /// The operator's function that decides about mints. A module that was built without the engine
        /// refuses it.
        authorize_subject_token: AuthorizeSubjectToken => "none",
        /// What the operator's function adds to the token. A module that was built [without the
        /// engine](#a-module-without-the-engine) refuses it.
        custom_claims: CustomClaims => "none",
    }
}

section! {
    /// Access tokens.
    struct AccessTokens {
        /// How long access tokens are good for, unless their resource says otherwise.
        lifetime: Lifetime = "3600s",
    }
}

section! {
    /// The identity gateway.
    struct IdentityGateway {
        /// Whether there is a gateway behind the filter whose key set and discovery document ours are
        /// added to, or the filter serves both alone.
        documents: OneOf<DocumentSource> = "merge",
    }
}

section! {
    /// The audit.
    struct Audit {
        /// Whether audit lines have the free-form context of the mint. It may hold personal data.
        context: Boolean = false,
        /// Where audit events are written down: in Envoy's log alone, or [for an access
        /// log](operations.md#one-place-for-the-audit) alone.
        log: OneOf<AuditLog> => "both",
    }
}

impl Kind for Config {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let place = node.clone();
        let members = FilterMembers::read(node)?;
        let clients = place.clone().member("clients");
        check_resources(&clients, &members.clients, &members.resources);
        let actor_tokens = members.actor_tokens.unwrap_or_default();
        if actor_tokens.verification.is_empty() {
            check_actors(&clients, &members.clients);
        }
        if !actor_tokens.required {
            warn_of_weaker_clients(&clients, &members.clients);
        }
        if members.impersonations.is_none() {
            place.clone().member("impersonations").warn(
                "absent: nobody can list impersonations, or end those of a user, an actor or a client",
            );
        }
        let impersonations = members.impersonations.unwrap_or_default();
        let lists = [
            (
                "subject_tokens.authentication.jwt",
                names(&members.subject_tokens.authentication.jwt),
            ),
            ("actor_tokens.jwt", names(&actor_tokens.verification.jwt)),
            ("impersonations.authentication.jwt", names(&impersonations.authentication.jwt)),
        ];
        warn_of_two_names(&place, &lists);
        if matches!(members.store, Store::Etcd(_)) && impersonations.capacity.is_some() {
            let capacity = place.member("impersonations").member("capacity");
            capacity.warn("has no effect: etcd has room for all");
        }
        let Keys { signing: signing_key, published: published_keys, records: record_keys } =
            members.signing_keys;
        let by_name = |client: Rc<Client>| (client.client_id.clone(), client);
        Some(Self {
            issuer: members.issuer,
            base_path: members.base_path,
            signing_key,
            published_keys,
            record_keys,
            subject_tokens: members.subject_tokens,
            store: members.store,
            access_token_lifetime: members.access_tokens.lifetime,
            actor_tokens,
            clients: members.clients.into_iter().map(by_name).collect(),
            resources: members.resources,
            custom_claims: members.custom_claims,
            authorize_subject_token: members.authorize_subject_token,
            impersonations,
            documents: members.identity_gateway.documents,
            foreign_subject_tokens: members.foreign_subject_tokens,
            audit_context: members.audit.context,
            audit_log: members.audit.log.unwrap_or(AuditLog::Both),
            warnings: Vec::new(),
        })
    }

    #[cfg(test)]
    fn describe(descriptions: &mut super::describe::Descriptions) -> super::describe::Described {
        FilterMembers::describe(descriptions)
    }
}

impl Config {
    /// Reads a configuration, decoded.
    pub fn from_value(value: &Value, surroundings: &dyn Surroundings) -> Result<Self, ConfigError> {
        let (config, warnings) = read_whole::<Self>(value, surroundings)?;
        Ok(Self { warnings, ..config })
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

#[cfg(test)]
mod tests;
