//! Revocations in Envoy's shared data: two keys.
//!
//! - `…rt` is the [`Table`], and all that counts. It is changed by compare-and-set only, so that of any number of
//!   revocations at once none is lost.
//! - `…rv` is the table's sequence number, written after it and only ever forward. It is what everybody reads at
//!   every look, and who finds another number than last time reads the table.
//!
//! A revocation is answered after both are written. A worker that dies in between has answered nobody; the next
//! tick of any other writes the number.
//!
//! Both keys outlive changed configurations, crashed VMs and other modules of the same `vm_id`, and are lost with
//! the process. Who finds none begins with a cut-off of now.

use std::rc::Rc;
use std::time::Duration;

use super::entry::Revocation;
use super::table::{Known, Table};
use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::secret;

/// How often a write is tried anew when other workers write, too. With sixteen workers that do nothing else, one in
/// ten million gives up.
const ATTEMPTS: usize = 256;

/// The format of the number.
const VERSION: u8 = 1;

/// Where the table of one service is.
#[derive(Debug)]
pub(super) struct SharedTable {
    table_key: String,
    number_key: String,
    retention: Duration,
}

/// What was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revoked {
    /// All that was named and was issued until then has ended.
    pub before: UnixTime,
    /// The table was full: the oldest revocations are one for everyone now.
    pub overflowed: bool,
}

/// Why nothing was revoked, or nobody knows whether it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRevoked {
    /// Others were faster, again and again.
    #[error("too many revocations at once")]
    Contended,
    /// Shared data or randomness failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
}

const UNREADABLE: HostFailure = HostFailure("a table of revocations that this version can read");

impl SharedTable {
    pub(super) fn new(tenant: &str, retention: Duration) -> Self {
        let namespace = secret::namespace(tenant);
        Self {
            table_key: format!("{namespace}rt"),
            number_key: format!("{namespace}rv"),
            retention,
        }
    }

    /// Lets both keys be there and agree, and entries be kept for long enough.
    pub(super) fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        for _ in 0..ATTEMPTS {
            let (mut table, version) = self.read_or_new(host)?;
            if !table.keep_for(self.retention) && version.is_some() {
                return self.publish(host, table.sequence);
            }
            if let Some(sequence) = self.write(host, table, version)? {
                return self.publish(host, sequence);
            }
        }
        Err(HostFailure("a write to the revocations"))
    }

    pub(super) fn known(
        &self,
        host: &dyn Host,
        last: Option<Rc<Known>>,
    ) -> Result<Rc<Known>, HostFailure> {
        let number = match self.number(host)? {
            Some((number, _)) => number,
            None => {
                self.begin(host)?;
                self.number(host)?.ok_or(UNREADABLE)?.0
            }
        };
        if let Some(last) = last.filter(|last| last.table.sequence == number) {
            return Ok(last);
        }
        let (bytes, _) = host.get(&self.table_key)?.ok_or(UNREADABLE)?;
        let table = Table::decode(&bytes).filter(|table| table.sequence >= number);
        Ok(Rc::new(Known { table: table.ok_or(UNREADABLE)? }))
    }

    pub(super) fn revoke(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        let before = host.now();
        let mut overflowed = self.insert(host, revocation, before)?;
        // What was issued by somebody who did not see it yet, was issued until now.
        let after = host.now();
        if after > before {
            overflowed |= self.insert(host, revocation, after)?;
        }
        Ok(Revoked { before, overflowed })
    }

    fn insert(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
        at: UnixTime,
    ) -> Result<bool, NotRevoked> {
        for _ in 0..ATTEMPTS {
            let (mut table, version) = self.read_or_new(host)?;
            table.keep_for(self.retention);
            let overflowed = table.insert(revocation, at);
            if let Some(sequence) = self.write(host, table, version)? {
                self.publish(host, sequence)?;
                return Ok(overflowed);
            }
        }
        Err(NotRevoked::Contended)
    }

    fn read_or_new(&self, host: &dyn Host) -> Result<(Table, Option<Version>), HostFailure> {
        match host.get(&self.table_key)? {
            Some((bytes, version)) => Ok((Table::decode(&bytes).ok_or(UNREADABLE)?, Some(version))),
            None => {
                let mut key = [0; 16];
                host.random(&mut key)?;
                // Whoever lost the table takes longer than this to begin anew; who issues something in the
                // millisecond in which it begins has lost nothing.
                Ok((Table::new(key, host.now().before(Duration::from_millis(1))), None))
            }
        }
    }

    /// Writes what was made of the table of that version. The number that it has now, or `None` if somebody else
    /// was faster.
    fn write(
        &self,
        host: &dyn Host,
        mut table: Table,
        version: Option<Version>,
    ) -> Result<Option<u64>, HostFailure> {
        table.sequence = table.sequence.saturating_add(1);
        let swap = host.compare_and_set(&self.table_key, &table.encode(), version.into())?;
        Ok((swap == Swap::Done).then_some(table.sequence))
    }

    /// Lets everybody know that there is a table with this number.
    fn publish(&self, host: &dyn Host, sequence: u64) -> Result<(), HostFailure> {
        for _ in 0..ATTEMPTS {
            let expected = match self.number(host)? {
                Some((number, _)) if number >= sequence => return Ok(()),
                Some((_, version)) => Expected::Version(version),
                None => Expected::Absent,
            };
            let mut bytes = vec![VERSION];
            bytes.extend_from_slice(&sequence.to_be_bytes());
            if host.compare_and_set(&self.number_key, &bytes, expected)? == Swap::Done {
                return Ok(());
            }
        }
        Err(HostFailure("a write to the revocations"))
    }

    fn number(
        &self,
        shared: &(impl SharedData + ?Sized),
    ) -> Result<Option<(u64, Version)>, HostFailure> {
        let Some((bytes, version)) = shared.get(&self.number_key)? else { return Ok(None) };
        let (&format, rest) = bytes.split_first().ok_or(UNREADABLE)?;
        if format != VERSION {
            return Err(UNREADABLE);
        }
        let number = rest.try_into().map_err(|_| UNREADABLE)?;
        Ok(Some((u64::from_be_bytes(number), version)))
    }
}
