//! The keys that access tokens are bound to.

use super::kinds::{OneOf, Words};
use super::section::section;

/// The kind of key that an access token must be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenBinding {
    /// A key with which the client signs a proof for each request (RFC 9449).
    Dpop,
    /// The certificate with which the client connects (RFC 8705).
    Mtls,
    /// Either of the two.
    Any,
}

impl Words for TokenBinding {
    const WORDS: &'static [(&'static str, Self)] =
        &[("dpop", Self::Dpop), ("mtls", Self::Mtls), ("any", Self::Any)];
}

impl TokenBinding {
    /// Returns true if a proof of possession can meet the demand.
    pub(crate) const fn allows_proof(self) -> bool {
        matches!(self, Self::Dpop | Self::Any)
    }

    /// Returns true if a client certificate can meet the demand.
    pub(crate) const fn allows_certificate(self) -> bool {
        matches!(self, Self::Mtls | Self::Any)
    }
}

/// Where a client's certificate is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CertificateSource {
    /// In the handshake of the connection to Envoy.
    Connection,
    /// In the header `x-forwarded-client-cert`, which a proxy in front writes.
    Forwarded,
}

impl Words for CertificateSource {
    const WORDS: &'static [(&'static str, Self)] =
        &[("connection", Self::Connection), ("forwarded", Self::Forwarded)];
}

/// The use of client certificates, and so what the listener must make sure of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateUse {
    /// No certificate is read.
    None,
    /// The certificate itself counts, whoever made it.
    Any,
    /// The names in the certificate count: an authority must vouch for it.
    Verified,
    /// A proxy in front forwards the certificate: only that proxy may connect.
    Forwarded,
}

/// When a proof must have a nonce of the filter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NonceRule {
    /// Always.
    Required,
}

impl Words for NonceRule {
    const WORDS: &'static [(&'static str, Self)] = &[("required", Self::Required)];
}

section! {
    /// Proofs of possession (DPoP, RFC 9449). If this member is given, the filter reads proofs even
    /// if no client and no resource asks for them: a valid proof binds the access token.
    #[derive(Debug)]
    pub(crate) struct Dpop {
        /// `required`: a proof needs a nonce of the filter's. A client learns the nonce from the
        /// refusal of its first proof. Proofs cannot be made in advance then, and a client's clock
        /// may be wrong. Nonces are good at every worker, and at every Envoy with the same signing
        /// keys.
        pub(crate) nonce: OneOf<NonceRule> as Option<NonceRule> => "a proof is good for 60 s by its `iat`",
    }
}
