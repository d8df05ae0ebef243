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

use super::entry::{CLOCKS_APART, End, Learned, Owner, Revocation};
use super::table::{Clocks, Overflow, Table};
use super::{NotRevoked, Revoked};
use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::remote::Revision;
use crate::secret;

/// How often a write is tried anew when other workers write, too. With sixteen workers that do nothing else, one in
/// ten million gives up.
const ATTEMPTS: usize = 256;

/// How long a copy goes by what it has before it is [compared](SharedTable::is_to_be_compared) with etcd again.
const COMPARED_EVERY: Duration = Duration::from_secs(300);

/// The format of the number.
const VERSION: u8 = 3;

/// Where the table of one service is.
#[derive(Debug)]
pub(super) struct SharedTable {
    table_key: String,
    number_key: String,
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
    /// Of a copy: at which second of the uptime somebody last took it on to read all of it anew.
    compared_at: u64,
}

const CONTENDED: HostFailure = HostFailure("a write to the revocations");

const UNREADABLE: HostFailure = HostFailure("a table of revocations that this version can read");

impl SharedTable {
    /// All that there is.
    pub(super) fn new(tenant: &str) -> Self {
        Self::at(tenant, ["rt", "rv"])
    }

    /// A copy of what is elsewhere.
    pub(super) fn copy(tenant: &str) -> Self {
        Self::at(tenant, ["ct", "cv"])
    }

    fn at(tenant: &str, keys: [&str; 2]) -> Self {
        let namespace = secret::namespace(tenant);
        let [table_key, number_key] = keys.map(|key| format!("{namespace}{key}"));
        Self { table_key, number_key }
    }

    /// Lets both keys be there and agree.
    pub(super) fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        for _ in 0..ATTEMPTS {
            let (table, version) = self.read_or_new(host)?;
            if version.is_some() {
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
    /// now, of which nobody says what is before it. What had to be ended besides.
    pub(super) fn learn(
        &self,
        host: &dyn Host,
        learned: &[Learned],
        complete_until: Option<Revision>,
    ) -> Result<Option<Overflow>, HostFailure> {
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

    /// Whether a copy is to be held against all that is in etcd, by whoever asks, as it may have what is there no more:
    /// some of it is past its time by this Envoy's clock. No clock takes anything out of a copy, only its absence from
    /// etcd does, and that is asked for only now and then, however wrong the clock is.
    pub(super) fn is_to_be_compared(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        let Some((number, version)) = self.number_and_version(host)? else { return Ok(false) };
        let uptime = host.uptime().as_secs();
        let since = Duration::from_secs(uptime.saturating_sub(number.compared_at));
        if !number.has_table() || number.compared_at != 0 && since < COMPARED_EVERY {
            return Ok(false);
        }
        let is_due = self.table(host, number, None)?.has_old(host.now());
        // Whoever is told so is the only one.
        let number = Number { compared_at: uptime.max(1), ..number };
        let swap =
            host.compare_and_set(&self.number_key, &number.encode(), Expected::Version(version))?;
        Ok(swap == Swap::Done && is_due)
    }

    /// The copy, which is there if it is to be compared.
    pub(super) fn whole(&self, host: &dyn Host) -> Result<Table, HostFailure> {
        Ok(self.read_or_empty(host)?.0)
    }

    /// Puts what was read of etcd, all that there was at `revision`, in the place of a copy. What it has of later stays.
    pub(super) fn replace(
        &self,
        host: &dyn Host,
        read: &Table,
        revision: Revision,
    ) -> Result<(), HostFailure> {
        let replace = |table: &mut Table| table.become_what_was_read(read.clone(), revision);
        let changed = self.change(host, || self.read_or_empty(host), replace)?;
        let (_, sequence) = changed.ok_or(CONTENDED)?;
        self.publish(host, sequence)
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

    /// Ends what was issued until now. `owner` is whose share that is of.
    pub(super) fn revoke(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        let before = host.now();
        let mut overflow = self.insert(host, revocation, before, owner)?;
        // What was issued by somebody who did not see it yet, was issued until now.
        let after = host.now();
        if after > before {
            overflow = overflow.max(self.insert(host, revocation, after, owner)?);
        }
        Ok(Revoked { before, overflow })
    }

    fn insert(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
        at: UnixTime,
        owner: Option<&Owner>,
    ) -> Result<Option<Overflow>, NotRevoked> {
        let clocks = Clocks::read(host);
        let insert = |table: &mut Table| table.insert(revocation, End::at(at), owner, clocks);
        let changed = self.change(host, || self.read_or_new(host), insert)?;
        let (overflow, sequence) = changed.ok_or(NotRevoked::Contended)?;
        self.publish(host, sequence)?;
        Ok(overflow)
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

    fn encode(self) -> [u8; 41] {
        let mut bytes = [VERSION; 41];
        let numbers = [self.sequence, self.confirmed_at.millis()].map(u64::to_be_bytes);
        let revisions = [self.seen, self.complete_until].map(Revision::to_bytes);
        let compared_at = self.compared_at.to_be_bytes();
        let fields = numbers.into_iter().chain(revisions).chain([compared_at]).flatten();
        bytes.iter_mut().skip(1).zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, fields @ ..] = bytes else { return None };
        let (fields, []) = fields.as_chunks() else { return None };
        let [sequence, confirmed_at, seen, complete_until, compared_at] = *fields else {
            return None;
        };
        Some(Self {
            sequence: u64::from_be_bytes(sequence),
            confirmed_at: UnixTime::from_millis(u64::from_be_bytes(confirmed_at)),
            seen: Revision::from_bytes(seen),
            complete_until: Revision::from_bytes(complete_until),
            compared_at: u64::from_be_bytes(compared_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_read_back(
            sequence: u64,
            millis: u64,
            seen: i64,
            until: i64,
            compared_at: u64,
        ) {
            let number = Number {
                sequence,
                confirmed_at: UnixTime::from_millis(millis),
                seen: Revision::new(seen),
                complete_until: Revision::new(until),
                compared_at,
            };
            prop_assert_eq!(Number::decode(&number.encode()), Some(number));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = Number::decode(&bytes);
        }
    }
}
