//! `check`: finds the faults of a configuration before Envoy sees it.
//!
//! `check` reads a plugin configuration by the filter's own code. Envoy accepts settings around the
//! plugin that make the filter hang, or that let requests bypass a filter that fails: `check`
//! reports them. It also proves for each route to a guarded API that the guard stands before it, or
//! names the route.

mod binding;
mod clusters;
mod demo;
mod envoy;
mod etcd;
mod findings;
mod guard;
mod jwt_authn;
mod logs;
mod look_alikes;
mod manager;
mod manifest;
mod manifest_routes;
mod plugin;
mod proof;
mod protobuf;
mod reach;
mod reached;
mod routing;
mod rules;
mod sessions;
mod topology;
mod traffic_extension;
mod tree;
mod versions;
mod wasm;
mod yaml;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use impersonation_core::config;
use serde_json::Value;

use self::findings::{Findings, PartialFile, Severity};
use self::plugin::{Assume, Variables};
use self::sessions::OrdinaryHosts;
use self::tree::Place;
use self::versions::EnvoyVersion;
use super::{Failure, Verdict};

/// Reports every problem of a plugin configuration, or of an Envoy configuration with the plugin in
/// it: a bootstrap file, a discovery response on disk, manifests for Istio or Envoy Gateway.
///
/// In an Envoy configuration it proves for every route to a guarded API that impersonations meet
/// the guard there. A route without a proof is a warning.
///
/// Exit status: 0 valid, 1 problems, 2 nothing was checked.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// YAML or JSON; - for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Assume that environment variables and files which are not here are there for Envoy, and
    /// valid.
    #[arg(long)]
    assume_environment: bool,
    /// Treat warnings as problems: end with status 1 if anything is not certain.
    #[arg(long)]
    strict: bool,
    /// The version of Envoy that will read the file, such as 1.39 or 1.39.3: report what it does
    /// not know, and what it understands differently.
    #[arg(long, value_name = "VERSION", default_value_t = EnvoyVersion::NEWEST)]
    envoy_version: EnvoyVersion,
    /// A host of the application on which its users have their own sign-in, beside the hosts of
    /// browser sessions: it is no API of impersonations. Repeat the flag for each.
    #[arg(long, value_name = "HOST", value_parser = sessions::ordinary_host)]
    ordinary_host: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let assume =
        if arguments.assume_environment { Assume::UnsetVariables } else { Assume::Nothing };
    let ordinary = OrdinaryHosts(arguments.ordinary_host.clone());
    let mut verdict = Verdict::Fine;
    let mut out = io::stdout().lock();
    for file in &arguments.files {
        let text = read(file)?;
        let syntax = syntax_of(file, &text);
        let findings = check(&text, syntax, assume, arguments.envoy_version, &ordinary);
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

/// Finds the syntax of a file. Envoy goes by the extension; without one, a file that parses as JSON
/// is JSON.
fn syntax_of(file: &Path, text: &[u8]) -> Syntax {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Syntax::Json,
        Some("yaml" | "yml") => Syntax::Yaml,
        _ if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() => Syntax::Json,
        _ => Syntax::Yaml,
    }
}

fn check(
    text: &[u8],
    syntax: Syntax,
    assume: Assume,
    version: EnvoyVersion,
    ordinary: &OrdinaryHosts,
) -> Findings {
    let mut findings = Findings::default();
    let Some(value) = parse(text, syntax, &mut findings) else { return findings };
    let root = Place::root(&value);
    if manifest::is_manifest(&root) {
        findings.partial = Some(PartialFile::Manifests);
        let lines = std::mem::take(&mut findings.lines);
        let value = findings.canonical(protobuf::read_within(&value, lines));
        manifest::check(&Place::root(&value), assume, version, &mut findings);
    } else if let Some(form) = envoy::form(&root) {
        let lines = std::mem::take(&mut findings.lines);
        let value = findings.canonical(form.read(&value, lines));
        envoy::check(&Place::root(&value), assume, version, ordinary, &mut findings);
    } else if wasm::looks_like_a_guards(&root) {
        findings.partial = Some(PartialFile::Guard);
        guard::check_alone(&root, &mut findings);
    } else if value.is_null() {
        findings.problem(
            "",
            "there is nothing in this file: name Envoy's configuration, or the filter's",
        );
    } else if wasm::is_ours(&root) || root.get("issuer").is_some() {
        findings.partial = Some(PartialFile::Filter);
        plugin::check(&root, &Variables::OfThisProcess, assume, &mut findings);
    } else {
        findings.problem(
            "",
            "this is neither an Envoy configuration nor one of the filter or the guard: none of their members is in it",
        );
    }
    findings
}

/// Reads one YAML document; JSON is YAML. The error says what is wrong with it.
pub(super) fn read_yaml(text: &str) -> Result<Value, String> {
    yaml::read(text).map(|document| document.value).map_err(|error| error.text)
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
    use std::str::FromStr as _;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn check_never_panics_on_a_changed_configuration(
            edits in prop::collection::vec((any::<Index>(), "[ -~\n]{0,3}"), 1..8)
        ) {
            let mut text = include_str!("../../../../envoy.yaml").to_owned();
            for (index, new) in edits {
                let (at, old) = *index.get(&text.char_indices().collect::<Vec<_>>());
                text.replace_range(at..at.saturating_add(old.len_utf8()), &new);
            }
            let old = EnvoyVersion::from_str("1.36").unwrap();
            for (syntax, version) in [(Syntax::Yaml, old), (Syntax::Json, EnvoyVersion::NEWEST)] {
                let mut out = Vec::new();
                let none = OrdinaryHosts::default();
                let assume = Assume::UnsetVariables;
                let findings = check(text.as_bytes(), syntax, assume, version, &none);
                findings.print("envoy.yaml", &mut out).unwrap();
                prop_assert!(out.ends_with(b"\n"));
            }
        }
    }
}
