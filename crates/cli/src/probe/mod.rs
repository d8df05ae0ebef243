//! `probe`: tests a running deployment from outside.
//!
//! `check` reads a configuration. `probe` sends requests, so it also finds what no file shows: another
//! listener, an old module, a proxy in between. It begins impersonations of its own, tries to misuse
//! them, ends them, and measures when each API refuses them.

mod bypasses;
mod deployment;
mod ending;
mod report;
mod settings;
mod tokens;

use std::io::{self, Write as _};

use self::deployment::{Deployment, Impersonation};
use self::report::Report;
pub(super) use self::settings::Arguments;
use super::{Failure, Verdict};

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let settings = arguments.complete()?;
    let deployment = Deployment::open(&settings)?;
    let mut report = Report::default();
    let probed = probe(&deployment, &mut report);
    // The end of a probe that failed is the same: nothing that it began stays.
    deployment.clean(&mut report);
    let mut out = io::stdout().lock();
    if settings.json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        write!(out, "{report}")?;
    }
    probed?;
    Ok(if report.holds() { Verdict::Fine } else { Verdict::Problems })
}

/// Runs every check. A failure means that there was nothing to check: no impersonation could begin.
fn probe(deployment: &Deployment, report: &mut Report) -> Result<(), Failure> {
    let impersonation: Impersonation = deployment.begin()?;
    tokens::check(deployment, report)?;
    let reached = bypasses::check(deployment, &impersonation, report);
    ending::check(deployment, &impersonation, report);
    if reached == 0 {
        let told = "no API answered a read of an impersonation, so no guard was tested";
        return Err(Failure(told.to_owned()));
    }
    Ok(())
}
