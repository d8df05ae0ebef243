//! JWT access tokens (RFC 9068), checked as RFC 8725 advises: the algorithm by the key, the issuer by
//! the configuration, nothing by the token's own word.
//!
//! A token that another parser could read as a JWT is read here as one or refused. If it counted as opaque
//! where it is not written as it should be, whoever holds it could choose how it is verified: signatures
//! cover neither padding nor the bits that the last character has to spare, and what is asked about opaque
//! tokens often ignores both.

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use super::names::{Named, Names, Said};
use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::config::JwtIssuer;
use crate::host::UnixTime;
use crate::jose::{Algorithm, Claims, JwtError, KeySet, TestedCrypto, UntrustedJwt};
use crate::secret::Digest;
use crate::step::Context;
use crate::strict_json::Strict;
use crate::upstream::{KeySource, RemoteKeySet};

/// Verified tokens to remember. A backend uses one token at a time, a support team has hundreds of
/// members at the most; a token that fell out is verified again.
const CACHE_CAPACITY: usize = 1024;

/// An issuer whose tokens are accepted, with its keys as far as they are known.
#[derive(Debug)]
struct Issuer {
    config: JwtIssuer,
    keys: KeySource,
}

/// Verifies tokens of any of its issuers, each once.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    issuers: Vec<Issuer>,
    verified: RefCell<ExpiringCache<Verified>>,
}

/// A token that was verified, and with which keys: it is good as long as they are.
#[derive(Debug, Clone)]
struct Verified {
    token: Rc<VerifiedToken>,
    issuer: usize,
    generation: u64,
}

fn is_there<'de, D: serde::Deserializer<'de>>(member: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(member).map(|_| true)
}

/// The claims of RFC 9068 §2.2 that are looked at, and those by which other issuers say the same.
#[derive(Debug, Deserialize)]
struct AccessTokenClaims {
    sub: Option<String>,
    aud: Option<OneOrMany>,
    client_id: Option<String>,
    azp: Option<String>,
    scope: Option<String>,
    scp: Option<OneOrMany>,
    /// Whether it is there. Nothing that it can say makes it no delegation, not even `null`.
    #[serde(default, deserialize_with = "is_there")]
    act: bool,
    /// The same: nobody here can check a proof of possession (RFC 7800).
    #[serde(default, deserialize_with = "is_there")]
    cnf: bool,
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
    pub(super) fn new(issuers: Vec<JwtIssuer>) -> Self {
        let issuer = |config: JwtIssuer| Issuer { keys: KeySource::new(&config.keys), config };
        let issuers = issuers.into_iter().map(issuer).collect();
        Self { issuers, verified: RefCell::new(ExpiringCache::new(CACHE_CAPACITY)) }
    }

    /// The key sets that must be kept fresh.
    pub(super) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.issuers.iter().filter_map(|issuer| match &issuer.keys {
            KeySource::Remote(remote) => Some(remote),
            KeySource::Local(_) => None,
        })
    }

    /// Verifies a token, that it has the required scopes, and that none of our own keys signed it.
    /// [`BearerError::Issuer`] is the only refusal after which another way may be tried.
    pub(super) async fn verify(
        &self,
        context: &Context,
        crypto: Option<&TestedCrypto>,
        own_keys: &KeySet,
        names: &Names,
        token: &str,
    ) -> Result<Rc<VerifiedToken>, BearerError> {
        let digest = Digest::of(token.as_bytes());
        let now = context.host().now();
        if let Some(verified) = self.remembered(&digest, now) {
            return verified.with_required_scopes();
        }
        let token = AccessJwt::parse(token)?;
        let named = token.issuer()?;
        let (position, issuer) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, issuer)| issuer.config.issuer == named)
            .ok_or_else(|| BearerError::Issuer(named.to_owned()))?;
        let mut verdict = issuer.verify(crypto, names, &token, now);
        let lacks_key = matches!(verdict, Err(BearerError::NoKey | BearerError::Upstream(_)));
        if let (true, KeySource::Remote(remote)) = (lacks_key, &issuer.keys) {
            remote.refresh(context).await?;
            verdict = issuer.verify(crypto, names, &token, now);
        }
        let verified = Rc::new(verdict?);
        if token.is_signed_by(crypto, own_keys) {
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

/// Whether a token is a JWT to whoever may read it: three parts with dots between them. Anything else is
/// opaque, encrypted JWTs too (five parts, RFC 7516): only their issuer can tell what is in them.
///
/// A signed one with parts to spare, which a careless parser ignores, is neither.
pub(super) fn is_jwt(token: &str) -> Result<bool, BearerError> {
    // As forgiving as anybody.
    const FORGIVING: GeneralPurpose = GeneralPurpose::new(
        &URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let (first, others) = match token.split_once('.') {
        None => return Ok(false),
        Some((first, rest)) => (first, rest.split('.').count()),
    };
    if others == 2 {
        return Ok(true);
    }
    let header = first.trim_end_matches('=').replace('+', "-").replace('/', "_");
    let header = FORGIVING.decode(header).unwrap_or_default();
    let header: Map<String, Value> = serde_json::from_slice(&header).unwrap_or_default();
    let encrypted = others == 4 && header.contains_key("enc");
    if header.contains_key("alg") && !encrypted { Err(BearerError::NotAJwt) } else { Ok(false) }
}

/// A token whose word nobody has vouched for yet, written in the one way in which it can be written.
pub(super) struct AccessJwt<'t> {
    token: UntrustedJwt<'t>,
    claims: Map<String, Value>,
}

impl<'t> AccessJwt<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, BearerError> {
        // Knows three parts in canonical base64url only: no padding, no bits to spare.
        let parsed = UntrustedJwt::parse(token).ok_or(BearerError::NotAJwt)?;
        let mut parts = token.split('.').map(object);
        let header = parts.next().flatten().ok_or(BearerError::NotAJwt)?;
        let claims = parts.next().flatten().ok_or(BearerError::Claims)?;
        // Nothing that it can say makes it one that is understood, not even `null`. RFC 7797 §7: there is no
        // JWT with `b64`.
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(BearerError::Critical);
        }
        match header.get("typ") {
            None => {}
            Some(Value::String(r#type)) if is_access_token(r#type) => {}
            Some(other) => return Err(BearerError::NotAnAccessToken(other.to_string())),
        }
        Ok(Self { token: parsed, claims })
    }

    /// Whose it says that it is; empty if it does not say.
    pub(super) fn issuer(&self) -> Result<&str, BearerError> {
        match self.claims.get("iss") {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(issuer)) => Ok(issuer),
            Some(_) => Err(BearerError::Claims),
        }
    }

    /// Refuses what is no bearer of its own by its own word, or by our signature. Others may vouch for the
    /// rest of what it says; that it is an impersonation they need not know or repeat.
    pub(super) fn check_unlisted(
        &self,
        crypto: Option<&TestedCrypto>,
        own_keys: &KeySet,
    ) -> Result<(), BearerError> {
        if self.claims.contains_key("act") {
            return Err(BearerError::Delegated);
        }
        if self.claims.contains_key("cnf") {
            return Err(BearerError::SenderConstrained);
        }
        if !self.token.has_signature() {
            return Err(BearerError::Signature);
        }
        if self.is_signed_by(crypto, own_keys) {
            return Err(BearerError::SelfIssued);
        }
        Ok(())
    }

    /// All of its claims, if one of `keys` signed it.
    pub(super) fn claims_if_signed_by(
        self,
        crypto: Option<&TestedCrypto>,
        keys: &KeySet,
    ) -> Option<Map<String, Value>> {
        self.is_signed_by(crypto, keys).then_some(self.claims)
    }

    fn algorithm(&self) -> Result<Algorithm, BearerError> {
        let name = self.token.algorithm();
        Algorithm::from_name(name).ok_or_else(|| BearerError::Algorithm(name.to_owned()))
    }

    /// Whether one of `keys` signed it, whatever it says.
    fn is_signed_by(&self, crypto: Option<&TestedCrypto>, keys: &KeySet) -> bool {
        self.claims::<IgnoredAny>(crypto, keys).is_ok()
    }

    /// Its claims, if one of `keys` signed it.
    fn claims<T: DeserializeOwned>(
        &self,
        crypto: Option<&TestedCrypto>,
        keys: &KeySet,
    ) -> Result<Claims<T>, BearerError> {
        let named = self.algorithm()?;
        let mut failure = BearerError::NoKey;
        for key in keys.candidates(named, self.token.key_id()) {
            match self.token.verify(crypto, named, key) {
                Ok(claims) => return Ok(claims),
                Err(JwtError::Claims) => return Err(BearerError::Claims),
                Err(JwtError::Signature) => failure = BearerError::Signature,
            }
        }
        Err(failure)
    }
}

/// The JSON object in a part of a token: strict in its base64url, in its UTF-8, and in naming a member once.
/// RFC 7519 §4 would also allow to take the last of two; others take the first.
fn object(part: &str) -> Option<Map<String, Value>> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    match serde_json::from_slice(&json) {
        Ok(Strict(Value::Object(members))) => Some(members),
        _ => None,
    }
}

/// RFC 9068 §4 and RFC 8725 §3.11, with `JWT` for issuers that name no more than the format. Media types
/// know no letter case (RFC 7515 §4.1.9).
fn is_access_token(r#type: &str) -> bool {
    ["at+jwt", "application/at+jwt", "JWT"].iter().any(|known| known.eq_ignore_ascii_case(r#type))
}

impl Issuer {
    /// Checks a token against the keys as they are known now.
    fn verify(
        &self,
        crypto: Option<&TestedCrypto>,
        names: &Names,
        token: &AccessJwt<'_>,
        now: UnixTime,
    ) -> Result<VerifiedToken, BearerError> {
        let keys = self.keys.keys(now)?;
        self.accept(names, &token.claims(crypto, &keys)?, now)
    }

    /// Checks the claims of a token that this issuer did sign.
    fn accept(
        &self,
        names: &Names,
        claims: &Claims<AccessTokenClaims>,
        now: UnixTime,
    ) -> Result<VerifiedToken, BearerError> {
        let expiration = claims.expiration.ok_or(BearerError::NoExpiry)?;
        let expires_at = UnixTime::from_secs(expiration).after(self.config.clock_skew);
        if now >= expires_at {
            return Err(BearerError::Expired);
        }
        let valid_from = claims.not_before.unwrap_or(0);
        if now.after(self.config.clock_skew) < UnixTime::from_secs(valid_from) {
            return Err(BearerError::NotYetValid);
        }
        let claims = &claims.custom;
        let audiences = claims.aud.as_ref().map_or(&[][..], OneOrMany::as_slice);
        let meant_for_us =
            audiences.iter().any(|audience| self.config.audiences.contains(audience));
        if !meant_for_us {
            return Err(BearerError::Audience);
        }
        if claims.act {
            return Err(BearerError::Delegated);
        }
        if claims.cnf {
            return Err(BearerError::SenderConstrained);
        }
        let said = Said {
            sub: claims.sub.clone(),
            client_id: claims.client_id.clone(),
            azp: claims.azp.clone(),
        };
        let prefix = self.config.name_prefix.as_deref().unwrap_or_default();
        let client_ids = self.config.client_ids.as_deref();
        let Named { subject, client_id } = names.identify(prefix, said, client_ids)?;
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
            required_scopes: Rc::clone(&self.config.required_scopes),
        })
    }
}

#[cfg(test)]
mod tests;
