//! The keys of one service in etcd.
//!
//! Each kind of key has a folder directly below the operator's prefix, before the name of the
//! service. So a role of etcd is one range, and an operator can write it down without knowing how a
//! service is named.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::proto::RangeRequest;
use crate::secret::Digest;

/// The keys of one service.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The folder with a key for each subject token.
    pub(crate) tokens: String,
    /// The folder with a key for each token with a review that is not denied or spent, by caller.
    pub(crate) waiting: String,
    /// The folder with a key for each such token, by user.
    pub(crate) waiting_for_user: String,
    /// The folder with a key for each impersonation.
    pub(crate) impersonations: String,
    /// The folder with a key for each revocation.
    pub(crate) revocations: String,
    /// The key that is written with every revocation. A reader of this key knows if there are new
    /// revocations.
    pub(crate) last_revocation: String,
    /// The folder with the anchor of each lease, which keeps others from ending it.
    pub(crate) leases: String,
}

impl Places {
    /// The keys of the service that `namespace` names.
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        let folder = |kind: &str| format!("{prefix}{kind}/{namespace}/");
        Self {
            tokens: folder("tokens"),
            waiting: folder("waiting"),
            // Beside the folder of the callers, and below the same right.
            waiting_for_user: format!("{prefix}waiting/{namespace}.users/"),
            impersonations: folder("impersonations"),
            revocations: folder("revocations"),
            // A user who may read revocations may read this key. A namespace has no dots, so the
            // key is in no service's folder.
            last_revocation: format!("{prefix}revocations/{namespace}.last"),
            leases: folder("leases"),
        }
    }

    /// The keys that a watch is for: the key that every revocation writes, and all revocations. The
    /// first key, and the one behind the last.
    pub(crate) fn watched(&self) -> (Vec<u8>, Vec<u8>) {
        // The two are side by side: `.` is the character before `/`.
        let RangeRequest { range_end, .. } = RangeRequest::below(&self.revocations, 0);
        (self.last_revocation.clone().into_bytes(), range_end)
    }

    /// The key in `folder` of the thing with this digest.
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
    fn the_range_of_a_guard_has_revocations_and_nothing_else() {
        let places = ["a", "a-", "b"].map(|namespace| Places::new("/impersonation/", namespace));
        for Places {
            tokens,
            waiting,
            waiting_for_user,
            impersonations,
            revocations,
            last_revocation,
            leases,
        } in &places
        {
            let readable = |key: &str| key.starts_with("/impersonation/revocations/");
            assert!(readable(revocations) && readable(last_revocation));
            let others = [tokens, waiting, waiting_for_user, impersonations, leases];
            assert!(others.iter().all(|folder| !readable(folder)));
            assert!(places.iter().all(|other| !waiting_for_user.starts_with(&other.waiting)));
            assert!(places.iter().all(|other| !last_revocation.starts_with(&other.revocations)));
        }
    }
    #[test]
    fn a_watch_is_for_the_revocations_of_one_service_and_for_their_count() {
        let places = ["a", "a-", "b"].map(|namespace| Places::new("/impersonation/", namespace));
        let [one, others @ ..] = &places;
        let (first, behind) = one.watched();
        let is_watched = |key: &str| (&*first..&*behind).contains(&key.as_bytes());
        assert!(is_watched(&one.last_revocation));
        assert!(is_watched(&format!("{}AAAA", one.revocations)));
        assert!(is_watched(&format!("{}____/0123.____", one.revocations)));
        for other in others {
            assert!(!is_watched(&other.last_revocation) && !is_watched(&other.revocations));
        }
        for elsewhere in [&one.tokens, &one.impersonations, &one.leases] {
            assert!(!is_watched(elsewhere));
        }
    }
}
