//! The reasons why routes are not proved, collected so that one cause is one line of the report.

use std::collections::{BTreeMap, HashMap};

use super::super::findings::{Doubt, Findings, Severity};
use super::super::routing::Route;

/// A reason why a route is not proved.
pub(super) struct Reason {
    pub(super) severity: Severity,
    pub(super) doubt: Doubt,
}

pub(super) fn warning(doubt: Doubt) -> Reason {
    Reason { severity: Severity::Warning, doubt }
}

pub(super) fn problem(doubt: Doubt) -> Reason {
    Reason { severity: Severity::Problem, doubt }
}

/// Collects reasons, so that a cause is one line of the report however many routes it concerns.
#[derive(Default)]
pub(super) struct Causes {
    order: Vec<(Severity, String, Doubt)>,
    routes: HashMap<(String, String, String), BTreeMap<usize, String>>,
}

impl Causes {
    pub(super) fn add(&mut self, listener: &str, route: Option<&Route<'_>>, reason: Reason) {
        let Reason { severity, doubt } = reason;
        // A reason about the routes themselves has a different path on each, and is one cause.
        let is_own = route.is_some_and(|route| doubt.path.starts_with(&route.route.path));
        let place = if is_own { String::new() } else { doubt.path.clone() };
        let key = (listener.to_owned(), place, doubt.text.clone());
        if !self.routes.contains_key(&key) {
            self.order.push((severity, listener.to_owned(), doubt));
        }
        let routes = self.routes.entry(key).or_default();
        let next = routes.len();
        if let Some(label) =
            route.map(Route::label).filter(|label| !routes.values().any(|have| have == label))
        {
            routes.insert(next, label);
        }
    }

    pub(super) fn report(self, findings: &mut Findings) {
        let Self { order, routes } = self;
        for (severity, listener, doubt) in order {
            let find =
                |place: &str| routes.get(&(listener.clone(), place.to_owned(), doubt.text.clone()));
            let labels = find(&doubt.path).or_else(|| find(""));
            let labels: Vec<_> =
                labels.into_iter().flat_map(BTreeMap::values).map(String::as_str).collect();
            let subject = match &*labels {
                [] => format!("listener {listener}"),
                [one] => format!("listener {listener}, route {one}"),
                [first, second, third, _, rest @ ..] if !rest.is_empty() => format!(
                    "listener {listener}, routes {first}, {second}, {third} and {} more",
                    rest.len().saturating_add(1)
                ),
                several => format!("listener {listener}, routes {}", several.join(", ")),
            };
            findings.add_about(severity, doubt.path, subject, doubt.text);
        }
    }
}
