//! Collects the records that are selected, and gives them out as entries in the order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};
use std::time::Duration;

use impersonation_core::one_line;
use impersonation_core::time::UnixTime;
use jiff::tz::Offset;
use serde_json::Value;

use super::assemble::{ByNames, entry};
use super::entry::{Kept, Lines, Totals};
use super::repetitions::{Line, without_copies};
use super::sorter::{BUDGET, Sorted, Sorter};
use crate::logs::input::{Found, scan};
use crate::logs::line::{
    Kind, LOADED, NoRecord, REPLAYED, Record, Source, Stripped, read, records,
};

/// An impersonation takes two days at most, from its mint to the expiry of its access token. A
/// line that is further away from the asked time belongs to another one.
const LONGEST: Duration = Duration::from_hours(48);

/// The time between the lines of one request in both logs, at most.
const SAME: Duration = Duration::from_secs(60);

/// The order of the entries: impersonations, then requests that belong to none.
const IMPERSONATIONS: u128 = 0;
const OTHER_REQUESTS: u128 = 1;

/// The subject of the report. An impersonation is selected if its lines name all of it.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) txn: Option<String>,
    pub(super) user: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) caller: Option<String>,
    pub(super) since: Option<UnixTime>,
    pub(super) until: Option<UnixTime>,
    pub(super) for_the_user: bool,
}

impl Selection {
    /// Returns false for a line that cannot belong to a selected entry.
    fn may_be(&self, record: &Record<'_>) -> bool {
        let may = |asked: &Option<String>, named: Option<&str>| {
            asked.is_none() || named.is_none() || asked.as_deref() == named
        };
        if record.ends_by_names() {
            return true;
        }
        if self.txn.is_some() && self.txn.as_deref() != record.txn() {
            return false;
        }
        // All calls name the same user and actor. Other lines are few, and a refused exchange can
        // name another actor.
        let is_call = record.kind == Kind::Call;
        let of_others =
            is_call && !(may(&self.user, record.user()) && may(&self.actor, record.actor()));
        let Some(time) = record.time else { return !of_others };
        !of_others
            && self.since.is_none_or(|since| time >= since.before(LONGEST))
            && self.until.is_none_or(|until| time <= until.after(LONGEST))
    }

    fn names(&self, records: &[Record<'_>]) -> bool {
        let any = |asked: &Option<String>, name: &dyn Fn(&Record<'_>) -> bool| {
            asked.is_none() || records.iter().any(name)
        };
        any(&self.txn, &|record| record.txn() == self.txn.as_deref())
            && any(&self.user, &|record| record.user() == self.user.as_deref())
            && any(&self.actor, &|record| record.actor() == self.actor.as_deref())
            && any(&self.caller, &|record| record.facts.caller.get() == self.caller.as_deref())
    }

    fn has_one_of(&self, times: &[Option<UnixTime>]) -> bool {
        // A line without a time may be of any time.
        let is_in = |time: &Option<UnixTime>| {
            time.is_none_or(|time| {
                self.since.is_none_or(|since| time >= since)
                    && self.until.is_none_or(|until| time <= until)
            })
        };
        times.iter().any(is_in)
    }
}

/// The records of the logs that were read so far.
#[derive(Debug)]
pub(super) struct Collection {
    selection: Selection,
    log_offset: Offset,
    records: Sorter,
    revocations: BTreeSet<ByNames>,
    /// The configurations that took effect, each once.
    configurations: Vec<Value>,
    lines: Lines,
    /// The number of the file that is read.
    file: u32,
    /// Callers choose ids. With hashes that nobody can predict, no two groups become one.
    hashes: (RandomState, RandomState),
}

impl Collection {
    pub(super) fn new(selection: Selection, log_offset: Offset) -> Self {
        Self {
            selection,
            log_offset,
            records: Sorter::new(BUDGET),
            revocations: BTreeSet::new(),
            configurations: Vec::new(),
            lines: Lines::default(),
            file: 0,
            hashes: Default::default(),
        }
    }

    pub(super) fn read(&mut self, input: impl Read) -> io::Result<()> {
        let mut torn = 0_u64;
        self.file = self.file.saturating_add(1);
        let read = scan(input, |found| {
            match found {
                Found::Line(line) => self.line(line)?,
                Found::Torn => torn = torn.saturating_add(1),
            }
            Ok(())
        })?;
        let lines = &mut self.lines;
        lines.read = lines.read.saturating_add(read);
        lines.broken = lines.broken.saturating_add(torn);
        lines.others = lines.read.saturating_sub(lines.ours).saturating_sub(lines.broken);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let outcome = records(line, self.log_offset, |record, object| self.take(record, object))?;
        let count = match outcome {
            Ok(()) => &mut self.lines.ours,
            Err(NoRecord::Broken) => &mut self.lines.broken,
            Err(NoRecord::NotOurs) => return Ok(()),
        };
        *count = count.saturating_add(1);
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>, object: &str) -> io::Result<()> {
        let lines = &mut self.lines;
        if record.source == Source::AccessLog {
            lines.of_access_log = lines.of_access_log.saturating_add(1);
        }
        if record.time.is_none() {
            lines.without_time = lines.without_time.saturating_add(1);
        }
        // The mint that broke the glass has a line of its own.
        let is_told = record.kind != Kind::Alarm || record.facts.alarm.get() == Some(REPLAYED);
        if !is_told || !self.selection.may_be(record) {
            return Ok(());
        }
        if record.facts.event.get() == Some(LOADED) {
            self.configuration(object);
        }
        if record.ends_by_names() {
            self.revocations.insert(ByNames::of(record));
        }
        let shared = record.shared_request_id();
        let group = match record.txn() {
            Some(txn) => (true, txn),
            None => (false, &*shared),
        };
        let group = u128::from(self.hashes.0.hash_one(group)) << 64
            | u128::from(self.hashes.1.hash_one(group));
        let time = record.time.map_or(0, UnixTime::millis);
        let mut stored = Vec::with_capacity(object.len().saturating_add(5));
        let is_audit = u8::from(record.source == Source::AuditLine);
        stored.push(is_audit | u8::from(record.is_unique()) << 1);
        stored.extend_from_slice(&self.file.to_le_bytes());
        stored.extend_from_slice(object.as_bytes());
        self.records.push(group, time, &stored)
    }

    /// Keeps a configuration, unless it is known: each Envoy writes it at each start.
    fn configuration(&mut self, object: &str) {
        let Ok(Value::Object(mut members)) = serde_json::from_str(object) else { return };
        for of_line in ["event", "time", "version"] {
            members.shift_remove(of_line);
        }
        let configuration = Value::from(members);
        if !self.configurations.contains(&configuration) {
            self.configurations.push(configuration);
        }
    }

    /// Puts the entries together.
    pub(super) fn assemble(self) -> io::Result<Report> {
        let Self { selection, records, revocations, configurations, mut lines, .. } = self;
        let revocations = each_once(revocations);
        let mut entries = Sorter::new(BUDGET);
        let mut totals = Totals::default();
        let mut finish = |mut group: Vec<Line>| {
            let counts = without_copies(&mut group);
            lines.repeated = lines.repeated.saturating_add(counts.repeated);
            lines.alike = lines.alike.saturating_add(counts.alike);
            let records = group.iter().filter_map(|line| {
                let stripped = Stripped { object: &line.object, time: line.time };
                let record = read(stripped, Some(line.source)).0.ok()?;
                Some(Record { repetition: line.repetition.clone(), ..record })
            });
            let records: Vec<_> = records.collect();
            let id = records.first().and_then(Record::txn).map(str::to_owned);
            if !selection.names(&records) {
                return Ok(());
            }
            let (entry, times) = entry(id, records, &revocations);
            if !selection.has_one_of(&times) {
                return Ok(());
            }
            let section = if entry.id.is_some() { IMPERSONATIONS } else { OTHER_REQUESTS };
            if selection.for_the_user {
                let of_another = selection.user.is_some()
                    && entry.user_id.as_deref() != selection.user.as_deref();
                if entry.id.is_none() || of_another {
                    return Ok(());
                }
            }
            totals.add(&entry);
            let entry = if selection.for_the_user { entry.for_the_user() } else { entry };
            let began = times.iter().flatten().next().map_or(0, |time| time.millis());
            entries.push(section, began, one_line(&entry).as_bytes())
        };
        let mut sorted = records.sorted()?;
        let (mut stored, mut current, mut group) = (Vec::new(), None, Vec::new());
        while let Some(key) = sorted.next_into(&mut stored)? {
            if current.replace(key.group) != Some(key.group) && !group.is_empty() {
                finish(std::mem::take(&mut group))?;
            }
            let Some((kind, rest)) = stored.split_first() else { continue };
            let Some((file, object)) = rest.split_first_chunk() else { continue };
            let object = std::str::from_utf8(object).map_err(io::Error::other)?;
            group.push(Line {
                time: (key.time != 0).then(|| UnixTime::from_millis(key.time)),
                source: if kind & 1 == 0 { Source::AccessLog } else { Source::AuditLine },
                file: u32::from_le_bytes(*file),
                is_unique: kind & 2 != 0,
                object: object.to_owned(),
                repetition: None,
            });
        }
        if !group.is_empty() {
            finish(group)?;
        }
        let totals = if selection.for_the_user { totals.for_the_user() } else { totals };
        let entries = entries.sorted()?;
        Ok(Report { entries, totals, lines, configurations, record: Vec::new() })
    }
}

/// Both logs have the same revocation, at slightly different times, and perhaps only one says who
/// sent it. A caller may use an id again later, so only lines that are close to each other are one
/// revocation.
fn each_once(revocations: BTreeSet<ByNames>) -> Vec<ByNames> {
    let mut all: Vec<_> = revocations.into_iter().collect();
    all.sort_by_key(|one| (one.time.is_none(), one.time));
    let mut kept: Vec<ByNames> = Vec::new();
    let mut last: BTreeMap<ByNames, usize> = BTreeMap::new();
    for one in all {
        let index = last.get(&one.identity()).copied();
        let is_close = |kept: &&mut ByNames| match (kept.time, one.time) {
            (Some(earlier), Some(later)) => later.since(earlier) <= SAME,
            _ => true,
        };
        match index.and_then(|index| kept.get_mut(index)).filter(is_close) {
            Some(kept) => {
                kept.by = kept.by.take().or(one.by);
                kept.event_type = kept.event_type.take().or(one.event_type);
            }
            None => {
                last.insert(one.identity(), kept.len());
                kept.push(one);
            }
        }
    }
    kept
}

/// The entries, in order, with their totals.
#[derive(Debug)]
pub(super) struct Report {
    entries: Sorted,
    pub(super) totals: Totals,
    pub(super) lines: Lines,
    pub(super) configurations: Vec<Value>,
    record: Vec<u8>,
}

impl Report {
    /// Returns the next entry: impersonations by the time of their first request, then requests
    /// that belong to none.
    pub(super) fn next_entry(&mut self) -> io::Result<Option<Kept<'_>>> {
        let next = self.entries.next_into(&mut self.record)?;
        let json = &self.record;
        Ok(next.map(|key| Kept { is_impersonation: key.group == IMPERSONATIONS, json }))
    }
}
