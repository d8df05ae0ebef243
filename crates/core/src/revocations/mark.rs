//! What a `jti` says besides being unique, for who knows how to read it.
//!
//! A revocation may name the caller that minted the subject token, and says to the millisecond until when. Neither
//! is among the claims of an access token (RFC 9068 §2.2), and a claim of our own would be one more thing that
//! every API sees. So the `jti`, which is opaque to all others (RFC 7519 §4.1.7), holds both behind its 128 random
//! bits: 96 bits of the caller's SHA-256, and the milliseconds that `iat` leaves out. Where many Envoys share etcd,
//! whose clocks differ, it holds the revision at which etcd was, too.

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

/// What the `jti` and the `iat` of an access token say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Who minted the subject token; `None` in a `jti` of another form, as versions before this one issued.
    pub caller: Option<CallerTag>,
    /// When the access token was issued.
    pub issued: IssuedAt,
}

impl Mark {
    /// A `jti` for an access token that is issued `now`, from what etcd was at this revision, if it was there.
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
        fn a_jti_says_who_minted_and_when(
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
    fn a_jti_of_another_form_says_nothing_of_either() {
        #[rustfmt::skip]
        let cases = [
            "",
            "AAAAAAAAAAAAAAAAAAAAAA",                       // 16 bytes, as before
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
