//! Access tokens that are presented to us: the integrator's backend proves with one that it may mint,
//! an acting user with one who they are.
//!
//! What a token is decides how it is verified, never who presents it: a JWT of an issuer in the list is a
//! matter for that entry alone, and one that cannot be read is shown to nobody, as whoever is asked might
//! read it in another way.

mod cache;
mod introspection;
mod jwt;
mod names;

use std::rc::Rc;

use cache::ExpiringCache;
use introspection::{Introspection, Userinfo};
use jwt::{AccessJwt, JwtVerifier, is_jwt};
use names::Names;

use serde_json::{Map, Value};

use crate::config::Verification;
use crate::host::UnixTime;
use crate::jose::{KeySet, TestedCrypto};
use crate::step::Context;
use crate::upstream::{RemoteKeySet, UpstreamFailure};

/// Verifies tokens in the configured ways; the first that applies decides.
pub(crate) struct Verifier {
    jwt: Option<JwtVerifier>,
    userinfo: Option<Userinfo>,
    introspection: Option<Introspection>,
    names: Names,
    own_keys: Rc<KeySet>,
    crypto: Option<Rc<TestedCrypto>>,
}

impl Verifier {
    /// A verifier that has seen nothing yet. All that `own_keys` sign are impersonations, and nobody's own
    /// tokens.
    pub(crate) fn new(
        ways: Verification,
        own_keys: Rc<KeySet>,
        crypto: Option<Rc<TestedCrypto>>,
    ) -> Self {
        let names = Names::new(&ways);
        let jwt = (!ways.jwt.is_empty()).then(|| JwtVerifier::new(ways.jwt));
        let userinfo = ways.userinfo.map(Userinfo::new);
        let introspection = ways.introspection.map(Introspection::new);
        Self { jwt, userinfo, introspection, names, own_keys, crypto }
    }

    /// The key sets that must be kept fresh.
    pub(crate) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.jwt.iter().flat_map(JwtVerifier::remote_key_sets)
    }

    /// Whether there is any way.
    pub(crate) const fn is_empty(&self) -> bool {
        self.jwt.is_none() && self.userinfo.is_none() && self.introspection.is_none()
    }

    /// Verifies a token and that it has the required scopes.
    pub(crate) async fn verify(
        &self,
        context: &Context,
        token: &str,
    ) -> Result<Rc<VerifiedToken>, BearerError> {
        if !is_b64token(token) {
            return Err(BearerError::Malformed);
        }
        let crypto = self.crypto.as_deref();
        let mut refusal = BearerError::NotAJwt;
        let mut issuer = None;
        let untrusted;
        if is_jwt(token)? {
            if let Some(jwt) = &self.jwt {
                match jwt.verify(context, crypto, &self.own_keys, &self.names, token).await {
                    // Not a matter for this way: another may know the token.
                    Err(error @ BearerError::Issuer(_)) => refusal = error,
                    verdict => return verdict,
                }
            }
            // The gateway publishes our keys with its own, so it may well say that such a token is good.
            untrusted = AccessJwt::parse(token)?;
            untrusted.check_unlisted(crypto, &self.own_keys)?;
            issuer = Some(untrusted.issuer()?).filter(|issuer| !issuer.is_empty());
        }
        if let Some(userinfo) = &self.userinfo {
            return userinfo.verify(context, &self.names, token, issuer).await;
        }
        if let Some(introspection) = &self.introspection {
            return introspection.verify(context, &self.names, token, issuer).await;
        }
        Err(refusal)
    }

    /// The claims of a token that one of our own keys signed; `None` for any other. What they say is not checked.
    pub(crate) fn claims_of_our_own(&self, token: &str) -> Option<Map<String, Value>> {
        if !is_b64token(token) {
            return None;
        }
        AccessJwt::parse(token).ok()?.claims_if_signed_by(self.crypto.as_deref(), &self.own_keys)
    }
}

/// RFC 6750 §2.1: what is no `b64token` is no access token, and fits into no header.
fn is_b64token(token: &str) -> bool {
    let token = token.trim_end_matches('=');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !token.is_empty() && token.bytes().all(allowed)
}

/// An access token that was checked: signature or word of its issuer, time, audience, and that it is
/// nobody's impersonation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    /// `sub`, with its issuer's prefix: the user, or the client itself for a machine-to-machine token.
    pub subject: Option<String>,
    /// `client_id`, or `azp` where there is none, with its issuer's prefix.
    pub client_id: Option<String>,
    /// What it allows.
    pub scopes: Vec<String>,
    /// From when on it is refused, clock skew included.
    pub expires_at: UnixTime,
    /// The scopes that its issuer's entry asks for.
    required_scopes: Rc<[String]>,
}

impl VerifiedToken {
    /// Refuses a token that lacks the scope that an endpoint is for.
    pub(crate) fn require(&self, scope: &str) -> Result<(), BearerError> {
        if self.scopes.iter().any(|known| known == scope) {
            return Ok(());
        }
        Err(BearerError::InsufficientScope([scope.to_owned()].into()))
    }

    /// Refuses a token that lacks a scope.
    fn with_required_scopes(self: Rc<Self>) -> Result<Rc<Self>, BearerError> {
        let complete = self.required_scopes.iter().all(|scope| self.scopes.contains(scope));
        if complete {
            Ok(self)
        } else {
            Err(BearerError::InsufficientScope(Rc::clone(&self.required_scopes)))
        }
    }

    /// Who is accountable for what is done with this token.
    pub(crate) fn caller(&self) -> Option<&str> {
        self.client_id.as_deref().or(self.subject.as_deref())
    }
}

/// Why a presented access token is not good enough. What the caller is told says less.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BearerError {
    /// Not a `b64token` (RFC 6750 §2.1).
    #[error("malformed")]
    Malformed,
    /// Its issuer does not know it, or not any more.
    #[error("the issuer says that it is not active")]
    Inactive,
    /// The issuer gave no answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
    /// Not a JWT where there must be one: it looks like one and is written in another way than the one that
    /// there is, or nobody is configured to ask about opaque tokens.
    #[error("not a JWT")]
    NotAJwt,
    /// It says itself that it is something else: an ID token, a logout token, a refresh token.
    #[error("not an access token but {0:?}")]
    NotAnAccessToken(String),
    /// A header member that must be understood and is not (RFC 7515 §4.1.11).
    #[error("critical header parameters")]
    Critical,
    /// No entry for its `iss`.
    #[error("issuer {0:?} is not trusted")]
    Issuer(String),
    /// `none`, HMAC, or something else that is not accepted.
    #[error("algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// No key of the issuer fits `kid` and `alg`.
    #[error("no key of the issuer fits")]
    NoKey,
    /// Not signed by any of the keys that fit.
    #[error("bad signature")]
    Signature,
    /// Claims of the wrong type, or one of them twice.
    #[error("malformed claims")]
    Claims,
    /// No `exp`: it would be good for ever.
    #[error("no exp")]
    NoExpiry,
    /// `exp` has passed.
    #[error("expired")]
    Expired,
    /// `nbf` lies ahead.
    #[error("not valid yet")]
    NotYetValid,
    /// Meant for somebody else.
    #[error("none of the audiences is ours")]
    Audience,
    /// Issued to a client that may not use it here.
    #[error("issued to a client that is not in client_ids")]
    Client,
    /// It is bound to a key (`cnf`, RFC 7800): without the proof of that key it is no bearer token.
    #[error("sender-constrained, and no proof of possession is accepted")]
    SenderConstrained,
    /// It has an `act` claim: whoever holds it acts as somebody else already, and would stay unnamed.
    #[error("the token is itself an impersonation")]
    Delegated,
    /// We signed it ourselves, for an impersonation. Without an `act` claim it looks like a token of the
    /// user whom it names, and with it somebody would act as that user, accountable to nobody.
    #[error("the token is an impersonation: one of our own signing keys signed it")]
    SelfIssued,
    /// It names nobody who could be held accountable.
    #[error("the token names nobody")]
    Nobody,
    /// What it names somebody by is longer than 255 characters, or has control characters in it.
    #[error("names somebody by more than 255 characters, or by control characters")]
    Identifier,
    /// It names somebody by a name that begins with the prefix of another issuer.
    #[error("names somebody by a name that begins with another issuer's name_prefix")]
    NameOfAnotherIssuer,
    /// A required scope is missing.
    #[error("lacks one of the scopes {0:?}")]
    InsufficientScope(Rc<[String]>),
}

impl BearerError {
    /// The check, as a name for metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Inactive => "inactive",
            Self::Upstream(_) => "callout_failed",
            Self::NotAJwt => "not_a_jwt",
            Self::NotAnAccessToken(_) => "not_an_access_token",
            Self::Critical => "critical_header",
            Self::Issuer(_) => "issuer",
            Self::Algorithm(_) => "algorithm",
            Self::NoKey => "no_key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::NoExpiry => "no_expiry",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Audience => "audience",
            Self::Client => "client",
            Self::SenderConstrained => "sender_constrained",
            Self::Delegated | Self::SelfIssued => "delegated",
            Self::Nobody => "nobody",
            Self::Identifier => "identifier",
            Self::NameOfAnotherIssuer => "name_of_another_issuer",
            Self::InsufficientScope(_) => "insufficient_scope",
        }
    }
}
