//! Where in etcd everything of one service lies.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::secret::Digest;

/// The keys of one service, all of which begin with the operator's prefix and the service's name.
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
}

impl Places {
    /// Those of the service that `namespace` names.
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        // A namespace has no dots: nothing of one service is among the tokens of another.
        Self {
            tokens: format!("{prefix}{namespace}/"),
            impersonations: format!("{prefix}{namespace}.impersonations/"),
            revocations: format!("{prefix}{namespace}.revocations/"),
            last_revocation: format!("{prefix}{namespace}.last-revocation"),
        }
    }

    /// The key of what a digest names.
    pub(crate) fn named(folder: &str, digest: &Digest) -> Vec<u8> {
        let mut key = folder.to_owned();
        BASE64_URL_SAFE_NO_PAD.encode_string(digest.as_bytes(), &mut key);
        key.into_bytes()
    }
}
