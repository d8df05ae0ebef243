//! The format of a table, and of one row.

use std::time::Duration;

use super::super::entry::{CLOCKS_APART, End, IssuedAt, Key, Mask, Name};
use super::source::Source;
use super::{Kind, Table, Uptime};
use crate::host::UnixTime;
use crate::state::remote::Revision;

/// The format of a table. A table in another format is an error, and requests are refused: a new
/// table would have forgotten the revocations.
pub(super) const VERSION: u8 = 7;

const NAME: usize = 16;
const END: usize = 8 + 8;
const UPTIME: usize = 4;
const OWNER: usize = 2;
const LEAD: usize = 4;
const PERSON: usize = NAME;

/// The length of a row.
pub(super) const ROW: usize = NAME + END + UPTIME + OWNER + LEAD + PERSON;

const MASK: usize = 2;
const KIND: usize = MASK + END + UPTIME;
const OWNER_NAME: usize = MASK + NAME;

/// The length of the longest head, which has every kind, without the owners and the sources.
const HEAD: usize = 1 + 8 + 16 + END + 1 + 255 * KIND + 2 + 4;

/// A row: its name, its end, the uptime at which it was made, the number of its owner, its lead,
/// and the name of its person's row.
///
/// The lead is only that of an event: the milliseconds by which the row's end is later than
/// [`CLOCKS_APART`] before the event, at most [`OPEN`]. An event on a sender's clock that is ahead
/// is later than the row's end. The row of an event has the number of its source in place of the
/// owner's. The row of an event about a session of a known person also names the row to which all
/// of that person's sessions can be merged.
pub(super) type Row = [u8; ROW];

/// The lead of a row that no event made.
const NO_EVENT: u32 = u32::MAX;

/// The number of the operators, who have no share.
pub(super) const OPERATORS: u16 = 0;

/// The person's row of a row that is not about a session of a known person.
pub(super) const NOBODY: Name = [0; NAME];

/// The longest lead of an event. The clocks of its sender and of an Envoy may differ by half of it,
/// either way.
const OPEN: u32 = 120_000;
const _: () = assert!(CLOCKS_APART.as_millis() * 2 == OPEN as u128);

impl Table {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let rows = self.rows.len().saturating_mul(ROW);
        let owners = self.owners.len().saturating_mul(OWNER_NAME);
        let mut bytes = Vec::with_capacity(rows.saturating_add(owners).saturating_add(HEAD));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&end_to_bytes(self.cut_off));
        bytes.push(u8::try_from(self.kinds.len()).unwrap_or(u8::MAX));
        for Kind { mask, last, made_at } in &self.kinds {
            bytes.extend_from_slice(&mask.to_be_bytes());
            bytes.extend_from_slice(&end_to_bytes(*last));
            bytes.extend_from_slice(&made_at.to_be_bytes());
        }
        let owners = u16::try_from(self.owners.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&owners.to_be_bytes());
        for (mask, name) in &self.owners {
            bytes.extend_from_slice(&mask.to_be_bytes());
            bytes.extend_from_slice(name);
        }
        // Without memory the length is wrong, and the table is not read.
        let sources = postcard::to_allocvec(&self.sources).unwrap_or_default();
        let len = u32::try_from(sources.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&sources);
        bytes.extend_from_slice(self.rows.as_flattened());
        bytes
    }

    /// Reads a table; `None` if the bytes have another format.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [VERSION] = take(&mut rest)? else { return None };
        let sequence = u64::from_be_bytes(take(&mut rest)?);
        let key: Key = take(&mut rest)?;
        let cut_off = end_from_bytes(&take(&mut rest)?);
        let mask = |rest: &mut &[u8]| {
            let mask = Mask::from_be_bytes(take(rest)?);
            (mask != 0).then_some(mask)
        };
        let [kinds] = take(&mut rest)?;
        let kinds = (0..kinds).map(|_| {
            Some(Kind {
                mask: mask(&mut rest)?,
                last: end_from_bytes(&take(&mut rest)?),
                made_at: Uptime::from_be_bytes(take(&mut rest)?),
            })
        });
        let kinds = kinds.collect::<Option<_>>()?;
        let owners = u16::from_be_bytes(take(&mut rest)?);
        let owners = (0..owners).map(|_| Some((mask(&mut rest)?, take(&mut rest)?)));
        let owners = owners.collect::<Option<_>>()?;
        let len = usize::try_from(u32::from_be_bytes(take(&mut rest)?)).ok()?;
        let (sources, rest) = rest.split_at_checked(len)?;
        let sources: Vec<Source> = postcard::from_bytes(sources).ok()?;
        let (rows, []) = rest.as_chunks::<ROW>() else { return None };
        // A row out of order would not be found.
        if !rows.is_sorted_by(|one, next| name(one) < name(next)) {
            return None;
        }
        Some(Self { sequence, key, cut_off, kinds, owners, sources, rows: rows.to_vec() })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// A row that a revocation made.
pub(super) fn row(name: &Name, end: End, owner: u16, made_at: Uptime) -> Row {
    make(name, end, owner, made_at, NO_EVENT, &NOBODY)
}

/// The row of an event of `source` at that time. `end` is at most [`CLOCKS_APART`] later, or
/// earlier. `person` is the name of its person's row.
pub(super) fn event_row(
    name: &Name,
    (at, end): (UnixTime, End),
    source: u16,
    made_at: Uptime,
    person: &Name,
) -> Row {
    let end = end.near(at);
    let lead = end.time.after(CLOCKS_APART).since(at).as_millis();
    let lead = u32::try_from(lead).unwrap_or(OPEN).min(OPEN);
    make(name, end, source, made_at, lead, person)
}

fn make(name: &Name, end: End, owner: u16, made_at: Uptime, lead: u32, person: &Name) -> Row {
    let mut row = [0; ROW];
    let fields = name.iter().copied().chain(end_to_bytes(end));
    let fields = fields.chain(made_at.to_be_bytes()).chain(owner.to_be_bytes());
    let fields = fields.chain(lead.to_be_bytes()).chain(person.iter().copied());
    row.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
    row
}

/// Merges two rows of one name: the row has the later end and is as young as the younger. An owner
/// does not pay for a row that an operator made, too. The row of two events has the later one.
pub(super) fn merged(one: &Row, other: &Row) -> Row {
    if let (Some(at), Some(other_at)) = (event(one), event(other)) {
        let later = if at < other_at { other } else { one };
        let reach = (at.max(other_at), end(one).max(end(other)));
        let made_at = made_at(one).max(made_at(other));
        return event_row(&name(one), reach, source(later), made_at, &person(later));
    }
    row(
        &name(one),
        end(one).max(end(other)),
        owner(one).min(owner(other)),
        made_at(one).max(made_at(other)),
    )
}

pub(super) fn name(row: &Row) -> Name {
    field::<NAME, 0>(row)
}

/// The end of a row.
pub(super) fn end(row: &Row) -> End {
    end_from_bytes(&field::<END, NAME>(row))
}

pub(super) fn made_at(row: &Row) -> Uptime {
    Uptime::from_be_bytes(field::<UPTIME, { NAME + END }>(row))
}

/// The number of a row's owner. An event has no owner among callers and clients.
pub(super) fn owner(row: &Row) -> u16 {
    if event(row).is_some() { OPERATORS } else { source(row) }
}

pub(super) fn set_owner(row: &mut Row, number: u16) {
    *row = self::row(&name(row), end(row), number, made_at(row));
}

/// The number of the source of an event.
pub(super) fn source(row: &Row) -> u16 {
    u16::from_be_bytes(field::<OWNER, { NAME + END + UPTIME }>(row))
}

/// The row of the same event, of the source with this number.
pub(super) fn of_source(row: &Row, number: u16) -> Row {
    let reach = (event(row).unwrap_or_default(), end(row));
    event_row(&name(row), reach, number, made_at(row), &person(row))
}

/// The name of the row of the person whose session the event is about.
pub(super) fn person(row: &Row) -> Name {
    field::<PERSON, { NAME + END + UPTIME + OWNER + LEAD }>(row)
}

/// The time of the event that made a row, by its sender's clock; `None` if none did.
pub(super) fn event(row: &Row) -> Option<UnixTime> {
    let lead = u32::from_be_bytes(field::<LEAD, { NAME + END + UPTIME + OWNER }>(row));
    let before = || end(row).time.after(CLOCKS_APART).before(Duration::from_millis(lead.into()));
    (lead != NO_EVENT).then(before)
}

/// Returns true if the arrival of the event that made a row is not known yet.
pub(super) fn is_open(row: &Row) -> bool {
    field::<LEAD, { NAME + END + UPTIME + OWNER }>(row) == OPEN.to_be_bytes()
}

/// Returns true if a row ends what was issued at that time.
pub(super) fn ends(row: &Row, issued: IssuedAt) -> bool {
    match event(row) {
        Some(at) => issued.is_until_event(at, end(row)),
        None => issued.is_until(end(row)),
    }
}

/// The field of `LEN` bytes that begins at `FROM`.
fn field<const LEN: usize, const FROM: usize>(row: &Row) -> [u8; LEN] {
    const { assert!(FROM + LEN <= ROW) };
    row.split_at(FROM).1.first_chunk().copied().unwrap_or([u8::MAX; LEN])
}

fn end_to_bytes(end: End) -> [u8; END] {
    let mut bytes = [0; END];
    let (time, revision) = bytes.split_at_mut(END / 2);
    time.copy_from_slice(&end.time.millis().to_be_bytes());
    revision.copy_from_slice(&end.revision.to_bytes());
    bytes
}

fn end_from_bytes(bytes: &[u8; END]) -> End {
    let number = u128::from_be_bytes(*bytes);
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    End {
        time: UnixTime::from_millis(half(number >> 64)),
        revision: Revision::from_bytes(half(number).to_be_bytes()),
    }
}
