//! Finds rules of the guard that decide nothing, because an earlier rule decides first.

use impersonation_core::config::{
    Action, DefaultAction, GuardConfig, GuardRule, PathPattern, UserPattern,
};

use super::findings::{Doubt, Severity};
use super::tree::{Place, item_path, member_path};

/// Finds rules that never decide, and rules that allow everything.
pub(super) fn without_effect(
    configuration: &Place<'_>,
    config: &GuardConfig,
) -> Vec<(Severity, Doubt)> {
    let path = |index| item_path(&member_path(&configuration.path, "rules"), index);
    let mut found = Vec::new();
    for (index, rule) in config.rules.iter().enumerate() {
        let mut earlier = config.rules.iter().take(index).enumerate();
        // The core itself warns of rules behind one without conditions.
        let first =
            earlier.find(|(_, earlier)| !has_no_conditions(earlier) && takes_all_of(earlier, rule));
        if let Some((first, _)) = first {
            let text = format!(
                "rules[{index}] never decides over a path that is normal: rules[{first}] is about all that it is about, and comes first; change their order"
            );
            found.push((Severity::Warning, Doubt::new(path(index), text)));
        }
        if rule.action == Action::Allow
            && takes_every_path(rule)
            && allows_a_write(rule)
            && !is_narrowed(rule)
        {
            let text = format!(
                "rules[{index}] allows whatever has come so far, whoever acts, as default: allow does: name the paths"
            );
            found.push((Severity::Warning, Doubt::new(path(index), text)));
        }
    }
    found
}

/// Returns true if a guard lets any request pass that may write. The handshake of a WebSocket
/// (`CONNECT`) does not count: nobody can tell what it is for.
pub(super) fn may_write(config: &GuardConfig) -> bool {
    let is_connect = |rule: &GuardRule| {
        let methods = rule.methods.as_ref();
        methods.is_some_and(|methods| methods.iter().all(|method| method == "CONNECT"))
    };
    let allows = |rule: &GuardRule| {
        rule.action == Action::Allow && allows_a_write(rule) && !is_connect(rule)
    };
    config.default == DefaultAction::Allow || config.rules.iter().any(allows)
}

fn has_no_conditions(rule: &GuardRule) -> bool {
    rule.path.is_none() && rule.methods.is_none() && !is_narrowed(rule)
}

fn takes_every_path(rule: &GuardRule) -> bool {
    match &rule.path {
        None => true,
        Some(PathPattern::Prefix(prefix)) => prefix == "/",
        Some(PathPattern::Exactly(_)) => false,
    }
}

fn allows_a_write(rule: &GuardRule) -> bool {
    let reads = |method: &String| matches!(&**method, "GET" | "HEAD" | "OPTIONS");
    rule.methods.as_ref().is_none_or(|methods| !methods.iter().all(reads))
}

fn is_narrowed(rule: &GuardRule) -> bool {
    !rule.scopes.is_empty() || rule.actors.is_some()
}

/// Returns true if an earlier rule matches every request that a later rule matches. Deny rules
/// match broadly and allow rules match exactly, so an allow rule covers a deny rule only if it
/// names no actors.
fn takes_all_of(earlier: &GuardRule, later: &GuardRule) -> bool {
    let paths = match (&earlier.path, &later.path) {
        _ if takes_every_path(earlier) => true,
        (Some(PathPattern::Exactly(earlier)), Some(PathPattern::Exactly(later))) => {
            earlier == later
        }
        (
            Some(PathPattern::Prefix(prefix)),
            Some(PathPattern::Exactly(later) | PathPattern::Prefix(later)),
        ) => is_below(later, prefix),
        _ => false,
    };
    let methods = match (&earlier.methods, &later.methods) {
        (None, _) => true,
        (Some(earlier), Some(later)) => later.iter().all(|method| earlier.contains(method)),
        (Some(_), None) => false,
    };
    let scopes = earlier.scopes.iter().all(|scope| later.scopes.contains(scope));
    let actors = match (&earlier.actors, &later.actors) {
        (None, _) => true,
        // A deny rule for some actors also denies requests without an actor.
        (Some(_), _) if earlier.action == Action::Allow && later.action == Action::Deny => false,
        (Some(earlier), Some(later)) => {
            later.iter().all(|one| earlier.iter().any(|other| is_of(one, other)))
        }
        (Some(_), None) => false,
    };
    paths && methods && scopes && actors
}

fn is_below(path: &str, prefix: &str) -> bool {
    let folder = prefix.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_of(one: &UserPattern, other: &UserPattern) -> bool {
    match (one, other) {
        (UserPattern::Exactly(name) | UserPattern::Prefix(name), UserPattern::Prefix(prefix)) => {
            name.starts_with(prefix)
        }
        (UserPattern::Exactly(name), UserPattern::Exactly(other)) => name == other,
        (UserPattern::Prefix(_), UserPattern::Exactly(_)) => false,
    }
}
