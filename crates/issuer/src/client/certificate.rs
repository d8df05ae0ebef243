//! TLS certificates: `tls_client_auth` and `self_signed_tls_client_auth` (RFC 8705 §2).
//!
//! The handshake proved that the client has the private key. With `tls_client_auth` the listener
//! has verified that an authority vouches for the name, which `impersonation-filter check` makes
//! sure of. With `self_signed_tls_client_auth` nobody vouches: the certificate itself is known.

use crate::certificate::ClientCertificate;
use crate::config::CertificateName;
use crate::secret::Digest;

/// Returns true if a certificate has the name that is configured for its client.
pub(super) fn has_name(certificate: &ClientCertificate, name: &CertificateName) -> bool {
    match name {
        CertificateName::Dns(name) => {
            // DNS names ignore letter case (RFC 4343).
            certificate.dns_names.iter().any(|known| known.eq_ignore_ascii_case(name))
        }
        CertificateName::Uri(uri) => certificate.uris.contains(uri),
        CertificateName::Subject(subject) => certificate.subject.as_ref() == Some(subject),
    }
}

/// Returns true if a certificate is one of those that its client has registered.
pub(super) fn is_registered(certificate: &ClientCertificate, registered: &[Digest]) -> bool {
    registered.iter().any(|known| known.matches(&certificate.digest))
}
