//! The findings in one file, and how `check` prints them.

use std::collections::HashMap;
use std::fmt;
use std::io;

use serde_json::Value;

use super::protobuf::Canonical;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// The configuration must not go into production.
    Problem,
    /// The configuration works and is probably a mistake, or it cannot be proved to work.
    Warning,
}

/// A line of the report.
#[derive(Debug)]
struct Finding {
    severity: Severity,
    path: String,
    /// The subject of the line, where it says more than the path: a listener and its routes.
    about: Option<String>,
    text: String,
}

/// A reason why the guard is not proved to stand before a route.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    /// The place of the setting that is wrong.
    pub(super) path: String,
    /// The fault, and how to correct it.
    pub(super) text: String,
}

impl Doubt {
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// A kind of file that holds less than a whole Envoy configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialFile {
    /// The filter's own configuration.
    Filter,
    /// The guard's own configuration.
    Guard,
    Manifests,
}

/// The findings in one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    findings: Vec<Finding>,
    pub(super) proved: Proved,
    /// `None` for an Envoy configuration.
    pub(super) partial: Option<PartialFile>,
    /// The line of each path, for YAML.
    pub(super) lines: HashMap<String, usize>,
}

impl Findings {
    pub(super) fn problem(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.add(Severity::Problem, path, text);
    }

    pub(super) fn warning(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.add(Severity::Warning, path, text);
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        path: impl Into<String>,
        text: impl Into<String>,
    ) {
        let (path, text) = (path.into(), text.into());
        self.findings.push(Finding { severity, path, about: None, text });
    }

    /// Adds a finding whose line begins with `about` instead of its path.
    pub(super) fn add_about(
        &mut self,
        severity: Severity,
        path: String,
        about: String,
        text: String,
    ) {
        self.findings.push(Finding { severity, path, about: Some(about), text });
    }

    /// Keeps the faults and the lines of a file's canonical form, and returns its value.
    pub(super) fn canonical(&mut self, canonical: Canonical) -> Value {
        self.lines = canonical.lines;
        for fault in canonical.faults {
            let is_doubt = fault.is_unknown_type;
            let severity = if is_doubt { Severity::Warning } else { Severity::Problem };
            self.add(severity, fault.path, fault.text);
        }
        canonical.value
    }

    pub(super) fn has(&self, path: &str, text: &str) -> bool {
        self.findings.iter().any(|known| known.path == path && known.text == text)
    }

    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Returns the line of a path, or of the nearest member around it that is in the file.
    fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rfind(['.', '[']).and_then(|end| path.get(..end))?;
        }
    }

    pub(super) fn print(&self, file: &str, out: &mut impl io::Write) -> io::Result<()> {
        let mut findings: Vec<_> =
            self.findings.iter().map(|finding| (self.line(&finding.path), finding)).collect();
        findings.sort_by_key(|(line, finding)| (finding.severity, *line));
        for (line, finding) in findings {
            match line {
                Some(line) => write!(out, "{file}:{line}: ")?,
                None => write!(out, "{file}: ")?,
            }
            if finding.severity == Severity::Warning {
                out.write_all(b"warning: ")?;
            }
            match (&finding.about, &*finding.path, line) {
                (Some(about), _, Some(_)) | (Some(about), "", None) => {
                    writeln!(out, "{about}: {}", finding.text)?;
                }
                // In JSON the path says where the finding is, because lines are not known.
                (Some(about), path, None) => writeln!(out, "{about}: {} ({path})", finding.text)?,
                (None, "", _) => writeln!(out, "{}", finding.text)?,
                (None, path, _) => writeln!(out, "{path}: {}", finding.text)?,
            }
        }
        let problems = self.count(Severity::Problem);
        let warnings = self.count(Severity::Warning);
        match (problems, warnings) {
            (0, 0) => write!(out, "{file}: valid")?,
            (0, _) => write!(out, "{file}: valid, {}", Counted(warnings, "warning"))?,
            (_, 0) => write!(out, "{file}: {}", Counted(problems, "problem"))?,
            _ => {
                let warnings = Counted(warnings, "warning");
                write!(out, "{file}: {}, {warnings}", Counted(problems, "problem"))?;
            }
        }
        writeln!(out, "{}", self.extent())
    }

    /// Returns the number of proved routes as text, or the reason why there is no proof.
    fn extent(&self) -> String {
        let Proved { routes, guarded } = self.proved;
        match (self.partial, routes) {
            (Some(PartialFile::Filter), _) => "; it is the filter's own configuration, and where Envoy has the filter is not in it".into(),
            (Some(PartialFile::Guard), _) => "; it is the guard's own configuration, and where Envoy has the guard is not in it".into(),
            (Some(PartialFile::Manifests), _) => "; which routes lead past the guard is not in manifests".into(),
            (None, 0) => String::new(),
            (None, _) => format!("; the guard stands before {guarded} of {}", Counted(routes, "route to APIs")),
        }
    }
}

/// `1 problem`, `2 problems`.
struct Counted(usize, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        let (noun, rest) = what.split_at(what.find(' ').unwrap_or(what.len()));
        write!(formatter, "{count} {noun}{}{rest}", if *count == 1 { "" } else { "s" })
    }
}

/// The routes that were looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proved {
    /// Routes that lead to guarded APIs.
    pub(super) routes: usize,
    /// Routes that are proved to have the guard before them.
    pub(super) guarded: usize,
}
