//! The companion's report on the logs of a run.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::artifacts::COMPANION;
use crate::envoy::Envoy;

/// The counts of the report, or of Envoy's metrics for the same requests.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    pub mints: u64,
    pub exchanges: u64,
    pub replays: u64,
    pub refused_mints: u64,
    pub refused_exchanges: u64,
}

impl Counted {
    /// Counts with `impersonation-filter report`, in Envoy's log and in its access log. Fails if
    /// the report calls a line broken, or has taken two for one.
    pub fn by_report(envoy: &Envoy) -> Self {
        let mut logs = envoy.log();
        for line in envoy.access_log() {
            logs.push_str(&format!("{line}\n"));
        }
        let mut report = Command::new(&*COMPANION);
        let report = report.args(["report", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut report = report.spawn().unwrap();
        let mut input = report.stdin.take().unwrap();
        let writer = thread::spawn(move || input.write_all(logs.as_bytes()));
        let output = report.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["lines"]["broken"], 0);
        assert_eq!(report["lines"]["repeated"], 0);
        let totals = &report["totals"];
        let event = |name: &str| totals["events"][name].as_u64().unwrap_or(0);
        let total = |name: &str| totals[name].as_u64().unwrap();
        Self {
            mints: total("mints"),
            exchanges: total("exchanges"),
            replays: total("replays"),
            refused_mints: event("subject_token.refused"),
            refused_exchanges: event("token_exchange.refused"),
        }
    }

    /// Reads the same from Envoy's metrics.
    pub fn by_metrics(envoy: &Envoy) -> Self {
        let metrics = envoy.metrics();
        let sum = |start: &str| {
            metrics.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, count)| count).sum()
        };
        Self {
            mints: sum("impersonation_subject_tokens_created_total"),
            exchanges: sum("impersonation_subject_tokens_exchanged_total"),
            replays: sum("impersonation_subject_tokens_replayed_total"),
            refused_mints: sum("impersonation_refusals_total.endpoint.subject_tokens."),
            refused_exchanges: sum("impersonation_refusals_total.endpoint.token."),
        }
    }
}
