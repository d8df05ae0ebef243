//! Sorts more records than fit into memory.
//!
//! Lines of one impersonation stand anywhere in the logs, and a pipe can be read only once. So all
//! records that may matter are sorted by their impersonation: in memory while they fit, or else
//! in runs that are written to a temporary file and merged. Memory is bounded by the budget, and
//! by one buffer for each run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::rc::Rc;

/// The name of the temporary file in errors.
pub(super) const FILE: &str = "the temporary file of the report";

/// The bytes of records that are kept in memory.
pub(super) const BUDGET: usize = 32 << 20;

/// The bytes that the merge reads ahead in each run.
const READ_AHEAD: usize = 64 << 10;

/// The order of the records. The number of the record makes it stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) group: u128,
    pub(super) time: u64,
    number: u64,
}

/// A record in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    key: Key,
    start: usize,
    end: usize,
}

#[derive(Debug)]
pub(super) struct Sorter {
    budget: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    number: u64,
    spill: Option<Spill>,
}

/// The temporary file, and where each run ends in it.
#[derive(Debug)]
struct Spill {
    file: BufWriter<File>,
    ends: Vec<u64>,
}

impl Sorter {
    pub(super) fn new(budget: usize) -> Self {
        // The kernel provides a page of memory when it is first written to, so reserving costs
        // nothing. The records then never move while they grow in number.
        let bytes = Vec::with_capacity(budget);
        Self { budget, bytes, places: Vec::new(), number: 0, spill: None }
    }

    pub(super) fn push(&mut self, group: u128, time: u64, record: &[u8]) -> io::Result<()> {
        let held = self.places.len().saturating_mul(size_of::<Place>());
        let needed = held.saturating_add(self.bytes.len()).saturating_add(record.len());
        if needed > self.budget && !self.places.is_empty() {
            self.spill()?;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        let key = Key { group, time, number: self.number };
        self.number = self.number.saturating_add(1);
        self.places.push(Place { key, start, end: self.bytes.len() });
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.places.sort_unstable_by_key(|place| place.key);
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => {
                let file = BufWriter::with_capacity(READ_AHEAD, nameless(&std::env::temp_dir())?);
                none.insert(Spill { file, ends: Vec::new() })
            }
        };
        for place in &self.places {
            let Some(record) = self.bytes.get(place.start..place.end) else { continue };
            let Key { group, time, number } = place.key;
            spill.file.write_all(&group.to_le_bytes())?;
            spill.file.write_all(&time.to_le_bytes())?;
            spill.file.write_all(&number.to_le_bytes())?;
            let length = u64::try_from(record.len()).map_err(io::Error::other)?;
            spill.file.write_all(&length.to_le_bytes())?;
            spill.file.write_all(record)?;
        }
        spill.ends.push(spill.file.stream_position()?);
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    /// Returns the records in order.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        if self.spill.is_some() {
            self.spill()?;
        }
        let Some(Spill { file, ends }) = self.spill else {
            self.places.sort_unstable_by_key(|place| Reverse(place.key));
            return Ok(Sorted::Held { bytes: self.bytes, places: self.places });
        };
        drop((self.bytes, self.places));
        let file = Rc::new(file.into_inner().map_err(io::IntoInnerError::into_error)?);
        let mut merge = Merge {
            runs: Vec::with_capacity(ends.len()),
            next: BinaryHeap::with_capacity(ends.len()),
        };
        let mut start = 0;
        for (index, end) in ends.into_iter().enumerate() {
            let mut run =
                Run { file: Rc::clone(&file), position: start, end, buffer: Vec::new(), read: 0 };
            if let Some((key, length)) = run.head()? {
                merge.next.push(Reverse((key, index, length)));
            }
            merge.runs.push(run);
            start = end;
        }
        Ok(Sorted::Spilled(merge))
    }
}

/// Makes a file that only this process can reach, and that is gone when the process ends.
fn nameless(folder: &Path) -> io::Result<File> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = folder.join(format!("impersonation-report-{:016x}", u64::from_le_bytes(random)));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[derive(Debug)]
pub(super) enum Sorted {
    /// All records are in memory; the next one is the last of `places`.
    Held {
        bytes: Vec<u8>,
        places: Vec<Place>,
    },
    Spilled(Merge),
}

impl Sorted {
    /// Puts the next record into `record` and returns its key.
    pub(super) fn next_into(&mut self, record: &mut Vec<u8>) -> io::Result<Option<Key>> {
        record.clear();
        match self {
            Self::Held { bytes, places } => Ok(places.pop().map(|Place { key, start, end }| {
                record.extend_from_slice(bytes.get(start..end).unwrap_or_default());
                key
            })),
            Self::Spilled(merge) => merge.next_into(record),
        }
    }
}

#[derive(Debug)]
pub(super) struct Merge {
    runs: Vec<Run>,
    /// The key of the next record of each run, with the run's index and the record's length.
    next: BinaryHeap<Reverse<(Key, usize, usize)>>,
}

impl Merge {
    fn next_into(&mut self, record: &mut Vec<u8>) -> io::Result<Option<Key>> {
        let Some(Reverse((key, index, length))) = self.next.pop() else { return Ok(None) };
        let Some(run) = self.runs.get_mut(index) else { return Ok(None) };
        record.extend_from_slice(run.take(length)?);
        if let Some((key, length)) = run.head()? {
            self.next.push(Reverse((key, index, length)));
        }
        Ok(Some(key))
    }
}

/// One sorted run in the temporary file.
#[derive(Debug)]
struct Run {
    file: Rc<File>,
    /// The bytes of the file between `position` and `end` are not in the buffer yet.
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer before `read` were taken.
    read: usize,
}

impl Run {
    /// Reads the key and the length of the next record.
    fn head(&mut self) -> io::Result<Option<(Key, usize)>> {
        if self.position == self.end && self.read == self.buffer.len() {
            return Ok(None);
        }
        let mut head = self.take(40)?;
        let mut word = || {
            let (word, rest) = head.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
            head = rest;
            io::Result::Ok(u64::from_le_bytes(*word))
        };
        let group = u128::from(word()?) | u128::from(word()?) << 64;
        let key = Key { group, time: word()?, number: word()? };
        Ok(Some((key, usize::try_from(word()?).map_err(io::Error::other)?)))
    }

    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let wanted = self.read.saturating_add(length);
        if wanted > self.buffer.len() {
            self.buffer.drain(..self.read);
            self.read = 0;
            let missing = length.saturating_sub(self.buffer.len()).max(READ_AHEAD);
            let ahead = u64::try_from(missing).unwrap_or(u64::MAX);
            let ahead = ahead.min(self.end.saturating_sub(self.position));
            let mut file = &*self.file;
            file.seek(SeekFrom::Start(self.position))?;
            let got = file.take(ahead).read_to_end(&mut self.buffer)?;
            self.position = self.position.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        }
        let end = self.read.saturating_add(length);
        let taken = self.buffer.get(self.read..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.read = end;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drained(mut sorted: Sorted) -> Vec<(u128, u64, Vec<u8>)> {
        let (mut all, mut record) = (Vec::new(), Vec::new());
        while let Some(key) = sorted.next_into(&mut record).unwrap() {
            all.push((key.group, key.time, record.clone()));
        }
        all
    }

    proptest! {
        #[test]
        fn records_are_sorted_whatever_the_budget(
            records in prop::collection::vec((0..9_u128, 0..9_u64, prop::collection::vec(any::<u8>(), 0..40)), 0..200),
            budget in 0..4000_usize,
        ) {
            let mut sorter = Sorter::new(budget);
            for (group, time, record) in &records {
                sorter.push(*group, *time, record).unwrap();
            }
            let mut expected = records;
            expected.sort_by_key(|(group, time, _)| (*group, *time));
            prop_assert_eq!(drained(sorter.sorted().unwrap()), expected);
        }
    }

    #[test]
    fn a_record_may_be_longer_than_what_is_read_ahead() {
        let long = vec![7; READ_AHEAD * 3 + 1];
        let mut sorter = Sorter::new(10);
        for group in [3, 1, 2] {
            sorter.push(group, 0, &long).unwrap();
            sorter.push(group, 1, b"short").unwrap();
        }
        let drained = drained(sorter.sorted().unwrap());
        let lengths: Vec<_> =
            drained.iter().map(|(group, _, record)| (*group, record.len())).collect();
        let n = long.len();
        assert_eq!(lengths, [(1, n), (1, 5), (2, n), (2, 5), (3, n), (3, 5)]);
    }
}
