//! Asks the operator's policy decision point about a mint (AuthZEN Authorization API 1.0).
//!
//! Only 200 with the JSON `"decision": true` lets the mint continue. `"decision": false` is a denial.
//! Every other answer, and no answer, is a failure of the decision point: the mint is refused too.

use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::config::DecisionPoint;
use crate::policy::Bounds;
use crate::step::Context;
use crate::upstream::{Upstream, ask};

/// The facts that the decision point is told.
pub(super) struct Question<'q> {
    /// The caller that asks for the subject token.
    pub(super) caller: &'q str,
    /// The user to impersonate.
    pub(super) user_id: &'q str,
    /// The context of the mint.
    pub(super) context: &'q Value,
    /// The bounds that the mint asks for.
    pub(super) bounds: &'q Bounds,
    /// Envoy's id of the request.
    pub(super) request_id: String,
}

/// The answer (AuthZEN §6.2). Its other members are for people.
#[derive(Deserialize)]
struct Evaluation {
    decision: bool,
}

/// Asks the decision point. Returns if it lets the mint continue.
pub(super) async fn evaluate(
    decision_point: &DecisionPoint,
    context: &Context,
    question: &Question<'_>,
) -> Result<(), Refusal> {
    let Question { caller, user_id, context: given, bounds, request_id } = question;
    let body = json!({
        "subject": {"type": "client", "id": caller},
        "action": {"name": "impersonate"},
        "resource": {"type": "user", "id": user_id},
        "context": {"context": given, "bounds": bounds, "actor": bounds.actor_id},
    });
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json".to_owned()),
    ];
    if !request_id.is_empty() {
        headers.push(("x-request-id", request_id.clone()));
    }
    if let Some(authorization) = &decision_point.authorization {
        headers.push(("authorization", authorization.expose().clone()));
    }
    let call = decision_point.http_uri.call("POST", headers, body.to_string().into_bytes());
    let answer = ask(context, Upstream::DecisionPoint, call).await?;
    let Evaluation { decision } = answer.json(context.host())?;
    match decision {
        true => Ok(()),
        false => {
            let told = "the policy decision point does not allow this impersonation";
            Err(Refusal::access_denied("decision_point_denied", told))
        }
    }
}
