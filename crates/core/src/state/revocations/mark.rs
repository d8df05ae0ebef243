//! The facts that the `jti` of an access token contains besides its random bits.
//!
//! A revocation may name the caller that minted the subject token, and it ends at a millisecond. An
//! access token has no claim for either (RFC 9068 §2.2), and every API would see a claim of our
//! own. So the `jti`, which is opaque to all others (RFC 7519 §4.1.7), contains both behind its 128
//! random bits: 96 bits of the caller's SHA-256, and the milliseconds that `iat` leaves out. With a
//! remote store it also contains the revision of the store, because the clocks of many Envoys
//! differ. If there was an actor token, it also contains the time at which that was issued, so that
//! an event that arrives late ends what began from an older actor token.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::entry::{CallerTag, IssuedAt};
use crate::host::UnixTime;
use crate::state::remote::Revision;

const RANDOM: usize = 16;
const TAG: usize = CallerTag::LEN;
const REVISION: usize = 8;
const LEN: usize = RANDOM + TAG + 2;
/// The milliseconds since the epoch, in 48 bits.
const ACTOR: usize = 6;
const LONGEST: usize = LEN + REVISION + ACTOR;

/// The latest time that 48 bits can tell: in the year 10889.
const LATEST: u64 = (1 << 48) - 1;

/// The facts that the `jti` and the `iat` of an access token contain together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The caller that minted the subject token; `None` if the `jti` has another form.
    pub caller: Option<CallerTag>,
    /// The time at which the access token was issued.
    pub issued: IssuedAt,
    /// The time at which the actor token was issued, by its issuer's clock; `None` if it is not
    /// known, or if there was no actor token.
    pub actor_since: Option<UnixTime>,
}

impl Mark {
    /// Makes the `jti` of an access token that is issued `now`, at this revision of a remote store
    /// if there is one. The actor token was issued at `actor_since`, if that is known.
    pub fn jti(
        random: [u8; RANDOM],
        caller: &str,
        now: UnixTime,
        revision: Revision,
        actor_since: Option<UnixTime>,
    ) -> String {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend_from_slice(&random);
        bytes.extend_from_slice(CallerTag::of(caller).as_bytes());
        let millis = now.millis().checked_rem(1000).and_then(|millis| u16::try_from(millis).ok());
        bytes.extend_from_slice(&millis.unwrap_or_default().to_be_bytes());
        if revision.is_some() {
            bytes.extend_from_slice(&revision.to_bytes());
        }
        if let Some(since) = actor_since {
            let [_, _, millis @ ..] = since.millis().min(LATEST).to_be_bytes();
            bytes.extend_from_slice(&millis);
        }
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the `jti` of a token that was issued in the second `iat`.
    pub fn read(jti: &str, iat: u64) -> Self {
        Self::whole(jti, iat).unwrap_or(Self {
            caller: None,
            issued: IssuedAt::Within(iat),
            actor_since: None,
        })
    }

    fn whole(jti: &str, iat: u64) -> Option<Self> {
        let mut bytes = [0; LONGEST];
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
        let (revision, rest) = match rest.split_first_chunk::<REVISION>() {
            Some((revision, rest)) => (Some(Revision::from_bytes(*revision)), rest),
            None => (None, rest),
        };
        let issued = match revision {
            Some(revision) if revision.is_some() => IssuedAt::AtRevision(revision, time),
            None => IssuedAt::At(time),
            Some(_) => return None,
        };
        let actor_since = match (rest.first_chunk::<ACTOR>(), rest.len()) {
            (Some([a, b, c, d, e, f]), ACTOR) => {
                let millis = u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]);
                Some(UnixTime::from_millis(millis))
            }
            (None, 0) => None,
            _ => return None,
        };
        Some(Self { caller: Some(CallerTag::from_bytes(*tag)), issued, actor_since })
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
            since in prop::option::of(0_u64..1 << 48),
        ) {
            let since = since.map(UnixTime::from_millis);
            let (now, revision) = (UnixTime::from_millis(millis), Revision::new(revision));
            let tag = Some(CallerTag::of(&caller));
            let alone = Mark::jti(random, &caller, now, Revision::default(), since);
            prop_assert_eq!(alone.len(), if since.is_some() { 48 } else { 40 });
            let issued = IssuedAt::At(now);
            let expected = Mark { caller: tag, issued, actor_since: since };
            prop_assert_eq!(Mark::read(&alone, millis / 1000), expected);
            if revision.is_some() {
                let of_many = Mark::jti(random, &caller, now, revision, since);
                prop_assert_eq!(of_many.len(), if since.is_some() { 59 } else { 51 });
                let issued = IssuedAt::AtRevision(revision, now);
                let expected = Mark { caller: tag, issued, actor_since: since };
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
                Mark { caller: None, issued: IssuedAt::Within(7), actor_since: None },
                "{jti}"
            );
        }
    }
}
