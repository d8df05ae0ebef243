//! Limits on the tokens that come of mints. A policy only narrows what the caller and the user may
//! do; it never widens it.

mod bounds;

pub use bounds::Bounds;
pub use bounds::{BoundsError, Offer};

/// The longest name of a user, in characters.
const MAX_USER_ID: usize = 255;

/// Returns true if the text can name a user. The name goes into records, logs and tokens.
pub fn is_user_id(text: &str) -> bool {
    (1..=MAX_USER_ID).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}
