//! The plugin's own configuration, read by the filter's own code; only the environment is another.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::config::Config;
use impersonation_core::issuer;
use impersonation_core::jose::Algorithm;
use impersonation_core::secret::Digest;
use serde_json::{Value, json};

use super::tree::Place;
use super::{Findings, demo};

/// What is taken for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assume {
    Nothing,
    /// That variables which are not set here are set where Envoy runs.
    UnsetVariables,
}

/// The environment variables that the plugin will see.
pub(super) enum Variables<'d> {
    /// As if Envoy passed everything on.
    OfThisProcess,
    /// Those that Envoy is told to pass on.
    PassedOn {
        /// Where to add one.
        path: String,
        /// From Envoy's own environment.
        host: Vec<&'d str>,
        /// Written down beside them.
        given: HashMap<&'d str, &'d str>,
    },
}

/// The member by which the configuration refers to a variable, wherever it may.
const ENVIRONMENT_VARIABLE: &str = "environment_variable";

/// A configuration that is valid.
pub(super) struct Checked {
    pub(super) config: Config,
    /// Whether the value of any variable was taken for granted.
    pub(super) assumed: bool,
}

/// Checks a configuration; `None` if it is not valid.
pub(super) fn check(
    configuration: &Place<'_>,
    variables: &Variables<'_>,
    assume: Assume,
    findings: &mut Findings,
) -> Option<Checked> {
    let mut value = configuration.value.clone();
    let mut environment = HashMap::new();
    let mut assumed = false;
    let mut unset = HashSet::new();
    for place in uses(configuration) {
        let Some(name) = place.text().filter(|name| !name.is_empty()) else { continue };
        let variable = variables.look_up(name, &place, findings);
        if variable == Variable::Unknown {
            unset.insert(name);
        }
        if matches!(variable, Variable::Unknown | Variable::Assumed) {
            assumed = true;
            any_key_fits(&mut value, name);
        }
        environment.extend(variable.value(name).map(|value| (name, value)));
    }
    if assume == Assume::Nothing {
        tell_of_unset(configuration, &unset, findings);
    }
    let config = issuer::check(&value, &|name| environment.get(name).cloned());
    let prefix = &configuration.path;
    match config {
        Ok(config) => {
            for warning in &config.warnings {
                findings.warning(below(prefix, &warning.path), &*warning.expected);
            }
            if !config.warnings.iter().any(|warning| warning.path.starts_with("impersonations")) {
                check_oversight(prefix, &config, findings);
            }
            demo::check(configuration, &config, findings);
            Some(Checked { config, assumed })
        }
        Err(error) => {
            for problem in error.problems {
                findings.problem(below(prefix, &problem.path), problem.expected);
            }
            None
        }
    }
}

/// Says that nobody can end anything.
fn check_oversight(prefix: &str, config: &Config, findings: &mut Findings) {
    if config.impersonations.authentication.is_empty() {
        findings.warning(
            below(prefix, "impersonations"),
            "nobody may list or end impersonations, not even in an emergency: say who, in impersonations.authentication",
        );
    }
}

/// Says once that values were not looked at, and how to go on. Not by the variables' names: one may be the secret itself,
/// put there by mistake.
fn tell_of_unset(configuration: &Place<'_>, unset: &HashSet<&str>, findings: &mut Findings) {
    let text = match unset.len() {
        0 => return,
        1 => "names an environment variable that is not set here, so its value was not checked: set it as for Envoy, or say --assume-environment".to_owned(),
        several => format!("names {several} environment variables that are not set here, so their values were not checked: set them as for Envoy, or say --assume-environment"),
    };
    findings.warning(&*configuration.path, text);
}

fn below(prefix: &str, path: &str) -> String {
    match (prefix, path) {
        ("", path) => path.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, path) => format!("{prefix}.{path}"),
    }
}

/// Every place that names an environment variable.
fn uses<'d>(place: &Place<'d>) -> Vec<Place<'d>> {
    let mut found: Vec<_> = place.get(ENVIRONMENT_VARIABLE).into_iter().collect();
    found.extend(place.children().iter().flat_map(uses));
    found
}

/// What is known of a variable.
#[derive(Debug, PartialEq, Eq)]
enum Variable {
    Is(String),
    /// A problem was reported already: it must not cause another.
    Assumed,
    /// Envoy may have it; this process has not.
    Unknown,
    Unset,
}

impl Variables<'_> {
    fn look_up(&self, name: &str, place: &Place<'_>, findings: &mut Findings) -> Variable {
        let of_process = std::env::var(name).ok().filter(|value| !value.is_empty());
        match self {
            // The filter itself says so, in its own words.
            Self::OfThisProcess if !is_a_name(name) => Variable::Unset,
            Self::OfThisProcess => of_process.map_or(Variable::Unknown, Variable::Is),
            Self::PassedOn { given, .. } if given.contains_key(name) => {
                let value = given.get(name).filter(|value| !value.is_empty());
                value.map_or(Variable::Unset, |value| Variable::Is((*value).to_owned()))
            }
            Self::PassedOn { host, .. } if host.contains(&name) => {
                of_process.map_or(Variable::Unknown, Variable::Is)
            }
            Self::PassedOn { path, .. } => {
                // Not by its name, which may be the secret itself, put there by mistake.
                let text = format!("must pass on what {} names", place.path);
                findings.problem(&**path, text);
                of_process.map_or(Variable::Assumed, Variable::Is)
            }
        }
    }
}

/// Whether a shell could set it. What it could not set was never meant for a name.
fn is_a_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

impl Variable {
    fn value(self, name: &str) -> Option<String> {
        match self {
            Self::Is(value) => Some(value),
            Self::Assumed | Self::Unknown => Some(placeholder(name)),
            Self::Unset => None,
        }
    }
}

/// A text that is valid whatever the variable is for: a secret, a private key, a key set. Two variables
/// have two keys.
fn placeholder(name: &str) -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(Digest::of(name.as_bytes()).as_bytes());
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (x, d) = (encode(key.verifying_key().as_bytes()), encode(key.as_bytes()));
    // RFC 8037 §2.
    let public = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
    json!({"kty": "OKP", "crv": "Ed25519", "x": x, "d": d, "keys": [public]}).to_string()
}

/// The placeholder is an Ed25519 key; the real one will have to fit the `alg` beside it.
fn any_key_fits(value: &mut Value, name: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| any_key_fits(item, name)),
        Value::Object(members) => {
            let is_its = members.get(ENVIRONMENT_VARIABLE).and_then(Value::as_str) == Some(name);
            let alg = members.get("alg").and_then(Value::as_str).and_then(Algorithm::from_name);
            if is_its && alg.is_some_and(signs) {
                members.remove("alg");
            }
            members.values_mut().for_each(|member| any_key_fits(member, name));
        }
        _ => {}
    }
}

const fn signs(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Rs384 | Algorithm::Rs512)
}
