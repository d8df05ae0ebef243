//! `check`: everything that is wrong with a configuration, before Envoy sees it.
//!
//! A plugin configuration is read by the same code as in the filter. Around it, in an Envoy
//! configuration, are the settings with which the filter would hang, or would let requests through
//! when it fails: Envoy accepts them all, so somebody has to say so.

mod deployment;
mod etcd;
mod guard;
mod manifest;
mod plugin;
mod tree;
mod yaml;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use impersonation_core::config;
use serde_json::Value;

use self::plugin::{Assume, Variables};
use self::tree::Place;
use super::{Failure, Verdict};

/// Reports every problem of a plugin configuration, or of an Envoy configuration with the plugin in it:
/// a bootstrap file, a discovery response on disk, manifests for Istio or Envoy Gateway.
///
/// Exit status: 0 valid, 1 problems, 2 nothing was checked.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// YAML or JSON; - for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Take environment variables that are not set here for set, and for valid.
    #[arg(long)]
    assume_environment: bool,
    /// End with status 1 for warnings too.
    #[arg(long)]
    deny_warnings: bool,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// It must not go into production like this.
    Problem,
    /// It works, but is probably not meant.
    Warning,
}

/// Something to tell the operator.
#[derive(Debug)]
struct Finding {
    severity: Severity,
    path: String,
    text: String,
}

/// What was found in one file.
#[derive(Debug, Default)]
struct Findings {
    findings: Vec<Finding>,
    /// Lines by path, where they are known.
    lines: HashMap<String, usize>,
}

impl Findings {
    fn problem(&mut self, path: impl Into<String>, text: impl Into<String>) {
        let (path, text) = (path.into(), text.into());
        self.findings.push(Finding { severity: Severity::Problem, path, text });
    }

    fn warning(&mut self, path: impl Into<String>, text: impl Into<String>) {
        let (path, text) = (path.into(), text.into());
        self.findings.push(Finding { severity: Severity::Warning, path, text });
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// The line of a path, or of the nearest thing around it that is in the file.
    fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rfind(['.', '[']).and_then(|end| path.get(..end))?;
        }
    }

    fn print(&self, file: &str, out: &mut impl io::Write) -> io::Result<()> {
        let mut findings: Vec<_> =
            self.findings.iter().map(|finding| (self.line(&finding.path), finding)).collect();
        findings.sort_by_key(|(line, _)| *line);
        for (line, finding) in findings {
            match line {
                Some(line) => write!(out, "{file}:{line}: ")?,
                None => write!(out, "{file}: ")?,
            }
            if finding.severity == Severity::Warning {
                out.write_all(b"warning: ")?;
            }
            if !finding.path.is_empty() {
                write!(out, "{}: ", finding.path)?;
            }
            writeln!(out, "{}", finding.text)?;
        }
        let problems = self.count(Severity::Problem);
        let warnings = self.count(Severity::Warning);
        match (problems, warnings) {
            (0, 0) => writeln!(out, "{file}: valid"),
            (0, _) => writeln!(out, "{file}: valid, {}", Counted(warnings, "warning")),
            (_, 0) => writeln!(out, "{file}: {}", Counted(problems, "problem")),
            _ => {
                let warnings = Counted(warnings, "warning");
                writeln!(out, "{file}: {}, {warnings}", Counted(problems, "problem"))
            }
        }
    }
}

/// `1 problem`, `2 problems`.
struct Counted(usize, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        write!(formatter, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let assume =
        if arguments.assume_environment { Assume::UnsetVariables } else { Assume::Nothing };
    let mut verdict = Verdict::Fine;
    let mut out = io::stdout().lock();
    for file in &arguments.files {
        let text = read(file)?;
        let findings = check(&text, written_in(file, &text), assume);
        findings.print(&file.display().to_string(), &mut out)?;
        let warnings = findings.count(Severity::Warning);
        if findings.count(Severity::Problem) > 0 || arguments.deny_warnings && warnings > 0 {
            verdict = Verdict::Problems;
        }
    }
    Ok(verdict)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = super::open(file).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| Failure::new(file.display(), error))?;
    Ok(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Json,
    Yaml,
}

/// Envoy goes by the file's name. Of others, what parses as JSON is JSON.
fn written_in(file: &Path, text: &[u8]) -> Syntax {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Syntax::Json,
        Some("yaml" | "yml") => Syntax::Yaml,
        _ if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() => Syntax::Json,
        _ => Syntax::Yaml,
    }
}

fn check(text: &[u8], syntax: Syntax, assume: Assume) -> Findings {
    let mut findings = Findings::default();
    let Some(value) = parse(text, syntax, &mut findings) else { return findings };
    let root = Place::root(&value);
    if manifest::is_manifest(&root) {
        manifest::check(&root, assume, &mut findings);
    } else if deployment::is_envoy(&root) {
        deployment::check(&root, assume, &mut findings);
    } else {
        plugin::check(&root, &Variables::OfThisProcess, assume, &mut findings);
    }
    findings
}

fn parse(text: &[u8], syntax: Syntax, findings: &mut Findings) -> Option<Value> {
    match syntax {
        Syntax::Json => {
            config::decode(text).map_err(|error| findings.problem("", error.to_string())).ok()
        }
        Syntax::Yaml => {
            let Ok(text) = std::str::from_utf8(text) else {
                findings.problem("", "not UTF-8");
                return None;
            };
            let document = match yaml::read(text) {
                Ok(document) if manifest::is_manifest(&Place::root(&document.value)) => {
                    yaml::read_all(text)
                }
                document => document,
            };
            match document {
                Ok(document) => {
                    findings.lines = document.lines;
                    for surprise in document.surprises {
                        findings.problem(surprise.path, surprise.text);
                    }
                    Some(document.value)
                }
                Err(error) => {
                    findings.lines.insert(String::new(), error.line);
                    findings.problem("", format!("not valid YAML: {}", error.text));
                    None
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_change_to_a_configuration_makes_it_panic(
            edits in prop::collection::vec((any::<Index>(), "[ -~\n]{0,3}"), 1..8)
        ) {
            let mut text = include_str!("../../../../envoy.yaml").to_owned();
            for (index, new) in edits {
                let (at, old) = *index.get(&text.char_indices().collect::<Vec<_>>());
                text.replace_range(at..at.saturating_add(old.len_utf8()), &new);
            }
            for syntax in [Syntax::Yaml, Syntax::Json] {
                let mut out = Vec::new();
                let findings = check(text.as_bytes(), syntax, Assume::UnsetVariables);
                findings.print("envoy.yaml", &mut out).unwrap();
                prop_assert!(out.ends_with(b"\n"));
            }
        }
    }
}
