//! Assertions: `private_key_jwt` (RFC 7523 §2.2, with draft-ietf-oauth-rfc7523bis). The profile of
//! the signed statements by which a client says who it is.
//!
//! The one audience is our issuer. An assertion for another service, which that service could
//! present here, is refused; so is one that is for several. Each assertion is good once, for at
//! most five minutes.

use std::rc::Rc;
use std::time::Duration;

use super::error::ClientAuthError;
use crate::config::{Client, Jwks, Profile};
use crate::jose::{Algorithm, TestedCrypto};
use crate::state::shared_data::SeenOnce;
use crate::statement::{Issuers, StatementError, Untrusted};
use crate::step::Context;
use crate::upstream::RemoteKeySet;

/// The type of an assertion that is a JWT (RFC 7523 §2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The accepted values of `typ` (rfc7523bis). Most clients write `JWT`, or nothing.
const TYPES: [&str; 3] =
    ["client-authentication+jwt", "application/client-authentication+jwt", "JWT"];

/// The algorithms of assertions.
pub(crate) const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Ps256,
    Algorithm::Es256,
    Algorithm::Es384,
    Algorithm::EdDsa,
    Algorithm::Ed25519,
    Algorithm::Rs256,
];

/// How far ahead `exp` may be.
const LONGEST: Duration = Duration::from_secs(300);

/// How far the client's clock may differ from the filter's (FAPI 2.0 Security Profile §5.3.2.1).
const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// The clients that authenticate by assertions, and the assertions that they have used.
pub(crate) struct Assertions {
    clients: Issuers<Rc<Client>>,
    /// The only audience.
    audience: String,
    profile: Option<Profile>,
    seen: SeenOnce,
    crypto: Option<Rc<TestedCrypto>>,
}

/// The parameters of an assertion in a form (RFC 7521 §4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'f> {
    pub(super) assertion_type: Option<&'f str>,
    pub(super) assertion: Option<&'f str>,
}

impl Given<'_> {
    pub(super) const fn is_empty(&self) -> bool {
        self.assertion_type.is_none() && self.assertion.is_none()
    }
}

impl Assertions {
    /// Accepts assertions for `audience` of `clients`, each with its keys.
    pub(crate) fn new(
        clients: Vec<(Rc<Client>, Jwks)>,
        audience: String,
        profile: Option<Profile>,
        tenant: &str,
        crypto: Option<Rc<TestedCrypto>>,
    ) -> Self {
        let named = |(client, keys): (Rc<Client>, Jwks)| (client.client_id.clone(), keys, client);
        let clients = Issuers::of(clients.into_iter().map(named));
        Self { clients, audience, profile, seen: SeenOnce::new(tenant, "assertion"), crypto }
    }

    /// The key sets that the background task keeps fresh.
    pub(crate) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.clients.remote_key_sets()
    }

    /// Authenticates a client by its assertion. `named` is the client that the form names.
    pub(super) async fn authenticate(
        &self,
        context: &Context,
        given: Given<'_>,
        named: Option<&str>,
    ) -> Result<Rc<Client>, ClientAuthError> {
        let rule = ClientAuthError::AssertionRule;
        let Given { assertion_type: Some(JWT_BEARER), assertion: Some(assertion) } = given else {
            return Err(ClientAuthError::AssertionType);
        };
        let now = context.host().now();
        let statement = Untrusted::parse(assertion)?;
        statement.check_type(&TYPES)?;
        let algorithm = statement.algorithm()?;
        let is_forbidden = self.profile.is_some_and(|profile| profile.forbids(algorithm));
        if !ALGORITHMS.contains(&algorithm) || is_forbidden {
            return Err(StatementError::Algorithm(algorithm.name().to_owned()).into());
        }
        let client_id = statement.issuer()?;
        if named.is_some_and(|named| named != client_id) {
            return Err(ClientAuthError::TwoClients);
        }
        let (_, client) = self.clients.find(client_id)?;
        let crypto = self.crypto.as_deref();
        let verified = client.verify(context, crypto, &statement, now).await?;
        let expires_at = verified.check_times(now, CLOCK_SKEW)?;
        if expires_at > now.after(LONGEST).after(CLOCK_SKEW) {
            return Err(rule("exp is more than 5 minutes ahead"));
        }
        if verified.issued_at.is_some_and(|issued_at| issued_at > now.after(CLOCK_SKEW)) {
            return Err(rule("iat lies ahead"));
        }
        if verified.text("sub")? != Some(client_id) {
            return Err(rule("sub is not the client"));
        }
        // FAPI 2.0 Security Profile §5.3.2.1 wants a string.
        let is_text = verified.text("aud").is_ok();
        let is_ours = verified.texts("aud")? == [self.audience.as_str()]
            && (is_text || self.profile.is_none());
        if !is_ours {
            return Err(rule("aud is not the issuer alone"));
        }
        let jti = verified.text("jti")?.filter(|jti| !jti.is_empty()).ok_or(rule("no jti"))?;
        let id = [client_id.as_bytes(), b"\0", jti.as_bytes()].concat();
        if !self.seen.first_time(context.host(), client_id.as_bytes(), &id, expires_at)? {
            return Err(rule("the assertion was used before"));
        }
        Ok(Rc::clone(&client.rules))
    }

    /// The names of the algorithms that an assertion may be signed with.
    pub(crate) fn algorithm_names(profile: Option<Profile>) -> Vec<&'static str> {
        let allowed = |algorithm: &Algorithm| !profile.is_some_and(|one| one.forbids(*algorithm));
        ALGORITHMS.into_iter().filter(allowed).map(Algorithm::name).collect()
    }
}
