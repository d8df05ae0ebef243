//! Two Envoys and three nodes of etcd. The leader is killed, stopped and cut off, over and over,
//! while many callers want each token at once, while people decide about tokens, and while an
//! impersonation is ended. Then all nodes are gone.
//!
//! `make chaos` runs as long as docs/reliability.md says. The short form shows that the tests work,
//! and checks everything but times: the machine may be busy.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails, and that is all it does"
)]

mod approvals;
mod contest;
mod ended;
mod faults;
mod gone;
mod leader;
mod stopped;
mod watch;

/// The length of a run.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// The tokens that are contended for. Twice as many are decided about.
    tokens: usize,
    /// The faults while tokens are contended for. Half as many come while tokens are decided about.
    faults: usize,
    /// The time for which all nodes are gone, for each way of being gone.
    gone_seconds: u64,
    /// True if times are checked, too.
    holds_times: bool,
}

impl Length {
    const SHORT: Self = Self { tokens: 100, faults: 5, gone_seconds: 2, holds_times: false };
    const LONG: Self = Self { tokens: 5000, faults: 50, gone_seconds: 20, holds_times: true };

    /// Returns the long form if `CHAOS=long`.
    fn wanted() -> Self {
        let long = std::env::var_os("CHAOS").is_some_and(|length| length == "long");
        if long { Self::LONG } else { Self::SHORT }
    }
}
