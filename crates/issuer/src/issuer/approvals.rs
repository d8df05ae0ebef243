//! `GET /api/approvals` and `POST /api/approvals/{id}`: people see what waits for a decision, and
//! decide.
//!
//! An approver has the scope `impersonations:approve`. A user needs no scope: they see and decide
//! only what concerns them. Everybody else gets one answer, whatever waits for others, so that it
//! tells nothing, and the store reads nothing for them. The decision is one atomic write to the
//! token's record, as a spend is. A required hook is told before the write.

use std::cell::Cell;

use serde::Serialize;
use serde_json::Value;

use super::answer::secret_json;
use super::presented::verify_presented;
use super::query::{limit, refuse_unknown};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::request_context::RequestContext;
use super::reviewed::{Reviewed, as_json, was_ended};
use crate::bearer::BearerError;
use crate::config::Happening;
use crate::host::{HostFailure, UnixTime};
use crate::notifications::{Announced, Notice, taken_back_as};
use crate::oauth::form::Form;
use crate::state::store::{
    Choice, ChoiceRefused, Known, NotDecided, Person, Review, Standing, TokenId, Waiting,
};
use crate::step::Response;

/// The scope of an access token that may approve impersonations of other users.
const APPROVE: &str = "impersonations:approve";

/// The length of a page if the query has no `limit`.
const DEFAULT_LIMIT: usize = 50;

/// The longest page. A row has the whole context of its mint.
const MAX_LIMIT: usize = 200;

/// The longest reason of a decision, in characters.
const LONGEST_REASON: usize = 1024;

/// A person whose access token was verified.
struct Visitor {
    name: String,
    client_id: Option<String>,
    may_approve: bool,
}

impl Visitor {
    fn person(&self) -> Person<'_> {
        let Self { name, client_id, may_approve } = self;
        Person { name, client_id: client_id.as_deref(), may_approve: *may_approve }
    }
}

/// Verifies the person's access token. A token that names no person can decide nothing.
async fn visitor(request: RequestContext<'_>) -> Result<Visitor, Refusal> {
    let RequestContext { service, trail, .. } = request;
    let verified = verify_presented(request, &service.people).await?;
    let name = verified.subject.clone().ok_or_else(|| {
        Refusal::access_denied("nobody_named", "the access token must name a person")
    })?;
    trail.note(|facts| facts.requested_by = Some(name.clone()));
    let may_approve = verified.require(APPROVE).is_ok();
    if !may_approve && !verified.is_marked {
        return Err(lacks_the_scope().because(
            "a user's token needs typ at+jwt, scope or client_id: it could be an ID token",
        ));
    }
    Ok(Visitor { name, client_id: verified.client_id.clone(), may_approve })
}

fn lacks_the_scope() -> Refusal {
    Refusal::bearer(&BearerError::InsufficientScope([APPROVE.to_owned()].into()))
}

#[derive(Serialize)]
struct ListResponse {
    approvals: Vec<Reviewed>,
    /// The beginning of the next page; `null` on the last page.
    cursor: Option<String>,
    /// The list has everything that waits, over all pages.
    complete: bool,
}

/// Lists what waits for a decision.
pub(super) async fn list(request: RequestContext<'_>) -> Result<Response, Refusal> {
    let RequestContext { service, context, head, .. } = request;
    let visitor = visitor(request).await?;
    let revocations = service.oversight.revocations.current_view(context).await?;
    let now = context.host().now();
    let user_id = (!visitor.may_approve).then_some(&*visitor.name);
    let is_shown = |id: &TokenId, known: &Known| {
        let is_theirs = user_id.is_none() || known.user_id() == user_id;
        is_theirs && !was_ended(&revocations, id, known, now)
    };
    // A user for whom nothing waits is told as little as a stranger, whatever the query is.
    let mut place = None;
    while user_id.is_some() {
        let page = service.store.waiting(context, user_id, place.as_deref(), 1, is_shown).await?;
        if !page.entries.is_empty() {
            break;
        }
        place = Some(page.next.ok_or_else(lacks_the_scope)?);
    }
    let query = Form::parse(head.query())?;
    refuse_unknown(&query, &["limit", "cursor"], "the query can have limit and cursor")?;
    let limit = limit(&query, DEFAULT_LIMIT, MAX_LIMIT)?;
    let place = query.get("cursor");
    let page = service.store.waiting(context, user_id, place, limit, is_shown).await?;
    let may = |known: &Known, choice: Choice| {
        matches!(known.with(&visitor.person(), choice, now), Ok(Some(_)))
    };
    let row = |Waiting { id, known }: &Waiting| {
        let choices = Choice::ALL.into_iter().filter(|choice| may(known, *choice));
        let may_decide = Some(choices.map(Choice::word).collect());
        Reviewed { may_decide, ..Reviewed::new(id, known, now) }
    };
    let answer = ListResponse {
        approvals: page.entries.iter().map(row).collect(),
        cursor: page.next,
        complete: page.complete,
    };
    Ok(secret_json(200, &answer))
}

/// A decision, as a person writes it.
struct Decision {
    choice: Choice,
    reason: Option<String>,
}

impl Decision {
    fn read(head: &Head, body: &Body) -> Result<Self, Refusal> {
        let is_member = |name: &str| ["decision", "reason"].contains(&name);
        let malformed = "the body must be a JSON object of decision and reason";
        let mut members = body.members(head, is_member, malformed)?;
        let word = members.get("decision").and_then(Value::as_str);
        let choice = Choice::ALL.into_iter().find(|choice| word == Some(choice.word()));
        let choice = choice.ok_or(
            const { Refusal::invalid_request("decision", "decision must be approve or deny") },
        )?;
        let reason = match members.remove("reason") {
            None => None,
            Some(Value::String(text)) if text.chars().count() <= LONGEST_REASON => Some(text),
            Some(_) => {
                return Err(Refusal::invalid_request("decision_reason", "").telling(format!(
                    "reason must be a string of at most {LONGEST_REASON} characters"
                )));
            }
        };
        Ok(Self { choice, reason })
    }

    const fn happening(&self) -> Happening {
        match self.choice {
            Choice::Approve => Happening::ApprovalGiven,
            Choice::Deny => Happening::ApprovalDenied,
        }
    }

    /// Makes the notice of this decision by a person, under an id of its own. `review` is the
    /// result. If the decision does not take effect, the hooks get the token as it was.
    fn notice(
        &self,
        request: RequestContext<'_>,
        by: &Visitor,
        id: &TokenId,
        known: &Known,
        review: Review,
    ) -> Result<Notice, HostFailure> {
        let host = request.host();
        let mut random = [0; 16];
        host.random(&mut random)?;
        let decision_id = base16ct::lower::encode_string(&random);
        request.trail.note(|facts| facts.decision_id = Some(decision_id.clone()));
        let data = |known: &Known| {
            as_json(&Reviewed {
                decided_by: Some(by.name.clone()),
                reason: self.reason.clone(),
                decision_id: Some(decision_id.clone()),
                ..Reviewed::new(id, known, host.now())
            })
        };
        let mut decided = known.clone();
        decided.decide(review);
        let (issuer, subject) = (&request.service.config.issuer, id.to_string());
        let (told, otherwise) = (data(&decided)?, data(known)?);
        Notice::new(host, issuer, self.happening(), &subject, &told, &otherwise)
    }
}

/// Decides about a subject token.
pub(super) async fn decide(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let visitor = visitor(request).await?;
    let decision = Decision::read(head, &body)?;
    trail.note(|facts| facts.decision_reason.clone_from(&decision.reason));
    if decision.choice == Choice::Deny {
        trail.is_denial();
    }
    // Without the scope, a person is told nothing of tokens whose consent is not theirs to give.
    let unknown = || if visitor.may_approve { nothing_waits() } else { lacks_the_scope() };
    let id = head.last_segment().and_then(TokenId::parse).ok_or_else(unknown)?;
    trail.note(|facts| facts.subject_token_id = Some(id.to_string()));
    // Read before the token: a replay of a token that was exchanged in between ends it, too.
    let revocations = service.oversight.revocations.current_view(context).await?;
    let known = service.store.known(context, &id).await?;
    let is_shown = |known: &Known| visitor.may_approve || known.asks_consent_of(&visitor.name);
    let known = known.filter(is_shown).ok_or_else(unknown)?;
    trail.note(|facts| {
        facts.caller = Some(known.mint().caller.clone());
        facts.user_id = known.user_id().map(str::to_owned);
        facts.actor_id.clone_from(&known.mint().bounds.actor_id);
    });
    let host = request.host();
    if was_ended(&revocations, &id, &known, host.now()) {
        return Err(nothing_waits());
    }
    let judge = |known: &Known| judge(known, &visitor, decision.choice, host.now());
    let Some(review) = judge(&known)? else {
        trail.note(|facts| facts.outcome = Some("repeated"));
        return Ok(secret_json(200, &Reviewed::new(&id, &known, host.now())));
    };

    let is_user = known.user_id() == Some(&*visitor.name);
    let happening = decision.happening();
    let announced = match service.notifier.wants(happening) {
        true => {
            let notice = decision.notice(request, &visitor, &id, &known, review)?;
            if service.notifier.tells_first(happening) {
                trail.is_taken_back_as(taken_back_as(happening));
            }
            Some(service.notifier.announce(context, notice).await?)
        }
        false => None,
    };

    // The token may have changed since it was read. So the choice is judged again, in the same
    // atomic step in which it is written.
    context.still_wanted().await;
    let refusal = Cell::new(None);
    let written = service.store.decide(context, &id, |known| match judge(known) {
        Ok(review) => review,
        Err(refused) => {
            refusal.set(Some(refused));
            None
        }
    });
    let written = written.await;
    // Only a decision that certainly has no effect is taken back.
    let has_effect = match &written {
        Ok(Some(Known { record, .. })) => record
            .review
            .as_ref()
            .is_some_and(|review| review.has_choice_of(&visitor.name, is_user, decision.choice)),
        Ok(None) | Err(NotDecided::Store(_)) => false,
        Err(NotDecided::Unknown(_)) => true,
    };
    if has_effect {
        trail.is_taken_back_as(None);
    }
    let notice = announced.filter(|_| has_effect).map(Announced::has_happened);
    let known = written?.ok_or_else(nothing_waits)?;
    if let Some(refused) = refusal.take() {
        return Err(refused);
    }
    trail.is_done();
    if let Some(notice) = notice {
        service.notifier.note(host, notice);
    }
    Ok(secret_json(200, &Reviewed::new(&id, &known, host.now())))
}

/// Judges the choice of a person. Returns the new review of the token; `None` if the review has
/// this choice already.
fn judge(
    known: &Known,
    visitor: &Visitor,
    choice: Choice,
    now: UnixTime,
) -> Result<Option<Review>, Refusal> {
    if !known.has_review() || matches!(known.standing(now), Standing::Cancelled | Standing::Expired)
    {
        return Err(nothing_waits());
    }
    known.with(&visitor.person(), choice, now).map_err(|reason| match reason {
        ChoiceRefused::NotAllowed => lacks_the_scope(),
        ChoiceRefused::OwnRequest => Refusal::access_denied(
            "own_request",
            "nobody can approve an impersonation of or for themselves",
        ),
        ChoiceRefused::Decided => {
            let told = "the impersonation is decided already";
            Refusal::new(409, "already_decided", "already_decided", told)
        }
        ChoiceRefused::NotNeeded => {
            let told = "no approval is missing: only the consent of the user is";
            Refusal::new(409, "already_decided", "approval_not_needed", told)
        }
    })
}

fn nothing_waits() -> Refusal {
    Refusal::not_found("approval_unknown", "nothing with this id waits for a decision")
}
