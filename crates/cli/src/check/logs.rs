//! Finds access logs that have access tokens in them. Whoever reads such a log can act as the
//! users.

use super::findings::Findings;
use super::tree::Place;

/// The longest part of an `Authorization` header that has no token in it.
const SCHEME: usize = 12;

/// Checks every access log at or below a place.
pub(super) fn check(place: &Place<'_>, findings: &mut Findings) {
    for (name, member) in place.members() {
        if matches!(name, "access_log" | "upstream_log") {
            check_log(&member, findings);
        } else {
            check(&member, findings);
        }
    }
    place.items().for_each(|item| check(&item, findings));
}

fn check_log(place: &Place<'_>, findings: &mut Findings) {
    let is_list = place.path.ends_with("additional_request_headers_to_log");
    let names = |header: Place<'_>| {
        header.text().is_some_and(|name| name.eq_ignore_ascii_case("authorization"))
    };
    let prints = |text: &str| text.split('%').skip(1).step_by(2).any(prints_token);
    if place.text().is_some_and(prints) || is_list && place.items().any(names) {
        findings.warning(
            &*place.path,
            "writes access tokens into the log, and whoever reads it can act as their users: take authorization out",
        );
    }
    place.children().iter().for_each(|child| check_log(child, findings));
}

/// Returns true if a command of a log's format prints a token: any that names the header, or the
/// copy of it that `header_to_metadata` keeps.
fn prints_token(command: &str) -> bool {
    let length = command.rsplit_once("):").and_then(|(_, length)| length.parse::<usize>().ok());
    command.to_ascii_lowercase().contains("authorization")
        && length.is_none_or(|length| length > SCHEME)
}
