//! A lease in shared data: one VM does a task for the whole of Envoy.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Change, update};
use crate::host::{Host, HostFailure, UnixTime};
use crate::state::versioned;

/// The format of a lease. A lease in another format counts as free.
const VERSION: u8 = 1;

/// The part of one VM in the lease.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// A random number that names this VM; zero before its first attempt.
    holder: Cell<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct Lease {
    holder: u64,
    until_millis: u64,
}

impl Turn {
    /// Takes or keeps the lease at `key`. Returns true if this VM holds it. The other VMs wait for
    /// `length` before they take the lease from a holder that does nothing.
    pub(crate) fn hold(
        &self,
        host: &dyn Host,
        key: &str,
        length: Duration,
    ) -> Result<bool, HostFailure> {
        if self.holder.get() == 0 {
            let mut random = [0; 8];
            host.random(&mut random)?;
            self.holder.set(u64::from_le_bytes(random).max(1));
        }
        let holder = self.holder.get();
        let held = update(host, key, 1, |bytes| {
            let lease = bytes.and_then(|bytes| versioned::decode::<Lease>(VERSION, bytes));
            let lease = lease.unwrap_or_default();
            let now = host.now();
            // A lease that runs for longer than `length` was taken before the clock was set back.
            let until = UnixTime::from_millis(lease.until_millis);
            if lease.holder != holder && now < until && !until.is_ahead_of(now.after(length)) {
                return Ok(Change::Keep(false));
            }
            let lease = Lease { holder, until_millis: now.after(length).millis() };
            let bytes =
                versioned::encode(VERSION, &lease).ok_or(HostFailure("memory for a lease"))?;
            Ok(Change::Write(bytes, true))
        });
        Ok(held?.unwrap_or(false))
    }
}
