//! Checks the filter's own configuration by the filter's own code. Only the environment is another.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::config::{Config, is_no_secret};
use impersonation_core::jose::Algorithm;
use impersonation_core::secret::Digest;
use impersonation_issuer::issuer;
use serde_json::{Value, json};

use super::demo;
use super::findings::Findings;
use super::tree::Place;

/// The assumptions that the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assume {
    Nothing,
    /// Variables that are not set here are set for Envoy, and valid.
    UnsetVariables,
}

/// The environment variables that the plugin will see.
pub(super) enum Variables<'d> {
    /// All variables of this process.
    OfThisProcess,
    /// The variables that Envoy is configured to pass on.
    PassedOn {
        /// The path of the list of variables.
        path: String,
        /// Names of variables of Envoy's own environment.
        host: Vec<&'d str>,
        /// Variables with their values in the file.
        given: HashMap<&'d str, &'d str>,
    },
}

/// The member by which a configuration refers to a variable.
const ENVIRONMENT_VARIABLE: &str = "environment_variable";

/// A valid configuration of the filter.
pub(super) struct Checked {
    pub(super) config: Config,
    /// The value of at least one variable was assumed.
    pub(super) assumed: bool,
}

/// Checks a filter's configuration; `None` if it is not valid.
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

/// Warns if no operator can end impersonations.
fn check_oversight(prefix: &str, config: &Config, findings: &mut Findings) {
    if config.impersonations.authentication.is_empty() {
        findings.warning(
            below(prefix, "impersonations"),
            "nobody may list or end impersonations, not even in an emergency: say who, in impersonations.authentication",
        );
    }
}

/// Warns once that the values of variables were not checked, and says how to check them.
fn tell_of_unset(configuration: &Place<'_>, unset: &HashSet<&str>, findings: &mut Findings) {
    let mut named: Vec<_> = unset.iter().copied().filter(|name| is_no_secret(name)).collect();
    named.sort_unstable();
    let names = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let text = match unset.len() {
        0 => return,
        1 => format!(
            "names an environment variable that is not set here{names}, so its value was not checked: set it as for Envoy, or say --assume-environment"
        ),
        several => format!(
            "names {several} environment variables that are not set here{names}, so their values were not checked: set them as for Envoy, or say --assume-environment"
        ),
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

/// Finds every place that names an environment variable.
fn uses<'d>(place: &Place<'d>) -> Vec<Place<'d>> {
    let mut found: Vec<_> = place.get(ENVIRONMENT_VARIABLE).into_iter().collect();
    found.extend(place.children().iter().flat_map(uses));
    found
}

/// A variable, as far as it is known here.
#[derive(Debug, PartialEq, Eq)]
enum Variable {
    Is(String),
    /// A problem with the variable was reported. It must not cause another one.
    Assumed,
    /// This process does not have the variable. Envoy may have it.
    Unknown,
    Unset,
}

impl Variables<'_> {
    fn look_up(&self, name: &str, place: &Place<'_>, findings: &mut Findings) -> Variable {
        let of_process = std::env::var(name).ok().filter(|value| !value.is_empty());
        match self {
            // The filter's own code reports such a name.
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
                let name = if is_no_secret(name) { format!(": {name}") } else { String::new() };
                let text = format!("must pass on what {} names{name}", place.path);
                findings.problem(&**path, text);
                of_process.map_or(Variable::Assumed, Variable::Is)
            }
        }
    }
}

/// Returns true if a shell could set a variable of this name. Other text was not meant as a name.
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

/// Makes a text that is valid as a secret, as a private key and as a key set. Each variable gets
/// its own key.
fn placeholder(name: &str) -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(Digest::of(name.as_bytes()).as_bytes());
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (x, d) = (encode(key.verifying_key().as_bytes()), encode(key.as_bytes()));
    // RFC 8037 §2.
    let public = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
    json!({"kty": "OKP", "crv": "Ed25519", "x": x, "d": d, "keys": [public]}).to_string()
}

/// Removes the `alg` beside a variable. The placeholder is an Ed25519 key; the real key must fit
/// the `alg`.
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
