//! `report`: says who did what as whom, from the logs.
//!
//! The logs are read once, as a stream, because they may come from a pipe. Lines that may matter
//! are sorted by impersonation, and then each impersonation is put together by itself. Memory is
//! bounded by the two sorters, by the lines of one impersonation, and by the revocations that name
//! actors, users and so on, which are few.
//!
//! Exit status 0: there is a report, even if nothing was selected. 1: no line is about
//! impersonations. 2: the logs could not be read.

mod assemble;
mod collect;
mod controls;
mod entry;
mod evidence;
mod repetitions;
mod show;
mod sorter;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use impersonation_core::time::UnixTime;
use jiff::tz::Offset;

use super::{Failure, Verdict, open};
use collect::{Collection, Report, Selection};
use evidence::Evidence;
use show::{Form, Readers, Show};

/// The time between two messages about the progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Says who did what as whom, from Envoy's access log and the audit lines.
///
///     impersonation-filter report --user user-42 envoy.log
///     impersonation-filter report --actor agent-1 --since 24h access.log envoy.log
///     impersonation-filter report --txn 0123456789abcdef0123456789ab --html envoy.log > report.html
///     impersonation-filter report --user user-42 --user-facing envoy.log
///     zcat envoy.log.*.gz | impersonation-filter report --since 7d --json
///     impersonation-filter report --controls --since 90d envoy.log
///
/// Reads the access log of envoy.yaml and audit lines, in any order and mixed. An impersonation is
/// selected if one of its requests has all that is asked for, and is shown as a whole. The exit
/// status is 0 if there is a report, even if nothing was selected, 1 if no line is about
/// impersonations, and 2 if the logs could not be read.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(group(ArgGroup::new("form").args(["html", "json", "csv"])))]
#[command(group(ArgGroup::new("whose").args(["txn", "user"]).multiple(true)))]
pub(super) struct Arguments {
    /// The logs; `-` is standard input.
    #[arg(default_value = "-")]
    logs: Vec<PathBuf>,
    /// Only the impersonation with this id: the claim `txn` of its token, and the
    /// `subject_token_id` of the audit log.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    txn: Option<String>,
    /// Only impersonations of this user.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// Only impersonations by this actor.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    actor: Option<String>,
    /// Only impersonations that this backend minted.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    caller: Option<String>,
    /// Only impersonations with a request since this time, or in this time until now: 24h, 7d.
    #[arg(long, value_parser = crate::logs::when::argument)]
    since: Option<UnixTime>,
    /// Only impersonations with a request until this time.
    #[arg(long, value_parser = crate::logs::when::argument)]
    until: Option<UnixTime>,
    /// The offset from UTC of the times in Envoy's own log, which have none.
    #[arg(long, default_value = "Z", value_parser = crate::logs::when::offset, allow_hyphen_values = true)]
    log_offset: Offset,
    /// Writes a page that can be printed.
    #[arg(long)]
    html: bool,
    /// Writes one JSON object with all known facts.
    #[arg(long)]
    json: bool,
    /// Writes one row for each request, for spreadsheets.
    #[arg(long)]
    csv: bool,
    /// Writes the evidence for auditors instead: who could, who did, who approved, what was
    /// refused, what was ended, with counts and gaps. docs/evidence.md has the controls.
    #[arg(long, conflicts_with_all = ["html", "csv", "user_facing"])]
    controls: bool,
    /// Writes what the user may know, without the names of actors, callers and clients. Needs
    /// --user or --txn.
    #[arg(long, requires = "whose")]
    user_facing: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let selection = Selection {
        txn: arguments.txn.clone(),
        user: arguments.user.clone(),
        actor: arguments.actor.clone(),
        caller: arguments.caller.clone(),
        since: arguments.since,
        until: arguments.until,
        for_the_user: arguments.user_facing,
    };
    let mut collection = Collection::new(selection, arguments.log_offset);
    for (log, input) in opened(&arguments.logs)? {
        collection.read(input).map_err(|error| Failure::new(log.display(), error))?;
    }
    let failed = |error| Failure::new(sorter::FILE, error);
    let mut report = collection.assemble().map_err(failed)?;

    match write(arguments, &mut report) {
        // The reader has seen enough.
        Err(Problem::Written(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(Problem::Written(error)) => return Err(error.into()),
        Err(Problem::Read(error)) => return Err(failed(error)),
        Ok(()) => {}
    }
    // The spreadsheet has no place for the counts, and the user need not know them.
    if arguments.csv || arguments.user_facing {
        eprint!("{}", show::lines(&report.lines));
    }
    if report.lines.ours == 0 {
        eprintln!(
            "impersonation-filter: {} lines were read, and none is about impersonations: expected \
             the access log of envoy.yaml, or audit lines (Envoy's log at level info)",
            report.lines.read
        );
        return Ok(Verdict::Problems);
    }
    Ok(Verdict::Fine)
}

/// The side on which a report could not be copied.
enum Problem {
    Read(io::Error),
    Written(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Written(error)
    }
}

fn write(arguments: &Arguments, report: &mut Report) -> Result<(), Problem> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let readers = if arguments.user_facing { Readers::User } else { Readers::Auditors };
    let form = match arguments {
        Arguments { html: true, .. } => Form::Html,
        Arguments { json: true, .. } => Form::Json,
        Arguments { csv: true, .. } => Form::Csv,
        _ => Form::Text,
    };
    if arguments.controls {
        let mut evidence = Evidence::new(std::mem::take(&mut report.configurations));
        while let Some(entry) = report.next_entry().map_err(Problem::Read)? {
            evidence.add(&entry.entry().map_err(Problem::Read)?);
        }
        match form {
            Form::Json => evidence.json(&mut out, &report.totals, &report.lines)?,
            _ => evidence.text(&mut out, &report.totals, &report.lines)?,
        }
        return Ok(out.flush()?);
    }
    let mut shown = Show::begin(form, readers, &mut out)?;
    while let Some(entry) = report.next_entry().map_err(Problem::Read)? {
        shown.entry(&entry)?;
    }
    shown.end(&report.totals, &report.lines)?;
    Ok(out.flush()?)
}

/// Opens all logs before the first is read: a report on half of the logs would look complete.
fn opened(logs: &[PathBuf]) -> Result<Vec<(&Path, Watched)>, Failure> {
    let mut files = Vec::new();
    let mut total = Some(0_u64);
    let mut seen = Vec::new();
    for log in logs {
        let failed = |error| Failure::new(log.display(), error);
        let same =
            if log == Path::new("-") { log.clone() } else { log.canonicalize().map_err(failed)? };
        if seen.contains(&same) {
            return Err(Failure(format!("{}: is named twice", log.display())));
        }
        let file = open(log).map_err(failed)?;
        let size = File::open(&same).and_then(|file| file.metadata()).ok();
        let size = size.filter(std::fs::Metadata::is_file).map(|size| size.len());
        total = total.zip(size).map(|(sum, size)| sum.saturating_add(size));
        seen.push(same);
        files.push((log.as_path(), file));
    }
    let progress = Rc::new(RefCell::new(Progress::new(total)));
    let watched = |(log, input)| (log, Watched { input, progress: Rc::clone(&progress) });
    Ok(files.into_iter().map(watched).collect())
}

/// Shows how much has been read, if somebody looks.
struct Progress {
    total: Option<u64>,
    read: u64,
    next: Instant,
    looks: bool,
    shown: bool,
}

impl Progress {
    fn new(total: Option<u64>) -> Self {
        let looks = io::stderr().is_terminal();
        Self { total, read: 0, next: Instant::now(), looks, shown: false }
    }

    fn add(&mut self, bytes: usize) {
        if !self.looks {
            return;
        }
        self.read = self.read.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now.checked_add(PROGRESS).unwrap_or(now);
        self.shown = true;
        let megabytes = |bytes: u64| bytes / 1_000_000;
        let of = match self.total {
            Some(total) => format!(" of {}", megabytes(total)),
            None => String::new(),
        };
        eprint!("\r\x1b[K{}{of} MB read", megabytes(self.read));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// A log whose bytes count as progress.
struct Watched {
    input: Box<dyn Read>,
    progress: Rc<RefCell<Progress>>,
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.progress.borrow_mut().add(read);
        Ok(read)
    }
}
