//! Checks of the guard's headers: no caller can write them.
//!
//! Envoy does not enter the guard for ordinary users, so their requests are tested, too. Only the
//! API sees which headers arrive, so it must have a path that repeats them.

use ureq::http::Request;

use super::answer::{Answer, Reading};
use super::credential::{Credential, Target};
use super::deployment::{At, Deployment, Impersonation, built};
use super::report::{Group, Outcome, Report};
use crate::Failure;

/// The value of a forged header. An honest response does not have it.
const FORGED: &str = "forged-by-a-probe";

/// Servers that read headers as variables take all of these for one name.
const SEPARATORS: [[&str; 2]; 7] =
    [["-", "-"], ["_", "_"], [".", "."], ["-", "_"], ["_", "."], ["!", "!"], ["~", "~"]];

const BY_AN_ORDINARY_USER: &str = "an ordinary user forges no header of the guard";
const BY_AN_IMPERSONATION: &str = "an impersonation forges no header of the guard";

/// Runs the checks at the APIs with these indices.
pub(super) fn check(
    deployment: &Deployment,
    impersonation: &Impersonation,
    apis: &[usize],
    report: &mut Report,
) {
    for at in apis.iter().filter_map(|index| deployment.apis.get(*index)) {
        let Some(echo) = &deployment.settings.echo else {
            for check in [BY_AN_ORDINARY_USER, BY_AN_IMPERSONATION] {
                let why = "give --echo, a path whose response repeats the headers of the request";
                report.add(Group::Headers, &at.address, check, Outcome::NotTried(why.to_owned()));
            }
            continue;
        };
        let outcome = match &deployment.ordinary {
            Some(token) => forge(deployment, at, echo, &Credential::bearer(token.clone()), true),
            None => Outcome::NotTried("give --ordinary-token-file".to_owned()),
        };
        report.add(Group::Headers, &at.address, BY_AN_ORDINARY_USER, outcome);
        let outcome = forge(deployment, at, echo, &impersonation.credential, false);
        report.add(Group::Headers, &at.address, BY_AN_IMPERSONATION, outcome);
    }
}

/// Forges each header in each spelling. `is_ordinary`: the guard does not set the headers itself.
fn forge(
    deployment: &Deployment,
    at: &At,
    echo: &str,
    credential: &Credential,
    is_ordinary: bool,
) -> Outcome {
    let names = &deployment.settings.identity_headers;
    let ask = |headers: &[String]| -> Result<Answer, Failure> {
        let uri = format!("{}{echo}", at.address);
        let target = Target { method: "GET", url: &at.public(echo) };
        let mut request = credential.presented(Request::builder().uri(uri), target);
        for name in headers {
            request = request.header(name, FORGED);
        }
        deployment.send(at, &built(at, request, ())?, Reading::Whole)
    };
    match ask(&["x-probe".to_owned()]) {
        Ok(answer) if answer.is_success() && text(&answer).contains(FORGED) => {}
        Ok(answer) if answer.is_success() => {
            let told = format!("the response of {echo} does not repeat headers");
            return Outcome::Fails(told);
        }
        Ok(answer) => return Outcome::Fails(format!("{echo} was answered {}", answer.in_short())),
        Err(Failure(told)) => return Outcome::Fails(told),
    }
    for separators in SEPARATORS {
        let spelt: Vec<_> = names.iter().map(|name| spelt(name, separators)).collect();
        let answer = match ask(&spelt) {
            Ok(answer) => answer,
            Err(Failure(told)) => return Outcome::Fails(told),
        };
        let text = text(&answer);
        if text.contains(FORGED) {
            return Outcome::Fails(format!("a forged {} arrives", spelt.join(" or ")));
        }
        // A server may print the names as variables.
        let text = text.to_lowercase().replace(['_', '.', '!', '~'], "-");
        if let Some(name) = names.iter().find(|name| is_ordinary && text.contains(&***name)) {
            return Outcome::Fails(format!("{name} arrives with the token of an ordinary user"));
        }
    }
    Outcome::Holds
}

/// Writes a name with other separators: all but the last one, and the last one.
fn spelt(name: &str, [others, last]: [&str; 2]) -> String {
    match name.rsplit_once('-') {
        Some((begin, end)) => format!("{}{last}{end}", begin.replace('-', others)),
        None => name.to_owned(),
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}
