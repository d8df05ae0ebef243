//! The keys that an access token is bound to, and the proof that the request has them (RFC 9449 §7,
//! RFC 8705 §3).
//!
//! `jwt_authn` verifies the token and leaves its claims. It finds the token behind a scheme that
//! stands anywhere in the header, and may remove the header. So Envoy's `header_to_metadata` keeps
//! the whole header before that, and the guard reads scheme and token from there, strictly. A proof
//! names the hash of this token.
//!
//! A guard that cannot know the answer refuses: without the header, without the origin of its own
//! addresses, and for a `cnf` that it does not understand. A token that is bound to no key passes
//! as if none of this existed.

use super::claims::{Binding, authorization};
use super::streams::Watched;
use crate::certificate::{ClientCertificate, digest_of_connection};
use crate::config::CertificateSource;
use crate::confirmation::Possession;
use crate::dpop::{Presented, ProofError, Proofs};
use crate::host::Host;
use crate::http_stream::HttpRequest;
use crate::path::without_query;
use crate::secret::Digest;

/// How the guard learns which keys a request has.
pub(super) struct KeyCheck {
    /// Checks proofs; `None` if the guard does not know its own origin.
    pub(super) proofs: Option<Proofs>,
    /// Where client certificates are read.
    pub(super) certificates: CertificateSource,
}

/// Why a bound access token is worth nothing in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// The guard cannot know: the `cnf` is not understood, the origin is not configured, or the
    /// `Authorization` header is not in the metadata.
    Unknown,
    /// The token was presented by another scheme than its own, or not alone.
    Scheme {
        /// True if the token is bound to a key that signs proofs.
        needs_proof: bool,
    },
    /// The proof is missing or bad.
    Proof(ProofError),
    /// The client connected without the certificate that the token is bound to.
    Certificate,
}

impl KeyCheck {
    /// Checks that a request has the keys that its access token is bound to.
    pub(super) fn check(
        &self,
        host: &dyn Host,
        request: &dyn HttpRequest,
        watched: &Watched,
        binding: Binding,
    ) -> Result<(), NotHeld> {
        let bound_to = match binding {
            Binding::None => return Ok(()),
            Binding::NotUnderstood => return Err(NotHeld::Unknown),
            Binding::To(confirmation) => confirmation,
        };
        let header = authorization(&watched.metadata).ok_or(NotHeld::Unknown)?;
        let scheme = if bound_to.key.is_some() { "DPoP" } else { "Bearer" };
        let token = token_of(header, scheme)
            .ok_or(NotHeld::Scheme { needs_proof: bound_to.key.is_some() })?;
        let proved = match &bound_to.key {
            Some(key) => self.prove(host, watched, token, key)?,
            None => Possession::default(),
        };
        let certificate = match bound_to.certificate {
            Some(_) => self.certificate(request, watched),
            None => None,
        };
        let possession = Possession { certificate, ..proved };
        if possession.meets(&bound_to) { Ok(()) } else { Err(NotHeld::Certificate) }
    }

    fn prove(
        &self,
        host: &dyn Host,
        watched: &Watched,
        token: &str,
        key: &Digest,
    ) -> Result<Possession, NotHeld> {
        let proofs = self.proofs.as_ref().ok_or(NotHeld::Unknown)?;
        let presented = Presented {
            fields: &watched.proofs,
            method: &watched.own_method,
            path: without_query(&watched.target),
            token: Some(token),
        };
        let checked = proofs.check(host, presented).and_then(|checked| checked.by(key));
        checked.and_then(|checked| checked.first_use(host, proofs)).map_err(NotHeld::Proof)
    }

    /// Returns the nonce for the next proof; `None` where proofs need none (RFC 9449 §9).
    pub(super) fn nonce(&self, host: &dyn Host) -> Option<String> {
        self.proofs.as_ref()?.nonce(host)
    }

    fn certificate(&self, request: &dyn HttpRequest, watched: &Watched) -> Option<Digest> {
        match self.certificates {
            CertificateSource::Connection => {
                digest_of_connection(|name| request.connection_property(name))
            }
            CertificateSource::Forwarded => {
                Some(ClientCertificate::of_header(&watched.certificates)?.digest)
            }
        }
    }
}

/// Returns the token of an `Authorization` header that is exactly this scheme, one space, and a
/// JWT. `jwt_authn` compares letter case, and so does the guard.
fn token_of<'h>(header: &'h str, scheme: &str) -> Option<&'h str> {
    let token = header.strip_prefix(scheme)?.strip_prefix(' ')?;
    let is_of_jwt = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!token.is_empty() && token.bytes().all(is_of_jwt)).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_alone_behind_its_own_scheme() {
        #[rustfmt::skip]
        let cases = [
            ("DPoP a.b.c",          Some("a.b.c")),
            ("DPoP a-b_c.d",        Some("a-b_c.d")),
            ("Bearer a.b.c",        None),
            ("dpop a.b.c",          None),
            ("DPOP a.b.c",          None),
            ("DPoP  a.b.c",         None),
            (" DPoP a.b.c",         None),
            ("DPoP a.b.c ",         None),
            ("DPoP a.b.c,d",        None),
            ("DPoP a.b.c DPoP d",   None),
            ("DPoP a.b.c, DPoP d",  None),
            ("Foo DPoP a.b.c",      None),
            ("Basic abc,DPoP a.b.c", None),
            ("XDPoP a.b.c",         None),
            ("DPoP\ta.b.c",         None),
            ("DPoP a.b.c\0",        None),
            ("DPoP a=b",            None),
            ("DPoP ",               None),
            ("DPoP",                None),
            ("",                    None),
        ];
        for (header, token) in cases {
            assert_eq!(token_of(header, "DPoP"), token, "{header:?}");
        }
    }
}
