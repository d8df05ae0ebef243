//! Checks of the end: an impersonation that an operator ended is refused at every API, and its open
//! streams end. Each filter ends one.

use std::io::Read as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::attempts::{reading, reading_anew};
use super::credential::Target;
use super::deployment::{At, Deployment, Impersonation, built};
use super::report::{Group, Outcome, Report};
use crate::Failure;

/// How much longer than promised an API is watched, to say when it refuses.
const LONGER: Duration = Duration::from_secs(3);

/// The time between two reads of one API.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of refusals in a row, each on a connection of its own, after which all workers of an
/// Envoy count as told.
const REFUSALS: usize = 10;

/// Ends one impersonation at each filter, and measures what these APIs do then.
pub(super) fn check(
    deployment: &Deployment,
    apis: &[usize],
    report: &mut Report,
) -> Result<(), Failure> {
    let apis: Vec<_> = apis.iter().filter_map(|index| deployment.apis.get(*index)).collect();
    for (index, filter) in deployment.filters.iter().enumerate() {
        let impersonation = deployment.begin(index)?;
        end(deployment, filter, &apis, &impersonation, report);
        deployment.interruption.check()?;
    }
    Ok(())
}

fn end(
    deployment: &Deployment,
    filter: &At,
    apis: &[&At],
    impersonation: &Impersonation,
    report: &mut Report,
) {
    let streams: Vec<_> =
        apis.iter().map(|at| open_stream(deployment, at, impersonation)).collect();
    // Without a request that passes before, a refusal afterwards shows nothing.
    let read = reading(&deployment.settings.read, &impersonation.credential);
    let passed: Vec<_> = apis.iter().map(|at| read.send(deployment, at)).collect();
    let asked_at = Instant::now();
    let ended = deployment.end(filter, &impersonation.id);
    let ended_at = Instant::now();
    let outcome = match ended {
        Ok(answer) if answer.status == 204 => Outcome::Holds,
        Ok(answer) => Outcome::Fails(format!("it was answered {}", answer.in_short())),
        Err(Failure(told)) => Outcome::Fails(told),
    };
    let has_ended = outcome == Outcome::Holds;
    let took = ended_at.saturating_duration_since(asked_at);
    let check = "an operator ends an impersonation";
    report.add_timed(Group::Parties, &filter.address, check, outcome, took);

    let refused = format!("what {} ended is refused", filter.address);
    let closed = format!("a stream of what {} ended is closed", filter.address);
    if !has_ended {
        for at in apis {
            for (group, check) in [(Group::Ended, &refused), (Group::Streams, &closed)] {
                let why = Outcome::NotTried("nothing has ended".to_owned());
                report.add(group, &at.address, &**check, why);
            }
        }
        return;
    }
    let times = Times { asked_at, ended_at };
    watch(deployment, impersonation, &passed, (Group::Ended, &refused), apis, times, report);
    close(deployment, streams, &closed, apis, times, report);
}

/// When an impersonation ended.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// It was live until then.
    pub(super) asked_at: Instant,
    /// It has ended since.
    pub(super) ended_at: Instant,
}

/// Reads at each API until it refuses. `passed` are the answers to reads before the end.
pub(super) fn watch(
    deployment: &Deployment,
    impersonation: &Impersonation,
    passed: &[Result<Answer, Failure>],
    (group, refused): (Group, &str),
    apis: &[&At],
    Times { ended_at, .. }: Times,
    report: &mut Report,
) {
    let watched: Vec<_> = thread::scope(|scope| {
        let watch =
            |at| scope.spawn(move || last_let_through(deployment, at, impersonation, ended_at));
        let threads: Vec<_> = apis.iter().copied().map(watch).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for ((at, passed), watched) in apis.iter().zip(passed).zip(watched) {
        let was_live = match passed {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => Err(format!("while live it was answered {}", answer.in_short())),
            Err(Failure(told)) => Err(told.clone()),
        };
        let watched = watched.unwrap_or_else(|_| Err("the probe itself failed".to_owned()));
        match was_live.and(watched) {
            Ok(took) => {
                let outcome = in_time(took, deployment.settings.ends_within, "a request passed");
                report.add_timed(group, &at.address, refused, outcome, took);
            }
            Err(told) => report.add(group, &at.address, refused, Outcome::Fails(told)),
        }
    }
}

/// Waits for the end of the streams.
pub(super) fn close(
    deployment: &Deployment,
    streams: Vec<Result<Stream, Outcome>>,
    closed: &str,
    apis: &[&At],
    Times { asked_at, ended_at }: Times,
    report: &mut Report,
) {
    let within = deployment.settings.ends_within;
    for (at, stream) in apis.iter().zip(streams) {
        match stream.map(|stream| stream.end(asked_at, ended_at, within)) {
            Ok(Ok(took)) => {
                let outcome = in_time(took, within, "it was open");
                report.add_timed(Group::Streams, &at.address, closed, outcome, took);
            }
            Ok(Err(told)) => report.add(Group::Streams, &at.address, closed, Outcome::Fails(told)),
            Err(outcome) => report.add(Group::Streams, &at.address, closed, outcome),
        }
    }
}

fn in_time(took: Duration, within: Duration, told: &str) -> Outcome {
    match took <= within {
        true => Outcome::Holds,
        false => Outcome::Fails(format!(
            "{told} {} ms after the end; --ends-within is {} ms",
            took.as_millis(),
            within.as_millis()
        )),
    }
}

/// Reads until the API refuses, on a new connection each time. Returns how long after the end the
/// last request was sent that passed; zero if none was.
fn last_let_through(
    deployment: &Deployment,
    at: &At,
    impersonation: &Impersonation,
    ended_at: Instant,
) -> Result<Duration, String> {
    let read = reading_anew(&deployment.settings.read, &impersonation.credential);
    let longest = deployment.settings.ends_within.saturating_add(LONGER);
    let (mut last, mut refusals) = (Duration::ZERO, 0_usize);
    let mut seen = "it was not asked".to_owned();
    loop {
        let sent_at = ended_at.elapsed();
        match read.send_once(at) {
            Ok(answer) if answer.is_refusal() && answer.status == 401 => {
                refusals = refusals.saturating_add(1);
            }
            Ok(answer) => {
                refusals = 0;
                if answer.is_success() {
                    last = sent_at;
                }
                seen = format!("it is answered {}", answer.in_short());
            }
            Err(Failure(told)) => {
                refusals = 0;
                seen = told;
            }
        }
        if refusals >= REFUSALS {
            return Ok(last);
        }
        if let Err(Failure(told)) = deployment.interruption.check() {
            return Err(told);
        }
        if ended_at.elapsed() > longest && refusals == 0 {
            return Err(format!("after {} ms {seen}", ended_at.elapsed().as_millis()));
        }
        thread::sleep(PAUSE);
    }
}

/// A response of so many bytes at the most is no stream.
const SHORT: u64 = 64 * 1024;

const TOO_SHORT: &str = "it ended before the impersonation: name a longer one";

/// A stream that was open before the end.
pub(super) struct Stream(mpsc::Receiver<Instant>);

impl Stream {
    /// Waits for the end of the stream. Returns the time since the end of the impersonation.
    fn end(
        &self,
        asked_at: Instant,
        ended_at: Instant,
        within: Duration,
    ) -> Result<Duration, String> {
        let longest = within.saturating_add(LONGER).saturating_sub(ended_at.elapsed());
        match self.0.recv_timeout(longest) {
            // The guard may end the stream before the operator has the answer.
            Ok(at) if at >= asked_at => Ok(at.saturating_duration_since(ended_at)),
            Ok(_) => Err(TOO_SHORT.to_owned()),
            Err(_) => Err(format!("after {} ms it is open", ended_at.elapsed().as_millis())),
        }
    }
}

/// Opens a stream, and reads it until it ends.
pub(super) fn open_stream(
    deployment: &Deployment,
    at: &At,
    impersonation: &Impersonation,
) -> Result<Stream, Outcome> {
    let Some(path) = &deployment.settings.stream else {
        let why = "give --stream, a path whose response goes on";
        return Err(Outcome::NotTried(why.to_owned()));
    };
    let request = ureq::http::Request::builder().uri(format!("{}{path}", at.address));
    let target = Target { method: "GET", url: &at.public(path) };
    let request = impersonation.credential.presented(request, target);
    // Longer than anything waits for it.
    let longest = deployment.settings.ends_within.saturating_add(Duration::from_secs(120));
    let opened = built(at, request, ()).and_then(|request| at.open(request, longest));
    let mut body = match opened {
        Ok(answer) if answer.status().is_success() => {
            // The end of a short response may be read after the impersonation's.
            if answer.body().content_length().is_some_and(|bytes| bytes <= SHORT) {
                return Err(Outcome::Fails(TOO_SHORT.to_owned()));
            }
            answer.into_body().into_reader()
        }
        Ok(answer) => {
            let told = format!("{path} was answered {}", answer.status().as_u16());
            return Err(Outcome::Fails(told));
        }
        Err(Failure(told)) => return Err(Outcome::Fails(told)),
    };
    let (tell, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while matches!(body.read(&mut buffer), Ok(read) if read > 0) {}
        // Nobody listens if the probe is over.
        let _ = tell.send(Instant::now());
    });
    Ok(Stream(ended))
}
