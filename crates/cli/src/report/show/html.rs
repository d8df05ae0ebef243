//! A report as one page without scripts, for the screen and for paper.

use std::io::{self, Write};

use super::super::entry::{Entry, Lines, Step, Totals};
use super::{Part, Readers, words};
use crate::display::escaped;
use crate::logs::line::Outcome;

/// The page may load nothing and run nothing, even if an escape were missing.
const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Impersonations</title>
<style>
:root { color-scheme: light dark; --line: #d5d9de; --quiet: #5b6570; --bad: #a1260d; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4149; --quiet: #9aa4ae; --bad: #ff9d85; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.05rem; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere; }
p { margin: 0; overflow-wrap: anywhere; }
p.quiet, th { color: var(--quiet); }
table { border-collapse: collapse; width: 100%; margin: .75rem 0; font-size: .875rem; }
th { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; vertical-align: top; overflow-wrap: anywhere; unicode-bidi: isolate; }
td.time, td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.number, th.number { text-align: right; }
table.totals { width: auto; }
.refused { color: var(--bad); font-weight: 600; }
thead { display: table-header-group; }
tr { break-inside: avoid; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } h2 { break-after: avoid; } }
</style>
</head>
<body>
<main>
"#;

const COLUMNS: &str = "<table>\n<thead><tr><th scope=\"col\">Time</th><th scope=\"col\">Step</th>\
    <th scope=\"col\" class=\"number\">Status</th><th scope=\"col\">Request</th><th scope=\"col\">Details</th></tr></thead>\n<tbody>\n";

pub(super) fn begin(out: &mut dyn Write, readers: Readers) -> io::Result<()> {
    let title = match readers {
        Readers::Auditors => "Impersonations",
        Readers::User => "Who acted in your name",
    };
    writeln!(out, "{HEAD}<h1>{title}</h1>")?;
    writeln!(out, "<p class=\"quiet\">All times are UTC.</p>")
}

pub(super) fn entry(out: &mut dyn Write, entry: &Entry, readers: Readers) -> io::Result<()> {
    let Some(id) = &entry.id else {
        let parties = words::parties(entry);
        return entry.steps.iter().try_for_each(|step| row(out, step, readers, &parties));
    };
    let title = if readers == Readers::User { "Reference" } else { "Impersonation" };
    writeln!(out, "<section>\n<h2>{title} <bdi>{}</bdi></h2>", markup(&escaped(id)))?;
    for line in words::about(entry, readers) {
        writeln!(out, "<p>{}</p>", markup(&line))?;
    }
    out.write_all(COLUMNS.as_bytes())?;
    entry.steps.iter().try_for_each(|step| row(out, step, readers, ""))?;
    writeln!(out, "</tbody>\n</table>")?;
    writeln!(
        out,
        "<p class=\"quiet\">Calls: {}. Refused: {}.</p>\n</section>",
        entry.calls, entry.refused_calls
    )
}

fn row(out: &mut dyn Write, step: &Step, readers: Readers, parties: &str) -> io::Result<()> {
    let cell = |text: Option<&str>| markup(&escaped(text.unwrap_or_default()));
    let (request, said) = words::request(step, readers);
    let said = [said, parties.to_owned()];
    let said = said.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let class = match step.outcome {
        Outcome::Refused | Outcome::CutOff | Outcome::Unguarded => " class=\"refused\"",
        Outcome::Done | Outcome::Reported => "",
    };
    writeln!(
        out,
        "<tr><td class=\"time\">{}</td><td>{}</td><td class=\"number\">{}</td><td>{}</td><td{class}>{}</td></tr>",
        cell(step.time.as_deref()),
        words::what(step.what, readers),
        cell(step.status.as_deref()),
        markup(&request),
        markup(&said),
    )
}

pub(super) fn other_requests(out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<section>\n<h2>Requests that belong to no impersonation</h2>\n{COLUMNS}")
}

pub(super) fn end(
    out: &mut dyn Write,
    totals: &Totals,
    lines: &Lines,
    readers: Readers,
    part: Part,
) -> io::Result<()> {
    match part {
        Part::Start => writeln!(out, "<p>{}</p>", words::nothing(lines))?,
        Part::Impersonations => {}
        Part::OtherRequests => writeln!(out, "</tbody>\n</table>\n</section>")?,
    }
    writeln!(out, "<section>\n<h2>Totals</h2>\n<table class=\"totals\">\n<tbody>")?;
    for (name, count) in words::totals(totals, readers) {
        writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{count}</td></tr>",
            markup(&name)
        )?;
    }
    writeln!(out, "</tbody>\n</table>")?;
    if readers == Readers::Auditors {
        for line in words::lines(lines) {
            writeln!(out, "<p class=\"quiet\">{line}</p>")?;
        }
    }
    writeln!(out, "</section>\n</main>\n</body>\n</html>")
}

/// Makes text of what may be markup.
fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}
