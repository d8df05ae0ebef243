//! The keys that an exchange proves, and the keys that the issued access token is bound to: as far
//! as the client or the resource asks for it. A proof binds the token in any case. A proof does not
//! stand in for a certificate, nor a certificate for a proof.

use super::presented::{digest, presented};
use super::refusal::{NONCE, Refusal};
use super::request_context::RequestContext;
use crate::config::{Client, Resource, TokenBinding};
use crate::confirmation::{Confirmation, Possession};
use crate::dpop::{ProofError, Proofs, UnverifiedProof};
use crate::host::Host;
use crate::state::store::Outstanding;
use crate::step::Response;

/// Reads the proof of an exchange; `None` if there is none. Its signature is not verified yet.
pub(super) fn read_proof(
    request: RequestContext<'_>,
) -> Result<Option<UnverifiedProof<'_>>, Refusal> {
    let RequestContext { service, head, .. } = request;
    let Some(proofs) = service.proofs.as_deref().filter(|_| !head.proofs.is_empty()) else {
        return Ok(None);
    };
    let read = proofs.read(request.host(), presented(head, None));
    read.map(Some).map_err(|error| refused(proofs, request.host(), error))
}

/// Verifies the proof of an exchange, and returns the keys that the exchange has proved. The proof
/// counts as used from now on, against the share of the subject token.
pub(super) fn prove(
    request: RequestContext<'_>,
    proof: Option<UnverifiedProof<'_>>,
    subject: &Outstanding,
) -> Result<Possession, Refusal> {
    let host = request.host();
    let key = match (request.service.proofs.as_deref(), proof) {
        (Some(proofs), Some(proof)) => {
            let bearer = subject.id().to_string();
            let used = proofs
                .verify(proof)
                .and_then(|checked| checked.first_use_by(host, proofs, bearer.as_bytes()));
            used.map_err(|error| refused(proofs, host, error))?.key
        }
        _ => None,
    };
    Ok(Possession { key, certificate: digest(request.head) })
}

fn refused(proofs: &Proofs, host: &dyn Host, error: ProofError) -> Refusal {
    Refusal::proof(error).offering(proofs.nonce(host))
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
pub(super) fn with_nonce(request: RequestContext<'_>, mut response: Response) -> Response {
    if !request.head.proofs.is_empty() {
        let proofs = request.service.proofs.as_ref();
        let nonce = proofs.and_then(|proofs| proofs.nonce(request.host()));
        response.headers.extend(nonce.map(|nonce| (NONCE, nonce)));
    }
    response
}
