//! The access tokens that this service issued, as they come back at introspection and revocation.
//!
//! A token is recognized in two steps. The first reads the token without verifying its signature:
//! it is cheap, and it proves nothing. It decides whether the request may be about a token of ours,
//! which a client of ours must then ask about. The second verifies the signature, and is taken only
//! for a client that was authenticated. So a stranger cannot make the filter verify signatures, and
//! cannot find out by trying whether a token is genuine.

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::host::UnixTime;
use crate::jose::{AccessTokenType, KeySet, TestedCrypto};
use crate::state::revocations::{Impersonation, Mark, View};
use crate::statement::Untrusted;

/// Recognizes the access tokens that this service issued.
pub(crate) struct OwnTokens {
    issuer: String,
    /// The public halves of the signing keys: all that the service publishes.
    keys: Rc<KeySet>,
    crypto: Option<Rc<TestedCrypto>>,
}

/// The claims of an access token that this service issued. Its signature was verified.
pub(super) struct IssuedToken {
    claims: Map<String, Value>,
}

impl OwnTokens {
    /// Recognizes tokens with this `iss` that one of `keys` signed.
    pub(super) const fn new(
        issuer: String,
        keys: Rc<KeySet>,
        crypto: Option<Rc<TestedCrypto>>,
    ) -> Self {
        Self { issuer, keys, crypto }
    }

    /// Returns true if the token looks like one of ours: by its `typ`, `iss` and claims, and by an
    /// `alg` and a `kid` of our keys. The signature is not verified, so an attacker can make such a
    /// token.
    pub(super) fn may_have_issued(&self, token: &str) -> bool {
        self.candidate(token).is_some()
    }

    /// Verifies the signature of a token that looks like one of ours; `None` if it is not ours.
    pub(super) fn verify(&self, token: &str) -> Option<IssuedToken> {
        let candidate = self.candidate(token)?;
        let is_ours = candidate.is_signed_by(self.crypto.as_deref(), &self.keys);
        is_ours.then(|| IssuedToken { claims: candidate.into_claims() })
    }

    fn candidate<'t>(&self, token: &'t str) -> Option<Untrusted<'t>> {
        let untrusted = Untrusted::parse(token).ok()?;
        // A resource may get another type while tokens of the former one are live.
        let is_type = |name: &Value| AccessTokenType::ALL.iter().any(|one| *name == one.name());
        let looks_like_ours = untrusted.r#type().is_some_and(is_type)
            && untrusted.issuer().is_ok_and(|issuer| issuer == self.issuer)
            && untrusted.names_key_of(&self.keys)
            && impersonation(untrusted.claims()).is_some();
        looks_like_ours.then_some(untrusted)
    }
}

impl IssuedToken {
    /// `txn`: the id of the impersonation.
    pub(super) fn id(&self) -> Option<&str> {
        text(&self.claims, "txn")
    }

    /// The facts of the impersonation that a revocation can name.
    pub(super) fn impersonation(&self) -> Option<Impersonation<'_>> {
        impersonation(&self.claims)
    }

    /// Returns true if the token has expired, or its impersonation was ended.
    pub(super) fn has_ended(&self, known: &View, now: UnixTime) -> bool {
        let expires_at = self.claims.get("exp").and_then(Value::as_i64);
        let live = expires_at.is_some_and(|expires_at| now < UnixTime::from_secs(expires_at))
            && self
                .impersonation()
                .zip(mark(&self.claims))
                .is_some_and(|(impersonation, mark)| !known.has_ended(&impersonation, mark.issued));
        !live
    }

    /// All claims, to look at.
    pub(super) const fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// All claims.
    pub(super) fn into_claims(self) -> Map<String, Value> {
        self.claims
    }
}

/// Reads the impersonation from claims; `None` if a claim is missing that every token of ours has.
fn impersonation(claims: &Map<String, Value>) -> Option<Impersonation<'_>> {
    let mark = mark(claims)?;
    Some(Impersonation {
        id: text(claims, "txn")?,
        user_id: text(claims, "sub")?,
        actor_id: claims.get("act").and_then(|act| act.get("sub")).and_then(Value::as_str),
        client_id: text(claims, "client_id")?,
        caller: mark.caller,
        resource: text(claims, "aud")?,
        session: claims.get("act").and_then(|act| act.get("sid")).and_then(Value::as_str),
        actor_since: mark.actor_since,
    })
}

fn mark(claims: &Map<String, Value>) -> Option<Mark> {
    Some(Mark::read(text(claims, "jti")?, claims.get("iat")?.as_u64()?))
}

fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c str> {
    claims.get(name)?.as_str()
}
