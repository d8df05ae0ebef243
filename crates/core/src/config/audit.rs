//! Where audit events are written down: those of the filter and of the guard.

use super::kinds::Words;

/// Where audit events are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLog {
    /// In Envoy's log, and member by member for an access log.
    Both,
    /// In Envoy's log.
    Envoy,
    /// In an access log, whole. What comes of a request whose caller has left is in Envoy's log.
    AccessLog,
}

impl Words for AuditLog {
    const WORDS: &'static [(&'static str, Self)] =
        &[("envoy", Self::Envoy), ("access_log", Self::AccessLog)];
}
