//! Access tokens that are presented to the filter. A backend proves with one that it may mint, an
//! acting user who they are, and an operator that they may list or end impersonations.
//!
//! The token's form and issuer decide how it is verified; its bearer has no choice. A JWT of a
//! listed issuer is verified by that issuer's entry alone. A JWT that cannot be parsed is not sent
//! to any endpoint, because the endpoint might read it in another way.

mod answers;
mod cache;
mod identity;
mod introspection;
mod jwt;
mod scopes;
mod sign_in;
mod userinfo;

use std::rc::Rc;

use cache::ExpiringCache;
use introspection::IntrospectionVerifier;
use jwt::JwtVerifier;
pub(crate) use sign_in::SignIn;
use userinfo::UserinfoVerifier;

use crate::config::Verification;
use crate::confirmation::{Confirmation, Possession};
use crate::host::UnixTime;
use crate::jose::{KeySet, TestedCrypto};
use crate::secret::Digest;
use crate::statement::{NameError, Names, StatementError, is_jwt};
use crate::step::Context;
use crate::upstream::{RemoteKeySet, UpstreamFailure};

/// Verifies access tokens in the configured ways. The first way that applies decides.
pub(crate) struct Verifier {
    jwt: Option<JwtVerifier>,
    userinfo: Option<UserinfoVerifier>,
    introspection: Option<IntrospectionVerifier>,
    names: Rc<Names>,
    /// The keys that sign impersonations. A token that they signed is refused.
    own_keys: Rc<KeySet>,
    crypto: Option<Rc<TestedCrypto>>,
}

impl Verifier {
    /// Creates a verifier with empty caches. `names` has the issuers of all verifiers. The verifier
    /// refuses all tokens that `own_keys` signed, as they are impersonations.
    pub(crate) fn new(
        ways: Verification,
        names: Rc<Names>,
        own_keys: Rc<KeySet>,
        crypto: Option<Rc<TestedCrypto>>,
    ) -> Self {
        let jwt = (!ways.jwt.is_empty()).then(|| JwtVerifier::new(ways.jwt));
        let userinfo = ways.userinfo.map(UserinfoVerifier::new);
        let introspection = ways.introspection.map(IntrospectionVerifier::new);
        Self { jwt, userinfo, introspection, names, own_keys, crypto }
    }

    /// The key sets that the background task keeps fresh.
    pub(crate) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.jwt.iter().flat_map(JwtVerifier::remote_key_sets)
    }

    /// Returns true if no way of verifying a token is configured.
    pub(crate) const fn is_empty(&self) -> bool {
        self.jwt.is_none() && self.userinfo.is_none() && self.introspection.is_none()
    }

    /// Verifies a token, and checks that it has the required scopes. If the token is bound to a
    /// key, its bearer has yet to prove that it has the key.
    pub(crate) async fn verify(
        &self,
        context: &Context,
        token: &str,
    ) -> Result<Unproven, BearerError> {
        if !is_b64token(token) {
            return Err(BearerError::Malformed);
        }
        let crypto = self.crypto.as_deref();
        let mut refusal = StatementError::NotAJwt.into();
        let mut issuer = None;
        let mut said_by_itself = Confirmation::default();
        let mut is_marked = None;
        let untrusted;
        if is_jwt(token)? {
            if let Some(jwt) = &self.jwt {
                match jwt.verify(context, crypto, &self.own_keys, &self.names, token).await {
                    // The list does not know the issuer. An endpoint may know the token.
                    Err(error @ BearerError::Statement(StatementError::Issuer(_))) => {
                        refusal = error;
                    }
                    verdict => return verdict.map(Unproven::new),
                }
            }
            // The gateway publishes our keys with its own, so it may accept a token that we signed.
            untrusted = jwt::parse(token)?;
            said_by_itself = jwt::check_unlisted(&untrusted, crypto, &self.own_keys)?;
            issuer = Some(untrusted.issuer()?).filter(|issuer| !issuer.is_empty());
            is_marked = Some(jwt::is_marked(&untrusted));
        }
        if let Some(userinfo) = &self.userinfo {
            let verdict = userinfo.verify(context, &self.names, token, issuer).await?;
            return Ok(Unproven { token: verdict, said_by_itself });
        }
        if let Some(introspection) = &self.introspection {
            let verdict =
                introspection.verify(context, &self.names, token, (issuer, is_marked)).await?;
            return Ok(Unproven { token: verdict, said_by_itself });
        }
        Err(refusal)
    }
}

/// The name prefixes of the issuers and endpoints of all `lists`: a name that one of them gives may
/// be compared with a name of any other. An absent prefix is empty.
pub(crate) fn names<'v>(lists: impl Iterator<Item = &'v Verification>) -> Names {
    let prefix = |prefix: &Option<String>| prefix.clone().unwrap_or_default();
    let (mut issuers, mut endpoints) = (Vec::new(), Vec::new());
    for ways in lists {
        for entry in &ways.jwt {
            let issuer = (entry.issuer.clone(), prefix(&entry.name_prefix));
            if !issuers.contains(&issuer) {
                issuers.push(issuer);
            }
        }
        endpoints.extend(ways.userinfo.iter().map(|userinfo| prefix(&userinfo.name_prefix)));
        endpoints.extend(ways.introspection.iter().map(|asked| prefix(&asked.name_prefix)));
    }
    Names::new(issuers, endpoints)
}

/// Returns true if `token` is a `b64token` (RFC 6750 §2.1). Any other text is not an access token,
/// and does not fit into a header.
fn is_b64token(token: &str) -> bool {
    let token = token.trim_end_matches('=');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !token.is_empty() && token.bytes().all(allowed)
}

/// An access token that its issuer vouches for. If it is bound to a key, nobody has proved yet that
/// its bearer has the key: only [`held_with`](Self::held_with) leads to a [`VerifiedToken`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Unproven {
    token: Rc<VerifiedToken>,
    /// The key that an opaque token names itself, if its issuer has not said it.
    said_by_itself: Confirmation,
}

impl Unproven {
    fn new(token: Rc<VerifiedToken>) -> Self {
        Self { token, said_by_itself: Confirmation::default() }
    }

    /// The thumbprint of the key that must sign a proof; `None` if the token needs no proof.
    pub(crate) fn key(&self) -> Option<Digest> {
        self.token.confirmation.key.or(self.said_by_itself.key)
    }

    /// Returns the token if the request has proved the keys that it is bound to.
    pub(crate) fn held_with(
        self,
        possession: &Possession,
    ) -> Result<Rc<VerifiedToken>, BearerError> {
        let bound_to = [&self.token.confirmation, &self.said_by_itself];
        if bound_to.into_iter().all(|bound_to| possession.meets(bound_to)) {
            Ok(self.token)
        } else {
            Err(BearerError::SenderConstrained)
        }
    }
}

/// An access token that was verified: by its signature or its issuer's word, by time and audience.
/// It is not an impersonation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    /// `sub` with its issuer's prefix: the user, or the client itself for a machine-to-machine
    /// token.
    pub subject: Option<String>,
    /// `client_id` with its issuer's prefix, or `azp` where `client_id` is absent.
    pub client_id: Option<String>,
    /// The token's scopes.
    pub scopes: Vec<String>,
    /// The time from which on the token is refused, clock skew included.
    pub expires_at: UnixTime,
    /// When and how the holder signed in.
    pub sign_in: SignIn,
    /// True if the token says that it is an access token: by `typ: at+jwt`, or by a scope or
    /// a `client_id`. ID tokens have none of them, and may have no claim that access tokens lack.
    pub is_marked: bool,
    /// The keys that the token is bound to.
    confirmation: Confirmation,
    /// The scopes that the issuer's entry requires.
    required_scopes: Rc<[String]>,
}

impl VerifiedToken {
    /// Refuses a token without the scope that an endpoint requires.
    pub(crate) fn require(&self, scope: &str) -> Result<(), BearerError> {
        if self.scopes.iter().any(|known| known == scope) {
            return Ok(());
        }
        Err(BearerError::InsufficientScope([scope.to_owned()].into()))
    }

    /// Refuses a token without one of the scopes that its issuer's entry requires.
    fn with_required_scopes(self: Rc<Self>) -> Result<Rc<Self>, BearerError> {
        let complete = self.required_scopes.iter().all(|scope| self.scopes.contains(scope));
        if complete {
            Ok(self)
        } else {
            Err(BearerError::InsufficientScope(Rc::clone(&self.required_scopes)))
        }
    }

    /// The name of the party that is accountable for what is done with this token: the client, or
    /// the user where the token names no client.
    pub(crate) fn caller(&self) -> Option<&str> {
        self.client_id.as_deref().or(self.subject.as_deref())
    }
}

/// Why a presented access token is refused. The caller is told less.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BearerError {
    /// The token is not a `b64token` (RFC 6750 §2.1).
    #[error("malformed")]
    Malformed,
    /// The token's issuer does not know it, or no longer accepts it.
    #[error("the issuer says that it is not active")]
    Inactive,
    /// The issuer gave no answer.
    #[error(transparent)]
    Upstream(UpstreamFailure),
    /// The token is not a JWT that can be believed. An opaque token fails in this way where no
    /// endpoint is configured to ask.
    #[error(transparent)]
    Statement(StatementError),
    /// The token says that it is something else: an ID token, a logout token, a refresh token.
    #[error("not an access token but {0:?}")]
    NotAnAccessToken(String),
    /// `aud` names none of the configured audiences.
    #[error("none of the audiences is ours")]
    Audience,
    /// The token was issued to a client that is not in `client_ids`.
    #[error("issued to a client that is not in client_ids")]
    Client,
    /// The token is bound to a key (`cnf`, RFC 7800) that the request has not proved, or in a way
    /// that is not understood. Without its key it is worth nothing.
    #[error("bound to a key that the request has not proved")]
    SenderConstrained,
    /// The token has an `act` claim, or the `txn` of an impersonation by any filter. Its bearer
    /// already acts as another user, and would stay unnamed.
    #[error("the token is itself an impersonation")]
    Delegated,
    /// One of our own keys signed the token, for an impersonation. Without an `act` claim it looks
    /// like a token of the user whom it names, so the actor behind it would not be accountable.
    #[error("the token is an impersonation: one of our own signing keys signed it")]
    SelfIssued,
    /// The token names neither a user nor a client who could be held accountable.
    #[error("the token names nobody")]
    Nobody,
    /// The token's user or client has a name that is not accepted.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The token lacks a required scope.
    #[error("lacks one of the scopes {0:?}")]
    InsufficientScope(Rc<[String]>),
}

impl From<StatementError> for BearerError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Upstream(failure) => Self::Upstream(failure),
            StatementError::Type(name) => Self::NotAnAccessToken(name),
            error => Self::Statement(error),
        }
    }
}

impl From<UpstreamFailure> for BearerError {
    fn from(failure: UpstreamFailure) -> Self {
        Self::Upstream(failure)
    }
}

impl BearerError {
    /// The check that failed, as a name for metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Inactive => "inactive",
            Self::Upstream(_) => "callout_failed",
            Self::Statement(error) => error.reason(),
            Self::NotAnAccessToken(_) => "not_an_access_token",
            Self::Audience => "audience",
            Self::Client => "client",
            Self::SenderConstrained => "sender_constrained",
            Self::Delegated | Self::SelfIssued => "delegated",
            Self::Nobody => "nobody",
            Self::Name(NameError::Malformed) => "identifier",
            Self::Name(NameError::OfAnotherIssuer) => "name_of_another_issuer",
            Self::InsufficientScope(_) => "insufficient_scope",
        }
    }
}
