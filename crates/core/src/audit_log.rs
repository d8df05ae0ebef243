//! The audit log of filter and guard: each event goes to the log that the operator has chosen.

use std::borrow::Cow;

use crate::config::AuditLog;
use crate::host::{Host, Level};
use crate::http_stream::HttpRequest;

/// The most bytes of a caller's text that are logged.
const MAX_LEN: usize = 256;

/// The entry of a stream in the access log at the time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogEntry {
    /// The entry will show all that the stream's filter state has then.
    Open,
    /// The entry can still show members of the event, but must not show the event itself.
    TakesMembers,
    /// The stream has ended for Envoy, and prints nothing any more.
    Printed,
}

/// Writes an event to the log that the operator has chosen. `line` has the event as one line of
/// JSON, and `members` has what an access log can print of it.
pub fn write<'e>(
    log: AuditLog,
    host: &dyn Host,
    request: &dyn HttpRequest,
    entry: AccessLogEntry,
    line: &str,
    members: impl Iterator<Item = (&'static str, &'e str)>,
) {
    match log {
        AuditLog::AccessLog if entry == AccessLogEntry::Open => {
            request.set_filter_state("audit", line);
        }
        AuditLog::AccessLog | AuditLog::Envoy => host.log(Level::Info, line),
        AuditLog::Both => {
            host.log(Level::Info, line);
            if entry != AccessLogEntry::Printed {
                members.for_each(|(name, value)| request.set_filter_state(name, value));
            }
        }
    }
}

/// Returns the beginning of a caller's text, for the audit log.
pub fn legible(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.get(..MAX_LEN).unwrap_or(bytes))
}
