//! `GET /api/impersonations`: an operator sees who impersonates whom.

use serde::Serialize;

use super::answer::secret_json;
use super::listing::{Listing, listed};
use super::presented::{READ, authorize_operator};
use super::query::{limit, refuse_unknown};
use super::refusal::Refusal;
use super::request_context::RequestContext;
use crate::oauth::form::Form;
use crate::state::impersonations::{LiveImpersonation, Place, Wanted};
use crate::step::Response;

/// The length of a page if the query has no `limit`.
const DEFAULT_LIMIT: usize = 100;

/// The longest page.
const MAX_LIMIT: usize = 1000;

/// The parameters of the query.
const PARAMETERS: [&str; 7] =
    ["userId", "actorId", "clientId", "caller", "resource", "limit", "cursor"];

#[derive(Serialize)]
struct ListResponse<'e> {
    impersonations: Vec<Listing<'e>>,
    /// The beginning of the next page; `null` on the last page.
    cursor: Option<String>,
    /// The list has every live impersonation, over all pages.
    complete: bool,
}

/// Lists live impersonations.
pub(super) async fn list(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let oversight = &service.oversight;
    authorize_operator(request, READ).await?;
    let query = Form::parse(head.query())?;
    let wanted = wanted(&query)?;
    trail.note(|facts| {
        facts.user_id = wanted.user_id.map(str::to_owned);
        facts.actor_id = wanted.actor_id.map(str::to_owned);
        facts.client_id = wanted.client_id.map(str::to_owned);
        facts.caller = wanted.caller.map(str::to_owned);
        facts.resource = wanted.resource.map(str::to_owned);
    });
    let limit = limit(&query, DEFAULT_LIMIT, MAX_LIMIT)?;
    let place = query.get("cursor").map(|text| Place::parse(text).ok_or_else(malformed_cursor));
    let place = place.transpose()?;

    // Completeness is read before the list. An entry that is dropped in between began after the
    // request.
    let complete = oversight.list.is_complete(context.host())?;
    let known = oversight.revocations.current_view(context).await?;
    let has_ended = |entry: &LiveImpersonation| {
        let (impersonation, issued) = listed(entry);
        known.has_ended(&impersonation, issued)
    };
    let is_shown = |entry: &LiveImpersonation| wanted.has_found(entry) && !has_ended(entry);
    let page = oversight.list.page(context, place, limit, is_shown).await?;
    let sessions = service.config.browser_sessions.as_ref();
    let shown = |entry| {
        let listing = Listing::of(entry);
        // No other impersonation is for this resource.
        let browser_session = sessions.is_some_and(|one| one.resource == *listing.resource);
        Listing { browser_session, ..listing }
    };
    let answer = ListResponse {
        impersonations: page.entries.iter().map(shown).collect(),
        cursor: page.next.map(|next| next.to_text()),
        complete: complete && page.complete,
    };
    Ok(secret_json(200, &answer))
}

/// Reads the members that an impersonation must have to be listed.
fn wanted<'q>(query: &'q Form<'_>) -> Result<Wanted<'q>, Refusal> {
    let told = "the query can have userId, actorId, clientId, caller, resource, limit and cursor";
    refuse_unknown(query, &PARAMETERS, told)?;
    let member = |name: &'static str| match query.get(name) {
        Some("") => {
            Err(Refusal::invalid_request("parameter_empty", "").telling(format!("{name} is empty")))
        }
        // No name has control characters, and they would reach an access log.
        Some(value) if value.contains(char::is_control) => {
            Err(Refusal::invalid_request("parameter_malformed", "")
                .telling(format!("{name} has control characters in it")))
        }
        value => Ok(value),
    };
    Ok(Wanted {
        user_id: member("userId")?,
        actor_id: member("actorId")?,
        client_id: member("clientId")?,
        caller: member("caller")?,
        resource: member("resource")?,
    })
}

fn malformed_cursor() -> Refusal {
    Refusal::invalid_request("cursor", "cursor must be that of the answer before")
}
