//! Access tokens that callers and operators present in the `Authorization` header: a token that is
//! bound to a key is good only in a request that proves the key.

use std::rc::Rc;

use super::refusal::Refusal;
use super::request::{Head, Scheme, access_token};
use super::request_context::RequestContext;
use crate::bearer::{Unproven, VerifiedToken, Verifier};
use crate::confirmation::Possession;
use crate::dpop::{Presented, ProofError, Proofs};
use crate::host::Host;
use crate::path::without_query;
use crate::secret::Digest;

/// The scope of an access token that may list impersonations.
pub(super) const READ: &str = "impersonations:read";

/// The scope of an access token that may end impersonations.
pub(super) const REVOKE: &str = "impersonations:revoke";

/// Verifies the access token in the `Authorization` header, and the proof of the key that it is
/// bound to.
pub(super) async fn verify_presented(
    request: RequestContext<'_>,
    verifier: &Verifier,
) -> Result<Rc<VerifiedToken>, Refusal> {
    let RequestContext { service, context, head, .. } = request;
    let proofs = service.proofs.as_deref();
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
            prove(proofs, request.host(), head, token, &unproven).map_err(|error| {
                let nonce = proofs.nonce(request.host());
                in_terms(Refusal::presented_proof(error).offering(nonce), true)
            })?
        }
        _ => Possession::default(),
    };
    let possession = Possession { certificate: digest(head), ..proved };
    let held = unproven.held_with(&possession);
    held.map_err(|error| in_terms(Refusal::bearer(&error), by_proof || key.is_some()))
}

/// Checks that the request has an operator's access token with this scope.
pub(super) async fn authorize_operator(
    request: RequestContext<'_>,
    scope: &str,
) -> Result<(), Refusal> {
    let RequestContext { service, trail, head, .. } = request;
    access_token(head, service.proofs.is_some()).ok_or_else(Refusal::no_bearer)?;
    if service.operators.is_empty() {
        let told = "nobody is configured to list or end impersonations";
        return Err(Refusal::access_denied("nobody_may", told));
    }
    let verified = verify_presented(request, &service.operators).await?;
    let name = verified.subject.clone().or_else(|| verified.client_id.clone());
    trail.note(|facts| facts.requested_by = name);
    verified.require(scope).map_err(|error| Refusal::bearer(&error))
}

/// Checks the proof of the key that a token is bound to (RFC 9449 §7.1). A token that is bound to
/// no key is not for the scheme `DPoP`.
fn prove(
    proofs: &Proofs,
    host: &dyn Host,
    head: &Head,
    token: &str,
    unproven: &Unproven,
) -> Result<Possession, ProofError> {
    let key = unproven.key().ok_or(ProofError::AnotherKey)?;
    let presented = presented(head, Some(token));
    proofs.check(host, presented)?.by(&key)?.first_use(host, proofs)
}

/// Returns a request as it is compared with its proof.
pub(super) fn presented<'h>(head: &'h Head, token: Option<&'h str>) -> Presented<'h> {
    let path = without_query(&head.path);
    Presented { fields: &head.proofs, method: &head.method, path, token }
}

/// Returns the digest of the client's certificate.
pub(super) fn digest(head: &Head) -> Option<Digest> {
    head.certificate.as_ref().map(|certificate| certificate.digest)
}
