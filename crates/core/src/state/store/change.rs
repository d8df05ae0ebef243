//! The changes of a record, whichever store keeps it. An adapter reads the record, makes the next
//! one here, and writes it only if the record is still the one that was read.

use std::ops::ControlFlow;

use super::outcome::{Cancelled, Known, NotSpent, Outstanding};
use super::record::{Exchange, Mint, Record, State, is_current};
use super::review::Review;
use crate::host::UnixTime;
use crate::secret::Digest;

impl Record {
    /// The record of a token that `exchange` spends.
    pub(crate) fn spend(
        token: Outstanding,
        exchange: Exchange,
        now: UnixTime,
    ) -> Result<Self, NotSpent> {
        if !is_current(&token.mint, token.expires_at, now) {
            return Err(NotSpent::Expired);
        }
        Ok(Self::new(&token.digest, token.mint, State::Spent(exchange)).reviewed(token.review))
    }

    /// The request that was faster than a spend; `None` if the token is outstanding.
    pub(crate) fn first_change(self) -> Option<NotSpent> {
        match self.state {
            State::Spent(exchange) => Some(NotSpent::Already(Box::new((self.mint, exchange)))),
            State::Cancelled => Some(NotSpent::Cancelled),
            State::Outstanding(_) => None,
        }
    }

    /// The record of a token that is taken back, if `theirs` allows it. Breaks with the answer if
    /// the record stays as it is.
    pub(crate) fn cancel(
        self,
        theirs: impl Fn(&Digest, &Mint) -> bool,
    ) -> ControlFlow<Cancelled, Self> {
        let digest = self.digest();
        if !theirs(&digest, &self.mint) {
            return ControlFlow::Break(Cancelled::NotTheirs);
        }
        match self.state {
            State::Spent(exchange) => ControlFlow::Break(Cancelled::Spent(self.mint, exchange)),
            State::Cancelled => ControlFlow::Break(Cancelled::Yes(self.mint)),
            State::Outstanding(_) => {
                let record = Self::new(&digest, self.mint, State::Cancelled);
                ControlFlow::Continue(record.reviewed(self.review))
            }
        }
    }
}

impl Known {
    /// Sets the review.
    pub fn decide(&mut self, review: Review) {
        self.record.review = Some(Box::new(review));
    }
}
