//! Records a request: in the audit log, in the metrics, and in the operator's log.

use crate::audit::AuditEvent;
use crate::config::AuditLog;
use crate::host::{Host, Level};
use crate::http_stream::HttpStream;
use crate::issuer::Answer;

/// When the stream of a recorded request ends for Envoy. The access log of a stream that has ended
/// prints nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnding {
    /// The stream is open.
    Later,
    /// Envoy ends the stream at this moment.
    Now,
    /// The caller left before.
    Before,
}

/// Writes an event to the log that the operator has chosen, and counts the event.
pub(super) fn record(
    log: AuditLog,
    host: &dyn Host,
    http: &dyn HttpStream,
    event: &AuditEvent,
    ending: StreamEnding,
) {
    match log {
        AuditLog::AccessLog if ending == StreamEnding::Later => {
            http.set_filter_state("audit", &event.to_json());
        }
        AuditLog::AccessLog | AuditLog::Envoy => host.log(Level::Info, &event.to_json()),
        AuditLog::Both => {
            host.log(Level::Info, &event.to_json());
            if ending != StreamEnding::Before {
                for (name, value) in event.members() {
                    http.set_filter_state(name, value);
                }
            }
        }
    }
    host.count(event.counter());
}

/// Tells the operator about an answer, beside its event.
pub(super) fn tell_operator(host: &dyn Host, answer: &Answer) {
    if let Some(alarm) = &answer.alarm {
        host.warn(&alarm.to_json());
    }
    if let Some(explanation) = &answer.explanation {
        host.debug(explanation);
    }
    if let Some(counter) = answer.counter {
        host.count(counter.into());
    }
}
