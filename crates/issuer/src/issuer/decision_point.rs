//! Asks the operator's policy decision point about a mint (AuthZEN Authorization API 1.0).
//!
//! Only 200 with the JSON `"decision": true` lets the mint continue. `"decision": false` is a
//! denial. Every other answer, and no answer, is a failure of the decision point: the mint is
//! refused too.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusal::Refusal;
use crate::config::DecisionPoint;
use crate::host::HostFailure;
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
    /// The mint goes without approval.
    pub(super) breaks_glass: bool,
    /// Envoy's id of the request.
    pub(super) request_id: String,
}

/// The body of the request (AuthZEN §6.1).
#[derive(Serialize)]
struct Request<'q> {
    subject: Entity<'q>,
    action: Action,
    resource: Entity<'q>,
    context: Circumstances<'q>,
}

#[derive(Serialize)]
struct Entity<'q> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'q str,
}

#[derive(Serialize)]
struct Action {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Circumstances<'q> {
    context: &'q Value,
    bounds: &'q Bounds,
    actor: Option<&'q str>,
    break_glass: bool,
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
    let Question { caller, user_id, context: given, bounds, breaks_glass, request_id } = question;
    let request = Request {
        subject: Entity { kind: "client", id: caller },
        action: Action { name: "impersonate" },
        resource: Entity { kind: "user", id: user_id },
        context: Circumstances {
            context: given,
            bounds,
            actor: bounds.actor_id.as_deref(),
            break_glass: *breaks_glass,
        },
    };
    let body = serde_json::to_vec(&request).map_err(|_| HostFailure("memory for a question"))?;
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
    let call = decision_point.http_uri.call("POST", headers, body);
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
