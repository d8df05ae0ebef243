//! The keys that a request proves, and the keys that tokens are bound to.
//!
//! A presented access token that is bound to a key is good only in a request that proves the key. An
//! issued access token is bound to the keys that its exchange proved, as far as the client or the
//! resource asks for it; a proof binds the token in any case. A proof does not stand in for a
//! certificate, nor a certificate for a proof.

use std::rc::Rc;

use super::refusal::{NONCE, Refusal};
use super::request::{Head, Scheme, access_token};
use super::service::Service;
use crate::bearer::{Unproven, VerifiedToken, Verifier};
use crate::config::{Client, Resource, TokenBinding};
use crate::confirmation::{Confirmation, Possession};
use crate::dpop::{CheckedProof, Presented, ProofError, Proofs};
use crate::host::Host;
use crate::path::without_query;
use crate::secret::Digest;
use crate::step::{Context, Response};

/// Verifies the access token in the `Authorization` header, and the proof of the key that it is
/// bound to. `presented` is the token as [`access_token`] reads it.
pub(super) async fn verify_presented(
    verifier: &Verifier,
    proofs: Option<&Proofs>,
    context: &Context,
    head: &Head,
) -> Result<Rc<VerifiedToken>, Refusal> {
    let (scheme, token) = access_token(head, proofs.is_some()).ok_or_else(Refusal::no_bearer)?;
    let in_terms = |refusal: Refusal, is_for_proofs: bool| match proofs {
        Some(proofs) if is_for_proofs => refusal.challenged_for_proof(&proofs.algorithm_names()),
        _ => refusal,
    };
    let by_proof = scheme == Scheme::Dpop;
    let unproven = verifier.verify(context, token).await;
    let unproven = unproven.map_err(|error| in_terms(Refusal::bearer(&error), by_proof))?;
    let key = unproven.key();
    let proved = match proofs {
        Some(proofs) if by_proof => {
            prove(proofs, context.host(), head, token, &unproven).map_err(|error| {
                let nonce = proofs.nonce(context.host().now());
                in_terms(Refusal::presented_proof(error).offering(nonce), true)
            })?
        }
        _ => Possession::default(),
    };
    let possession = Possession { certificate: digest(head), ..proved };
    let held = unproven.held_with(&possession);
    held.map_err(|error| in_terms(Refusal::bearer(&error), by_proof || key.is_some()))
}

/// Checks the proof of the key that a token is bound to (RFC 9449 §7.1). A token that is bound to no
/// key is not for the scheme `DPoP`.
fn prove(
    proofs: &Proofs,
    host: &dyn Host,
    head: &Head,
    token: &str,
    unproven: &Unproven,
) -> Result<Possession, ProofError> {
    let key = unproven.key().ok_or(ProofError::AnotherKey)?;
    let presented = presented(head, Some(token));
    proofs.check(host.now(), presented)?.by(&key)?.first_use(host, proofs)
}

fn presented<'h>(head: &'h Head, token: Option<&'h str>) -> Presented<'h> {
    let path = without_query(&head.path);
    Presented { fields: &head.proofs, method: &head.method, path, token }
}

fn digest(head: &Head) -> Option<Digest> {
    head.certificate.as_ref().map(|certificate| certificate.digest)
}

/// Checks the proof of an exchange; `None` if there is none. The proof still counts as unused.
pub(super) fn check_proof(
    service: &Service,
    host: &dyn Host,
    head: &Head,
) -> Result<Option<CheckedProof>, Refusal> {
    let Some(proofs) = service.proofs.as_deref().filter(|_| !head.proofs.is_empty()) else {
        return Ok(None);
    };
    let checked = proofs.check(host.now(), presented(head, None));
    checked.map(Some).map_err(|error| refused(proofs, host, error))
}

/// Returns the keys that an exchange has proved. The proof counts as used from now on.
pub(super) fn proved(
    service: &Service,
    host: &dyn Host,
    head: &Head,
    proof: Option<CheckedProof>,
) -> Result<Possession, Refusal> {
    let key = match (service.proofs.as_deref(), proof) {
        (Some(proofs), Some(proof)) => {
            let used = proof.first_use(host, proofs);
            used.map_err(|error| refused(proofs, host, error))?.key
        }
        _ => None,
    };
    Ok(Possession { key, certificate: digest(head) })
}

fn refused(proofs: &Proofs, host: &dyn Host, error: ProofError) -> Refusal {
    Refusal::proof(error).offering(proofs.nonce(host.now()))
}

/// Returns the keys that an access token will be bound to. Refuses an exchange that has not proved
/// what the client and the resource ask for.
pub(super) fn bind(
    client: &Client,
    resource: &Resource,
    possession: &Possession,
) -> Result<Confirmation, Refusal> {
    let mut confirmation = Confirmation { key: possession.key, certificate: None };
    for demand in [client.token_binding, resource.token_binding].into_iter().flatten() {
        let needs_certificate = match demand {
            TokenBinding::Dpop if possession.key.is_none() => {
                return Err(Refusal::proof(ProofError::Missing));
            }
            TokenBinding::Dpop => false,
            TokenBinding::Mtls => true,
            TokenBinding::Any => possession.key.is_none(),
        };
        if needs_certificate {
            let certificate = possession.certificate.ok_or_else(|| match demand {
                TokenBinding::Any => Refusal::proof(ProofError::Missing),
                _ => {
                    let told = "a client certificate is required: connect with one";
                    Refusal::invalid_request("certificate_missing", told)
                }
            })?;
            confirmation.certificate = Some(certificate);
        }
    }
    Ok(confirmation)
}

/// The `token_type` of an access token with these keys (RFC 9449 §5, RFC 8705 §3).
pub(super) const fn token_type(confirmation: &Confirmation) -> &'static str {
    if confirmation.key.is_some() { "DPoP" } else { "Bearer" }
}

/// Adds the nonce for the client's next proof to the answer of a request with a proof (RFC 9449
/// §8.2).
pub(super) fn with_nonce(
    service: &Service,
    host: &dyn Host,
    head: &Head,
    mut response: Response,
) -> Response {
    if !head.proofs.is_empty() {
        let nonce = service.proofs.as_ref().and_then(|proofs| proofs.nonce(host.now()));
        response.headers.extend(nonce.map(|nonce| (NONCE, nonce)));
    }
    response
}
