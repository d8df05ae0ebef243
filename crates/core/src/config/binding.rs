//! The keys that access tokens are bound to, and the profile that demands them.

use super::clients::{Client, ClientAuthentication};
use super::kinds::{OneOf, Words};
use super::node::Node;
use super::section::section;
use super::verification::Jwks;
use crate::jose::{Algorithm, PublishedKey};
use std::rc::Rc;

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

/// A profile that forbids what is not secure enough for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// FAPI 2.0 Security Profile.
    Fapi2,
}

impl Words for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[("fapi2", Self::Fapi2)];
}

impl Profile {
    /// Returns true if the profile forbids JWTs with this algorithm (FAPI 2.0 Security Profile
    /// §5.4.1).
    pub(crate) const fn forbids(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Fapi2 => !matches!(
                algorithm,
                Algorithm::Ps256 | Algorithm::Es256 | Algorithm::EdDsa | Algorithm::Ed25519
            ),
        }
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

/// The parts of a configuration that a profile looks at.
pub(super) struct Profiled<'c> {
    pub(super) place: &'c Node<'c>,
    pub(super) issuer: &'c str,
    pub(super) keys: &'c [PublishedKey],
    pub(super) clients: &'c [Rc<Client>],
    /// The binding of each resource, in the order in which they are listed.
    pub(super) resources: Vec<Option<TokenBinding>>,
}

impl Profile {
    /// Reports every setting that the profile forbids.
    pub(super) fn check(self, profiled: &Profiled<'_>) {
        let Self::Fapi2 = self;
        let Profiled { place, issuer, keys, clients, resources } = profiled;
        let report = |place: Node<'_>, problem: &str| {
            let _: Option<()> = place.problem(format!("profile fapi2: {problem}"));
        };
        let item = |list: &str, index: usize, member: &str| {
            (*place).clone().member(list).item(index).member(member)
        };
        if !issuer.starts_with("https://") {
            report((*place).clone().member("issuer"), "expected an https URL");
        }
        for (index, key) in keys.iter().enumerate() {
            if Algorithm::from_name(key.algorithm_name()).is_none_or(|it| self.forbids(it)) {
                report(item("signing_keys", index, "alg"), "expected ES256, EdDSA or PS256");
            }
        }
        for (index, client) in clients.iter().enumerate() {
            match client.authentication {
                ClientAuthentication::None => {
                    report(item("clients", index, "type"), "expected a confidential client");
                }
                ClientAuthentication::ClientSecretBasic
                | ClientAuthentication::ClientSecretPost => report(
                    item("clients", index, "authentication"),
                    "expected private_key_jwt, tls_client_auth or self_signed_tls_client_auth",
                ),
                ClientAuthentication::PrivateKeyJwt
                | ClientAuthentication::SelfSignedTlsClientAuth
                | ClientAuthentication::TlsClientAuth => {}
            }
            if client.authentication == ClientAuthentication::PrivateKeyJwt
                && let Some(Jwks::Local(keys)) = &client.keys
                && keys.only_algorithms().any(|algorithm| self.forbids(algorithm))
            {
                report(item("clients", index, "local_jwks"), "expected no key for RS256");
            }
            if client.token_binding.is_none() {
                report(item("clients", index, "token_binding"), "is required");
            }
        }
        for (index, _) in resources.iter().enumerate().filter(|(_, binding)| binding.is_none()) {
            report(item("resources", index, "token_binding"), "is required");
        }
    }
}
