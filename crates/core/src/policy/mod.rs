//! What may be minted, and what it is good for: less than what its caller and its user may do, never more.

mod bounds;
mod mint_rate;

pub use bounds::{Bounds, BoundsError, Offer};
pub(crate) use mint_rate::{MintCounter, NotCounted};

/// The longest name of a user, in characters.
const MAX_USER_ID: usize = 255;

/// Whether a text can name a user: it goes into records, logs and tokens.
pub(crate) fn is_user_id(text: &str) -> bool {
    (1..=MAX_USER_ID).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}
