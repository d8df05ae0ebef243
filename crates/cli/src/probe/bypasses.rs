//! Checks of the guard: an impersonation reads, and no other request gets to the API.

use std::thread;

use super::answer::Answer;
use super::attempts::{Attempt, all, of_a_thief, reading, with_one_proof, writing};
use super::deployment::{At, Deployment, Impersonation};
use super::report::{Group, Outcome, Report};
use crate::Failure;

/// The number of plain writes. Each has a connection of its own, so that different workers of Envoy
/// serve them, and a guard that Envoy enters for a part of the requests is noticed.
const WRITES: usize = 20;

/// The number of times that a used proof is presented again.
const REPLAYS: usize = 10;

/// The number of attempts without an answer after which an address is left alone.
const SILENCES: usize = 3;

/// Runs the checks at every API. Returns the indices of the APIs that answered a read.
pub(super) fn check(
    deployment: &Deployment,
    impersonation: &Impersonation,
    report: &mut Report,
) -> Vec<usize> {
    let attempts = all(&deployment.settings, &impersonation.credential, &deployment.refused);
    let checked = thread::scope(|scope| {
        let check = |at| {
            let attempts = &attempts;
            scope.spawn(move || check_one(deployment, at, impersonation, attempts))
        };
        let threads: Vec<_> = deployment.apis.iter().map(check).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut answered = Vec::new();
    for (index, (at, checked)) in deployment.apis.iter().zip(checked).enumerate() {
        match checked {
            Ok((checks, is_read)) => {
                report.append(checks);
                answered.extend(is_read.then_some(index));
            }
            Err(_) => {
                let told = Outcome::Fails("the probe itself failed".to_owned());
                report.add(Group::Reads, &at.address, "a read is answered", told);
            }
        }
    }
    answered
}

/// Runs the checks at one API. Returns true if it answered a read.
fn check_one(
    deployment: &Deployment,
    at: &At,
    impersonation: &Impersonation,
    attempts: &[Attempt],
) -> (Report, bool) {
    let mut report = Report::default();
    let settings = &deployment.settings;
    let read = reading(&settings.read, &impersonation.credential);
    let is_marked = match read.send(deployment, at) {
        Ok(answer) if answer.is_success() => {
            report.add_timed(read.group, &at.address, read.check, Outcome::Holds, answer.took);
            answer.from_upstream
        }
        Ok(answer) => {
            let told =
                Outcome::Fails(format!("{} was answered {}", settings.read, answer.in_short()));
            report.add_timed(read.group, &at.address, read.check, told, answer.took);
            return (report, false);
        }
        Err(Failure(told)) => {
            report.add(read.group, &at.address, read.check, Outcome::Fails(told));
            return (report, false);
        }
    };
    // What a thief tries are reads: they change nothing, even at an API without a guard.
    let stolen = of_a_thief(at, &settings.read, &impersonation.credential);
    let mut silences: usize = 0;
    try_all(deployment, at, &stolen, is_marked, &mut silences, &mut report);
    if let Some(used) = with_one_proof(at, &settings.read, &impersonation.credential) {
        replay(deployment, at, &used, &mut report);
    }
    if !refuses_writes(deployment, at, impersonation, &mut report) {
        // Each further attempt could change something.
        for attempt in attempts {
            let told = Outcome::NotTried("the plain write was not refused".to_owned());
            report.add(attempt.group, &at.address, &*attempt.check, told);
        }
        return (report, true);
    }
    if deployment.refused.is_empty() {
        let told = "give --refused-token-file, a token for another audience or of another issuer";
        let check = "a token that is not for the API does not read";
        report.add(Group::Tokens, &at.address, check, Outcome::NotTried(told.to_owned()));
    }
    try_all(deployment, at, attempts, is_marked, &mut silences, &mut report);
    (report, true)
}

/// Sends all attempts, unless the address stops answering. `silences` counts the attempts without
/// an answer.
fn try_all(
    deployment: &Deployment,
    at: &At,
    attempts: &[Attempt],
    is_marked: bool,
    silences: &mut usize,
    report: &mut Report,
) {
    for attempt in attempts {
        if *silences >= SILENCES {
            let told = Outcome::NotTried("the address does not answer any more".to_owned());
            report.add(attempt.group, &at.address, &*attempt.check, told);
            continue;
        }
        match attempt.send(deployment, at) {
            Ok(answer) => {
                let outcome = judge(deployment, at, attempt, &answer, is_marked);
                report.add_timed(attempt.group, &at.address, &*attempt.check, outcome, answer.took);
            }
            Err(Failure(told)) => {
                *silences = silences.saturating_add(1);
                report.add(attempt.group, &at.address, &*attempt.check, Outcome::Fails(told));
            }
        }
    }
}

/// Uses a proof, and then again on connections of its own, which other workers may serve.
fn replay(deployment: &Deployment, at: &At, used: &Attempt, report: &mut Report) {
    match used.send(deployment, at) {
        Ok(answer) if answer.is_success() => {}
        Ok(answer) => {
            let told = format!("with a new proof it was answered {}", answer.in_short());
            report.add(used.group, &at.address, &*used.check, Outcome::Fails(told));
            return;
        }
        Err(Failure(told)) => {
            report.add(used.group, &at.address, &*used.check, Outcome::Fails(told));
            return;
        }
    }
    for _ in 0..REPLAYS {
        let outcome = match used.send(deployment, at) {
            Ok(answer) if answer.is_refusal() => Outcome::Holds,
            Ok(answer) => Outcome::Fails(format!("it was answered {}", answer.in_short())),
            Err(Failure(told)) => Outcome::Fails(told),
        };
        report.add(used.group, &at.address, &*used.check, outcome);
    }
}

/// Tries the plain write. Returns true if the guard refused it each time.
fn refuses_writes(
    deployment: &Deployment,
    at: &At,
    impersonation: &Impersonation,
    report: &mut Report,
) -> bool {
    let write = writing(&deployment.settings.write, &impersonation.credential);
    for _ in 0..WRITES {
        let (outcome, took) = match write.send(deployment, at) {
            Ok(answer) if answer.is_refused_by_the_guard() => (Outcome::Holds, answer.took),
            Ok(answer) => {
                let told = format!("it was answered {}, and not by the guard", answer.in_short());
                (Outcome::Fails(told), answer.took)
            }
            Err(Failure(told)) => {
                report.add(write.group, &at.address, &*write.check, Outcome::Fails(told));
                return false;
            }
        };
        let holds = outcome == Outcome::Holds;
        report.add_timed(write.group, &at.address, &*write.check, outcome, took);
        if !holds {
            return false;
        }
    }
    true
}

/// Decides whether a request was refused before it got to the API. `is_marked` says that Envoy
/// marks the responses of this API, so that a response without the mark is Envoy's own.
fn judge(
    deployment: &Deployment,
    at: &At,
    attempt: &Attempt,
    answer: &Answer,
    is_marked: bool,
) -> Outcome {
    let is_envoys_own = is_marked && !answer.from_upstream;
    if answer.is_success() || answer.status == 101 {
        return match attempt.is_preflight() && is_envoys_own {
            // Envoy's cors filter answered.
            true => Outcome::Holds,
            false => Outcome::Fails(format!("it was let through, with {}", answer.in_short())),
        };
    }
    // Envoy itself refuses or redirects odd paths, or has no route for them.
    let is_odd = matches!(answer.status, 301..=308 | 400 | 403 | 404 | 405);
    if answer.is_refusal() || is_odd && is_envoys_own {
        return Outcome::Holds;
    }
    // A path may lead to another service, which needs no token and has nothing there. Then the same
    // request without the token gets the same response. The API behind jwt_authn would answer 401.
    let told = format!("it was answered {}, and not by the guard", answer.in_short());
    match attempt.send_without_token(deployment, at).filter(|_| is_odd) {
        Some(Ok(control)) if control.status == answer.status => Outcome::Holds,
        _ => Outcome::Fails(told),
    }
}
