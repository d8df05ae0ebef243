//! JWT access tokens (RFC 9068), checked as RFC 8725 advises: the algorithm by the key, the issuer by
//! the configuration, nothing by the token's own word.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use jwt_compact::{AlgorithmExt as _, Claims, UntrustedToken};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::host::{Host, UnixTime};
use crate::jose::{Algorithm, Jws, KeySet};
use crate::secret::Digest;
use crate::step::Context;
use crate::upstream::{KeySource, RemoteKeySet};

/// Verified tokens to remember. A backend uses one token at a time, a support team has hundreds of
/// members at the most; a token that fell out is verified again.
const CACHE_CAPACITY: usize = 1024;

/// An issuer whose tokens are accepted, and for what.
#[derive(Debug)]
pub struct JwtIssuer {
    /// `iss`, compared exactly.
    pub issuer: String,
    /// One of these must be in `aud` (RFC 9068 §4).
    pub audiences: Vec<String>,
    /// All of these must be in `scope` or `scp`.
    pub required_scopes: Rc<[String]>,
    /// How far the issuer's clock may be from ours.
    pub clock_skew: Duration,
    /// The issuer's keys.
    pub keys: KeySource,
}

/// Verifies tokens of any of its issuers, each once.
#[derive(Debug)]
pub struct JwtVerifier {
    issuers: Vec<JwtIssuer>,
    verified: RefCell<ExpiringCache<Verified>>,
}

/// A token that was verified, and with which keys: it is good as long as they are.
#[derive(Debug, Clone)]
struct Verified {
    token: Rc<VerifiedToken>,
    issuer: usize,
    generation: u64,
}

/// Header parameters that change how a token must be read.
#[derive(Debug, Clone, Deserialize)]
struct HeaderExtensions {
    /// Whether it is there. Nothing that it can say makes it one that is understood, not even `null`.
    #[serde(default, deserialize_with = "is_there")]
    crit: bool,
}

fn is_there<'de, D: serde::Deserializer<'de>>(member: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(member).map(|_| true)
}

/// The claims of RFC 9068 §2.2 that are looked at, and those by which other issuers say the same.
#[derive(Debug, Deserialize)]
struct AccessTokenClaims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<OneOrMany>,
    client_id: Option<String>,
    azp: Option<String>,
    scope: Option<String>,
    scp: Option<OneOrMany>,
    act: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl JwtVerifier {
    /// A verifier that has seen nothing yet.
    pub fn new(issuers: Vec<JwtIssuer>) -> Self {
        Self { issuers, verified: RefCell::new(ExpiringCache::new(CACHE_CAPACITY)) }
    }

    /// The key sets that must be kept fresh.
    pub fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.issuers.iter().filter_map(|issuer| match &issuer.keys {
            KeySource::Remote(remote) => Some(remote),
            KeySource::Local(_) => None,
        })
    }

    /// Verifies a token, that it has the required scopes, and that none of our own keys signed it.
    pub async fn verify(
        &self,
        context: &Context,
        own_keys: &KeySet,
        token: &str,
    ) -> Result<Rc<VerifiedToken>, BearerError> {
        let digest = Digest::of(token.as_bytes());
        let now = context.host().now();
        if let Some(verified) = self.remembered(&digest, now) {
            return verified.with_required_scopes();
        }
        let token = UntrustedJwt::parse(token)?;
        let named = token.issuer()?;
        let (position, issuer) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, issuer)| issuer.issuer == named)
            .ok_or(BearerError::Issuer(named))?;
        let mut verdict = issuer.verify(context.host(), &token, now);
        let lacks_key = matches!(verdict, Err(BearerError::NoKey | BearerError::Upstream(_)));
        if let (true, KeySource::Remote(remote)) = (lacks_key, &issuer.keys) {
            remote.refresh(context).await?;
            verdict = issuer.verify(context.host(), &token, now);
        }
        let verified = Rc::new(verdict?);
        if token.is_signed_by(context.host(), own_keys) {
            return Err(BearerError::SelfIssued);
        }
        let entry = Verified {
            token: Rc::clone(&verified),
            issuer: position,
            generation: issuer.keys.generation(),
        };
        self.verified.borrow_mut().insert(digest, now, verified.expires_at, entry);
        verified.with_required_scopes()
    }

    fn remembered(&self, digest: &Digest, now: UnixTime) -> Option<Rc<VerifiedToken>> {
        let entry = self.verified.borrow().get(digest, now)?;
        let issuer = self.issuers.get(entry.issuer)?;
        (issuer.keys.generation() == entry.generation).then_some(entry.token)
    }
}

/// A token whose word nobody has vouched for yet.
pub(super) struct UntrustedJwt<'t> {
    token: UntrustedToken<'t, HeaderExtensions>,
    algorithm: Algorithm,
}

impl<'t> UntrustedJwt<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, BearerError> {
        let token: UntrustedToken<'_, HeaderExtensions> =
            token.try_into().map_err(|_| BearerError::NotAJwt)?;
        if token.header().other_fields.crit {
            return Err(BearerError::Critical);
        }
        let algorithm = Algorithm::from_name(token.algorithm())
            .ok_or_else(|| BearerError::Algorithm(token.algorithm().to_owned()))?;
        Ok(Self { token, algorithm })
    }

    /// Whose it says that it is.
    fn issuer(&self) -> Result<String, BearerError> {
        let claims: Claims<AccessTokenClaims> =
            self.token.deserialize_claims_unchecked().map_err(|_| BearerError::Claims)?;
        Ok(claims.custom.iss.unwrap_or_default())
    }

    /// Whether one of `keys` signed it, whatever it says.
    pub(super) fn is_signed_by(&self, host: &dyn Host, keys: &KeySet) -> bool {
        self.claims::<IgnoredAny>(host, keys).is_ok()
    }

    /// Its claims, if one of `keys` signed it.
    fn claims<T: DeserializeOwned>(
        &self,
        host: &dyn Host,
        keys: &KeySet,
    ) -> Result<Claims<T>, BearerError> {
        let algorithm = Jws { algorithm: self.algorithm, native: host.native_crypto() };
        let kid = self.token.header().key_id.as_deref();
        let mut failure = BearerError::NoKey;
        for key in keys.candidates(self.algorithm, kid) {
            match algorithm.validator::<T>(key).validate(&self.token) {
                Ok(token) => return Ok(token.into_parts().1),
                Err(_) => failure = BearerError::Signature,
            }
        }
        Err(failure)
    }
}

impl JwtIssuer {
    /// Checks a token against the keys as they are known now.
    fn verify(
        &self,
        host: &dyn Host,
        token: &UntrustedJwt<'_>,
        now: UnixTime,
    ) -> Result<VerifiedToken, BearerError> {
        let keys = self.keys.keys(now)?;
        self.accept(&token.claims(host, &keys)?, now)
    }

    /// Checks the claims of a token that this issuer did sign.
    fn accept(
        &self,
        claims: &Claims<AccessTokenClaims>,
        now: UnixTime,
    ) -> Result<VerifiedToken, BearerError> {
        let expiration = claims.expiration.ok_or(BearerError::NoExpiry)?;
        let expires_at = UnixTime::from_secs(expiration.timestamp()).after(self.clock_skew);
        if now >= expires_at {
            return Err(BearerError::Expired);
        }
        let valid_from = claims.not_before.map_or(0, |not_before| not_before.timestamp());
        if now.after(self.clock_skew) < UnixTime::from_secs(valid_from) {
            return Err(BearerError::NotYetValid);
        }
        let claims = &claims.custom;
        let audiences = claims.aud.as_ref().map_or(&[][..], OneOrMany::as_slice);
        let meant_for_us = audiences.iter().any(|audience| self.audiences.contains(audience));
        if !meant_for_us {
            return Err(BearerError::Audience);
        }
        if claims.act.is_some() {
            return Err(BearerError::Delegated);
        }
        let named = |claim: &Option<String>| claim.clone().filter(|name| !name.is_empty());
        let subject = named(&claims.sub);
        let client_id = named(&claims.client_id).or_else(|| named(&claims.azp));
        if subject.is_none() && client_id.is_none() {
            return Err(BearerError::Nobody);
        }
        // A string is a list with spaces in it; in a list each item is one scope.
        let split = |scope: &String| scope.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut scopes = claims.scope.as_ref().map(split).unwrap_or_default();
        match &claims.scp {
            None => {}
            Some(OneOrMany::One(scope)) => scopes.extend(split(scope)),
            Some(OneOrMany::Many(list)) => scopes.extend(list.iter().cloned()),
        }
        Ok(VerifiedToken {
            subject,
            client_id,
            scopes,
            expires_at,
            required_scopes: Rc::clone(&self.required_scopes),
        })
    }
}

#[cfg(test)]
mod tests;
