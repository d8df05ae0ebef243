//! The metrics, each name written once (documented in docs/operations.md).
//!
//! Envoy's Wasm metrics have no labels, so a label is written into the name, as `.label.value`; the
//! `stats_config` of envoy.yaml takes it out again. Values come from the fixed words of the code, never
//! from a request.

use std::borrow::Cow;

/// Subject tokens that were minted.
pub const CREATED: &str = "impersonation_subject_tokens_created_total";
/// Subject tokens that were exchanged.
pub const EXCHANGED: &str = "impersonation_subject_tokens_exchanged_total";
/// Spent subject tokens that were presented again: somebody has what is not theirs.
pub const REPLAYED: &str = "impersonation_subject_tokens_replayed_total";
/// Mints that found every slot taken.
pub const STORE_FULL: &str = "impersonation_store_full_total";
/// Exchanges of which nobody knows whether they spent their token: see [`store_failed`].
pub const SPEND_UNKNOWN: &str = "impersonation_store_spends_unknown_total";
/// Subject tokens that were taken back by who minted them.
pub const CANCELLED: &str = "impersonation_subject_tokens_cancelled_total";
/// Requests that ended impersonations.
pub const REVOKED: &str = "impersonation_revocations_total";
/// Tokens that a client revoked and that are not known, or not its own.
pub const REVOCATIONS_IGNORED: &str = "impersonation_revocations_ignored_total";
/// Impersonations that ended because their subject token was presented once more.
pub const REVOKED_ON_REPLAY: &str = "impersonation_revocations_on_replay_total";
/// Revocations that found the table full: the oldest became one for everyone.
pub const REVOCATIONS_OVERFLOWED: &str = "impersonation_revocations_overflowed_total";
/// Revocations that found the share of a caller or a client used up: more of its own has ended.
pub const REVOCATION_SHARES_EXCEEDED: &str = "impersonation_revocation_shares_exceeded_total";
/// Looks at who impersonates whom.
pub const LISTED: &str = "impersonation_lists_total";
/// Impersonations that the list had no room for.
pub const UNLISTED: &str = "impersonation_unlisted_total";
/// Tokens of ours that somebody asked about.
pub const INTROSPECTED: &str = "impersonation_introspections_total";
/// Revocations that are told apart.
pub const REVOCATIONS: &str = "impersonation_revocations_kept";
/// Calls of the operator's function that failed, whatever became of the exchange.
pub const CUSTOM_CLAIMS_FAILURES: &str = "impersonation_custom_claims_failures_total";
/// Keys of the identity gateway that have the name of one of ours.
pub const KEY_COLLISIONS: &str = "impersonation_key_collisions_total";
/// How long a successful exchange took in the filter, callouts included. Envoy's histograms hold
/// integers, so that the base unit, seconds, would round everything to zero.
pub const EXCHANGE_DURATION: &str = "impersonation_exchange_duration_microseconds";
/// How long etcd took to store a token, all attempts together.
pub const STORE_MINT_DURATION: &str = "impersonation_store_duration_microseconds.operation.mint";
/// How long it took to look one up.
pub const STORE_FIND_DURATION: &str = "impersonation_store_duration_microseconds.operation.find";
/// How long it took to spend one.
pub const STORE_SPEND_DURATION: &str = "impersonation_store_duration_microseconds.operation.spend";
/// Tokens that are neither spent nor expired.
pub const OUTSTANDING: &str = "impersonation_subject_tokens_outstanding";
/// The most tokens that can be outstanding.
pub const CAPACITY: &str = "impersonation_store_capacity";
/// How long ago the oldest outstanding token was minted.
pub const OLDEST_AGE: &str = "impersonation_subject_token_oldest_age_seconds";
/// Whether access tokens are signed by Envoy's own cryptography (1) or in the sandbox (0).
pub const NATIVE_SIGNING: &str = "impersonation_native_signing";
/// How long ago the stalest key set was fetched; one that never was counts from the start.
pub const KEY_SET_AGE: &str = "impersonation_key_set_age_seconds";

/// Requests that the guard looked at.
pub const GUARD_SEEN: &str = "impersonation_guard_requests_total";
/// Streams that the guard ended while they were open.
pub const GUARD_STREAMS_ENDED: &str = "impersonation_guard_streams_ended_total";
/// How old what the guard knows of the revocations is.
pub const GUARD_AGE: &str = "impersonation_guard_revocations_age_seconds";

/// The counters that are there from the start, at zero, besides those of [`callout_failed`]. A counter that
/// begins at one never grew, as far as Prometheus can tell: the first replay would raise no alarm.
pub const FROM_THE_START: [&str; 15] = [
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
];

/// Requests to `endpoint` that were refused with the code `error`, by the check `reason`.
pub fn refused(endpoint: &str, error: &str, reason: &str) -> Cow<'static, str> {
    format!("impersonation_refusals_total.endpoint.{endpoint}.error.{error}.reason.{reason}").into()
}

/// Requests that etcd failed, by the kind of its failure.
pub fn store_failed(kind: &'static str) -> Cow<'static, str> {
    format!("impersonation_store_errors_total.kind.{kind}").into()
}

/// Calls to `upstream` that got no usable answer.
pub fn callout_failed(upstream: &str) -> Cow<'static, str> {
    format!("impersonation_callout_failures_total.upstream.{upstream}").into()
}

/// Requests that the guard refused, by the check `reason`.
pub fn guard_refused(reason: &str) -> Cow<'static, str> {
    format!("impersonation_guard_refusals_total.reason.{reason}").into()
}

/// Requests that the guard would have refused, were it not for `mode: report`.
pub fn guard_reported(reason: &str) -> Cow<'static, str> {
    format!("impersonation_guard_reported_total.reason.{reason}").into()
}
