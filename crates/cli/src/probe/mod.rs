//! `probe`: tests a running deployment from outside.
//!
//! `check` reads a configuration. `probe` sends requests, so it also finds what no file shows:
//! another listener, an old module, a proxy in between. It begins impersonations of its own, tries
//! to misuse them, ends them, and measures when each API refuses them.
//!
//! A probe that proves nothing does not pass: without credentials that work and an API that
//! answers, it fails, and so does a probe that was interrupted.

mod answer;
mod attempts;
mod bypasses;
mod credential;
mod deployment;
mod ending;
mod expiry;
mod identity;
mod interruption;
mod report;
mod sessions;
mod settings;
mod tokens;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use self::deployment::Deployment;
use self::interruption::Interruption;
use self::report::Report;
pub(super) use self::settings::Arguments;
use super::{Failure, Verdict};

/// How often the probe looks for a signal.
const PERIOD: Duration = Duration::from_millis(50);

/// How long an interrupted probe waits for the responses to its last requests.
const GRACE: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let settings = arguments.complete()?;
    let (strict, json) = (settings.strict, settings.json);
    let interruption = Interruption::listen()?;
    let deployment = Arc::new(Deployment::open(settings, interruption.clone())?);
    let probed = finish(&deployment, &interruption);
    // The end of a probe that failed is the same: nothing that it began stays.
    let (mut report, probed) = probed.unwrap_or_default();
    deployment.clean(&mut report);
    if interruption.has_come() {
        for left in report.left_behind() {
            eprintln!("impersonation-filter: {left}");
        }
        return Err(Failure("interrupted: nothing was proved".to_owned()));
    }
    let probed = probed.unwrap_or_else(|| Err(Failure("the probe itself failed".to_owned())));
    let holds = probed.is_ok() && report.holds(strict);
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", report.to_json(holds))?;
    } else {
        write!(out, "{report}")?;
    }
    probed?;
    Ok(if holds { Verdict::Fine } else { Verdict::Problems })
}

/// Runs every check on a thread of its own, so that a signal need not wait for a response. Returns
/// nothing if the probe was interrupted.
fn finish(
    deployment: &Arc<Deployment>,
    interruption: &Interruption,
) -> Option<(Report, Option<Result<(), Failure>>)> {
    let (tell, finished) = mpsc::channel();
    let probed = Arc::clone(deployment);
    thread::spawn(move || {
        let mut report = Report::default();
        let outcome = probe(&probed, &mut report);
        // Nobody listens if the probe was interrupted.
        let _ = tell.send((report, Some(outcome)));
    });
    loop {
        match finished.recv_timeout(PERIOD) {
            Ok(finished) => return Some(finished),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if !interruption.has_come() => {}
            Err(RecvTimeoutError::Timeout) => return finished.recv_timeout(GRACE).ok(),
        }
    }
}

/// Runs every check. A failure means that there was nothing to check.
fn probe(deployment: &Deployment, report: &mut Report) -> Result<(), Failure> {
    let impersonation = deployment.begin(0)?;
    tokens::check(deployment, &impersonation, report)?;
    deployment.interruption.check()?;
    let apis = bypasses::check(deployment, &impersonation, report);
    if apis.is_empty() {
        let told = "no API answered a read of an impersonation, so no guard was tested";
        return Err(Failure(told.to_owned()));
    }
    identity::check(deployment, &impersonation, &apis, report);
    deployment.interruption.check()?;
    if let Some(settings) = &deployment.settings.session {
        sessions::check(deployment, settings, &impersonation, report)?;
    }
    expiry::check(deployment, &apis, report)?;
    ending::check(deployment, &apis, report)
}
