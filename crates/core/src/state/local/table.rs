//! A table of revocations in Envoy's shared data: two keys.
//!
//! - `…rt` is the [`Table`], and only the table counts. It changes by compare-and-set alone, so
//!   that revocations that are made at once do not overwrite each other.
//! - `…rv` is the sequence number of the table. It is written after the table, and only ever grows.
//!   Every lookup reads the number, and reads the table only if the number has changed.
//!
//! A copy of the revocations in a remote store is kept in the same way, in `…ct` and `…cv`. Its
//! number also says when the copy was last known to be complete.
//!
//! A revocation is answered after both keys are written. A worker that dies between the two writes
//! has answered nobody, and the next tick of any other worker writes the number.
//!
//! A worker that finds no table creates one that ends everything issued until now. A worker that
//! finds no copy creates an empty one that is not complete yet.

use std::rc::Rc;
use std::time::Duration;

use crate::host::{Host, HostFailure, SharedData, UnixTime};
use crate::state::remote::Revision;
use crate::state::revocations::{
    CLOCKS_APART, Clocks, End, Happened, Learned, NotRevoked, Overflow, Owner, Revocation, Revoked,
    Table, Told,
};
use crate::state::shared_data::keys::Keys;
use crate::state::shared_data::{Change, update};

/// The number of attempts to write while other workers write, too. If sixteen workers do nothing
/// else, one write in ten million gives up.
const ATTEMPTS: usize = 256;

/// The time between two [comparisons](LocalTable::is_to_be_compared) of a copy with the remote
/// store.
const COMPARED_EVERY: Duration = Duration::from_secs(300);

/// The format of a number.
const VERSION: u8 = 3;

/// The table of one service.
#[derive(Debug)]
pub(crate) struct LocalTable {
    table_key: String,
    number_key: String,
}

/// The value that every lookup reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Number {
    /// The sequence number of the table.
    sequence: u64,
    /// The time of the last request for new revocations that the remote store answered; the epoch
    /// if there was none. Only a copy has this.
    pub(crate) confirmed_at: UnixTime,
    /// The revision of the remote store when it last answered. Only a copy has this.
    pub(crate) seen: Revision,
    /// The table has every revocation until this revision. Only a copy has this.
    pub(crate) complete_until: Revision,
    /// The second of the uptime at which a VM last began to read all revocations anew. Only a copy
    /// has this.
    compared_at: u64,
}

const CONTENDED: HostFailure = HostFailure("a write to the revocations");

const UNREADABLE: HostFailure = HostFailure("a table of revocations that this version can read");

impl LocalTable {
    /// The table of this Envoy's own revocations.
    pub(crate) fn new(tenant: &str) -> Self {
        let keys = Keys::new(tenant);
        Self { table_key: keys.revocations(), number_key: keys.revocations_number() }
    }

    /// The copy of the revocations in a remote store.
    pub(crate) fn copy(tenant: &str) -> Self {
        let keys = Keys::new(tenant);
        Self { table_key: keys.revocations_copy(), number_key: keys.revocations_copy_number() }
    }

    /// Creates the table if it is missing, and makes both keys agree.
    pub(crate) fn create_if_missing(&self, host: &dyn Host) -> Result<(), HostFailure> {
        let sequence = update(host, &self.table_key, ATTEMPTS, |bytes| match bytes {
            Some(bytes) => read(bytes).map(|table| Change::Keep(table.sequence)),
            None => {
                let (bytes, sequence) = numbered(self.new_table(host)?);
                Ok(Change::Write(bytes, sequence))
            }
        });
        self.publish(host, sequence?.ok_or(CONTENDED)?)
    }

    /// Returns the table with this number, or a later one. `last` is the table that this worker
    /// read last.
    pub(crate) fn table(
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

    /// The number of the table; `None` if there is no table.
    pub(crate) fn number(
        &self,
        shared: &(impl SharedData + ?Sized),
    ) -> Result<Option<Number>, HostFailure> {
        shared.get(&self.number_key)?.map(|(bytes, _)| read_number(&bytes)).transpose()
    }

    /// The number of the table, which is created if it is missing.
    pub(crate) fn number_or_create(&self, host: &dyn Host) -> Result<Number, HostFailure> {
        if let Some(number) = self.number(host)? {
            return Ok(number);
        }
        self.create_if_missing(host)?;
        self.number(host)?.ok_or(UNREADABLE)
    }

    /// Adds revocations of the remote store to a copy: either all new ones until `complete_until`,
    /// or one that was made just now, without a claim about earlier ones. Returns what else had to
    /// be ended.
    pub(crate) fn learn(
        &self,
        host: &dyn Host,
        learned: &[Learned],
        complete_until: Option<Revision>,
    ) -> Result<Option<Overflow>, HostFailure> {
        let changed = self.change(host, || self.empty(host), |table| table.insert_all(learned))?;
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

    /// Returns true if the caller must compare a copy with all revocations in the remote store,
    /// because some may be gone from there: they are past their time by this Envoy's clock. No
    /// clock removes a revocation from a copy, only its absence from the remote store does. A
    /// comparison is due only now and then, however wrong the clock is.
    pub(crate) fn is_to_be_compared(&self, host: &dyn Host) -> Result<bool, HostFailure> {
        let due = update::<_, HostFailure>(host, &self.number_key, 1, |bytes| {
            let number = bytes.map_or(Ok(Number::default()), read_number)?;
            let uptime = host.uptime().as_secs();
            let since = Duration::from_secs(uptime.saturating_sub(number.compared_at));
            if !number.has_table() || number.compared_at != 0 && since < COMPARED_EVERY {
                return Ok(Change::Keep(false));
            }
            let is_due = self.table(host, number, None)?.has_old(host.now());
            // Only the VM whose write succeeds compares.
            let number = Number { compared_at: uptime.max(1), ..number };
            Ok(Change::Write(number.encode().to_vec(), is_due))
        });
        Ok(due?.unwrap_or(false))
    }

    /// The whole table, empty if it is missing.
    pub(crate) fn whole(&self, host: &dyn Host) -> Result<Table, HostFailure> {
        match host.get(&self.table_key)? {
            Some((bytes, _)) => read(&bytes),
            None => self.empty(host),
        }
    }

    /// Replaces a copy by `read`: all revocations that the remote store had at `revision`. Later
    /// revocations of the copy stay.
    pub(crate) fn replace(
        &self,
        host: &dyn Host,
        read: &Table,
        revision: Revision,
    ) -> Result<(), HostFailure> {
        let replace = |table: &mut Table| table.become_what_was_read(read.clone(), revision);
        let changed = self.change(host, || self.empty(host), replace)?;
        let (_, sequence) = changed.ok_or(CONTENDED)?;
        self.publish(host, sequence)
    }

    /// Begins a copy anew, because the history of the remote store began anew. Everything issued
    /// until now has ended.
    pub(crate) fn forget(&self, host: &dyn Host, revision: Revision) -> Result<(), HostFailure> {
        // Tokens issued from now on have this revision or a later one. The revisions of earlier
        // tokens mean nothing any more, so the time decides about them.
        let end = || End { time: host.now().after(CLOCKS_APART), revision };
        let anew = self.empty(host)?;
        let changed = self.change(
            host,
            || self.empty(host),
            |table| {
                *table = anew.numbered_like(table);
                table.cut_off(end());
            },
        );
        let ((), sequence) = changed?.ok_or(CONTENDED)?;
        self.renumber(host, |number| {
            let sequence = number.sequence.max(sequence);
            Some(Number { sequence, seen: revision, ..Number::default() })
        })
    }

    /// Writes down that a copy was complete at that time, when the remote store had that revision.
    pub(crate) fn confirm(
        &self,
        host: &dyn Host,
        at: UnixTime,
        seen: Revision,
    ) -> Result<(), HostFailure> {
        self.renumber(host, |number| Some(Number { confirmed_at: at, seen, ..number }))
    }

    /// Writes down that a copy was complete at that time, if it still has every revocation until
    /// `known`: it then has every one until `complete_until`, too. Returns false, and writes
    /// nothing, if the copy began anew in the meantime.
    pub(crate) fn confirm_since(
        &self,
        host: &dyn Host,
        known: Revision,
        (at, seen): (UnixTime, Revision),
        complete_until: Revision,
    ) -> Result<bool, HostFailure> {
        let confirmed = update::<_, HostFailure>(host, &self.number_key, ATTEMPTS, |bytes| {
            let number = bytes.map_or(Ok(Number::default()), read_number)?;
            if number.complete_until < known {
                return Ok(Change::Keep(false));
            }
            let complete_until = number.complete_until.max(complete_until);
            let number = Number { confirmed_at: at, seen, complete_until, ..number };
            Ok(Change::Write(number.encode().to_vec(), true))
        });
        confirmed?.ok_or(CONTENDED)
    }

    /// Ends everything that `revocation` names and that was issued until now. The entry counts
    /// against the share of `owner`.
    pub(crate) fn revoke(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
        owner: Option<&Owner>,
    ) -> Result<Revoked, NotRevoked> {
        let before = host.now();
        let mut overflow = self.insert(host, revocation, before, owner)?;
        // A request that has not seen the entry yet issued its token no later than now.
        let after = host.now();
        if after > before {
            overflow = overflow.max(self.insert(host, revocation, after, owner)?);
        }
        Ok(Revoked { before, overflow })
    }

    /// Ends what an event names: opens its row, and closes it when that is written. See
    /// [`revocations`](crate::state::revocations).
    pub(crate) fn keep_event(
        &self,
        host: &dyn Host,
        revocation: &Revocation,
        happened: &Happened,
    ) -> Result<Told, NotRevoked> {
        let clocks = Clocks::read(host);
        let opened = update::<_, NotRevoked>(host, &self.table_key, ATTEMPTS, |bytes| {
            let mut table = bytes.map_or_else(|| self.new_table(host), read)?;
            if table.has_no_room_for(revocation, happened) {
                return Err(NotRevoked::NoRoom);
            }
            let told = table.open_event(revocation, happened, clocks);
            if told == Told::OldNews {
                return Ok(Change::Keep((told, table.sequence)));
            }
            let (bytes, sequence) = numbered(table);
            Ok(Change::Write(bytes, (told, sequence)))
        });
        let (told, sequence) = opened?.ok_or(NotRevoked::Contended)?;
        self.publish(host, sequence)?;
        let closed = update::<_, HostFailure>(host, &self.table_key, ATTEMPTS, |bytes| {
            let mut table = read(bytes.ok_or(UNREADABLE)?)?;
            // An exchange that has not seen the row yet issued its token no later than now.
            if !table.close_event(revocation, happened, host.now().max(clocks.now())) {
                return Ok(Change::Keep(table.sequence));
            }
            let (bytes, sequence) = numbered(table);
            Ok(Change::Write(bytes, sequence))
        });
        self.publish(host, closed?.ok_or(NotRevoked::Contended)?)?;
        Ok(told)
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
        let changed = self.change(host, || self.new_table(host), insert)?;
        let (overflow, sequence) = changed.ok_or(NotRevoked::Contended)?;
        self.publish(host, sequence)?;
        Ok(overflow)
    }

    /// Changes the table, which `missing` makes if there is none. Returns the result of `change`
    /// and the new sequence number; `None` if other workers were faster, again and again.
    fn change<T>(
        &self,
        host: &dyn Host,
        missing: impl Fn() -> Result<Table, HostFailure>,
        change: impl Fn(&mut Table) -> T,
    ) -> Result<Option<(T, u64)>, HostFailure> {
        update(host, &self.table_key, ATTEMPTS, |bytes| {
            let mut table = bytes.map_or_else(&missing, read)?;
            let result = change(&mut table);
            let (bytes, sequence) = numbered(table);
            Ok(Change::Write(bytes, (result, sequence)))
        })
    }

    /// A table that ends everything issued until now.
    fn new_table(&self, host: &dyn Host) -> Result<Table, HostFailure> {
        let mut table = self.empty(host)?;
        // Losing a table takes longer than a millisecond. So a token that is issued in the
        // millisecond in which the table begins was issued after the loss.
        table.cut_off(End::at(host.now().before(Duration::from_millis(1))));
        Ok(table)
    }

    /// A table in which nothing has ended.
    fn empty(&self, host: &dyn Host) -> Result<Table, HostFailure> {
        let mut key = [0; 16];
        host.random(&mut key)?;
        Ok(Table::new(key, host.now()))
    }

    /// Tells all workers that there is a table with this number.
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
        let renumbered = update::<_, HostFailure>(host, &self.number_key, ATTEMPTS, |bytes| {
            let number = bytes.map_or(Ok(Number::default()), read_number)?;
            let changed = change(number).map(|number| number.encode().to_vec());
            Ok(changed.map_or(Change::Keep(()), |bytes| Change::Write(bytes, ())))
        });
        renumbered?.ok_or(CONTENDED)
    }
}

fn read(bytes: &[u8]) -> Result<Table, HostFailure> {
    Table::decode(bytes).ok_or(UNREADABLE)
}

fn read_number(bytes: &[u8]) -> Result<Number, HostFailure> {
    Number::decode(bytes).ok_or(UNREADABLE)
}

/// A changed table as bytes, and its new sequence number.
fn numbered(mut table: Table) -> (Vec<u8>, u64) {
    table.sequence = table.sequence.saturating_add(1);
    (table.encode(), table.sequence)
}

impl Number {
    /// Returns true if a table was ever written.
    pub(crate) const fn has_table(self) -> bool {
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
