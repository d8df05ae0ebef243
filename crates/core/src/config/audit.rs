//! The places to which the filter and the guard write audit events.

use super::kinds::Words;

/// The places to which audit events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLog {
    /// To Envoy's log, and member by member to the filter state for an access log.
    Both,
    /// To Envoy's log only.
    Envoy,
    /// To the filter state for an access log, as a whole. Events of requests whose caller has left
    /// go to Envoy's log.
    AccessLog,
}

impl Words for AuditLog {
    const WORDS: &'static [(&'static str, Self)] =
        &[("envoy", Self::Envoy), ("access_log", Self::AccessLog)];
}
