//! The facts that the `jti` of an access token contains besides its random bits.
//!
//! A revocation may name the caller that minted the subject token, and it ends at a millisecond. An
//! access token has no claim for either (RFC 9068 §2.2), and every API would see a claim of our
//! own. So the `jti`, which is opaque to all others (RFC 7519 §4.1.7), contains both behind its 128
//! random bits: 96 bits of the caller's SHA-256, and the milliseconds that `iat` leaves out. With a
//! remote store it also contains the revision of the store, because the clocks of many Envoys
//! differ.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::entry::{CallerTag, IssuedAt};
use crate::host::UnixTime;
use crate::remote::Revision;

const RANDOM: usize = 16;
const TAG: usize = CallerTag::LEN;
const REVISION: usize = 8;
const LEN: usize = RANDOM + TAG + 2;
const LONG_LEN: usize = LEN + REVISION;

/// The facts that the `jti` and the `iat` of an access token contain together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The caller that minted the subject token; `None` if the `jti` has another form.
    pub caller: Option<CallerTag>,
    /// The time at which the access token was issued.
    pub issued: IssuedAt,
}

impl Mark {
    /// Makes the `jti` of an access token that is issued `now`, at this revision of a remote store
    /// if there is one.
    pub fn jti(random: [u8; RANDOM], caller: &str, now: UnixTime, revision: Revision) -> String {
        let mut bytes = Vec::with_capacity(LONG_LEN);
        bytes.extend_from_slice(&random);
        bytes.extend_from_slice(CallerTag::of(caller).as_bytes());
        let millis = now.millis().checked_rem(1000).and_then(|millis| u16::try_from(millis).ok());
        bytes.extend_from_slice(&millis.unwrap_or_default().to_be_bytes());
        if revision.is_some() {
            bytes.extend_from_slice(&revision.to_bytes());
        }
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the `jti` of a token that was issued in the second `iat`.
    pub fn read(jti: &str, iat: u64) -> Self {
        Self::whole(jti, iat).unwrap_or(Self { caller: None, issued: IssuedAt::Within(iat) })
    }

    fn whole(jti: &str, iat: u64) -> Option<Self> {
        let mut bytes = [0; LONG_LEN];
        let len = BASE64_URL_SAFE_NO_PAD.decode_slice(jti, &mut bytes).ok()?;
        let (_, rest) = bytes.get(..len)?.split_first_chunk::<RANDOM>()?;
        let (tag, rest) = rest.split_first_chunk::<TAG>()?;
        let (millis, rest) = rest.split_first_chunk()?;
        let millis = u16::from_be_bytes(*millis);
        if millis >= 1000 {
            return None;
        }
        let millis = iat.saturating_mul(1000).saturating_add(u64::from(millis));
        let time = UnixTime::from_millis(millis);
        let issued = match rest.try_into().map(Revision::from_bytes) {
            Ok(revision) if revision.is_some() => IssuedAt::AtRevision(revision, time),
            Err(_) if rest.is_empty() => IssuedAt::At(time),
            _ => return None,
        };
        Some(Self { caller: Some(CallerTag::from_bytes(*tag)), issued })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_jti_contains_the_caller_and_the_time(
            random: [u8; 16],
            caller: String,
            millis in 0_u64..1 << 48,
            revision in 0_i64..i64::MAX,
        ) {
            let (now, revision) = (UnixTime::from_millis(millis), Revision::new(revision));
            let tag = Some(CallerTag::of(&caller));
            let alone = Mark::jti(random, &caller, now, Revision::default());
            prop_assert_eq!(alone.len(), 40);
            let expected = Mark { caller: tag, issued: IssuedAt::At(now) };
            prop_assert_eq!(Mark::read(&alone, millis / 1000), expected);
            if revision.is_some() {
                let of_many = Mark::jti(random, &caller, now, revision);
                prop_assert_eq!(of_many.len(), 51);
                let expected = Mark { caller: tag, issued: IssuedAt::AtRevision(revision, now) };
                prop_assert_eq!(Mark::read(&of_many, millis / 1000), expected);
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(jti in "\\PC*", iat: u64) {
            let _ = Mark::read(&jti, iat);
        }
    }

    #[test]
    fn a_jti_of_another_form_contains_neither() {
        #[rustfmt::skip]
        let cases = [
            "",
            "AAAAAAAAAAAAAAAAAAAAAA",                       // 16 bytes
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-gA",     // a second of more than 1000 milliseconds
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", // a revision of zero
        ];
        for jti in cases {
            assert_eq!(
                Mark::read(jti, 7),
                Mark { caller: None, issued: IssuedAt::Within(7) },
                "{jti}"
            );
        }
    }
}
