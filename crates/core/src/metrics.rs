//! The names of the metrics, each written once. docs/operations.md has the first paragraph of each
//! comment.
//!
//! Envoy's Wasm metrics have no labels. A label is written into the name as `.label.value`, and the
//! `stats_config` of envoy.yaml extracts it. Label values are fixed words of the code, never text
//! of a request.

use std::borrow::Cow;

/// Subject tokens that were minted.
pub const CREATED: &str = "impersonation_subject_tokens_created_total";
/// Subject tokens that were exchanged.
pub const EXCHANGED: &str = "impersonation_subject_tokens_exchanged_total";
/// Spent subject tokens that were presented again: a presenter may have stolen the token.
pub const REPLAYED: &str = "impersonation_subject_tokens_replayed_total";
/// Mints that found every slot of the store taken.
pub const STORE_FULL: &str = "impersonation_store_full_total";
/// Logout tokens and security events that ended nothing.
pub const EVENTS_RECEIVED: &str = "impersonation_events_received_total";
/// Logout tokens and security events that ended something.
pub const ENDED_BY_EVENT: &str = "impersonation_events_ended_total";
/// Streams of security events that their sender has paused or disabled.
pub const EVENT_STREAMS_STOPPED: &str = "impersonation_event_streams_stopped_total";
/// Events that found their room used up. The older half was widened to all impersonations.
pub const EVENTS_OVERFLOWED: &str = "impersonation_events_overflowed_total";
/// Exchanges whose spend has an unknown outcome, because etcd failed.
pub const SPEND_UNKNOWN: &str = "impersonation_store_spends_unknown_total";
/// Subject tokens that the caller who minted them has cancelled.
pub const CANCELLED: &str = "impersonation_subject_tokens_cancelled_total";
/// Requests that ended impersonations, by an operator or a client.
pub const REVOKED: &str = "impersonation_revocations_total";
/// Requests of a client to revoke a token that is unknown, not its own, or over.
pub const REVOCATIONS_IGNORED: &str = "impersonation_revocations_ignored_total";
/// Impersonations that ended because their subject token was presented again.
pub const REVOKED_ON_REPLAY: &str = "impersonation_revocations_on_replay_total";
/// Revocations that found the table full. The oldest revocation was widened to all impersonations
/// of its age.
pub const REVOCATIONS_OVERFLOWED: &str = "impersonation_revocations_overflowed_total";
/// Revocations that exceeded the share of a caller or a client. More impersonations of that caller
/// or client were ended than named.
pub const REVOCATION_SHARES_EXCEEDED: &str = "impersonation_revocation_shares_exceeded_total";
/// Approvals, and consents of users.
pub const APPROVED: &str = "impersonation_approvals_total";
/// Denials.
pub const DENIED: &str = "impersonation_denials_total";
/// Requests for the list of what waits for a decision.
pub const APPROVALS_LISTED: &str = "impersonation_approval_lists_total";
/// Requests of callers for the state of a subject token.
pub const TOKENS_READ: &str = "impersonation_subject_tokens_read_total";
/// Subject tokens that were minted without the approvals that they needed.
pub const BREAK_GLASS: &str = "impersonation_break_glass_total";
/// Notices that a hook has taken.
pub const NOTIFICATIONS_SENT: &str = "impersonation_notifications_sent_total";
/// Notices that a hook has not taken, in all tries.
pub const NOTIFICATIONS_FAILED: &str = "impersonation_notifications_failed_total";
/// Notices that were dropped because their hook is slow.
pub const NOTIFICATIONS_DROPPED: &str = "impersonation_notifications_dropped_total";
/// Requests for the list of impersonations.
pub const LISTED: &str = "impersonation_lists_total";
/// Impersonations that the list had no room for.
pub const UNLISTED: &str = "impersonation_unlisted_total";
/// Introspection requests about tokens of this filter.
pub const INTROSPECTED: &str = "impersonation_introspections_total";
/// Answers to `GET /.impersonation/me`, which a tab asks every few seconds. They are not in the
/// audit log.
pub const SESSIONS_SHOWN: &str = "impersonation_browser_sessions_shown_total";
/// Entries in the table of revocations; at most 16 384.
pub const REVOCATIONS: &str = "impersonation_revocations_kept";
/// Failed calls of `getCustomJwtClaims`, for every outcome of the exchange.
pub const CUSTOM_CLAIMS_FAILURES: &str = "impersonation_custom_claims_failures_total";
/// Keys of the identity provider that have the key id of one of the filter's keys.
pub const KEY_COLLISIONS: &str = "impersonation_key_collisions_total";
/// The duration of a successful exchange in the filter, including callouts.
///
/// The unit is not the base unit, seconds, because Envoy's histograms hold integers and would round
/// everything to zero.
pub const EXCHANGE_DURATION: &str = "impersonation_exchange_duration_microseconds";
/// The time that etcd took to store a token, with all attempts. Only with `store.etcd`.
pub(crate) const STORE_MINT_DURATION: &str =
    "impersonation_store_duration_microseconds.operation.mint";
/// The time that etcd took to look up a token. Only with `store.etcd`.
pub(crate) const STORE_FIND_DURATION: &str =
    "impersonation_store_duration_microseconds.operation.find";
/// The time that etcd took to spend a token. Only with `store.etcd`.
pub(crate) const STORE_SPEND_DURATION: &str =
    "impersonation_store_duration_microseconds.operation.spend";
/// Subject tokens that are neither spent nor expired: of this Envoy, or with `store.etcd` of all.
/// There take the maximum, not the sum.
pub const OUTSTANDING: &str = "impersonation_subject_tokens_outstanding";
/// The most subject tokens that can be outstanding. Only with `store.shared_data`.
pub(crate) const CAPACITY: &str = "impersonation_store_capacity";
/// The age of the oldest outstanding subject token.
pub const OLDEST_AGE: &str = "impersonation_subject_token_oldest_age_seconds";
/// 1 if Envoy's own cryptography signs access tokens, 0 if the sandbox does.
pub const NATIVE_SIGNING: &str = "impersonation_native_signing";
/// Always 1. The label `version` is the release of the filter that runs.
pub const FILTER_BUILD: &str =
    concat!("impersonation_build_info.module.filter.version.", env!("CARGO_PKG_VERSION"));
/// The age of the stalest key set, from the start if it was never fetched. Only with a
/// `remote_jwks`.
pub const KEY_SET_AGE: &str = "impersonation_key_set_age_seconds";

/// Always 1. The label `version` is the release of the guard that runs.
pub(crate) const GUARD_BUILD: &str =
    concat!("impersonation_build_info.module.guard.version.", env!("CARGO_PKG_VERSION"));
/// Requests that the guard checked.
pub(crate) const GUARD_SEEN: &str = "impersonation_guard_requests_total";
/// Streams that the guard ended while they were open.
pub(crate) const GUARD_STREAMS_ENDED: &str = "impersonation_guard_streams_ended_total";
/// The age of the guard's knowledge of the revocations.
pub(crate) const GUARD_AGE: &str = "impersonation_guard_revocations_age_seconds";
/// 1 if etcd sends the guard new revocations by a watch, 0 if the guard asks for them. Only with
/// `store.etcd`.
pub(crate) const GUARD_WATCHING: &str = "impersonation_guard_watching";

/// Counters that are defined at the start, with the value zero, in addition to those of
/// [`callout_failed`]. Prometheus sees no growth in a counter that first appears with the value
/// one: the first replay would raise no alarm.
pub const FROM_THE_START: [&str; 28] = [
    CREATED,
    EXCHANGED,
    REPLAYED,
    STORE_FULL,
    CUSTOM_CLAIMS_FAILURES,
    KEY_COLLISIONS,
    CANCELLED,
    REVOKED,
    REVOCATIONS_IGNORED,
    REVOKED_ON_REPLAY,
    REVOCATIONS_OVERFLOWED,
    REVOCATION_SHARES_EXCEEDED,
    LISTED,
    UNLISTED,
    INTROSPECTED,
    EVENTS_RECEIVED,
    ENDED_BY_EVENT,
    EVENT_STREAMS_STOPPED,
    EVENTS_OVERFLOWED,
    APPROVED,
    DENIED,
    APPROVALS_LISTED,
    TOKENS_READ,
    SESSIONS_SHOWN,
    BREAK_GLASS,
    NOTIFICATIONS_SENT,
    NOTIFICATIONS_FAILED,
    NOTIFICATIONS_DROPPED,
];

/// Refused requests: the endpoint, the code that the caller got, and the check that failed.
pub fn refused(endpoint: &str, error: &str, reason: &str) -> Cow<'static, str> {
    format!("impersonation_refusals_total.endpoint.{endpoint}.error.{error}.reason.{reason}").into()
}

/// Accepted events: `logout` or `security_event`, the sender's place in its list, the outcome of
/// the audit log.
///
/// The name of the sender is not a word of the code, and so it is not a label.
pub fn sender_event(kind: &'static str, sender: usize, outcome: &str) -> Cow<'static, str> {
    format!("impersonation_sender_events_total.kind.{kind}.sender.{sender}.outcome.{outcome}")
        .into()
}

/// Failures of etcd. Only with `store.etcd`.
pub fn store_failed(kind: &'static str) -> Cow<'static, str> {
    format!("impersonation_store_errors_total.kind.{kind}").into()
}

/// Calls to a service that got no usable answer.
pub fn callout_failed(upstream: &str) -> Cow<'static, str> {
    format!("impersonation_callout_failures_total.upstream.{upstream}").into()
}

/// Requests that the guard refused, and streams that it ended.
pub(crate) fn guard_refused(reason: &str) -> Cow<'static, str> {
    format!("impersonation_guard_refusals_total.reason.{reason}").into()
}

/// Requests that the guard would have refused if it were not in `mode: report`.
pub(crate) fn guard_reported(reason: &str) -> Cow<'static, str> {
    format!("impersonation_guard_reported_total.reason.{reason}").into()
}
