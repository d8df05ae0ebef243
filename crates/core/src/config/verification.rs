//! How presented access tokens are verified: those of callers, operators and actors.

use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use super::http_uri::{HttpUri, UpstreamUri};
use super::kinds::{Boolean, DAY, HOUR, ListOf, NonEmpty, SECOND, ScopeToken, Span, Text};
use super::name_prefix::{NamePrefix, Named, keep_apart};
use super::node::Node;
use super::section::{Raw, Refined, section};
use super::source::DataSource;
use crate::host::UnixTime;
use crate::jose::KeySet;
use crate::secret::Secret;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The methods that can verify a presented token. The first that applies decides.
#[derive(Debug, Default)]
pub struct Verification {
    /// For JWTs of known issuers.
    pub jwt: Vec<JwtIssuer>,
    /// For all other tokens, if the holder must be a user.
    pub userinfo: Option<Userinfo>,
    /// For all other tokens.
    pub introspection: Option<Introspection>,
}

impl Verification {
    /// Returns true if there is no method.
    pub const fn is_empty(&self) -> bool {
        self.jwt.is_empty() && self.userinfo.is_none() && self.introspection.is_none()
    }

    /// Returns true if a token that was issued to this client may be accepted.
    pub(super) fn may_accept(&self, client_id: &str) -> bool {
        let lists = self.jwt.iter().map(|issuer| &issuer.client_ids);
        let mut lists = lists.chain(self.introspection.as_ref().map(|it| &it.rules.client_ids));
        lists.any(|list| list.as_ref().is_none_or(|ids| ids.iter().any(|id| id == client_id)))
    }
}

/// An issuer whose tokens are accepted, and what the tokens must say.
#[derive(Debug)]
pub struct JwtIssuer {
    /// `iss`, compared exactly.
    pub issuer: String,
    /// The prefix of each name from this issuer. `None` for no prefix, if no other issuer is
    /// trusted.
    pub name_prefix: Option<String>,
    /// One of these must be in `aud` (RFC 9068 §4).
    pub audiences: Vec<String>,
    /// All of these must be in `scope` or `scp`.
    pub required_scopes: Rc<[String]>,
    /// The clients that the token may be issued to: its `client_id`, or its `azp` if it has no
    /// `client_id`. `None` for any client.
    pub client_ids: Option<Vec<String>>,
    /// How far the issuer's clock may differ from the filter's.
    pub clock_skew: Duration,
    /// The issuer's keys.
    pub keys: Jwks,
}

/// The source of an issuer's keys.
#[derive(Debug, Clone)]
pub enum Jwks {
    /// The keys are in the configuration.
    Local(Rc<KeySet>),
    /// The keys are fetched from the issuer.
    Remote(RemoteJwks),
}

/// An introspection endpoint (RFC 7662), and how to ask it.
#[derive(Debug)]
pub struct Introspection {
    /// The address of the endpoint.
    pub http_uri: HttpUri,
    /// The client as which the filter asks.
    pub client_id: String,
    /// The secret of that client.
    pub client_secret: Secret<String>,
    /// The rules for an answer.
    pub rules: TokenRules,
    /// The prefix of each name in an answer; `None` for no prefix.
    pub name_prefix: Option<String>,
    /// How long an answer is cached.
    pub cache_duration: Duration,
}

/// The rules for an introspection answer, in addition to `active`.
#[derive(Debug)]
pub struct TokenRules {
    /// All of these must be in `scope`.
    pub required_scopes: Rc<[String]>,
    /// One of these must be in `aud`. `None` if `aud` is not checked.
    pub audiences: Option<Vec<String>>,
    /// The clients that the token may be issued to: its `client_id`, or its `azp` if it has no
    /// `client_id`. `None` for any client.
    pub client_ids: Option<Vec<String>>,
}

/// The demands on all tokens that are verified for one purpose, before the operator's own.
pub(super) struct Demands {
    /// A scope that each token must have.
    scope: Option<&'static str>,
    /// If true, the operator can name the clients that the tokens must be issued to.
    has_clients: bool,
    /// If true, any token of an issuer is accepted unless the operator demands more. The filter
    /// warns.
    is_open: bool,
}

/// The holders of the tokens that are verified for one purpose.
pub(super) trait Holder {
    /// The demands on their tokens.
    const DEMANDS: Demands;
    /// The name of the holders in the schema.
    #[cfg(test)]
    const NAME: &'static str;
}

/// Backends that mint subject tokens.
pub(super) struct Callers;

impl Holder for Callers {
    const DEMANDS: Demands = Demands { scope: None, has_clients: true, is_open: true };
    #[cfg(test)]
    const NAME: &'static str = "callers";
}

/// Operators who list and end impersonations, people who approve them, and users who consent. Each
/// endpoint demands a scope of its own.
pub(super) struct Operators;

impl Holder for Operators {
    const DEMANDS: Demands = Demands { scope: None, has_clients: true, is_open: false };
    #[cfg(test)]
    const NAME: &'static str = "operators";
}

/// Users who act. The scope `openid` shows that a token was issued to a user who signed in (OpenID
/// Connect Core §3.1.2.1).
pub(super) struct Actors;

impl Holder for Actors {
    const DEMANDS: Demands = Demands { scope: Some("openid"), has_clients: false, is_open: false };
    #[cfg(test)]
    const NAME: &'static str = "actors";
}

impl Demands {
    /// Returns the scopes that a token must have.
    fn scopes(&self, place: &Node<'_>, mut scopes: Vec<String>) -> Rc<[String]> {
        let missing = self.scope.filter(|scope| !scopes.iter().any(|known| known == scope));
        scopes.extend(missing.map(str::to_owned));
        if scopes.is_empty() && self.is_open {
            place.warn("no required_scopes: any token of this issuer may mint");
        }
        scopes.into()
    }

    /// Returns the clients that a token may be issued to.
    #[expect(clippy::option_option, reason = "a problem and an absence are two things")]
    fn client_ids(
        &self,
        place: &Node<'_>,
        client_ids: Option<Vec<String>>,
    ) -> Option<Option<Vec<String>>> {
        if client_ids.is_some() && !self.has_clients {
            let client_ids = place.clone().member("client_ids");
            return client_ids.problem("unknown member; actor tokens are good from any client");
        }
        if client_ids.is_none() && self.is_open {
            place.warn("no client_ids: the tokens of any client may mint, those of its users too");
        }
        Some(client_ids)
    }
}

section! {
    /// An issuer whose JWTs are accepted, and what the JWTs must say.
    pub(super) struct JwtMembers {
        /// `iss` of the token, compared exactly. It selects the entry.
        issuer: Text,
        /// The prefix before each name from this issuer ([several
        /// issuers](verifying-tokens.md#several-issuers)), up to 128 characters. Required if the
        /// list trusts several issuers; at most one may have `""`.
        name_prefix: NamePrefix => "nothing, where the list has no other issuer",
        /// One of them must be in the token's `aud`.
        audiences: NonEmpty<Text>,
        /// All of them must be in `scope` or `scp`. If the list is empty, any token of this issuer
        /// may mint, and the filter warns.
        required_scopes: ListOf<ScopeToken> = [],
        /// The clients whose tokens are accepted, by `client_id`, else `azp`. Without it any user's
        /// access token with the scopes may mint. Actor tokens have no such member.
        client_ids: NonEmpty<Text> => "any, with a warning",
        /// How far the issuer's clock may differ from the filter's.
        clock_skew: Span<0, HOUR> = "60s",
        /// The issuer's key set, fetched from an address.
        remote_jwks: RemoteJwks => "one of the two",
        /// The issuer's key set, `{"keys": [...]}`.
        local_jwks: LocalJwks => "one of the two",
    }
    exactly_one [remote_jwks, local_jwks]
}

section! {
    /// A key set that is fetched.
    #[derive(Debug, Clone)]
    pub struct RemoteJwks {
        /// The address of the key set.
        pub http_uri: UpstreamUri<false> as HttpUri,
        /// How old the key set may become ([key sets](verifying-tokens.md#key-sets)).
        pub cache_duration: Span<SECOND, DAY> as Duration = "300s",
        /// How long keys are used that cannot be fetched again, at least `cache_duration`. `0s`:
        /// for ever.
        pub max_stale: Span<0, { 365 * DAY }> as Duration = "24h",
    }
}

section! {
    /// Asks an introspection endpoint (RFC 7662).
    pub(super) struct IntrospectionMembers {
        /// The introspection endpoint.
        http_uri: UpstreamUri<false>,
        /// The client as which the filter authenticates, with HTTP Basic.
        client_id: Text,
        /// The secret of that client.
        client_secret: DataSource,
        /// All of them must be in the answer's `scope`.
        required_scopes: ListOf<ScopeToken> = [],
        /// One of them must be in the answer's `aud`.
        audiences: NonEmpty<Text> => "not looked at, with a warning",
        /// As for a [JWT](#jwt), in the answer.
        client_ids: NonEmpty<Text> => "any, with a warning",
        /// The prefix before each name in an answer ([several
        /// issuers](verifying-tokens.md#several-issuers)). Required if any list has an issuer with
        /// a prefix.
        name_prefix: NamePrefix => "nothing",
        /// How long an answer is cached: a revoked token works that much longer. `0s` asks every
        /// time.
        cache_duration: Span<0, { 10 * SECOND }> = "10s",
    }
}

section! {
    /// Asks a userinfo endpoint.
    #[derive(Debug)]
    pub struct Userinfo under "userinfo", "userinfo endpoints" {
        /// The userinfo endpoint.
        pub http_uri: UpstreamUri<false> as HttpUri,
        /// The prefix before the name in an answer, as with [introspection](#introspection).
        pub name_prefix: NamePrefix as Option<String> => "nothing",
        /// How long an answer is cached. `0s` asks every time.
        pub cache_duration: Span<0, { 10 * SECOND }> as Duration = "10s",
    }
}

/// An issuer of JWTs whose tokens are presented by `H`.
pub(super) struct Jwt<H>(PhantomData<H>);

impl<H: Holder> Refined for Jwt<H> {
    type From = JwtMembers;
    type Value = JwtIssuer;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<JwtIssuer> {
        jwt_issuer(members, place, &H::DEMANDS)
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        fitting::<H>(described).defined_as(
            descriptions,
            &format!("jwt_of_{}", H::NAME),
            "jwt",
            "issuers",
        )
    }
}

/// Removes the members that `H` does not have.
#[cfg(test)]
fn fitting<H: Holder>(described: Described) -> Described {
    if H::DEMANDS.has_clients { described } else { described.without("client_ids") }
}

fn jwt_issuer(members: JwtMembers, place: Node<'_>, demands: &Demands) -> Option<JwtIssuer> {
    let keys = jwks(place.clone(), members.remote_jwks, members.local_jwks)?;
    Some(JwtIssuer {
        issuer: members.issuer,
        name_prefix: members.name_prefix,
        audiences: members.audiences,
        required_scopes: demands.scopes(&place, members.required_scopes),
        client_ids: demands.client_ids(&place, members.client_ids)?,
        clock_skew: members.clock_skew,
        keys,
    })
}

/// The source of an issuer's keys. One of the two is given.
pub(super) fn jwks(
    place: Node<'_>,
    remote: Option<RemoteJwks>,
    local: Option<Rc<KeySet>>,
) -> Option<Jwks> {
    match remote {
        Some(RemoteJwks { cache_duration, max_stale, .. })
            if !max_stale.is_zero() && max_stale < cache_duration =>
        {
            let max_stale = place.member("remote_jwks").member("max_stale");
            max_stale.problem("expected at least cache_duration, or 0s")
        }
        Some(remote) => Some(Jwks::Remote(remote)),
        None => local.map(Jwks::Local),
    }
}

/// Returns each issuer of a list with its prefix.
pub(super) fn names(issuers: &[JwtIssuer]) -> Vec<Named<'_>> {
    issuers.iter().map(|one| (&*one.issuer, one.name_prefix.as_deref())).collect()
}

fn check_each_is_there_once(list: &Node<'_>, issuers: &[JwtIssuer]) -> Option<()> {
    for (index, issuer) in issuers.iter().enumerate() {
        if issuers.iter().take(index).any(|earlier| earlier.issuer == issuer.issuer) {
            let problem = format!("{:?} is given twice", issuer.issuer);
            return list.clone().item(index).member("issuer").problem(problem);
        }
    }
    Some(())
}

/// A list of issuers in which each issuer occurs once.
pub(super) struct JwtIssuers<H>(PhantomData<H>);

impl<H: Holder> Refined for JwtIssuers<H> {
    type From = NonEmpty<Jwt<H>>;
    type Value = Vec<JwtIssuer>;

    fn refine(issuers: Raw<Self>, list: Node<'_>) -> Option<Vec<JwtIssuer>> {
        check_each_is_there_once(&list, &issuers)?;
        keep_apart(&list, &names(&issuers))?;
        Some(issuers)
    }

    #[cfg(test)]
    fn refine_description(described: Described, _: &mut Descriptions) -> Described {
        described.with_rule(json!({
            "if": {"minItems": 2},
            "then": {"items": {"required": ["name_prefix"]}},
        }))
    }
}

/// A key set in the configuration.
pub(super) struct LocalJwks;

impl Refined for LocalJwks {
    type From = DataSource;
    type Value = Rc<KeySet>;

    fn refine(source: Raw<Self>, place: Node<'_>) -> Option<Rc<KeySet>> {
        let (place, text) = (place.member(source.member), source.text);
        let Some(set) = KeySet::parse(text.as_bytes()) else {
            return place.problem("expected a JWK set: {\"keys\": [...]}");
        };
        for (position, error) in &set.broken {
            let _: Option<()> = place.problem(format!("keys[{position}]: {error}"));
        }
        if set.is_empty() && set.broken.is_empty() {
            return place.problem(
                "expected at least one key for RS256, RS384, RS512, PS256, ES256, ES384, EdDSA or Ed25519",
            );
        }
        set.broken.is_empty().then(|| Rc::new(set))
    }
}

/// An introspection endpoint for the tokens of `H`.
pub(super) struct IntrospectionOf<H>(PhantomData<H>);

impl<H: Holder> Refined for IntrospectionOf<H> {
    type From = IntrospectionMembers;
    type Value = Introspection;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Introspection> {
        introspection(members, &place, &H::DEMANDS)
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        fitting::<H>(described).defined_as(
            descriptions,
            &format!("introspection_of_{}", H::NAME),
            "introspection",
            "introspection endpoints",
        )
    }
}

fn introspection(
    members: IntrospectionMembers,
    place: &Node<'_>,
    demands: &Demands,
) -> Option<Introspection> {
    if members.audiences.is_none() {
        place.warn("no audiences: tokens for any audience are accepted");
    }
    Some(Introspection {
        http_uri: members.http_uri,
        client_id: members.client_id,
        client_secret: Secret::new(members.client_secret.text),
        rules: TokenRules {
            required_scopes: demands.scopes(place, members.required_scopes),
            audiences: members.audiences,
            client_ids: demands.client_ids(place, members.client_ids)?,
        },
        name_prefix: members.name_prefix,
        cache_duration: members.cache_duration,
    })
}

section! {
    /// How access tokens are verified. If a JWT's issuer is in the list, its entry decides; every
    /// other token is introspected.
    pub(super) struct AuthenticationMembers<H: Holder> {
        /// For JWTs.
        jwt: JwtIssuers<H> => "one or both",
        /// For opaque tokens.
        introspection: IntrospectionOf<H> => "one or both",
    }
    at_least_one [jwt, introspection]
}

/// How the callers of an endpoint are verified.
pub(super) struct Authentication<H>(PhantomData<H>);

impl<H: Holder> Refined for Authentication<H> {
    type From = AuthenticationMembers<H>;
    type Value = Verification;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Verification> {
        let AuthenticationMembers { jwt, introspection } = members;
        Some(Verification { jwt: jwt.unwrap_or_default(), userinfo: None, introspection })
    }
}

section! {
    /// How acting users are verified.
    pub(super) struct ActorTokensMembers {
        /// Refuse every exchange without an actor token. The example configurations set it.
        required: Boolean = false,
        /// For JWTs. The scope `openid` is always required.
        jwt: JwtIssuers<Actors> => "none",
        /// For opaque tokens. A token that the endpoint accepts has the scope `openid`; `sub` of
        /// the answer is the actor.
        userinfo: Userinfo => "none",
        /// For opaque tokens. The scope `openid` is always required.
        introspection: IntrospectionOf<Actors> => "none",
        /// The accepted `acr` of actor tokens (RFC 9470, [step-up](verifying-tokens.md#step-up)).
        acr_values: NonEmpty<Text> => "any",
        /// How long ago the actor may have signed in: `auth_time` of the actor token
        /// ([step-up](verifying-tokens.md#step-up)).
        max_age: Span<SECOND, { 365 * DAY }> => "any time ago",
        /// How old an actor token may be where the filter receives events, which it remembers for
        /// as long, a day at least. Older ones, and JWTs without `iat`, are refused. Use the
        /// longest lifetime of the issuers' access tokens.
        max_lifetime: Span<SECOND, { 365 * DAY }> = "24h",
    }
}

/// How acting users are verified.
#[derive(Debug, Default)]
pub struct ActorTokens {
    /// If true, every exchange without an actor token is refused.
    pub required: bool,
    /// How actor tokens are verified.
    pub verification: Verification,
    /// How the actors of all resources must have signed in.
    pub sign_in: SignInRules,
    /// How long ago an actor token may have been issued, if events are received.
    pub max_lifetime: Duration,
}

/// How an actor must have signed in (RFC 9470).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SignInRules {
    /// One of these must be `acr`; `None` for any.
    pub acr_values: Option<Vec<String>>,
    /// The most time since `auth_time`; `None` for any.
    pub max_age: Option<Duration>,
}

impl SignInRules {
    /// Returns true if any sign-in will do.
    pub const fn is_empty(&self) -> bool {
        self.acr_values.is_none() && self.max_age.is_none()
    }

    /// Returns true if a sign-in in this class will do.
    pub fn allows_acr(&self, acr: Option<&str>) -> bool {
        let is_listed = |values: &Vec<String>| values.iter().any(|value| Some(&**value) == acr);
        self.acr_values.as_ref().is_none_or(is_listed)
    }

    /// Returns true if a sign-in at this time will do.
    pub fn allows_auth_time(&self, auth_time: Option<UnixTime>, now: UnixTime) -> bool {
        let is_recent = |max_age| auth_time.is_some_and(|time| now <= time.after(max_age));
        self.max_age.is_none_or(is_recent)
    }
}

impl Refined for ActorTokens {
    type From = ActorTokensMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let verification = Verification {
            jwt: members.jwt.unwrap_or_default(),
            userinfo: members.userinfo,
            introspection: members.introspection,
        };
        if members.required && verification.is_empty() {
            return place.problem(
                "actor tokens are required, but no way to verify them is given: \
                 expected jwt, userinfo or introspection",
            );
        }
        let sign_in = SignInRules { acr_values: members.acr_values, max_age: members.max_age };
        let max_lifetime = members.max_lifetime;
        Some(Self { required: members.required, verification, sign_in, max_lifetime })
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described.required_with("required", &["jwt", "userinfo", "introspection"]).under(
            descriptions,
            "actor_tokens",
            "actor tokens",
        )
    }
}
