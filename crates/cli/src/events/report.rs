//! The facts about a stream and about the filters that receive its events, as text or as JSON.

use std::collections::BTreeMap;
use std::fmt;

use impersonation_core::one_line;
use impersonation_issuer::issuer::EVENT_TYPES;
use serde::Serialize;

use super::filters::Counts;
use super::transmitter::{Status, Stream, Transmitter};
use crate::display::escaped;

/// The longest list that the text shows.
const MOST: usize = 40;

/// The known facts about a stream.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// True if nothing is wrong.
    holds: bool,
    issuer: String,
    stream_id: String,
    audiences: Vec<String>,
    endpoint_url: Option<String>,
    status: Option<String>,
    status_reason: Option<String>,
    /// The types of event that can end impersonations, and that the transmitter sends.
    events_delivered: Vec<String>,
    /// The types of event that can end impersonations, and that the transmitter does not send.
    events_not_delivered: Vec<String>,
    jwks_uri: Option<String>,
    /// The SHA-256 of the `Authorization` header that the transmitter is to send.
    authorization_sha256: Option<String>,
    /// The time from the request for a verification event to its arrival.
    verified_after_milliseconds: Option<u64>,
    filters: Vec<Filter>,
    notes: Vec<String>,
    problems: Vec<String>,
}

/// The counters of one Envoy.
#[derive(Debug, Serialize)]
struct Filter {
    at: String,
    events: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
}

impl Report {
    /// Describes a stream, and looks for what is wrong with it.
    pub(super) fn of(transmitter: &Transmitter, issuer: &str, stream: &Stream) -> Self {
        let delivered = stream.events_delivered.as_deref().unwrap_or_default();
        let (sent, missing): (Vec<&str>, Vec<&str>) =
            EVENT_TYPES.iter().partition(|&kind| delivered.iter().any(|one| one == kind));
        let mut report = Self {
            issuer: issuer.to_owned(),
            stream_id: stream.stream_id.clone(),
            audiences: stream.aud.as_slice().to_vec(),
            endpoint_url: stream.endpoint().map(str::to_owned),
            events_delivered: owned(&sent),
            events_not_delivered: owned(&missing),
            jwks_uri: transmitter.jwks_uri().map(str::to_owned),
            ..Self::default()
        };
        if stream.iss.as_deref().is_some_and(|iss| iss != issuer) {
            report.problem("the events of the stream have another issuer");
        }
        if stream.aud.as_slice().is_empty() {
            report.problem("the stream has no audience, so the filter would refuse its events");
        }
        if sent.is_empty() {
            report.problem("the transmitter sends no event on this stream that can end anything");
        }
        if transmitter.needs_subjects(stream) {
            report.note(
                "the transmitter sends events only about subjects that were added to the stream \
                 (`default_subjects`: NONE): add each agent there",
            );
        }
        report
    }

    pub(super) fn problem(&mut self, told: impl Into<String>) {
        self.problems.push(told.into());
    }

    pub(super) fn note(&mut self, told: impl Into<String>) {
        self.notes.push(told.into());
    }

    pub(super) fn set_status(&mut self, status: Option<Status>) {
        let Some(status) = status else {
            return self.note("the transmitter does not tell the status of a stream");
        };
        if !status.is_enabled() {
            self.problem("the transmitter sends nothing: the stream is not enabled");
        }
        self.status = Some(status.status);
        self.status_reason = status.reason;
    }

    pub(super) fn set_authorization(&mut self, digest: Option<String>) {
        self.authorization_sha256 = digest;
    }

    pub(super) fn set_verified(&mut self, milliseconds: u64) {
        self.verified_after_milliseconds = Some(milliseconds);
    }

    pub(super) fn set_filters(&mut self, filters: &[(&str, Counts)]) {
        let filter = |(at, counts): &(&str, Counts)| Filter {
            at: (*at).to_owned(),
            events: counts.events.clone(),
            refused: counts.refused.clone(),
        };
        self.filters = filters.iter().map(filter).collect();
    }

    /// Returns true if nothing is wrong. No problem can be added afterwards.
    pub(super) fn conclude(&mut self) -> bool {
        self.holds = self.problems.is_empty();
        self.holds
    }

    pub(super) fn to_json(&self) -> String {
        one_line(self)
    }

    /// The entry for `impersonations.security_events` of the filter's configuration.
    fn entry(&self) -> String {
        // A JSON string is a YAML string, whatever is in it.
        let quoted = |text: &String| one_line(text);
        let list = |all: &[String]| all.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "- issuer: {}\n  audiences: [{}]\n",
            quoted(&self.issuer),
            list(&self.audiences)
        );
        if let Some(digest) = &self.authorization_sha256 {
            text.push_str(&format!("  authorization_sha256: [{digest}]\n"));
        }
        if let Some(uri) = &self.jwks_uri {
            text.push_str(&format!(
                "  remote_jwks: {{http_uri: {{uri: {}, cluster: YOUR_CLUSTER, timeout: 5s}}}}\n",
                quoted(uri)
            ));
        }
        text
    }
}

fn owned(all: &[&str]) -> Vec<String> {
    all.iter().map(|&one| one.to_owned()).collect()
}

/// Lists the last parts of types of event: `session-revoked`.
fn names(kinds: &[String]) -> String {
    let name = |kind: &String| escaped(kind.rsplit('/').next().unwrap_or_default());
    kinds.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    let one = |(name, count): (&String, &u64)| format!("{} {count}", escaped(name));
    counts.iter().take(MOST).map(one).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &str| match value {
            "" => Ok(()),
            value => writeln!(formatter, "{name:<13}  {value}"),
        };
        let text = |value: &Option<String>| value.as_deref().map(escaped).unwrap_or_default();
        line("issuer", &escaped(&self.issuer))?;
        line("stream", &escaped(&self.stream_id))?;
        let audiences: Vec<_> = self.audiences.iter().take(MOST).map(|it| escaped(it)).collect();
        line("audience", &audiences.join(", "))?;
        line("pushes to", &text(&self.endpoint_url))?;
        let reason = text(&self.status_reason);
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        line("status", &format!("{}{reason}", text(&self.status)))?;
        line("sends", &names(&self.events_delivered))?;
        line("does not send", &names(&self.events_not_delivered))?;
        if let Some(milliseconds) = self.verified_after_milliseconds {
            line(
                "verified",
                &format!("the filter has got a verification event, after {milliseconds} ms"),
            )?;
        }
        for Filter { at, events, refused } in &self.filters {
            line("filter", &format!("{}: {}", escaped(at), counted(events)))?;
            let refused = counted(refused);
            if !refused.is_empty() {
                line("refused", &format!("{}: {refused}", escaped(at)))?;
            }
        }
        if self.authorization_sha256.is_some() || self.filters.is_empty() {
            writeln!(
                formatter,
                "\nAn entry of `impersonations.security_events` for this stream:\n"
            )?;
            write!(formatter, "{}", self.entry())?;
        }
        for note in &self.notes {
            writeln!(formatter, "note: {}", escaped(note))?;
        }
        for problem in &self.problems {
            writeln!(formatter, "problem: {}", escaped(problem))?;
        }
        Ok(())
    }
}
