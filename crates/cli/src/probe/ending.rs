//! Checks of the end: an impersonation that an operator ended is refused at every API, and its open
//! streams end.

use std::io::Read as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::bypasses::read;
use super::deployment::{At, Deployment, Impersonation};
use super::report::{Outcome, Report};
use crate::Failure;

/// For how long an API is asked after the end, and a stream is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two reads of one API.
const PAUSE: Duration = Duration::from_millis(10);

const REFUSED: &str = "an ended impersonation is refused";
const STREAM: &str = "an open stream of an ended impersonation ends";

/// Ends the impersonation, and measures what each API does then.
pub(super) fn check(
    deployment: &Deployment<'_>,
    impersonation: &Impersonation,
    report: &mut Report,
) {
    let token = impersonation.access_token.expose();
    let streams: Vec<_> =
        deployment.apis.iter().map(|at| open_stream(deployment, at, token)).collect();
    let ended = deployment.end(&impersonation.id);
    let ended_at = Instant::now();
    let filter = deployment.filters.first().map(|at| &*at.address).unwrap_or_default();
    let outcome = match ended {
        Ok(answer) if answer.status == 204 => Outcome::Holds,
        Ok(answer) => Outcome::Fails(format!("answered {}", answer.in_short())),
        Err(Failure(message)) => Outcome::Fails(message),
    };
    let goes_on = outcome == Outcome::Holds;
    report.add(filter, "an operator ends an impersonation", outcome);
    if !goes_on {
        return;
    }
    let within = deployment.settings.within;
    let path = &deployment.settings.read;
    let measured: Vec<_> = thread::scope(|scope| {
        let watching: Vec<_> = deployment
            .apis
            .iter()
            .map(|at| scope.spawn(move || last_let_through(at, path, token, ended_at)))
            .collect();
        watching.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for (at, measured) in deployment.apis.iter().zip(measured) {
        match measured.unwrap_or_else(|_| Err("the probe itself failed".to_owned())) {
            Ok(took) if took <= within => {
                report.add_timed(&at.address, REFUSED, Outcome::Holds, took);
            }
            Ok(took) => {
                let told = format!("a request was let through {} ms later", took.as_millis());
                report.add_timed(&at.address, REFUSED, Outcome::Fails(told), took);
            }
            Err(told) => report.add(&at.address, REFUSED, Outcome::Fails(told)),
        }
    }
    for (at, stream) in deployment.apis.iter().zip(streams) {
        let ended = match stream {
            Ok(ended) => ended,
            Err(outcome) => {
                report.add(&at.address, STREAM, outcome);
                continue;
            }
        };
        let left = PATIENCE.saturating_sub(ended_at.elapsed());
        match ended.recv_timeout(left) {
            Ok(stopped) => {
                let took = stopped.saturating_duration_since(ended_at);
                let outcome = match (stopped < ended_at, took <= within) {
                    (true, _) => Outcome::Fails("the stream ended before the impersonation".into()),
                    (false, true) => Outcome::Holds,
                    (false, false) => Outcome::Fails(format!("{} ms later", took.as_millis())),
                };
                report.add_timed(&at.address, STREAM, outcome, took);
            }
            Err(_) => report.add(&at.address, STREAM, Outcome::Fails("it goes on".to_owned())),
        }
    }
}

/// Reads until the API refuses. Returns how long after the end the last request was sent that was let
/// through; zero if there was none.
fn last_let_through(
    at: &At,
    path: &str,
    token: &str,
    ended_at: Instant,
) -> Result<Duration, String> {
    let mut last = Duration::ZERO;
    while ended_at.elapsed() < PATIENCE {
        let sent_at = ended_at.elapsed();
        let answer = read(at, path, token).map_err(|Failure(message)| message)?;
        match answer.status {
            401 => return Ok(last),
            200..=299 => last = sent_at,
            // The guard knows nothing for a moment. It lets nothing through.
            503 => {}
            _ => return Err(format!("answered {}", answer.in_short())),
        }
        thread::sleep(PAUSE);
    }
    Err(format!("it is still let through after {} s", PATIENCE.as_secs()))
}

/// Opens a stream, and tells when it ends.
fn open_stream(
    deployment: &Deployment<'_>,
    at: &At,
    token: &str,
) -> Result<mpsc::Receiver<Instant>, Outcome> {
    let Some(path) = &deployment.settings.stream else {
        return Err(Outcome::NotTried("give --stream with a path whose answer goes on".to_owned()));
    };
    let request = at.agent.get(format!("{}{path}", at.address));
    let request = request.header("authorization", format!("Bearer {token}"));
    let request = request.config().timeout_global(Some(PATIENCE.saturating_mul(2))).build();
    let answer = request.call();
    let mut body = match answer {
        Ok(answer) if answer.status().is_success() => answer.into_body().into_reader(),
        Ok(answer) => return Err(Outcome::Fails(format!("answered {}", answer.status().as_u16()))),
        Err(error) => return Err(Outcome::Fails(crate::service::in_words(&error))),
    };
    let (tell, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while matches!(body.read(&mut buffer), Ok(read) if read > 0) {}
        // Nobody listens if the probe is over.
        let _ = tell.send(Instant::now());
    });
    Ok(ended)
}
