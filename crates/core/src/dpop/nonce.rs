//! Nonces for proofs (RFC 9449 §8): each is the number of a window of time, and a tag that only a
//! holder of a nonce key can make.
//!
//! Nothing is stored, so a nonce is good at every worker, and at every Envoy whose nonce keys are the
//! same. The keys are derived from the private signing keys: the first makes nonces, and each
//! accepts them, so that keys can be rotated.

use std::hash::Hasher as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

use crate::host::UnixTime;
use crate::secret::Secret;

/// The length of a window. A nonce is good for one to two windows.
const WINDOW: Duration = Duration::from_secs(60);

/// For how long a proof with a nonce could be presented again: the window of a nonce from an Envoy
/// whose clock is ahead, and the one after it.
pub(super) const LONGEST: Duration = Duration::from_secs(180);

/// The keys that make and accept nonces.
#[derive(Debug)]
pub(crate) struct Nonces(Vec<Secret<[u8; 16]>>);

impl Nonces {
    /// Makes nonces with the first of `keys`, and accepts those of each.
    pub(crate) const fn new(keys: Vec<Secret<[u8; 16]>>) -> Self {
        Self(keys)
    }

    /// Returns the nonce for proofs that are made now; `None` if there is no key.
    pub(crate) fn current(&self, now: UnixTime) -> Option<String> {
        let window = window(now).to_be_bytes();
        let tag = tag(self.0.first()?, window);
        Some(BASE64_URL_SAFE_NO_PAD.encode([&window[..], &tag].concat()))
    }

    /// Returns true if a nonce was made in this window or the one before. The next window counts
    /// too: another Envoy's clock may be ahead.
    pub(super) fn accept(&self, nonce: &str, now: UnixTime) -> bool {
        let Ok(bytes) = BASE64_URL_SAFE_NO_PAD.decode(nonce) else { return false };
        let Some((window_of_nonce, presented)) = bytes.split_first_chunk::<8>() else {
            return false;
        };
        let is_near = u64::from_be_bytes(*window_of_nonce).abs_diff(window(now)) <= 1;
        let is_ours = self.0.iter().fold(false, |ours, key| {
            ours | bool::from(tag(key, *window_of_nonce)[..].ct_eq(presented))
        });
        is_near && is_ours
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

    fn nonces(keys: &[u8]) -> Nonces {
        Nonces::new(keys.iter().map(|key| Secret::new([*key; 16])).collect())
    }

    #[test]
    fn a_nonce_is_good_for_its_window_and_the_next() {
        let at = |seconds: i64| UnixTime::from_secs(600_000 + seconds);
        let ours = nonces(&[1]);
        let nonce = ours.current(at(0)).unwrap();
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
            assert_eq!(ours.accept(&nonce, at(seconds)), good, "{seconds}");
        }
    }

    #[test]
    fn a_nonce_is_good_wherever_the_key_is_listed() {
        let now = UnixTime::from_secs(600_000);
        let nonce = nonces(&[1]).current(now).unwrap();
        assert!(nonces(&[2, 1]).accept(&nonce, now), "an older key");
        assert!(!nonces(&[2]).accept(&nonce, now), "another key");
        assert!(!nonces(&[]).accept(&nonce, now), "no key");
        for altered in
            ["", "AAAA", nonce.split_at(1).1, &format!("{nonce}A"), &nonce.replace('A', "B")]
        {
            assert!(!nonces(&[1]).accept(altered, now), "{altered:?}");
        }
    }
}
