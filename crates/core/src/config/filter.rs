//! The configuration of the filter as a whole.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::approvals::Approvals;
use super::audit::AuditLog;
use super::authzen::DecisionPoint;
use super::binding::{CertificateSource, CertificateUse, Dpop, TokenBinding};
use super::browser_sessions::BrowserSessions;
use super::clients::{Client, ClientList, check_actors, check_resources, warn_of_weaker_clients};
use super::console::Console;
use super::events;
use super::functions::{AuthorizeSubjectToken, CustomClaimsSettings};
use super::impersonations::Impersonations;
use super::kinds::{Boolean, Lifetime, NonEmpty, OneOf, Text, Words};
use super::name_prefix::{NamedList, refuse_two_names, refuse_unnamed};
use super::node::Node;
use super::notifications::Hook;
use super::paths::{IfAskedFor, PathMembers, Paths};
use super::profile::{Profile, Profiled};
use super::resources::{Resource, Resources};
use super::section::{Raw, Refined, read_whole, section};
use super::service::{BasePath, IssuerUri, OriginUri, tenant};
use super::signing_keys::{OwnKeys, SigningJwk, SigningKeys};
use super::store::StoreSettings;
use super::subject_tokens::SubjectTokens;
use super::verification::{ActorTokens, Verification, names};
use super::{ConfigEnvironment, ConfigError, Problem};
use crate::jose::{AccessTokenType, PublishedKey};
use crate::secret::Secret;

/// A whole, valid configuration.
#[derive(Debug)]
pub struct Config {
    /// `iss` of the issued tokens.
    pub issuer: String,
    /// The path part of the service's address, without a slash at the end.
    pub base_path: String,
    /// The paths of the endpoints.
    pub paths: Paths,
    /// The key that signs.
    pub signing_key: SigningJwk,
    /// All keys that are published in the key set.
    pub published_keys: Vec<PublishedKey>,
    /// Keys that authenticate records in etcd: one for each private signing key, in the same order.
    pub record_keys: Vec<Secret<[u8; 16]>>,
    /// The settings for mints.
    pub subject_tokens: SubjectTokens,
    /// The store of the subject tokens.
    pub store: StoreSettings,
    /// The lifetime of an access token whose resource sets none.
    pub access_token_lifetime: Duration,
    /// `typ` of an access token whose resource sets none.
    pub access_token_type: AccessTokenType,
    /// The settings by which acting users are verified.
    pub actor_tokens: ActorTokens,
    /// The clients by `client_id`.
    pub clients: HashMap<String, Rc<Client>>,
    /// The resources by indicator.
    pub resources: HashMap<String, Resource>,
    /// The operator's function that adds claims, if there is one.
    pub custom_claims: Option<CustomClaimsSettings>,
    /// The operator's function that decides about mints, if there is one.
    pub authorize_subject_token: Option<AuthorizeSubjectToken>,
    /// The operators who may list and end impersonations, and the capacity of the list.
    pub impersonations: Impersonations,
    /// Which mints need the approval of other people; `None` if none does.
    pub approvals: Option<Approvals>,
    /// The policy decision point that decides about mints, if there is one.
    pub decision_point: Option<DecisionPoint>,
    /// The hooks that are told what happens to impersonations.
    pub hooks: Vec<Rc<Hook>>,
    /// How people sign in to the page of live impersonations; `None` if there is no page.
    pub console: Option<Console>,
    /// The browser sessions; `None` if there are none.
    pub browser_sessions: Option<BrowserSessions>,
    /// The source of the key set and the discovery document.
    pub documents: DocumentSource,
    /// The source of the documents that stand in while the gateway fails; `None` if none does.
    pub stand_ins: Option<StandInSource>,
    /// The outcome of an exchange whose subject token is not one of this filter's.
    pub foreign_subject_tokens: ForeignSubjectTokens,
    /// The profile that the configuration keeps to.
    pub profile: Option<Profile>,
    /// How proofs of possession are checked; `None` if the filter reads none.
    pub dpop: Option<Dpop>,
    /// Keys that make the nonces of proofs: one for each private signing key, in the same order.
    pub nonce_keys: Vec<Secret<[u8; 16]>>,
    /// Where client certificates are read; `None` if the filter reads none.
    pub certificates: Option<CertificateSource>,
    /// If true, audit lines have the free-form context.
    pub audit_context: bool,
    /// The places to which audit events are written.
    pub audit_log: AuditLog,
    /// Settings that work but are probably not intended.
    pub warnings: Vec<Problem>,
}

/// The outcome of an exchange whose subject token is not one of this filter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignSubjectTokens {
    /// The exchange is refused.
    Refuse,
    /// The request goes on to the identity gateway.
    PassThrough,
}

impl Words for ForeignSubjectTokens {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Self::Refuse), ("pass_through", Self::PassThrough)];
}

/// The source of the key set and the discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentSource {
    /// The identity gateway's documents, with the filter's members added.
    Merged,
    /// The filter's documents alone: there is no gateway behind it.
    Alone,
}

impl Words for DocumentSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("merge", Self::Merged), ("none", Self::Alone)];
}

/// The source of the documents that stand in while the gateway fails.
#[derive(Debug, PartialEq, Eq)]
pub struct StandInSource {
    /// The gateway's Envoy cluster.
    pub cluster: Rc<str>,
    /// The origins that endpoints of a discovery document may have, besides the issuer's.
    pub origins: Vec<String>,
}

section! {
    /// Configuration of the impersonation filter.
    pub(super) struct FilterMembers {
        /// `iss` of the access tokens, without query and fragment. Behind an identity provider, use
        /// the provider's issuer, with a slash at the end only if it has one.
        issuer: IssuerUri,
        /// The path before `/api/subject-tokens` and `/oidc/token`, such as `/tenant-a`.
        base_path: BasePath = "",
        /// The paths of the endpoints below `base_path`.
        paths: PathMembers = {},
        /// The filter's own keys. The first one signs; all are published.
        signing_keys: SigningKeys,
        /// How subject tokens are minted.
        subject_tokens: SubjectTokens,
        /// The operators who may list and end impersonations.
        impersonations: Impersonations => "nobody may",
        /// Which mints need the approval of other people, and who may approve.
        approvals: Approvals => "no mint needs an approval",
        /// The policy decision point that decides about mints.
        authzen: DecisionPoint => "none is asked",
        /// The hooks that are told what happens to impersonations.
        notifications: NonEmpty<Hook> => "nobody is told",
        /// The page of live impersonations. A module without the page refuses this member.
        console: Console => "there is no page",
        /// Sessions in which an agent sees an application as the user. A module without the page
        /// refuses this member, too.
        browser_sessions: BrowserSessions => "there are none",
        /// Where subject tokens are kept until they are exchanged.
        store: StoreSettings = {},
        /// How long access tokens are good for.
        access_tokens: AccessTokens = {},
        /// How acting users are verified.
        actor_tokens: ActorTokens => "none is accepted",
        /// The clients that may exchange subject tokens.
        clients: ClientList,
        /// The resources that access tokens may be for.
        resources: Resources,
        /// `fapi2`: refuse, at load, what the FAPI 2.0 Security Profile forbids: client secrets,
        /// public clients, RS256, ES384, clients and resources without `token_binding`.
        profile: OneOf<Profile> => "none",
        /// How proofs of possession (DPoP) are checked.
        dpop: Dpop => "read where a `token_binding` needs them",
        /// Where clients' certificates are read: in the handshake with Envoy, or in the header
        /// `x-forwarded-client-cert` of a proxy in front ([settings of
        /// Envoy](binding.md#behind-a-proxy-that-ends-tls)).
        client_certificate: OneOf<CertificateSource> => "the handshake, where a client or a resource needs a certificate",
        /// A token exchange whose subject token does not begin with `sub_` is answered with
        /// `invalid_request`, or passed on to the identity provider.
        foreign_subject_tokens: OneOf<ForeignSubjectTokens> = "refuse",
        /// The identity gateway behind the filter.
        identity_gateway: IdentityGateway = {},
        /// The audit of requests.
        audit: Audit = {},
        /// The operator's function that decides about mints.
        authorize_subject_token: AuthorizeSubjectToken => "none",
        /// The operator's function that adds claims to the access token. A module [without the
        /// engine](custom-claims.md#a-module-without-the-engine) refuses both functions.
        custom_claims: CustomClaimsSettings => "none",
    }
}

section! {
    /// Access tokens.
    struct AccessTokens {
        /// The lifetime of access tokens.
        lifetime: Lifetime = "3600s",
        /// `typ` of access tokens. Spring Security's resource server and Nimbus accept `JWT` only,
        /// by default.
        typ: OneOf<AccessTokenType> = "at+jwt",
    }
}

section! {
    /// The identity gateway.
    struct IdentityGateway {
        /// `merge`: add the filter's members to the key set and discovery document of the identity
        /// provider behind the filter. `none`: there is no provider, and the filter serves both
        /// documents alone.
        documents: OneOf<DocumentSource> = "merge",
        /// The provider's Envoy cluster, which the filter asks once a minute for the documents that
        /// stand in [while the provider fails](gateway.md#what-the-filter-does-to-which-request).
        cluster: Text => "no document stands in, with a warning",
        /// Origins, besides the issuer's, that the endpoints in a discovery document may have.
        /// Other documents do not stand in.
        origins: NonEmpty<OriginUri> => "the issuer's alone",
    }
}

impl IdentityGateway {
    /// Checks the members with each other, and takes the source of the documents that stand in.
    fn stand_ins(&mut self, place: &Node<'_>) -> Option<StandInSource> {
        let is_merged = self.documents == DocumentSource::Merged;
        let cluster = place.clone().member("cluster");
        if self.cluster.is_some() && !is_merged {
            return cluster.problem("expected only with documents: merge");
        }
        if self.origins.is_some() && self.cluster.is_none() {
            return place.clone().member("origins").problem("expected only beside cluster");
        }
        if is_merged && self.cluster.is_none() {
            cluster.warn(
                "absent: while the identity gateway fails, no key set and no discovery document stands in",
            );
        }
        let origins = self.origins.take().unwrap_or_default();
        Some(StandInSource { cluster: self.cluster.take()?.into(), origins })
    }
}

section! {
    /// The audit.
    struct Audit {
        /// If true, audit lines have the context of the mint, which may hold personal data.
        context: Boolean = false,
        /// Where audit events are written, if not to both: Envoy's log or [an access
        /// log](operations.md#one-place-for-the-audit).
        log: OneOf<AuditLog> => "both",
    }
}

impl Refined for Config {
    type From = FilterMembers;
    type Value = Self;

    fn refine(mut members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let identity_gateway = place.clone().member("identity_gateway");
        let stand_ins = members.identity_gateway.stand_ins(&identity_gateway);
        let clients = place.clone().member("clients");
        check_resources(&clients, &members.clients, &members.resources);
        let actor_tokens = members.actor_tokens.unwrap_or_default();
        if actor_tokens.verification.is_empty() {
            check_actors(&clients, &members.clients);
        }
        if !actor_tokens.required {
            warn_of_weaker_clients(&clients, &members.clients);
        }
        warn_of_idle_sign_in_rules(&place, &actor_tokens, &members.resources);
        if members.impersonations.is_none() {
            place.clone().member("impersonations").warn(
                "absent: nobody can list impersonations, or end those of a user, an actor or a client",
            );
        }
        let impersonations = members.impersonations.unwrap_or_default();
        let approvers = members.approvals.as_ref().map(|approvals| &approvals.authentication);
        let callers = &members.subject_tokens.authentication;
        check_names(&place, callers, &actor_tokens.verification, approvers, &impersonations);
        if matches!(members.store, StoreSettings::Etcd(_)) && impersonations.capacity.is_some() {
            let capacity = place.clone().member("impersonations").member("capacity");
            capacity.warn("has no effect: etcd has no such limit");
        }
        if let Some(console) = &members.console {
            check_console(&place, console, &impersonations.authentication);
        }
        if let Some(sessions) = &members.browser_sessions {
            sessions.check(&place, &members.issuer, &members.resources, &members.clients);
        }
        let asked_for = IfAskedFor {
            approvals: members.approvals.is_some(),
            logouts: !impersonations.back_channel_logout.is_empty(),
            events: !impersonations.security_events.is_empty(),
            console: members.console.is_some(),
            browser_sessions: members.browser_sessions.is_some(),
        };
        let OwnKeys {
            signing: signing_key,
            published: published_keys,
            records: record_keys,
            nonces: nonce_keys,
        } = members.signing_keys;
        if let Some(profile) = members.profile {
            let listed = place.value.get("resources").and_then(Value::as_array);
            let binding = |resource: &Value| {
                let indicator = resource.get("indicator").and_then(Value::as_str)?;
                members.resources.get(indicator)?.token_binding
            };
            profile.check(&Profiled {
                place: &place,
                issuer: &members.issuer,
                keys: &published_keys,
                clients: &members.clients,
                resources: listed.into_iter().flatten().map(binding).collect(),
            });
        }
        let of_clients = members.clients.iter().filter_map(|client| client.token_binding);
        let of_resources = members.resources.values().filter_map(|one| one.token_binding);
        let bindings: Vec<_> = of_clients.chain(of_resources).collect();
        let reads_proofs = bindings.iter().any(|binding| binding.allows_proof());
        let reads_certificates = bindings.iter().any(|binding| binding.allows_certificate())
            || members.clients.iter().any(|client| client.connects_by_certificate());
        let dpop = members.dpop.or_else(|| reads_proofs.then_some(Dpop { nonce: None }));
        let certificates = members
            .client_certificate
            .or_else(|| reads_certificates.then_some(CertificateSource::Connection));
        let by_name = |client: Rc<Client>| (client.client_id.clone(), client);
        Some(Self {
            issuer: members.issuer,
            paths: members.paths.below(&members.base_path, asked_for, &place.member("paths")),
            base_path: members.base_path,
            signing_key,
            published_keys,
            record_keys,
            subject_tokens: members.subject_tokens,
            store: members.store,
            access_token_lifetime: members.access_tokens.lifetime,
            access_token_type: members.access_tokens.typ,
            actor_tokens,
            clients: members.clients.into_iter().map(by_name).collect(),
            resources: members.resources,
            custom_claims: members.custom_claims,
            authorize_subject_token: members.authorize_subject_token,
            impersonations,
            approvals: members.approvals,
            decision_point: members.authzen,
            hooks: members.notifications.into_iter().flatten().map(Rc::new).collect(),
            console: members.console,
            browser_sessions: members.browser_sessions,
            documents: members.identity_gateway.documents,
            stand_ins,
            foreign_subject_tokens: members.foreign_subject_tokens,
            profile: members.profile,
            dpop,
            nonce_keys,
            certificates,
            audit_context: members.audit.context,
            audit_log: members.audit.log.unwrap_or(AuditLog::Both),
            warnings: Vec::new(),
        })
    }
}

/// Refuses a page whose client the list of impersonations never accepts: nobody could use the page.
fn check_console(place: &Node<'_>, console: &Console, operators: &Verification) {
    if !operators.is_empty() && !operators.may_accept(&console.client_id) {
        let client = place.clone().member("console").member("client_id");
        let _: Option<()> =
            client.problem("expected one of client_ids of impersonations.authentication");
    }
}

/// Refuses issuers and endpoints whose people would have two names.
fn check_names(
    place: &Node<'_>,
    callers: &Verification,
    actors: &Verification,
    approvers: Option<&Verification>,
    impersonations: &Impersonations,
) {
    let none = Verification::default();
    let approvers = approvers.unwrap_or(&none);
    let operators = &impersonations.authentication;
    let list = |path, issuers| NamedList { path, issuers };
    let lists = [
        list("subject_tokens.authentication.jwt", names(&callers.jwt)),
        list("actor_tokens.jwt", names(&actors.jwt)),
        list("impersonations.authentication.jwt", names(&operators.jwt)),
        list("approvals.authentication.jwt", names(&approvers.jwt)),
        list(
            "impersonations.back_channel_logout",
            events::names(&impersonations.back_channel_logout),
        ),
        list("impersonations.security_events", events::names(&impersonations.security_events)),
    ];
    refuse_two_names(place, &lists);
    let introspections = [
        ("subject_tokens.authentication.introspection", callers),
        ("actor_tokens.introspection", actors),
        ("impersonations.authentication.introspection", operators),
        ("approvals.authentication.introspection", approvers),
    ];
    let introspections = introspections.into_iter().filter_map(|(path, ways)| {
        Some((path, ways.introspection.as_ref()?.name_prefix.as_deref()))
    });
    let userinfo = actors.userinfo.iter();
    let userinfo = userinfo.map(|one| ("actor_tokens.userinfo", one.name_prefix.as_deref()));
    refuse_unnamed(place, &lists, &introspections.chain(userinfo).collect::<Vec<_>>());
}

/// Warns of rules about the sign-in of actors that hold for fewer exchanges than one may think.
fn warn_of_idle_sign_in_rules(
    place: &Node<'_>,
    actor_tokens: &ActorTokens,
    resources: &HashMap<String, Resource>,
) {
    if !actor_tokens.required && !actor_tokens.sign_in.is_empty() {
        place.clone().member("actor_tokens").warn(
            "acr_values and max_age do not hold for an exchange without an actor token: set required",
        );
    }
    if actor_tokens.verification.is_empty() {
        let mut strict = BTreeSet::new();
        for (indicator, resource) in resources {
            if !resource.actor_sign_in.is_empty() {
                strict.insert(&**indicator);
            }
        }
        for indicator in strict {
            place.clone().member("resources").warn(format!(
                "no access token can be issued for {indicator:?}: it needs an actor token, and no \
                 way to verify actor tokens is given in actor_tokens"
            ));
        }
    }
}

impl Config {
    /// Reads a configuration, decoded.
    pub fn from_value(
        value: &Value,
        environment: &dyn ConfigEnvironment,
    ) -> Result<Self, ConfigError> {
        let (config, warnings) = read_whole::<Self>(value, environment)?;
        Ok(Self { warnings, ..config })
    }

    /// Returns the longest lifetime of a subject token.
    pub(crate) fn longest_subject_token_lifetime(&self) -> Duration {
        let reviewed = self.approvals.as_ref().map(|approvals| approvals.lifetime);
        reviewed.unwrap_or_default().max(self.subject_tokens.lifetime)
    }

    /// Returns the longest lifetime of an access token.
    pub(crate) fn longest_access_token_lifetime(&self) -> Duration {
        let lifetimes =
            self.resources.values().filter_map(|resource| resource.access_token_lifetime);
        lifetimes.fold(self.access_token_lifetime, Duration::max)
    }

    /// Returns true if a rule looks at the class of an actor's sign-in, and true if one looks at
    /// its time.
    pub fn asks_for_sign_in(&self) -> (bool, bool) {
        let of_resources = self.resources.values().map(|resource| &resource.actor_sign_in);
        let rules = || of_resources.clone().chain([&self.actor_tokens.sign_in]);
        (
            rules().any(|rules| rules.acr_values.is_some()),
            rules().any(|rules| rules.max_age.is_some()),
        )
    }

    /// Returns the use of client certificates.
    pub fn certificate_use(&self) -> CertificateUse {
        let is_named = |client: &Rc<Client>| client.certificate_name.is_some();
        match self.certificates {
            None => CertificateUse::None,
            Some(CertificateSource::Forwarded) => CertificateUse::Forwarded,
            Some(CertificateSource::Connection) if self.clients.values().any(is_named) => {
                CertificateUse::Verified
            }
            Some(CertificateSource::Connection) => CertificateUse::Any,
        }
    }

    /// Returns true if a client or a resource wants tokens that are bound by a proof.
    pub fn demands_proofs(&self) -> bool {
        let of_clients = self.clients.values().filter_map(|client| client.token_binding);
        let of_resources = self.resources.values().filter_map(|resource| resource.token_binding);
        of_clients.chain(of_resources).any(TokenBinding::allows_proof)
    }

    /// Returns true if access tokens may be bound to client certificates.
    pub fn binds_to_certificates(&self) -> bool {
        let of_clients = self.clients.values().filter_map(|client| client.token_binding);
        let of_resources = self.resources.values().filter_map(|resource| resource.token_binding);
        of_clients.chain(of_resources).any(TokenBinding::allows_certificate)
    }

    /// Returns true if access tokens may be bound to keys.
    pub const fn binds_tokens(&self) -> bool {
        self.dpop.is_some() || self.certificates.is_some()
    }

    /// Returns the service's name among those that share Envoy's shared data. A changed
    /// configuration with the same name keeps the outstanding tokens.
    pub fn tenant(&self) -> String {
        tenant(&self.issuer, &self.base_path)
    }
}

#[cfg(test)]
mod tests;
