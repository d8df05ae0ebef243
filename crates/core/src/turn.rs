//! Of all VMs that could do something for the whole of Envoy, one does: the one that holds a lease in shared data.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::{Host, HostFailure, Swap, UnixTime};
use crate::versioned;

/// The format of a lease; one of another version of the filter is nobody's.
const VERSION: u8 = 1;

/// One VM's part in it.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Names this VM among the others; zero until it tried.
    holder: Cell<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct Lease {
    holder: u64,
    until_millis: u64,
}

impl Turn {
    /// Takes or keeps the lease at `key`. Whether it is ours. For `length` the others wait for who has it and does
    /// nothing.
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
        let found = host.get(key)?;
        let lease = found
            .as_ref()
            .and_then(|(bytes, _)| versioned::decode::<Lease>(VERSION, bytes))
            .unwrap_or_default();
        let now = host.now();
        let others = lease.holder != self.holder.get();
        // A lease that runs for longer than any was taken before the clock was set back.
        let until = UnixTime::from_millis(lease.until_millis);
        if others && now < until && !until.is_ahead_of(now.after(length)) {
            return Ok(false);
        }
        let lease = Lease { holder: self.holder.get(), until_millis: now.after(length).millis() };
        let bytes = versioned::encode(VERSION, &lease).ok_or(HostFailure("memory for a lease"))?;
        let expected = found.map(|(_, version)| version).into();
        Ok(host.compare_and_set(key, &bytes, expected)? == Swap::Done)
    }
}
