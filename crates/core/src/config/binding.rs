//! The keys that access tokens are bound to.

use super::kinds::{OneOf, Words};
use super::node::Node;
use super::section::{Raw, Refined, section};
use super::source::{SourceMembers, Sourced};
use crate::secret::{Digest, Secret};

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
pub enum CertificateSource {
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
pub enum NonceRule {
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
    pub struct Dpop {
        /// `required`: a proof needs a nonce of the filter's, which the refusal of the first proof
        /// contains. So no proof can be made in advance. A nonce is good at each Envoy with the
        /// same signing keys.
        pub nonce: OneOf<NonceRule> as Option<NonceRule> => "a proof is good for 60 s by its `iat`",
    }
}

/// The least number of characters of a secret that makes nonces.
const LEAST_SECRET: usize = 32;

section! {
    /// Proofs of possession at the guard (DPoP, RFC 9449).
    pub(super) struct GuardDpopMembers {
        /// `required`: a proof needs a nonce of the guard's, which its refusal, 401
        /// `use_dpop_nonce`, contains. So an intercepted proof cannot be kept for later or used
        /// elsewhere.
        nonce: OneOf<NonceRule>,
        /// The secret that makes the nonces, at least 32 characters. Give it to each Envoy before
        /// the same APIs: a nonce of one is then good at all.
        secret: NonceSecret => "a random one that the workers of one Envoy share; required with `store.etcd`",
    }
}

/// A secret that is long enough, as the key of nonces.
struct NonceSecret;

impl Refined for NonceSecret {
    type From = SourceMembers;
    type Value = Secret<[u8; 16]>;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self::Value> {
        let Sourced { text, member } = members.given()?;
        if text.chars().count() < LEAST_SECRET {
            return place
                .member(member)
                .problem(format!("expected at least {LEAST_SECRET} characters"));
        }
        let digest = Digest::of(["impersonation-guard: nonces\0", &text].concat().as_bytes());
        digest.as_bytes().first_chunk().copied().map(Secret::new)
    }
}

/// The source of the guard's nonces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardNonces {
    /// The workers of one Envoy share a random key.
    OfThisEnvoy,
    /// The key of every Envoy with the operator's secret.
    Of(Secret<[u8; 16]>),
}

impl Refined for GuardNonces {
    type From = GuardDpopMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let GuardDpopMembers { nonce: NonceRule::Required, secret } = raw;
        Some(secret.map_or(Self::OfThisEnvoy, Self::Of))
    }
}
