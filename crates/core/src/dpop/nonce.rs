//! Nonces for proofs (RFC 9449 §8): each is the number of a window of time, and a tag that only a
//! holder of a nonce key can make.
//!
//! No nonce is stored, so a nonce is good at every worker, and at every Envoy whose nonce keys are
//! the same. The filter derives the keys from its private signing keys: the first makes nonces, and
//! each accepts them, so that keys can be rotated. The guard has no signing key. Its operator gives
//! it a secret, or it takes a random one that the workers of one Envoy share.

use std::hash::Hasher as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

use crate::host::{Host, UnixTime};
use crate::secret::Secret;
use crate::state::shared_data::SharedSecret;

/// The length of a window. A nonce is good for one to two windows.
const WINDOW: Duration = Duration::from_secs(60);

/// For how long a proof with a nonce could be presented again: the window of a nonce from an Envoy
/// whose clock is ahead, and the one after it.
pub(super) const LONGEST: Duration = Duration::from_secs(180);

/// The keys that make and accept nonces.
#[derive(Debug)]
pub enum Nonces {
    /// The first key makes nonces, and each accepts them.
    Of(Vec<Secret<[u8; 16]>>),
    /// A random key that the workers of one Envoy share.
    OfThisEnvoy(SharedSecret),
}

impl Nonces {
    /// Returns the nonce for proofs that are made now; `None` if there is no key.
    pub(crate) fn current(&self, host: &dyn Host) -> Option<String> {
        let window = window(host.now()).to_be_bytes();
        let tag = tag(self.keys(host).first()?, window);
        Some(BASE64_URL_SAFE_NO_PAD.encode([&window[..], &tag].concat()))
    }

    /// Returns true if a nonce was made in this window or the one before. The next window counts
    /// too: another Envoy's clock may be ahead.
    pub(super) fn accept(&self, host: &dyn Host, nonce: &str) -> bool {
        let Ok(bytes) = BASE64_URL_SAFE_NO_PAD.decode(nonce) else { return false };
        let Some((window_of_nonce, presented)) = bytes.split_first_chunk::<8>() else {
            return false;
        };
        let is_near = u64::from_be_bytes(*window_of_nonce).abs_diff(window(host.now())) <= 1;
        let is_ours = self.keys(host).iter().fold(false, |ours, key| {
            ours | bool::from(tag(key, *window_of_nonce)[..].ct_eq(presented))
        });
        is_near && is_ours
    }

    /// A key that cannot be read makes no nonce and accepts none.
    fn keys(&self, host: &dyn Host) -> &[Secret<[u8; 16]>] {
        match self {
            Self::Of(keys) => keys,
            Self::OfThisEnvoy(secret) => secret.get(host).map_or(&[], std::slice::from_ref),
        }
    }
}

fn window(now: UnixTime) -> u64 {
    now.secs().checked_div(WINDOW.as_secs()).unwrap_or_default()
}

fn tag(key: &Secret<[u8; 16]>, window: [u8; 8]) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key.expose());
    hasher.write(&window);
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::FakeHost;

    fn nonces(keys: &[u8]) -> Nonces {
        Nonces::Of(keys.iter().map(|key| Secret::new([*key; 16])).collect())
    }

    fn at(seconds: i64) -> FakeHost {
        let host = FakeHost::default();
        host.now.set(UnixTime::from_secs(600_000_i64.saturating_add(seconds)));
        host
    }

    #[test]
    fn a_nonce_is_good_for_its_window_and_the_next() {
        let ours = nonces(&[1]);
        let nonce = ours.current(&at(0)).unwrap();
        let cases = [
            (0, true),
            (59, true),
            (60, true),
            (119, true),
            (120, false),
            (-60, true),
            (-61, false),
        ];
        for (seconds, good) in cases {
            assert_eq!(ours.accept(&at(seconds), &nonce), good, "{seconds}");
        }
    }

    #[test]
    fn a_nonce_is_good_wherever_the_key_is_listed() {
        let host = &at(0);
        let nonce = nonces(&[1]).current(host).unwrap();
        assert!(nonces(&[2, 1]).accept(host, &nonce), "an older key");
        assert!(!nonces(&[2]).accept(host, &nonce), "another key");
        assert!(!nonces(&[]).accept(host, &nonce), "no key");
        for altered in
            ["", "AAAA", nonce.split_at(1).1, &format!("{nonce}A"), &nonce.replace('A', "B")]
        {
            assert!(!nonces(&[1]).accept(host, altered), "{altered:?}");
        }
    }

    /// Each worker has a [`Nonces`] of its own, and all share one map.
    #[test]
    fn a_nonce_of_this_envoy_is_good_at_each_of_its_workers() {
        let host = &at(0);
        let worker = || Nonces::OfThisEnvoy(SharedSecret::new("tenant", "nonces"));
        let nonce = worker().current(host).unwrap();
        assert!(worker().accept(host, &nonce));
        let another = FakeHost::with_seed(7);
        another.now.set(host.now());
        assert!(!worker().accept(&another, &nonce), "another Envoy");
        host.fail_shared_data(0);
        assert_eq!(worker().current(host), None);
        host.fail_shared_data(0);
        assert!(!worker().accept(host, &nonce));
    }
}
