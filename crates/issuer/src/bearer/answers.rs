//! A memory of the answers about opaque tokens.
//!
//! An answer is remembered for a moment, so that a burst of requests with one token asks once. A
//! failure to answer is not remembered, because it says nothing about the token.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::host::UnixTime;
use crate::secret::Digest;

/// How many answers each endpoint's memory holds.
const CACHE_CAPACITY: usize = 1024;

/// The verdict about a token.
pub(super) type TokenVerdict = Result<Rc<VerifiedToken>, BearerError>;

/// The verdicts of an endpoint, good and bad, for a short time each.
#[derive(Debug)]
pub(super) struct Answers {
    cache_duration: Duration,
    verdicts: RefCell<ExpiringCache<TokenVerdict>>,
}

impl Answers {
    /// Creates an empty memory.
    pub(super) fn new(cache_duration: Duration) -> Self {
        Self { cache_duration, verdicts: RefCell::new(ExpiringCache::new(CACHE_CAPACITY)) }
    }

    /// The verdict about a token, if it is remembered.
    pub(super) fn get(&self, digest: &Digest, now: UnixTime) -> Option<TokenVerdict> {
        self.verdicts.borrow().get(digest, now)
    }

    /// Remembers a verdict for the cache duration, but not beyond `until`.
    pub(super) fn insert(
        &self,
        digest: Digest,
        now: UnixTime,
        until: UnixTime,
        verdict: &TokenVerdict,
    ) {
        if !self.cache_duration.is_zero() {
            let until = until.min(now.after(self.cache_duration));
            self.verdicts.borrow_mut().insert(digest, now, until, verdict.clone());
        }
    }
}
