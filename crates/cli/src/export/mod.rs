//! `export`: writes the events of the logs in the schema that a SIEM knows.
//!
//! The logs are read once, as a stream without end, and memory is constant. Each line of output is
//! one event, in the order of the input. Each member of a log line has its place in the event: what
//! the schema has no field for keeps its name, below `impersonation` or `unmapped`.

mod ecs;
mod event;
mod ocsf;
mod seal;
#[cfg(test)]
mod shippers;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use impersonation_core::one_line;
use impersonation_core::time::UnixTime;
use jiff::tz::Offset;

use super::{Failure, Verdict, open};
use crate::logs::input::{Found, scan};
use crate::logs::line::{Kind, Source, records};
use crate::logs::when;
use event::Event;
use seal::{Output, Sealer, Shared, locked, now};

/// Writes who did what as whom in the schema of a SIEM, one event on each line.
///
///     impersonation-filter export --format ecs envoy.log access.log > events.ndjson
///     tail -F envoy.log | impersonation-filter export --format ocsf --seal seal.jwk
///
/// Reads the access log of envoy.yaml and audit lines, in any order and mixed. Events come from
/// audit lines. Calls come from access-log lines; where there are none, from the guard's lines.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The logs; `-` is standard input.
    #[arg(default_value = "-")]
    logs: Vec<PathBuf>,
    /// The schema of the events.
    #[arg(long, value_enum)]
    format: Format,
    /// Adds signed checkpoints: after each thousand lines, at the end of each hour, and at the end.
    /// The file has the private key, as `keygen --out` writes it. `verify` checks them.
    #[arg(long, value_name = "KEY")]
    seal: Option<PathBuf>,
    /// The name of the log in the checkpoints. The default is the name of the first file.
    #[arg(long, value_name = "NAME", requires = "seal")]
    log_name: Option<String>,
    /// The offset from UTC of the times in Envoy's own log, which have none.
    #[arg(long, default_value = "Z", value_parser = when::offset, allow_hyphen_values = true)]
    log_offset: Offset,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// The Elastic Common Schema, version 9.
    Ecs,
    /// The Open Cybersecurity Schema Framework, version 1.8.
    Ocsf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let sealer = arguments.seal.as_deref().map(|key| Sealer::new(key, log_name(arguments)));
    let output = Output::new(io::stdout(), sealer.transpose()?).shared();
    match write(arguments, &output) {
        // The reader has seen enough.
        Err(Problem::Written(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(Problem::Written(error)) => return Err(error.into()),
        Err(Problem::Read(log, error)) => return Err(Failure::new(log.display(), error)),
        Ok(()) => {}
    }
    Ok(Verdict::Fine)
}

/// The side on which the events could not be copied.
enum Problem {
    Read(PathBuf, io::Error),
    Written(io::Error),
}

fn write(arguments: &Arguments, output: &Shared<io::Stdout>) -> Result<(), Problem> {
    let mut has_access_log = arguments.logs.iter().any(|log| is_access_log(log, arguments));
    // The time of a line that has none is that of the line before.
    let mut time = UnixTime::from_millis(0);
    for log in &arguments.logs {
        let failed = |error| Problem::Read(log.clone(), error);
        let input = Flushing { input: open(log).map_err(failed)?, output: Arc::clone(output) };
        let mut written = Ok(());
        let read = scan(input, |found| {
            let Found::Line(line) = found else { return Ok(()) };
            let outcome = records(line, arguments.log_offset, |record, object| {
                has_access_log |= record.source == Source::AccessLog;
                time = record.time.unwrap_or(time);
                let is_told = match (record.kind, record.source) {
                    (Kind::Call, Source::AccessLog) => true,
                    (Kind::Call, Source::AuditLine) => !has_access_log,
                    (Kind::Event | Kind::Alarm, source) => source == Source::AuditLine,
                };
                if !is_told {
                    return Ok(());
                }
                let Some(event) = Event::new(record, object, time) else { return Ok(()) };
                let event = match arguments.format {
                    Format::Ecs => ecs::event(event),
                    Format::Ocsf => ocsf::event(event),
                };
                locked(output).line(one_line(&event), now())
            });
            written = outcome.map(drop);
            // The error itself is kept, because `scan` has errors of its own.
            if written.is_err() { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        });
        written.map_err(Problem::Written)?;
        read.map_err(failed)?;
    }
    locked(output).end(now()).map_err(Problem::Written)
}

/// Returns true if a file has a line of an access log. A pipe shows it when it has come.
fn is_access_log(log: &Path, arguments: &Arguments) -> bool {
    let file = File::open(log).ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()));
    let mut has_found = false;
    let looked = file.map(|file| {
        scan(file, |found| {
            let Found::Line(line) = found else { return Ok(()) };
            records(line, arguments.log_offset, |record, _| {
                has_found |= record.source == Source::AccessLog;
                Ok(())
            })?
            .ok();
            // Enough was read.
            if has_found { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        })
    });
    drop(looked);
    has_found
}

fn log_name(arguments: &Arguments) -> String {
    let named = arguments.log_name.clone();
    let first = || arguments.logs.first().map(|log| log.display().to_string());
    named.or_else(first).unwrap_or_default()
}

/// Writes what there is before it waits for more.
struct Flushing<R> {
    input: R,
    output: Shared<io::Stdout>,
}

impl<R: Read> Read for Flushing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Another line, or the end, meets the same error.
        drop(locked(&self.output).flush());
        self.input.read(into)
    }
}
