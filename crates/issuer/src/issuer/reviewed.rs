//! A subject token as people see it: its state, and who has decided about it. The list of what
//! waits, the answer to a decision, the caller's own look and the notices all show this.

use serde::Serialize;
use serde_json::Value;

use crate::host::{HostFailure, UnixTime};
use crate::policy::Bounds;
use crate::state::revocations::{CallerTag, Concerned, Impersonation, IssuedAt, View};
use crate::state::store::{Decided, Known, Review, Standing, State, TokenId};

/// A subject token, as people see it. A member that nobody knows is absent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reviewed {
    pub(super) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<Value>,
    pub(super) caller: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Value>,
    pub(super) approvals: Vec<Approval>,
    /// The number of approvals that are missing.
    pub(super) needed: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consent: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) denied: Option<Approval>,
    pub(super) state: &'static str,
    pub(super) requested_at: String,
    pub(super) expires_at: String,
    /// The decisions that the holder of the access token may make; in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) may_decide: Option<Vec<&'static str>>,
    /// The person who has just decided; in a notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decided_by: Option<String>,
    /// The reason of the decision; in a notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The id of the decision; in a notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decision_id: Option<String>,
}

/// The decision of a person.
#[derive(Serialize)]
pub(super) struct Approval {
    by: String,
    at: String,
}

impl Reviewed {
    pub(super) fn new(id: &TokenId, known: &Known, now: UnixTime) -> Self {
        let record = &known.record;
        let mint = &record.mint;
        let (grant, exchange) = match &record.state {
            State::Outstanding(grant) => (Some(grant), None),
            State::Spent(exchange) => (None, Some(exchange)),
            State::Cancelled => (None, None),
        };
        let nothing = Review::default();
        let review = record.review.as_deref().unwrap_or(&nothing);
        let standing = known.standing(now);
        let is_pending = standing == Standing::Pending;
        let Bounds { client_ids, resources, scopes, actor_id, .. } = &mint.bounds;
        let at = |millis| UnixTime::from_millis(millis).rfc3339().to_string();
        let approval =
            |decided: &Decided| Approval { by: decided.by.clone(), at: at(decided.at_millis) };
        let actor = exchange.and_then(|exchange| exchange.actor_id.as_ref()).or(actor_id.as_ref());
        let client = exchange.map(|exchange| Value::from(&*exchange.client_id));
        Self {
            id: id.to_string(),
            user_id: grant.map(|grant| grant.user_id.clone()),
            actor_id: actor.cloned(),
            client_id: client.or_else(|| one_or_many(client_ids.as_deref())),
            caller: mint.caller.clone(),
            resource: one_or_many(resources.as_deref()),
            scope: scopes.as_ref().map(|scopes| scopes.join(" ")),
            context: grant.and_then(|grant| serde_json::from_str(&grant.context).ok()),
            approvals: review.approved.iter().map(approval).collect(),
            needed: if is_pending { review.missing() } else { 0 },
            consent: match (review.consent, review.has_consent()) {
                (false, _) => None,
                (true, true) => Some("given"),
                (true, false) => Some("needed"),
            },
            denied: review.denied.as_ref().map(approval),
            state: standing.word(),
            requested_at: at(mint.at_millis),
            expires_at: known.expires_at.rfc3339().to_string(),
            may_decide: None,
            decided_by: None,
            reason: None,
            decision_id: None,
        }
    }

    /// Returns the token as ended by something that its record does not name: [`was_ended`].
    pub(super) fn taken_back(self) -> Self {
        Self { state: Standing::Cancelled.word(), needed: 0, ..self }
    }
}

/// Returns true if a revocation, or an event about the user or the actor, has ended a token that
/// could still be exchanged. Revocations of many impersonations change no token's record; an
/// exchange asks the same.
pub(super) fn was_ended(view: &View, id: &TokenId, known: &Known, now: UnixTime) -> bool {
    let Bounds { client_ids, resources, .. } = &known.mint().bounds;
    let of = (only(client_ids.as_deref()), only(resources.as_deref()));
    was_ended_for(view, id, known, now, of)
}

/// Returns true if the token [was ended](was_ended) for an exchange by this client, for this resource.
pub(super) fn was_ended_for(
    view: &View,
    id: &TokenId,
    known: &Known,
    now: UnixTime,
    (client_id, resource): (&str, &str),
) -> bool {
    if !matches!(known.standing(now), Standing::Pending | Standing::Approved) {
        return false;
    }
    let (id, mint, user_id) = (id.to_string(), known.mint(), known.user_id().unwrap_or_default());
    let actor_id = mint.bounds.actor_id.as_deref();
    let impersonation = Impersonation {
        id: &id,
        user_id,
        actor_id,
        client_id,
        caller: Some(CallerTag::of(&mint.caller)),
        resource,
        session: None,
        actor_since: None,
    };
    let concerned = Concerned { actor_id, session: None, user_id: Some(user_id) };
    let minted = IssuedAt::new(UnixTime::from_millis(mint.at_millis), known.created);
    view.has_revoked(&impersonation, minted) || view.event_has_ended(concerned, minted)
}

/// The name if there is only one; otherwise no name that a revocation has.
fn only(names: Option<&[String]>) -> &str {
    match names {
        Some([name]) => name,
        _ => "",
    }
}

/// Writes data of a notice.
pub(super) fn as_json(data: &impl Serialize) -> Result<String, HostFailure> {
    serde_json::to_string(data).map_err(|_| HostFailure("memory for a notice"))
}

/// Writes a bound as a mint writes it: one name, or a list.
fn one_or_many(names: Option<&[String]>) -> Option<Value> {
    match names? {
        [name] => Some(Value::from(&**name)),
        names => Some(Value::from(names)),
    }
}
