//! The count of outstanding tokens in one Envoy. A timer counts them; no request waits for it.
//!
//! One VM counts for the whole of Envoy: the VM that holds the lease. It counts a large table over
//! several ticks, so that no tick holds a worker up for more than a fraction of a millisecond.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::slots::SlotTable;
use crate::host::{Host, HostFailure};
use crate::state::shared_data::Turn;
use crate::state::store::Occupancy;

/// The number of pages that one tick counts: all pages of the default table.
const PAGES_PER_TICK: u32 = 256;

/// The time that the other VMs wait for the VM that counts.
pub(crate) const TURN: Duration = Duration::from_secs(5);

/// A count that is under way.
#[derive(Debug, Default)]
pub struct Census {
    turn: Turn,
    next_page: Cell<u32>,
    counted: RefCell<Occupancy>,
}

impl Census {
    /// Counts the next pages. Returns `Some` at the end of the table, and only in the VM that
    /// counts.
    pub fn tick(
        &self,
        host: &dyn Host,
        table: &SlotTable,
    ) -> Result<Option<Occupancy>, HostFailure> {
        if !self.turn.hold(host, &table.census_key(), TURN)? {
            self.next_page.set(0);
            self.counted.take();
            return Ok(None);
        }
        let first = self.next_page.get();
        let end = first.saturating_add(PAGES_PER_TICK).min(table.pages());
        let now = host.now();
        let mut counted = *self.counted.borrow();
        for page in first..end {
            table.count(host, page, now, &mut counted)?;
        }
        if end < table.pages() {
            self.next_page.set(end);
            self.counted.replace(counted);
            return Ok(None);
        }
        self.next_page.set(0);
        self.counted.take();
        Ok(Some(counted))
    }
}
