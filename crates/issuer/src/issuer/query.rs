//! The query of a list: the parameters that it can have, and the length of a page.

use super::refusal::Refusal;
use crate::oauth::form::Form;

/// Refuses a parameter that the list does not know. `told` names those that it knows.
pub(super) fn refuse_unknown(
    query: &Form<'_>,
    known: &[&str],
    told: &'static str,
) -> Result<(), Refusal> {
    if query.names().any(|name| !known.contains(&name)) {
        return Err(Refusal::invalid_request("parameter_unknown", told));
    }
    Ok(())
}

/// Reads the length of a page, which is `default` if the query has no `limit`.
pub(super) fn limit(query: &Form<'_>, default: usize, longest: usize) -> Result<usize, Refusal> {
    let Some(text) = query.get("limit") else { return Ok(default) };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| digits && (1..=longest).contains(limit));
    limit.ok_or_else(|| {
        Refusal::invalid_request("limit", "")
            .telling(format!("limit must be a whole number from 1 to {longest}"))
    })
}
