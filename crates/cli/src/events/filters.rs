//! The filters that receive the events: their counters, as each Envoy shows them to Prometheus.
//!
//! Envoy writes a label of a Wasm metric into the name unless its `stats_tags` extract the label,
//! as those of envoy.yaml do. Both forms are read.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Failure;
use crate::http::{Ask, Base, Client, in_words};

const METRICS: &str = "/stats/prometheus?filter=impersonation_";

/// The counter of a sender's events, by what they led to.
const EVENTS: &str = "impersonation_sender_events_total";

/// The counter of refused requests.
const REFUSALS: &str = "impersonation_refusals_total";

/// The outcome of an event that tests the stream.
const VERIFICATION: &str = "verification";

/// The Envoys whose filters may receive the events of one sender.
pub(super) struct Filters {
    envoys: Vec<(String, Client)>,
    sender: usize,
}

/// The counters of one Envoy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The events of the sender, by what they led to. Empty if the filter has no such sender.
    pub(super) events: BTreeMap<String, u64>,
    /// The refused requests with events of any sender, by the check that failed.
    pub(super) refused: BTreeMap<String, u64>,
}

impl Counts {
    pub(super) fn verifications(&self) -> u64 {
        self.events.get(VERIFICATION).copied().unwrap_or_default()
    }

    /// Returns the refusals that came after `earlier` was read.
    pub(super) fn refused_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let before = |reason: &String| earlier.refused.get(reason).copied().unwrap_or_default();
        let grown = self.refused.iter().map(|(reason, count)| {
            let more = count.saturating_sub(before(reason));
            (reason.clone(), more)
        });
        grown.filter(|(_, more)| *more > 0).collect()
    }
}

impl Filters {
    pub(super) fn open(
        addresses: &[Base],
        sender: usize,
        cacert: Option<&Path>,
    ) -> Result<Self, Failure> {
        let envoys = addresses.iter().map(|Base { address, .. }| {
            let cacert = cacert.filter(|_| address.starts_with("https:"));
            Client::new(address, cacert).map(|client| (address.clone(), client))
        });
        Ok(Self { envoys: envoys.collect::<Result<_, _>>()?, sender })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.envoys.is_empty()
    }

    /// Reads the counters of each Envoy.
    pub(super) fn read(&self) -> Result<Vec<(&str, Counts)>, Failure> {
        let read = |(address, client): &(String, Client)| {
            let failed = |error: ureq::Error| Failure::new(address, in_words(&error));
            let answer = client.ask(Ask::Get, &format!("{address}{METRICS}"), None);
            let answer = answer.map_err(failed)?;
            if answer.status != 200 {
                let told = format!("{} at {METRICS}: no metrics of Envoy", answer.status);
                return Err(Failure::new(address, told));
            }
            let text = answer.body.map_err(failed)?;
            Ok(counts(&String::from_utf8_lossy(&text), self.sender))
        };
        self.envoys.iter().map(|envoy| Ok((&*envoy.0, read(envoy)?))).collect()
    }

    /// Fails if the filter of an Envoy has no such sender.
    pub(super) fn know_the_sender(&self, read: &[(&str, Counts)]) -> Result<(), Failure> {
        match read.iter().find(|(_, counts)| counts.events.is_empty()) {
            None => Ok(()),
            Some((address, _)) => Err(Failure(format!(
                "{address}: the filter has no sender at place {} of `impersonations.security_events`: add the \
                 transmitter to the configuration first. --no-verification registers the stream and prints what to add",
                self.sender
            ))),
        }
    }
}

/// Reads the counters of a sender from metrics in Prometheus' text format.
fn counts(text: &str, sender: usize) -> Counts {
    let mut counts = Counts::default();
    let sender = sender.to_string();
    for line in text.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<u64>() else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let in_name = |metric: &str| name.strip_prefix(metric);
        if let Some(rest) = in_name(EVENTS) {
            let label = |name: &str, next: &str| label(rest, labels, name, next);
            let of_events = label("kind", "_sender_").as_deref() == Some("security_event");
            let of_sender = label("sender", "_outcome_").as_ref() == Some(&sender);
            if let (true, true, Some(outcome)) = (of_events, of_sender, label("outcome", "")) {
                add(&mut counts.events, outcome, value);
            }
        } else if let Some(rest) = in_name(REFUSALS) {
            let label = |name: &str, next: &str| label(rest, labels, name, next);
            let of_events = label("endpoint", "_error_").as_deref() == Some("events");
            if let (true, Some(reason)) = (of_events, label("reason", "")) {
                add(&mut counts.refused, reason, value);
            }
        }
    }
    counts
}

fn add(to: &mut BTreeMap<String, u64>, name: String, value: u64) {
    let sum = to.entry(name).or_default();
    *sum = sum.saturating_add(value);
}

/// Returns the value of a label: from the labels, or else from the rest of the metric's name, where
/// it ends before `next`.
fn label(rest: &str, labels: &str, name: &str, next: &str) -> Option<String> {
    let from_labels = || {
        // Another label's name may end in this one's.
        let separated = format!(",{labels}");
        let (_, value) = separated.split_once(&*format!(",{name}=\""))?;
        value.split('"').next().map(str::to_owned)
    };
    let from_name = || {
        let (_, value) = rest.split_once(&*format!("_{name}_"))?;
        let end = if next.is_empty() { None } else { value.find(next) };
        value.get(..end.unwrap_or(value.len())).map(str::to_owned)
    };
    from_labels().or_else(from_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_read_with_labels_and_without() {
        let tagged = r#"# TYPE impersonation_sender_events_total counter
impersonation_sender_events_total{kind="security_event",outcome="verification",sender="0"} 3
impersonation_sender_events_total{kind="security_event",outcome="subject_not_understood",sender="0"} 1
impersonation_sender_events_total{kind="security_event",outcome="verification",sender="1"} 7
impersonation_sender_events_total{kind="logout",outcome="ended",sender="0"} 9
impersonation_refusals_total{endpoint="events",error="invalid_audience",reason="audience"} 2
impersonation_refusals_total{endpoint="token",error="invalid_request",reason="audience"} 5
"#;
        let plain = "\
impersonation_sender_events_total_kind_security_event_sender_0_outcome_verification{} 3
impersonation_sender_events_total_kind_security_event_sender_0_outcome_subject_not_understood{} 1
impersonation_sender_events_total_kind_security_event_sender_1_outcome_verification{} 7
impersonation_sender_events_total_kind_logout_sender_0_outcome_ended{} 9
impersonation_refusals_total_endpoint_events_error_invalid_audience_reason_audience{} 2
impersonation_refusals_total_endpoint_token_error_invalid_request_reason_audience{} 5
";
        // The tags of before events: `kind`, `endpoint`, `error` and `reason` only.
        let partly = r#"
impersonation_sender_events_total_sender_0_outcome_verification{kind="security_event"} 3
impersonation_sender_events_total_sender_0_outcome_subject_not_understood{kind="security_event"} 1
impersonation_sender_events_total_sender_1_outcome_verification{kind="security_event"} 7
impersonation_sender_events_total_sender_0_outcome_ended{kind="logout"} 9
impersonation_refusals_total{endpoint="events",error="invalid_audience",reason="audience"} 2
"#;
        for text in [tagged, plain, partly] {
            let counts = counts(text, 0);
            let events = [("verification", 3), ("subject_not_understood", 1)];
            let expected = Counts {
                events: events.map(|(name, value)| (name.to_owned(), value)).into(),
                refused: [("audience".to_owned(), 2)].into(),
            };
            assert_eq!(counts, expected, "{text}");
        }
        assert_eq!(counts(tagged, 2), Counts { events: BTreeMap::new(), ..counts(tagged, 0) });
    }
}
