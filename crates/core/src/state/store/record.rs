//! The record of a subject token, as bytes.
//!
//! Every version of the format begins with its number and the time after which the slot is free. So
//! an older filter that is started on a newer filter's shared data neither exchanges a record that
//! it cannot read nor overwrites it before its time. The rest is `postcard`.
//!
//! There are two formats. A record with a review has the newer one. A record without a review is
//! written as it was before there were reviews.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::review::{Review, Verdict};
use crate::host::UnixTime;
use crate::policy::{Bounds, is_user_id};
use crate::secret::Digest;

/// The format of a record without a review.
const VERSION: u8 = 3;

/// The format of a record with a review: the same, and the review behind it.
const REVIEWED: u8 = 4;

/// The facts about a mint that an audit needs. The store keeps them until the slot is taken again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mint {
    /// The caller that asked for the token.
    pub caller: String,
    /// Envoy's id of the request that minted the token.
    pub request_id: String,
    /// The time of the mint, in milliseconds since the epoch.
    pub at_millis: u64,
    /// The bounds of the token. A spent token keeps them: they decide who may learn that it is
    /// spent.
    pub bounds: Bounds,
}

/// A store gets all members. Text for people leaves `bounds` out if there are none.
impl Serialize for Mint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hidden = serializer.is_human_readable() && self.bounds.is_empty();
        let mut members = serializer.serialize_struct("Mint", if hidden { 3 } else { 4 })?;
        members.serialize_field("caller", &self.caller)?;
        members.serialize_field("request_id", &self.request_id)?;
        members.serialize_field("at_millis", &self.at_millis)?;
        if hidden {
            members.skip_field("bounds")?;
        } else {
            members.serialize_field("bounds", &self.bounds)?;
        }
        members.end()
    }
}

/// The rights that an outstanding token grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The user who will be impersonated.
    pub user_id: String,
    /// The operator's free-form context: an object, as compact JSON.
    pub context: String,
}

/// The facts about the exchange of a token that an audit needs. They replace the grant: a spent
/// record holds no context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The client that exchanged the token.
    pub client_id: String,
    /// The acting user, if the exchange had an actor token.
    pub actor_id: Option<String>,
    /// Envoy's id of the request that exchanged the token.
    pub request_id: String,
    /// The `jti` of the access token.
    pub jti: String,
    /// The time of the exchange, in milliseconds since the epoch.
    pub at_millis: u64,
}

/// The state of a token. An outstanding token becomes spent or cancelled, once; nothing changes
/// after that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Outstanding(Grant),
    Spent(Exchange),
    /// The token was taken back before it was exchanged.
    Cancelled,
}

/// Returns true if a token has not expired. A token that was minted in the future was minted before
/// the clock was set back. Its age is unknown, so it counts as expired.
pub(crate) fn is_current(mint: &Mint, expires_at: UnixTime, now: UnixTime) -> bool {
    now < expires_at && !UnixTime::from_millis(mint.at_millis).is_ahead_of(now)
}

/// The record of one token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    digest: [u8; 32],
    pub mint: Mint,
    pub state: State,
    /// The decisions about the token; `None` if it needs none. The token keeps them until its
    /// record is gone.
    #[serde(skip)]
    pub review: Option<Box<Review>>,
}

impl Record {
    pub(crate) const fn new(digest: &Digest, mint: Mint, state: State) -> Self {
        Self { digest: *digest.as_bytes(), mint, state, review: None }
    }

    /// This record, of the token with another digest.
    pub(crate) const fn of(mut self, digest: &Digest) -> Self {
        self.digest = *digest.as_bytes();
        self
    }

    /// Adds the review.
    pub(crate) fn reviewed(self, review: Option<Box<Review>>) -> Self {
        Self { review, ..self }
    }

    /// The result of all decisions until now. A token that nobody needs to decide about is
    /// approved.
    pub(crate) fn verdict(&self) -> Verdict {
        self.review.as_ref().map_or(Verdict::Approved, |review| review.verdict())
    }

    pub(crate) const fn digest(&self) -> Digest {
        Digest::from_bytes(self.digest)
    }

    /// Returns true if a filter can have stored these names. Access logs print the names as they
    /// are, so a control character in a name could forge a line.
    fn has_good_names(&self) -> bool {
        let user = match &self.state {
            State::Outstanding(grant) => Some(&grant.user_id),
            State::Spent(exchange) => exchange.actor_id.as_ref(),
            State::Cancelled => None,
        };
        [Some(&self.mint.caller), user].into_iter().flatten().all(|name| is_user_id(name))
            && self.review.iter().all(|review| review.has_good_names())
    }

    /// The record as bytes; `None` only if memory ran out.
    pub(crate) fn encode(&self, expires_at: UnixTime) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(if self.review.is_some() { REVIEWED } else { VERSION });
        bytes.extend_from_slice(&expires_at.millis().to_le_bytes());
        let bytes = postcard::to_extend(self, bytes).ok()?;
        match &self.review {
            Some(review) => postcard::to_extend(review, bytes).ok(),
            None => Some(bytes),
        }
    }

    /// Reads a record with its review.
    fn decode_reviewed(bytes: &[u8]) -> Option<Self> {
        let (record, bytes): (Self, _) = postcard::take_from_bytes(bytes).ok()?;
        Some(record.reviewed(Some(postcard::from_bytes(bytes).ok()?)))
    }
}

/// A slot, as far as this version of the filter can read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) expires_at: UnixTime,
    /// The record; `None` if it has a format that this version does not know, or names that no
    /// filter can have stored.
    pub(crate) record: Option<Record>,
}

impl Slot {
    /// Reads a slot; `None` if no version of the filter can have written these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (expires_at, rest) = rest.split_first_chunk()?;
        Some(Self {
            expires_at: UnixTime::from_millis(u64::from_le_bytes(*expires_at)),
            record: match *version {
                VERSION => postcard::from_bytes(rest).ok(),
                REVIEWED => Record::decode_reviewed(rest),
                _ => None,
            }
            .filter(Record::has_good_names),
        })
    }

    /// Returns true if another token may take the slot. A token with a review that was taken back
    /// keeps its slot: its caller may ask about it.
    pub(crate) fn is_free(&self, now: UnixTime) -> bool {
        match &self.record {
            Some(Record { state: State::Spent(_), .. })
            | Some(Record { state: State::Cancelled, review: None, .. }) => true,
            Some(record) => !is_current(&record.mint, self.expires_at, now),
            None => self.expires_at <= now,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::store::review::Decided;

    fn reviewed() -> Record {
        let decided = |by: &str| Decided { by: by.into(), at_millis: 2 };
        let review = Review {
            approvals: 2,
            consent: true,
            minted_by: Some("batch".into()),
            approved: vec![decided("dana"), decided("eli")],
            consented_at_millis: Some(3),
            denied: Some(decided("fay")),
        };
        record().reviewed(Some(Box::new(review)))
    }

    fn record() -> Record {
        Record::new(
            &Digest::of(b"token"),
            Mint {
                caller: "backend".into(),
                request_id: "r-1".into(),
                at_millis: 1,
                bounds: Bounds {
                    expires_in: Some(300),
                    client_ids: Some(vec!["console".into()]),
                    resources: Some(vec!["https://api.example.com/orders".into()]),
                    scopes: Some(vec!["orders:read".into(), "orders:write".into()]),
                    actor_id: Some("agent-7".into()),
                    access_token_expires_in: Some(60),
                    ..Bounds::default()
                },
            },
            State::Outstanding(Grant { user_id: "user-42".into(), context: "{}".into() }),
        )
    }

    #[test]
    fn a_record_begins_with_its_version_and_its_time() {
        let bytes = record().encode(UnixTime::from_millis(1000)).unwrap();
        assert_eq!(bytes[..9], [3, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_record_is_read_back() {
        let expires_at = UnixTime::from_millis(1_700_000_000_123);
        for record in [record(), reviewed()] {
            let slot = Slot::decode(&record.encode(expires_at).unwrap()).unwrap();
            assert_eq!(slot, Slot { expires_at, record: Some(record) });
        }
    }

    /// A filter without reviews must not take a token that waits for one that can be exchanged.
    #[test]
    fn only_a_record_with_a_review_has_the_newer_format() {
        let bytes = |record: Record| record.encode(UnixTime::from_millis(1000)).unwrap();
        assert_eq!((bytes(record())[0], bytes(reviewed())[0]), (3, 4));
        assert_eq!(bytes(reviewed())[1..].get(..40), bytes(record())[1..].get(..40));
    }

    #[test]
    fn a_reviewed_token_keeps_its_slot_until_it_is_spent_or_expires() {
        let (early, late) = (UnixTime::from_millis(999), UnixTime::from_millis(1000));
        for (state, is_free) in [(State::Cancelled, false), (record().state, false)] {
            let record = Record { state, ..reviewed() };
            let slot = Slot { expires_at: late, record: Some(record) };
            assert_eq!((slot.is_free(early), slot.is_free(late)), (is_free, true));
        }
    }

    #[test]
    fn an_unknown_version_holds_its_slot_until_it_expires() {
        let mut bytes = record().encode(UnixTime::from_millis(1000)).unwrap();
        bytes[0] = 99;
        let slot = Slot::decode(&bytes).unwrap();
        assert_eq!(slot.record, None);
        assert!(!slot.is_free(UnixTime::from_millis(999)));
        assert!(slot.is_free(UnixTime::from_millis(1000)));
    }

    #[test]
    fn a_record_with_a_control_character_in_a_name_is_not_read() {
        let exchange = |actor_id: &str| Exchange {
            client_id: "console".into(),
            actor_id: Some(actor_id.into()),
            request_id: "r-2".into(),
            jti: "j-1".into(),
            at_millis: 2,
        };
        let grant = |user_id: &str| Grant { user_id: user_id.into(), context: "{}".into() };
        let cases = [
            ("backend", State::Spent(exchange("agent-7")), true),
            ("backend", State::Cancelled, true),
            ("\x15ackend", State::Cancelled, false),
            ("backend", State::Outstanding(grant("user\n42")), false),
            ("backend", State::Spent(exchange("agent\u{85}7")), false),
        ];
        for (caller, state, is_read) in cases {
            let mut record = Record { state, ..record() };
            record.mint.caller = caller.into();
            let expires_at = UnixTime::from_millis(1000);
            let slot = Slot::decode(&record.encode(expires_at).unwrap()).unwrap();
            assert_eq!(slot.record.is_some(), is_read, "{record:?}");
            assert_eq!(slot.expires_at, expires_at);
        }
    }

    #[test]
    fn no_byte_of_the_token_is_stored() {
        let bytes = record().encode(UnixTime::from_millis(1)).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"token"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = Slot::decode(&bytes);
        }

        #[test]
        fn a_cut_record_is_not_taken_for_a_whole_one(len in 0_usize..240) {
            let bytes = reviewed().encode(UnixTime::from_millis(1)).unwrap();
            let cut = &bytes[..len.min(bytes.len().saturating_sub(1))];
            prop_assert!(Slot::decode(cut).is_none_or(|slot| slot.record.is_none()));
        }
    }
}
