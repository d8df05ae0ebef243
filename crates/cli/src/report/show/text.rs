//! A report as text, for a terminal or a mail.

use std::io::{self, Write};

use super::super::entry::{Entry, Lines, Totals};
use super::{Readers, words};

pub(super) fn entry(out: &mut dyn Write, entry: &Entry, readers: Readers) -> io::Result<()> {
    if let Some(id) = &entry.id {
        let title = if readers == Readers::User { "Reference" } else { "Impersonation" };
        writeln!(out, "{title} {}", crate::display::escaped(id))?;
        for line in words::about(entry, readers) {
            writeln!(out, "  {line}")?;
        }
    }
    let parties = if entry.id.is_none() { words::parties(entry) } else { String::new() };
    for step in &entry.steps {
        let time = step.time.as_deref().unwrap_or("-");
        let status = step.status.as_deref().unwrap_or("-");
        let (request, said) = words::request(step, readers);
        let rest = [request, said, parties.clone()];
        let rest: Vec<_> = rest.into_iter().filter(|part| !part.is_empty()).collect();
        let what = words::what(step.what, readers);
        let (time, status) = (crate::display::escaped(time), crate::display::escaped(status));
        let line = format!("    {time:<24}  {what:<13}  {status:>3}  {}", rest.join("  "));
        writeln!(out, "{}", line.trim_end())?;
    }
    if entry.id.is_some() {
        writeln!(out, "  {}\n", calls(entry))?;
    }
    Ok(())
}

fn calls(entry: &Entry) -> String {
    let calls = match entry.calls {
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    };
    match entry.refused_calls {
        0 => format!("{calls}."),
        refused => format!("{calls}, {refused} refused."),
    }
}

pub(super) fn other_requests(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Requests that belong to no impersonation")
}

pub(super) fn end(
    out: &mut dyn Write,
    totals: &Totals,
    lines: &Lines,
    readers: Readers,
    empty: bool,
) -> io::Result<()> {
    if empty {
        writeln!(out, "{}", words::nothing(lines))?;
    }
    writeln!(out, "\nTotals")?;
    for (name, count) in words::totals(totals, readers) {
        writeln!(out, "  {count:>12}  {name}")?;
    }
    if readers == Readers::Auditors {
        writeln!(out)?;
        for line in words::lines(lines) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
