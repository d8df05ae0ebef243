//! Tests of `approvals`: the table for people, the JSON for scripts, and the decisions.

use serde_json::{Value, json};
use testkit::server::{Reply, Server};

use crate::operator::{asked_for, asking, errors, refusal, service};
use crate::stdout;

fn waiting(id: &str, user: &str, context: &Value) -> Value {
    json!({
        "id": id, "userId": user, "caller": "integrator-backend", "context": context,
        "approvals": [{"by": "dana", "at": "2026-11-22T03:20:00.000Z"}], "needed": 1,
        "consent": "needed", "state": "pending", "requestedAt": "2026-11-22T03:00:00.000Z",
        "expiresAt": "2026-11-22T03:58:30.000Z",
    })
}

#[test]
fn what_waits_becomes_a_table_and_no_context_can_control_the_terminal() {
    let server = Server::start("service");
    let odd = json!({"reason": "<b>\u{1b}[2J\u{202e}".to_owned() + &"x".repeat(4000)});
    server.answer(move |received| {
        let (rows, cursor) = match received.index {
            0 => (
                json!([waiting(
                    "0123456789abcdef01234567",
                    "user-42",
                    &json!({"ticketId": "T-1"})
                )]),
                json!("next"),
            ),
            _ => (json!([waiting("89abcdef0123456789abcdef", "user-43", &odd)]), Value::Null),
        };
        let body = json!({"approvals": rows, "cursor": cursor, "complete": true});
        Reply::json(&body).header("date", "Sun, 22 Nov 2026 03:28:00 GMT")
    });
    let output = asking(&server, &["approvals", "list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = stdout(&output);
    assert!(text.lines().all(|line| !line.contains(|shown: char| shown.is_control())), "{text:?}");
    assert!(text.contains("reason=<b>\\u{1b}[2J\\u{202e}xxx"), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("USER     ACTOR  CALLER"), "{text}");
    let words: Vec<_> =
        lines[1].split("  ").filter(|word| !word.is_empty()).map(str::trim).collect();
    assert_eq!(
        words,
        [
            "user-42",
            "-",
            "integrator-backend",
            "ticketId=T-1",
            "dana",
            "1 and consent",
            "30 min left",
            "0123456789abcdef01234567"
        ]
    );
    assert_eq!(lines[3], "2 impersonations wait for a decision.");
    let targets: Vec<_> = asked_for(&server).into_iter().map(|(_, target, _)| target).collect();
    assert_eq!(targets, ["/api/approvals?limit=200", "/api/approvals?limit=200&cursor=next"]);

    let empty = json!({"approvals": [], "cursor": null, "complete": false});
    let server = service(Reply::json(&empty));
    let output = asking(&server, &["approvals", "list", "--json"]).output().unwrap();
    assert_eq!(stdout(&output), "{\"approvals\":[],\"complete\":false}\n");
    let output = asking(&server, &["approvals", "list"]).output().unwrap();
    assert!(stdout(&output).starts_with("Nothing waits for a decision.\nThe list is not complete"));
}

#[test]
fn a_decision_is_sent_with_its_reason_and_its_state_is_shown() {
    let mut row = waiting("0123456789abcdef01234567", "user-42", &json!({}));
    let server = service(Reply::json(&row));
    let approve = ["approvals", "approve", "0123456789abcdef01234567", "--reason", "I know it"];
    let output = asking(&server, &approve).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(
        stdout(&output),
        "The impersonation 0123456789abcdef01234567 is pending, still needed: 1 and consent.\n"
    );
    let (method, target, body) = asked_for(&server).remove(0);
    assert_eq!((&*method, &*target), ("POST", "/api/approvals/0123456789abcdef01234567"));
    assert_eq!(body, json!({"decision": "approve", "reason": "I know it"}));

    (row["needed"], row["state"]) = (json!(0), json!("denied"));
    row.as_object_mut().unwrap().remove("consent");
    let server = service(Reply::json(&row));
    let deny =
        ["approvals", "deny", "0123456789abcdef01234567", "--approvals-path", "/support/approvals"];
    let output = asking(&server, &deny).output().unwrap();
    assert_eq!(stdout(&output), "The impersonation 0123456789abcdef01234567 is denied.\n");
    assert_eq!(asked_for(&server)[0].1, "/support/approvals/0123456789abcdef01234567");
}

#[test]
fn a_refused_decision_is_a_failure_with_its_reason() {
    let told = "nobody can approve an impersonation of or for themselves";
    let server = service(refusal(403, "access_denied", told));
    let output =
        asking(&server, &["approvals", "approve", "0123456789abcdef01234567"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains(told), "{}", errors(&output));
}
