//! Checks of the expiry: an access token is refused at every API from its expiry on, and its open
//! streams end.

use std::thread;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::attempts::reading;
use super::deployment::{At, Deployment, Impersonation};
use super::ending::{Stream, Times, close, open_stream, watch};
use super::report::{Group, Outcome, Report};
use crate::Failure;

/// The lifetimes that are tried. A token must not expire before each API was read: if one does, the
/// next token lives longer.
const LIFETIMES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];

/// The time between two looks for a signal.
const PAUSE: Duration = Duration::from_millis(50);

const REFUSED: &str = "an expired token is refused";
const CLOSED: &str = "a stream of an expired token is closed";

/// A token that expires soon, and what the APIs said before that.
struct Expiring {
    impersonation: Impersonation,
    read: Vec<Result<Answer, Failure>>,
    streams: Vec<Result<Stream, Outcome>>,
    times: Times,
}

/// Waits until a token has expired, and measures the APIs' answers from then on.
pub(super) fn check(
    deployment: &Deployment,
    apis: &[usize],
    report: &mut Report,
) -> Result<(), Failure> {
    let apis: Vec<_> = apis.iter().filter_map(|index| deployment.apis.get(*index)).collect();
    let expiring = match prepare(deployment, &apis) {
        Ok(expiring) => expiring,
        Err(Failure(told)) => {
            deployment.interruption.check()?;
            for at in apis {
                report.add(Group::Expired, &at.address, REFUSED, Outcome::Fails(told.clone()));
            }
            return Ok(());
        }
    };
    let Expiring { impersonation, read, streams, times } = expiring;
    while Instant::now() < times.ended_at {
        thread::sleep(PAUSE);
        deployment.interruption.check()?;
    }
    watch(deployment, &impersonation, &read, (Group::Expired, REFUSED), &apis, times, report);
    // Without a path for streams, the checks of the end say so.
    if deployment.settings.stream.is_some() {
        close(deployment, streams, CLOSED, &apis, times, report);
    }
    Ok(())
}

/// Begins an impersonation that expires soon, and reads each API while its token is live.
fn prepare(deployment: &Deployment, apis: &[&At]) -> Result<Expiring, Failure> {
    for lifetime in LIFETIMES {
        // The filter counts the lifetime from the whole second before the exchange.
        let asked_at = Instant::now();
        let impersonation = deployment.begin_for(0, Some(lifetime))?;
        let answered_at = Instant::now();
        let ended_at = answered_at.checked_add(lifetime).unwrap_or(answered_at);
        let streams = apis.iter().map(|at| open_stream(deployment, at, &impersonation)).collect();
        let reading = reading(&deployment.settings.read, &impersonation.credential);
        let read = apis.iter().map(|at| reading.send(deployment, at)).collect();
        if asked_at.elapsed().saturating_add(Duration::from_secs(1)) < lifetime {
            let times = Times { asked_at, ended_at };
            return Ok(Expiring { impersonation, read, streams, times });
        }
    }
    Err(Failure("the APIs answered so slowly that each token expired before".to_owned()))
}
