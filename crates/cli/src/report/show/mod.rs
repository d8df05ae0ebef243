//! Writes a report for people or for programs, entry by entry, so that a report of any length needs
//! no memory.

mod csv;
mod html;
mod text;
mod words;

use std::io::{self, Write};

use impersonation_core::one_line;

use super::entry::{Kept, Lines, Totals};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Html,
    Json,
    Csv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    Auditors,
    User,
}

/// The part of the report that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Start,
    Impersonations,
    OtherRequests,
}

/// A report that is being written.
pub(super) struct Show<'w> {
    form: Form,
    readers: Readers,
    out: &'w mut dyn Write,
    part: Part,
}

impl<'w> Show<'w> {
    pub(super) fn begin(form: Form, readers: Readers, out: &'w mut dyn Write) -> io::Result<Self> {
        match form {
            Form::Text => {}
            Form::Html => html::begin(out, readers)?,
            Form::Json => out.write_all(b"{\"impersonations\":[")?,
            Form::Csv => csv::begin(out)?,
        }
        Ok(Self { form, readers, out, part: Part::Start })
    }

    /// Writes one entry. Impersonations come first.
    pub(super) fn entry(&mut self, kept: &Kept<'_>) -> io::Result<()> {
        let part = if kept.is_impersonation { Part::Impersonations } else { Part::OtherRequests };
        let is_first = self.part != part;
        if part == Part::OtherRequests && is_first {
            match self.form {
                Form::Text => text::other_requests(self.out)?,
                Form::Html => html::other_requests(self.out)?,
                Form::Json => self.out.write_all(b"\n],\"otherRequests\":[")?,
                Form::Csv => {}
            }
        }
        self.part = part;
        match self.form {
            Form::Text => text::entry(self.out, &kept.entry()?, self.readers),
            Form::Html => html::entry(self.out, &kept.entry()?, self.readers),
            Form::Json => {
                self.out.write_all(if is_first { b"\n" } else { b",\n" })?;
                self.out.write_all(kept.json)
            }
            Form::Csv => csv::entry(self.out, &kept.entry()?),
        }
    }

    pub(super) fn end(self, totals: &Totals, lines: &Lines) -> io::Result<()> {
        let Self { form, readers, out, part } = self;
        match form {
            Form::Text => text::end(out, totals, lines, readers, part == Part::Start),
            Form::Html => html::end(out, totals, lines, readers, part),
            Form::Json => {
                if part != Part::OtherRequests {
                    out.write_all(b"\n],\"otherRequests\":[")?;
                }
                write!(out, "\n],\"totals\":{}", one_line(totals))?;
                if readers == Readers::Auditors {
                    write!(out, ",\"lines\":{}", one_line(lines))?;
                }
                out.write_all(b"}\n")
            }
            Form::Csv => Ok(()),
        }
    }
}

/// Says what was read, and what could not be.
pub(super) fn lines(lines: &Lines) -> String {
    words::lines(lines).into_iter().map(|line| format!("{line}\n")).collect()
}
