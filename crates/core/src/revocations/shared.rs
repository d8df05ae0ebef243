//! Revocations in Envoy's shared data: two keys.
//!
//! - `…rt` is the [`Table`], and all that counts. It is changed by compare-and-set only, so that of any number of
//!   revocations at once none is lost.
//! - `…rv` is the table's sequence number, written after it and only ever forward. It is what everybody reads at
//!   every look, and who finds another number than last time reads the table.
//!
//! A copy of what is in etcd is kept likewise, in `…ct` and `…cv`; beside its number stands when it was last known to
//! be whole.
//!
//! A revocation is answered after both are written. A worker that dies in between has answered nobody; the next
//! tick of any other writes the number.
//!
//! The keys outlive changed configurations, crashed VMs and other modules of the same `vm_id`, and are lost with
//! the process. Who finds no table begins with a cut-off of now; who finds no copy, with an empty one that is not
//! whole yet.

use std::rc::Rc;
use std::time::Duration;

use super::entry::{CLOCKS_APART, End, Learned, Revocation};
use super::table::Table;
use super::{NotRevoked, Revoked};
use crate::etcd::Revision;
use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::secret;

/// How often a write is tried anew when other workers write, too. With sixteen workers that do nothing else, one in
/// ten million gives up.
const ATTEMPTS: usize = 256;

/// The format of the number.
const VERSION: u8 = 2;

/// The format before, of a table's sequence number alone.
const SEQUENCE_VERSION: u8 = 1;

/// Where the table of one service is.
#[derive(Debug)]
pub(super) struct SharedTable {
    table_key: String,
    number_key: String,
    retention: Duration,
}

/// What is read at every look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Number {
    /// The table's.
    sequence: u64,
    /// Of a copy: when it was last asked for what is new, and answered. At the epoch it never was.
    pub(super) confirmed_at: UnixTime,
    /// Of a copy: what etcd was at when it answered last.
    pub(super) seen: Revision,
    /// Of a copy: all that was revoked until this revision is in the table.
    pub(super) complete_until: Revision,
}

const CONTENDED: HostFailure = HostFailure("a write to the revocations");

const UNREADABLE: HostFailure = HostFailure("a table of revocations that this version can read");

impl SharedTable {
    /// All that there is.
    pub(super) fn new(tenant: &str, retention: Duration) -> Self {
        let namespace = secret::namespace(tenant);
        let [table_key, number_key] = ["rt", "rv"].map(|key| format!("{namespace}{key}"));
        Self { table_key, number_key, retention }
    }

    /// A copy of what is elsewhere.
    pub(super) fn copy(tenant: &str) -> Self {
        let namespace = secret::namespace(tenant);
        let [table_key, number_key] = ["ct", "cv"].map(|key| format!("{namespace}{key}"));
        Self { table_key, number_key, retention: Duration::ZERO }
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
        Err(CONTENDED)
    }

    /// The table with this number, or a later one. `last` is what was read last.
    pub(super) fn table(
        &self,
        host: &dyn Host,
        number: Number,
        last: Option<&Rc<Table>>,
    ) -> Result<Rc<Table>, HostFailure> {
        if let Some(last) = last.filter(|last| last.sequence == number.sequence) {
            return Ok(Rc::clone(last));
        }
        let (bytes, _) = host.get(&self.table_key)?.ok_or(UNREADABLE)?;
        let table = Table::decode(&bytes).filter(|table| table.sequence >= number.sequence);
        Ok(Rc::new(table.ok_or(UNREADABLE)?))
    }

    /// The number of the table that everybody is to know; `None` where there is none.
    pub(super) fn number(
        &self,
        shared: &(impl SharedData + ?Sized),
    ) -> Result<Option<Number>, HostFailure> {
        Ok(self.number_and_version(shared)?.map(|(number, _)| number))
    }

    /// The number of a table that is made if there is none.
    pub(super) fn number_or_begin(&self, host: &dyn Host) -> Result<Number, HostFailure> {
        if let Some(number) = self.number(host)? {
            return Ok(number);
        }
        self.begin(host)?;
        self.number(host)?.ok_or(UNREADABLE)
    }

    /// Writes into a copy what was read from etcd: all that is new until `complete_until`, or what was revoked just
    /// now, of which nobody says what is before it. Whether others than those named had to be ended for it.
    pub(super) fn learn(
        &self,
        host: &dyn Host,
        learned: &[Learned],
        complete_until: Option<Revision>,
    ) -> Result<bool, HostFailure> {
        let changed =
            self.change(host, || self.read_or_empty(host), |table| table.insert_all(learned))?;
        let (overflowed, sequence) = changed.ok_or(CONTENDED)?;
        let until = complete_until.unwrap_or_default();
        self.renumber(host, |number| {
            Some(Number {
                sequence: number.sequence.max(sequence),
                complete_until: number.complete_until.max(until),
                ..number
            })
        })?;
        Ok(overflowed)
    }

    /// Begins a copy anew: etcd is not what it was. Whatever was issued until now has ended.
    pub(super) fn forget(&self, host: &dyn Host, revision: Revision) -> Result<(), HostFailure> {
        let anew = || {
            let (old, version) = self.read_or_empty(host)?;
            let mut table = self.empty(host)?;
            table.sequence = old.sequence;
            Ok((table, version))
        };
        // What is issued from now on is of this revision or a later one; what was issued before is of none that
        // means anything, and its time decides.
        let end = || End { time: host.now().after(CLOCKS_APART), revision };
        let changed = self.change(host, anew, |table| table.cut_off(end()))?;
        let ((), sequence) = changed.ok_or(CONTENDED)?;
        self.renumber(host, |number| {
            let sequence = number.sequence.max(sequence);
            Some(Number { sequence, seen: revision, ..Number::default() })
        })
    }

    /// Writes down that a copy was whole at that time, when etcd was at that revision.
    pub(super) fn confirm(
        &self,
        host: &dyn Host,
        at: UnixTime,
        seen: Revision,
    ) -> Result<(), HostFailure> {
        self.renumber(host, |number| Some(Number { confirmed_at: at, seen, ..number }))
    }

    /// Ends what was issued until now.
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
        let insert = |table: &mut Table| {
            table.keep_for(self.retention);
            table.insert(revocation, End::at(at))
        };
        let changed = self.change(host, || self.read_or_new(host), insert)?;
        let (overflowed, sequence) = changed.ok_or(NotRevoked::Contended)?;
        self.publish(host, sequence)?;
        Ok(overflowed)
    }

    /// Changes the table that `read` finds, again until nobody else does meanwhile. What came of it, and the number that
    /// the table has now; `None` if others were faster, again and again.
    fn change<T>(
        &self,
        host: &dyn Host,
        read: impl Fn() -> Result<(Table, Option<Version>), HostFailure>,
        change: impl Fn(&mut Table) -> T,
    ) -> Result<Option<(T, u64)>, HostFailure> {
        for _ in 0..ATTEMPTS {
            let (mut table, version) = read()?;
            let result = change(&mut table);
            if let Some(sequence) = self.write(host, table, version)? {
                return Ok(Some((result, sequence)));
            }
        }
        Ok(None)
    }

    fn read_or_new(&self, host: &dyn Host) -> Result<(Table, Option<Version>), HostFailure> {
        let (mut table, version) = self.read_or_empty(host)?;
        if version.is_none() {
            // Whoever lost the table takes longer than this to begin anew; who issues something in the
            // millisecond in which it begins has lost nothing.
            table.cut_off(End::at(host.now().before(Duration::from_millis(1))));
        }
        Ok((table, version))
    }

    fn read_or_empty(&self, host: &dyn Host) -> Result<(Table, Option<Version>), HostFailure> {
        match host.get(&self.table_key)? {
            Some((bytes, version)) => Ok((Table::decode(&bytes).ok_or(UNREADABLE)?, Some(version))),
            None => Ok((self.empty(host)?, None)),
        }
    }

    fn empty(&self, host: &dyn Host) -> Result<Table, HostFailure> {
        let mut key = [0; 16];
        host.random(&mut key)?;
        Ok(Table::new(key, host.now()))
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
        self.renumber(host, |number| {
            (number.sequence < sequence).then_some(Number { sequence, ..number })
        })
    }

    fn renumber(
        &self,
        host: &dyn Host,
        change: impl Fn(Number) -> Option<Number>,
    ) -> Result<(), HostFailure> {
        for _ in 0..ATTEMPTS {
            let (number, expected) = match self.number_and_version(host)? {
                Some((number, version)) => (number, Expected::Version(version)),
                None => (Number::default(), Expected::Absent),
            };
            let Some(changed) = change(number) else { return Ok(()) };
            if host.compare_and_set(&self.number_key, &changed.encode(), expected)? == Swap::Done {
                return Ok(());
            }
        }
        Err(CONTENDED)
    }

    fn number_and_version(
        &self,
        shared: &(impl SharedData + ?Sized),
    ) -> Result<Option<(Number, Version)>, HostFailure> {
        let Some((bytes, version)) = shared.get(&self.number_key)? else { return Ok(None) };
        Ok(Some((Number::decode(&bytes).ok_or(UNREADABLE)?, version)))
    }
}

impl Number {
    /// Whether a table was ever written.
    pub(super) const fn has_table(self) -> bool {
        self.sequence != 0
    }

    fn encode(self) -> [u8; 33] {
        let mut bytes = [VERSION; 33];
        let numbers = [self.sequence, self.confirmed_at.millis()].map(u64::to_be_bytes);
        let revisions = [self.seen, self.complete_until].map(Revision::to_bytes);
        let fields = numbers.into_iter().chain(revisions).flatten();
        bytes.iter_mut().skip(1).zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        match *version {
            VERSION => {}
            SEQUENCE_VERSION if rest.is_empty() => {
                return Some(Self { sequence: u64::from_be_bytes(*sequence), ..Self::default() });
            }
            _ => return None,
        }
        let (confirmed_at, rest) = rest.split_first_chunk()?;
        let (seen, complete_until) = rest.split_first_chunk()?;
        Some(Self {
            sequence: u64::from_be_bytes(*sequence),
            confirmed_at: UnixTime::from_millis(u64::from_be_bytes(*confirmed_at)),
            seen: Revision::from_bytes(*seen),
            complete_until: Revision::from_bytes(complete_until.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_of_the_format_before_is_read() {
        let read = Number::decode(&[1, 0, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(read, Some(Number { sequence: 513, ..Number::default() }));
    }

    proptest! {
        #[test]
        fn a_number_is_read_back(sequence: u64, millis: u64, seen: i64, until: i64) {
            let number = Number {
                sequence,
                confirmed_at: UnixTime::from_millis(millis),
                seen: Revision::new(seen),
                complete_until: Revision::new(until),
            };
            prop_assert_eq!(Number::decode(&number.encode()), Some(number));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = Number::decode(&bytes);
        }
    }
}
