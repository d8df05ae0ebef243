//! The services that the filter asks, when they answer and when they fail. The provider is a fake:
//! a real one cannot be told to break off in the middle of a body.

mod callouts;
mod documents;
mod key_sets;
mod recovery;
mod stand_in;

use std::fmt::Display;
use std::time::Duration;

use testkit::Findings;
use testkit::gateway::IDENTITY_GATEWAY;
use testkit::http::Answer;
use testkit::server::Server;

/// The time that a request with one callout may take on a busy machine. Without the timeout it
/// would take 15 s, when Envoy gives up the request itself.
const BOUND: Duration = Duration::from_secs(10);

/// Starts the gateway behind the filter, which echoes requests.
fn echoing_gateway() -> Server {
    Server::start(IDENTITY_GATEWAY)
}

/// Checks the answer to a request whose service did not answer.
fn expect_unavailable(findings: &mut Findings, case: impl Display, answer: &Answer) {
    findings.expect(
        format!("{case}: the answer"),
        &answer.refusal(),
        &(503, "temporarily_unavailable".into()),
    );
    let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    findings.expect(format!("{case}: Retry-After in seconds"), &seconds.is_some(), &true);
}
