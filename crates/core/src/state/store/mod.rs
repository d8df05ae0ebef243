//! Subject tokens: the secret that a caller holds, and the record that the store keeps of it.
//!
//! A token is `sub_` and the base64url of 256 random bits, with the place of its record. In a table
//! of slots the place is the slot, before the random bits: each look-up is one read, and the slot
//! says nothing about the user. In a remote store the place is the revision that created the
//! record, behind the random bits, with a tag that only a filter can make: a record that was
//! deleted and created again is not the record of this token. The store keeps the SHA-256 of a
//! token, never the token.

mod change;
mod outcome;
mod record;
mod review;
mod token;

pub use outcome::{
    Cancelled, Found, Known, Lifetimes, NotDecided, NotSpent, NotStored, Occupancy, Outstanding,
    StoreFailure,
};
pub use outcome::{MOST_HELD, RecordVersion, SeenRemotely, Standing, Waiting, WaitingPage};
pub use record::{Exchange, Grant, Mint};
pub use record::{Record, Slot, State};
pub use review::{Choice, ChoiceRefused, Person, Review};
pub use review::{Decided, Verdict};
pub use token::PREFIX;
pub(crate) use token::{NONCE_LEN, Origin};
pub use token::{SubjectToken, TokenId};
