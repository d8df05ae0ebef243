//! Checks a file against one version of Envoy: `--envoy-version`.
//!
//! The newest supported version is the default, and the facts about it are not here: they hold for
//! every file. Here are the fields that an older version does not have, and the settings that an
//! older version understands differently, where the difference lets requests bypass filter or
//! guard, or makes them fail. `tests/envoy/versions.rs` shows both in each supported Envoy.

mod newer;

use std::fmt;
use std::str::FromStr;

use self::newer::{BOOTSTRAP, CLUSTER, LISTENER, MANAGER, NEWER, NEWEST, Newer, ROUTES};
use super::findings::Findings;
use super::topology;
use super::tree::{Place, messages};
use super::wasm::Plugin;

/// The versions in which all of `make test-envoys` passes, oldest first.
const TESTED: [EnvoyVersion; 4] = [
    EnvoyVersion { minor: 36, patch: Some(4) },
    EnvoyVersion { minor: 37, patch: Some(0) },
    EnvoyVersion { minor: 39, patch: Some(3) },
    EnvoyVersion::NEWEST,
];

/// A version of Envoy 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EnvoyVersion {
    minor: u32,
    /// `None` stands for the patch release that was tested.
    patch: Option<u32>,
}

impl EnvoyVersion {
    /// The newest supported version.
    pub(super) const NEWEST: Self = Self { minor: NEWEST.0, patch: Some(NEWEST.1) };

    /// Returns true if this version came before `other`.
    fn is_before(self, other: Self) -> bool {
        let patch = |version: Self| {
            version.tested().map_or(version.patch, |tested| version.patch.or(tested.patch))
        };
        (self.minor, patch(self)) < (other.minor, patch(other))
    }

    /// Returns the tested release of the same minor version.
    fn tested(self) -> Option<Self> {
        TESTED.into_iter().find(|tested| tested.minor == self.minor)
    }

    /// Returns true if a route's limit of the request body holds for filters, not only for the
    /// router. Source: Envoy's changelog of 1.37, "route level body buffer limit".
    pub(super) fn applies_route_limits_to_filters(self) -> bool {
        self.minor >= 37
    }

    /// Returns true if `safe_regex` matches bytes. Before, it matches UTF-8, and no dot and no
    /// class matches a byte that is not UTF-8. Source: CVE-2026-73552.
    fn matches_bytes(self) -> bool {
        !self.is_before(Self { minor: 39, patch: Some(3) })
    }

    /// Returns true if a change of environment variables alone makes a new VM. Source: Envoy's
    /// changelog of 1.39, "environment_variables".
    fn renews_the_vm_for_new_variables(self) -> bool {
        self.minor >= 39
    }
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "1.{}", self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(formatter, ".{patch}"))
    }
}

impl FromStr for EnvoyVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected a version of Envoy such as 1.39 or 1.39.3";
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let number = |part: Option<&str>| {
            part.map(|part| {
                let digits = part.bytes().all(|byte| byte.is_ascii_digit());
                part.parse::<u32>().ok().filter(|_| digits).ok_or(FORM)
            })
            .transpose()
        };
        match (number(parts.next())?, number(parts.next())?, number(parts.next())?, parts.next()) {
            (Some(1), Some(minor), patch, None) => Ok(Self { minor, patch }),
            _ => Err(FORM),
        }
    }
}

/// Reports a version that is not supported, and every field that the version does not have.
pub(super) fn check(root: &Place<'_>, version: EnvoyVersion, findings: &mut Findings) {
    check_version(version, findings);
    for newer in NEWER.iter().filter(|newer| newer.since > version.minor) {
        for field in fields(root, newer) {
            let Newer { since, .. } = newer;
            findings.problem(
                field.path,
                format!("is not known to Envoy {version}, which does not start with it, and ignores it if a control plane sends it: it needs Envoy 1.{since} or later"),
            );
        }
    }
}

fn check_version(version: EnvoyVersion, findings: &mut Findings) {
    let tested = TESTED.map(|tested| tested.to_string()).join(", ");
    let [oldest, ..] = TESTED;
    match version.tested() {
        _ if version.minor < oldest.minor => findings.problem(
            "",
            format!("Envoy {version} is not supported: the filter needs {oldest} or later"),
        ),
        Some(tested) if version.is_before(tested) => findings.warning(
            "",
            format!("Envoy {version} is not tested, and lacks what {tested} corrects: take {tested} or a later patch release"),
        ),
        Some(_) => {}
        None if version.minor == 38 => findings.warning(
            "",
            format!("Envoy 1.38 is not tested, because the build that the tests could use has no V8: an Envoy without V8 does not start with the filter; tested are {tested}"),
        ),
        None => findings.warning("", format!("Envoy {version} is not tested; tested are {tested}")),
    }
}

/// Reports routes that an old `safe_regex` lets a request bypass. `normalize_path` escapes the
/// bytes on which this depends.
pub(super) fn check_expressions(root: &Place<'_>, version: EnvoyVersion, findings: &mut Findings) {
    if version.matches_bytes() {
        return;
    }
    for chain in topology::listeners(root).iter().flat_map(|listener| &listener.chains) {
        let routes = chain.routes.iter().flatten();
        let by_expression =
            routes.filter_map(|route| route.route.at(&["match", "safe_regex"])).next();
        if let Some(expression) = by_expression.filter(|_| !chain.manager.is_set("normalize_path"))
        {
            findings.problem(
                expression.path,
                format!("is passed by: in Envoy {version} no regular expression matches a byte that is not UTF-8, which HTTP/2 allows in a path; set normalize_path, which escapes such bytes, or take Envoy 1.39.3 or later (CVE-2026-73552)"),
            );
        }
    }
}

/// Reports environment variables that an old Envoy never renews.
pub(super) fn check_variables(plugin: &Plugin<'_>, version: EnvoyVersion, findings: &mut Findings) {
    let variables = plugin.config.at(&["vm_config", "environment_variables", "key_values"]);
    if let Some(variables) = variables.filter(|_| !version.renews_the_vm_for_new_variables()) {
        findings.warning(
            variables.path,
            format!("cannot be changed while Envoy {version} runs: Envoy keeps a VM whose environment variables alone have changed; restart Envoy for another value, or take Envoy 1.39 or later"),
        );
    }
}

/// Finds a field wherever its message is.
fn fields<'d>(root: &Place<'d>, newer: &Newer) -> Vec<Place<'d>> {
    let mut places = places(root, newer.message);
    for step in newer.field.split('.') {
        places = places.iter().flat_map(|place| follow(place, step)).collect();
    }
    places
}

fn follow<'d>(place: &Place<'d>, step: &str) -> Vec<Place<'d>> {
    match step.strip_suffix("[]") {
        Some(name) => place.list(name),
        None if step == "*" => place.members().map(|(_, member)| member).collect(),
        None => place.get(step).into_iter().collect(),
    }
}

/// Finds all messages of a type: those with the type beside them, and those whose place in a
/// bootstrap file determines it.
fn places<'d>(root: &Place<'d>, message: &str) -> Vec<Place<'d>> {
    let fixed = |name| root.get("static_resources").map_or_else(Vec::new, |fixed| fixed.list(name));
    let mut found = messages(root, &format!("envoy.{message}"));
    match message {
        BOOTSTRAP => found.push(root.clone()),
        LISTENER => found.extend(fixed("listeners")),
        CLUSTER => found.extend(fixed("clusters")),
        ROUTES => {
            let managers = places(root, MANAGER);
            found.extend(managers.iter().filter_map(|manager| manager.get("route_config")));
        }
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_of_envoy_1() {
        for (text, expected) in [
            ("1.36", Some((36, None))),
            ("v1.36.4", Some((36, Some(4)))),
            ("1.40.0", Some((40, Some(0)))),
            ("1", None),
            ("2.0", None),
            ("1.36.4.1", None),
            ("1.+36", None),
            ("1.36.", None),
            ("1.36-dev", None),
            ("", None),
        ] {
            let read = text.parse::<EnvoyVersion>().ok();
            assert_eq!(read.map(|version| (version.minor, version.patch)), expected, "{text}");
        }
    }

    #[test]
    fn a_minor_version_stands_for_its_tested_release() {
        let before = |one: &str, other: &str| {
            one.parse::<EnvoyVersion>().unwrap().is_before(other.parse().unwrap())
        };
        assert!(
            before("1.36.9", "1.37.0") && before("1.39.2", "1.39.3") && before("1.39.2", "1.39")
        );
        assert!(
            !before("1.39", "1.39.3") && !before("1.39.3", "1.39") && !before("1.40", "1.39.3")
        );
    }
}
