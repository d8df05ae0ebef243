//! Where in etcd everything of one service lies.
//!
//! Each kind of thing has a folder of its own directly below the operator's prefix, before the name of the service:
//! so a role of etcd is one range that an operator can write down without knowing how a service is named.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::secret::Digest;

/// The keys of one service.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// A key for each subject token: what every one begins with.
    pub(crate) tokens: String,
    /// A key for each impersonation: what every one begins with.
    pub(crate) impersonations: String,
    /// A key for each revocation: what every one begins with.
    pub(crate) revocations: String,
    /// Written with every revocation, so that who reads this one knows whether there are any new.
    pub(crate) last_revocation: String,
    /// A key for each lease, which keeps others from ending it: what every one begins with.
    pub(crate) leases: String,
}

impl Places {
    /// Those of the service that `namespace` names.
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        let folder = |kind: &str| format!("{prefix}{kind}/{namespace}/");
        Self {
            tokens: folder("tokens"),
            impersonations: folder("impersonations"),
            revocations: folder("revocations"),
            // Whoever may read revocations may read this one. A namespace has no dots: this is in no service's folder.
            last_revocation: format!("{prefix}revocations/{namespace}.last"),
            leases: folder("leases"),
        }
    }

    /// The key of what a digest names.
    pub(crate) fn named(folder: &str, digest: &Digest) -> Vec<u8> {
        let mut key = folder.to_owned();
        BASE64_URL_SAFE_NO_PAD.encode_string(digest.as_bytes(), &mut key);
        key.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_needs_one_range_and_finds_nothing_but_revocations_in_it() {
        let places = ["a", "a-", "b"].map(|namespace| Places::new("/impersonation/", namespace));
        for Places { tokens, impersonations, revocations, last_revocation, leases } in &places {
            let readable = |key: &str| key.starts_with("/impersonation/revocations/");
            assert!(readable(revocations) && readable(last_revocation));
            assert!([tokens, impersonations, leases].iter().all(|folder| !readable(folder)));
            assert!(places.iter().all(|other| !last_revocation.starts_with(&other.revocations)));
        }
    }
}
