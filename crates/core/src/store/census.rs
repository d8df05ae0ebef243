//! How many tokens are outstanding, counted on a timer and never on the way of a request.
//!
//! One VM counts for all of Envoy: the one that holds a lease in shared data. A large table is counted
//! over several ticks, so that no tick holds a worker up for more than a fraction of a millisecond.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::slots::{Occupancy, SlotTable};
use crate::host::{Host, HostFailure, Swap, UnixTime};

/// Pages to a tick: as many as the default table has.
const PAGES_PER_TICK: u32 = 256;

/// The format of a lease.
const VERSION: u8 = 1;

/// How long the others wait for the one that counts.
const LEASE: Duration = Duration::from_secs(5);

/// A count under way.
#[derive(Debug, Default)]
pub struct Census {
    /// Names this VM among those that could count; zero until it tried.
    holder: Cell<u64>,
    next_page: Cell<u32>,
    counted: RefCell<Occupancy>,
}

#[derive(Default, Serialize, Deserialize)]
struct Lease {
    holder: u64,
    until_millis: u64,
}

impl Census {
    /// Counts on. `Some` at the end of the table, and only in the VM that counts.
    pub fn tick(
        &self,
        host: &dyn Host,
        table: &SlotTable,
    ) -> Result<Option<Occupancy>, HostFailure> {
        if !self.hold(host, &table.census_key())? {
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

    fn hold(&self, host: &dyn Host, key: &str) -> Result<bool, HostFailure> {
        if self.holder.get() == 0 {
            let mut random = [0; 8];
            host.random(&mut random)?;
            self.holder.set(u64::from_le_bytes(random).max(1));
        }
        let found = host.get(key)?;
        let lease = found.as_ref().and_then(|(bytes, _)| Lease::decode(bytes)).unwrap_or_default();
        let now = host.now();
        let others = lease.holder != self.holder.get();
        // A lease that runs for longer than any was taken before the clock was set back.
        let until = UnixTime::from_millis(lease.until_millis);
        if others && now < until && !until.is_ahead_of(now.after(LEASE)) {
            return Ok(false);
        }
        let lease = Lease { holder: self.holder.get(), until_millis: now.after(LEASE).millis() };
        let bytes = lease.encode().ok_or(HostFailure("memory for a lease"))?;
        let expected = found.map(|(_, version)| version).into();
        Ok(host.compare_and_set(key, &bytes, expected)? == Swap::Done)
    }
}

impl Lease {
    fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_extend(self, vec![VERSION]).ok()
    }

    /// Reads a lease; one of another version of the filter is nobody's.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        if *version == VERSION { postcard::from_bytes(rest).ok() } else { None }
    }
}
