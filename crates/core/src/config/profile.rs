//! Profiles: sets of rules that forbid what is not secure enough.

use std::rc::Rc;

use super::binding::TokenBinding;
use super::clients::{Client, ClientAuthentication};
use super::kinds::Words;
use super::node::Node;
use super::verification::Jwks;
use crate::jose::{Algorithm, PublishedKey};

/// A profile that forbids what is not secure enough for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// FAPI 2.0 Security Profile.
    Fapi2,
}

impl Words for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[("fapi2", Self::Fapi2)];
}

impl Profile {
    /// Returns true if the profile forbids JWTs with this algorithm (FAPI 2.0 Security Profile
    /// §5.4.1).
    pub const fn forbids(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Fapi2 => !matches!(
                algorithm,
                Algorithm::Ps256 | Algorithm::Es256 | Algorithm::EdDsa | Algorithm::Ed25519
            ),
        }
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
            if client.authenticates_by(ClientAuthentication::None) {
                report(item("clients", index, "type"), "expected a confidential client");
            }
            if client.has_secrets() {
                report(
                    item("clients", index, "authentication"),
                    "expected private_key_jwt, tls_client_auth or self_signed_tls_client_auth",
                );
            }
            if client.authenticates_by(ClientAuthentication::PrivateKeyJwt)
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
