//! JWT access tokens (RFC 9068): the profile of signed statements that callers and actors present.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Deserialize as _;
use serde_json::Value;

use super::identity::{Identity, NameClaims};
use super::scopes::Scopes;
use super::sign_in::SignInClaims;
use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::config::JwtIssuer;
use crate::confirmation::Confirmation;
use crate::host::UnixTime;
use crate::jose::{KeySet, TestedCrypto};
use crate::secret::Digest;
use crate::statement::{Issuers, Names, StatementError, Untrusted, Verified};
use crate::step::Context;
use crate::upstream::RemoteKeySet;

/// How many verified tokens are remembered. A backend uses one token at a time, and a support team
/// has hundreds of members at most. A token that fell out is verified again.
const CACHE_CAPACITY: usize = 1024;

/// The accepted values of `typ` (RFC 9068 §4, RFC 8725 §3.11). Some issuers write `JWT`.
const TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "JWT"];

/// The values of `typ` that only an access token has.
const TYPES_OF_RFC_9068: [&str; 2] = ["at+jwt", "application/at+jwt"];

/// Claims of other kinds of token, whatever `typ` says: of logout tokens and security events (RFC
/// 8417 §2.2), and of ID tokens (OpenID Connect Core §2, §3.3.2.11).
const NEVER_IN_AN_ACCESS_TOKEN: [&str; 4] = ["events", "nonce", "at_hash", "c_hash"];

/// Verifies access tokens of trusted issuers, and remembers the verified ones.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    issuers: Issuers<JwtIssuer>,
    verified: RefCell<ExpiringCache<Remembered>>,
}

/// A token that was verified. It counts as verified until its issuer's keys change.
#[derive(Debug, Clone)]
struct Remembered {
    token: Rc<VerifiedToken>,
    /// The issuer's position in the list.
    issuer: usize,
    generation: u64,
}

impl JwtVerifier {
    /// Creates a verifier with an empty memory.
    pub(super) fn new(issuers: Vec<JwtIssuer>) -> Self {
        let issuers = Issuers::new(issuers, |entry| (&entry.issuer, &entry.keys));
        Self { issuers, verified: RefCell::new(ExpiringCache::new(CACHE_CAPACITY)) }
    }

    /// The key sets that the background task keeps fresh.
    pub(super) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.issuers.remote_key_sets()
    }

    /// Verifies a token, checks that it has the required scopes, and refuses it if a key of
    /// `own_keys` signed it. [`StatementError::Issuer`] is the only refusal after which the token
    /// may be verified in another way.
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
        let statement = parse(token)?;
        let (position, issuer) = self.issuers.find(statement.issuer()?)?;
        let verified = issuer.verify(context, crypto, &statement, now).await?;
        let verified = Rc::new(accept(&issuer.rules, names, &statement, &verified, now)?);
        if statement.is_signed_by(crypto, own_keys) {
            return Err(BearerError::SelfIssued);
        }
        let generation = issuer.generation();
        let remembered = Remembered { token: Rc::clone(&verified), issuer: position, generation };
        self.verified.borrow_mut().insert(digest, now, verified.expires_at, remembered);
        verified.with_required_scopes()
    }

    fn remembered(&self, digest: &Digest, now: UnixTime) -> Option<Rc<VerifiedToken>> {
        let remembered = self.verified.borrow().get(digest, now)?;
        let issuer = self.issuers.get(remembered.issuer)?;
        (issuer.generation() == remembered.generation).then_some(remembered.token)
    }
}

/// Parses a JWT that may be an access token.
pub(super) fn parse(token: &str) -> Result<Untrusted<'_>, BearerError> {
    let statement = Untrusted::parse(token)?;
    statement.check_type(&TYPES)?;
    Ok(statement)
}

/// Refuses a JWT of an unlisted issuer that says itself that its bearer is not its subject, or that
/// one of our own keys signed. An endpoint may vouch for the rest of what the JWT says, but it need
/// not know or repeat that the token is an impersonation, or bound to a key. Returns the key that
/// the JWT names.
pub(super) fn check_unlisted(
    statement: &Untrusted<'_>,
    crypto: Option<&TestedCrypto>,
    own_keys: &KeySet,
) -> Result<Confirmation, BearerError> {
    check_kind(|name| statement.claims().contains_key(name))?;
    let confirmation = confirmation(statement.claims().get("cnf"))?;
    if !statement.has_signature() {
        return Err(StatementError::Signature.into());
    }
    if statement.is_signed_by(crypto, own_keys) {
        return Err(BearerError::SelfIssued);
    }
    Ok(confirmation)
}

/// Returns true if a JWT says that it [is an access token](VerifiedToken::is_marked).
pub(super) fn is_marked(statement: &Untrusted<'_>) -> bool {
    let typed = statement.r#type().is_some() && statement.check_type(&TYPES_OF_RFC_9068).is_ok();
    let claims = statement.claims();
    let has = |name: &str| claims.get(name).is_some_and(|claim| !claim.is_null());
    typed || ["scope", "scp", "client_id"].into_iter().any(has)
}

/// Reads the keys that a token is bound to; none if it has no `cnf`.
pub(super) fn confirmation(cnf: Option<&Value>) -> Result<Confirmation, BearerError> {
    let Some(cnf) = cnf else { return Ok(Confirmation::default()) };
    Confirmation::read(cnf).ok_or(BearerError::SenderConstrained)
}

/// Refuses a token whose claims say that it is another kind of token, or that its bearer is not its
/// subject. `has` says whether the token has a claim, with any value.
fn check_kind(has: impl Fn(&str) -> bool) -> Result<(), BearerError> {
    if let Some(name) = NEVER_IN_AN_ACCESS_TOKEN.into_iter().find(|name| has(name)) {
        return Err(BearerError::NotAnAccessToken(name.to_owned()));
    }
    if has("act") || has("txn") {
        return Err(BearerError::Delegated);
    }
    Ok(())
}

/// Checks the claims of a token against the rules for its issuer, which did sign it.
fn accept(
    rules: &JwtIssuer,
    names: &Names,
    statement: &Untrusted<'_>,
    verified: &Verified<'_>,
    now: UnixTime,
) -> Result<VerifiedToken, BearerError> {
    let expires_at = verified.check_times(now, rules.clock_skew)?;
    let audiences = verified.texts("aud")?;
    if !rules.audiences.iter().any(|ours| audiences.contains(&ours.as_str())) {
        return Err(BearerError::Audience);
    }
    check_kind(|name| verified.has(name))?;
    let confirmation = confirmation(verified.given("cnf"))?;
    let text = |name| verified.text(name).map(|text| text.map(str::to_owned));
    let named = NameClaims { sub: text("sub")?, client_id: text("client_id")?, azp: text("azp")? };
    let prefix = rules.name_prefix.as_deref().unwrap_or_default();
    let client_ids = rules.client_ids.as_deref();
    let Identity { subject, client_id } = Identity::new(names, prefix, named, client_ids)?;
    // Some issuers write `scp` instead of RFC 9068's `scope`.
    let mut scopes = read_scopes(verified, "scope")?;
    scopes.extend(read_scopes(verified, "scp")?);
    let sign_in = SignInClaims {
        sid: text("sid")?,
        acr: verified.claim("acr"),
        auth_time: verified.claim("auth_time"),
    };
    Ok(VerifiedToken {
        subject,
        client_id,
        scopes,
        expires_at,
        is_marked: is_marked(statement),
        sign_in: sign_in.read(names, prefix, verified.issued_at)?,
        confirmation,
        required_scopes: Rc::clone(&rules.required_scopes),
    })
}

fn read_scopes(verified: &Verified<'_>, name: &str) -> Result<Vec<String>, StatementError> {
    let Some(claim) = verified.claim(name) else { return Ok(Vec::new()) };
    let scopes = Scopes::deserialize(claim).map_err(|_| StatementError::Claims)?;
    Ok(scopes.into_list())
}

#[cfg(test)]
mod tests;
