//! The list of live impersonations, for people to look through.
//!
//! The list is bounded, and it says when an impersonation may be missing. No decision depends on
//! the list: if it has no room, an exchange succeeds unlisted, and an impersonation that is not
//! listed can still be ended.

mod excerpt;
mod live;
mod page;
mod wanted;

pub use excerpt::excerpt;
pub use live::LiveImpersonation;
pub use page::{Listed, Page, Place};
pub use wanted::Wanted;
