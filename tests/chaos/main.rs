//! Two Envoys and three nodes of etcd, the leader of which is killed, stopped and cut off, over and over, while many
//! want each token at once; then all nodes are gone. And while an impersonation is ended.
//!
//! `make chaos` makes it as long as docs/reliability.md has it. The short form shows that the machinery works, and holds
//! everything but times: the machine may be busy with something else.
#![cfg(test)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails, and that is all it does"
)]

mod contest;
mod ended;
mod faults;
mod gone;
mod leader;
mod stopped;
mod watch;

/// How long it goes on.
#[derive(Clone, Copy, Debug)]
struct Length {
    tokens: usize,
    faults: usize,
    /// How long all nodes are gone, each way.
    gone_seconds: u64,
    /// Whether times are held, too.
    holds_times: bool,
}

impl Length {
    const SHORT: Self = Self { tokens: 100, faults: 5, gone_seconds: 2, holds_times: false };
    const LONG: Self = Self { tokens: 5000, faults: 50, gone_seconds: 20, holds_times: true };

    /// `CHAOS=long` for the long one.
    fn wanted() -> Self {
        let long = std::env::var_os("CHAOS").is_some_and(|length| length == "long");
        if long { Self::LONG } else { Self::SHORT }
    }
}
