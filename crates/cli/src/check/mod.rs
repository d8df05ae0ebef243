//! `check`: everything that is wrong with a configuration, before Envoy sees it.
//!
//! A plugin configuration is read by the same code as in the filter. Around it, in an Envoy configuration, are settings
//! with which the filter would hang, or would let requests through when it fails: Envoy accepts them all. And there are
//! routes to APIs, of which each is proved to have the guard before it, or named.

mod clusters;
mod demo;
mod envoy;
mod etcd;
mod guard;
mod jwt_authn;
mod manager;
mod manifest;
mod plugin;
mod proof;
mod reached;
mod routing;
mod rules;
mod shape;
mod topology;
mod tree;
mod wasm;
mod yaml;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use impersonation_core::config;
use serde_json::Value;

use self::plugin::{Assume, Variables};
use self::proof::Proved;
use self::tree::Place;
use super::{Failure, Verdict};

/// Reports every problem of a plugin configuration, or of an Envoy configuration with the plugin in it:
/// a bootstrap file, a discovery response on disk, manifests for Istio or Envoy Gateway.
///
/// In an Envoy configuration it proves for every route to a guarded API that impersonations meet the guard there.
/// What it cannot prove is a warning.
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
    /// Take warnings for problems: end with status 1 where anything is not certain.
    #[arg(long)]
    strict: bool,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// It must not go into production like this.
    Problem,
    /// It works, but is probably not meant; or nobody knows whether it does.
    Warning,
}

/// Something to tell the operator.
#[derive(Debug)]
struct Finding {
    severity: Severity,
    path: String,
    /// What it is about, where that says more than the path: a listener and its routes.
    about: Option<String>,
    text: String,
}

/// Something that stands in the way of a proof.
#[derive(Debug, Clone)]
struct Doubt {
    /// Where it is.
    path: String,
    /// What it is, and what to do about it.
    text: String,
}

impl Doubt {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// What kind of file was checked, where it holds less than an Envoy configuration does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    Filter,
    Guard,
    Manifests,
}

/// What was found in one file.
#[derive(Debug, Default)]
struct Findings {
    findings: Vec<Finding>,
    proved: Proved,
    alone: Option<Alone>,
    /// Lines by path, where they are known.
    lines: HashMap<String, usize>,
}

impl Findings {
    fn problem(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.add(Severity::Problem, path, text);
    }

    fn warning(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.add(Severity::Warning, path, text);
    }

    fn add(&mut self, severity: Severity, path: impl Into<String>, text: impl Into<String>) {
        let (path, text) = (path.into(), text.into());
        self.findings.push(Finding { severity, path, about: None, text });
    }

    /// The same of something that is better called by another name than by its place.
    fn add_about(&mut self, severity: Severity, path: String, about: String, text: String) {
        self.findings.push(Finding { severity, path, about: Some(about), text });
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
                // Without its line the place itself says where it is.
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
        writeln!(out, "{}", self.reach())
    }

    /// How far the proof went.
    fn reach(&self) -> String {
        let Proved { routes, guarded } = self.proved;
        match (self.alone, routes) {
            (Some(Alone::Filter), _) => "; it is the filter's own configuration, and where Envoy has the filter is not in it".into(),
            (Some(Alone::Guard), _) => "; it is the guard's own configuration, and where Envoy has the guard is not in it".into(),
            (Some(Alone::Manifests), _) => "; which routes lead past the guard is not in manifests".into(),
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
        if findings.count(Severity::Problem) > 0 || arguments.strict && warnings > 0 {
            verdict = Verdict::Problems;
        }
    }
    Ok(verdict)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    if file.is_dir() {
        return Err(Failure::new(file.display(), "is a directory: name the files in it"));
    }
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
        findings.alone = Some(Alone::Manifests);
        manifest::check(&root, assume, &mut findings);
    } else if envoy::is_envoy(&root) {
        envoy::check(&root, assume, &mut findings);
    } else if wasm::looks_like_a_guards(&root) {
        findings.alone = Some(Alone::Guard);
        guard::check_alone(&root, &mut findings);
    } else if value.is_null() {
        findings.problem(
            "",
            "there is nothing in this file: name Envoy's configuration, or the filter's",
        );
    } else if wasm::is_ours(&root) || root.get("issuer").is_some() {
        findings.alone = Some(Alone::Filter);
        plugin::check(&root, &Variables::OfThisProcess, assume, &mut findings);
    } else {
        findings.problem(
            "",
            "this is neither an Envoy configuration nor one of the filter or the guard: none of their members is in it",
        );
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
