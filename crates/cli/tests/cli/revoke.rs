//! Tests of `revoke`: the impersonations that it ends, and the commands that it refuses.

use serde_json::{Value, json};
use testkit::server::Reply;

use crate::operator::{asked_for, asking, errors, refusal, service};
use crate::stdout;

const BEFORE: &str = "2026-11-22T03:28:00.123Z";

fn revoked() -> Reply {
    answered(&json!({"revokedBefore": BEFORE, "ended": 3}))
}

fn answered(body: &Value) -> Reply {
    Reply { status: 201, ..Reply::json(body) }
}

#[test]
fn revoke_ends_exactly_the_named_impersonations() {
    #[rustfmt::skip]
    let cases = [
        (&["--user", "u"][..],                          json!({"userId": "u"}),                             " of user u"),
        (&["--actor", "a\"\\"],                         json!({"actorId": "a\"\\"}),                        " of actor a\"\\\\"),
        (&["--client", "c"],                            json!({"clientId": "c"}),                           " of client c"),
        (&["--caller", "b"],                            json!({"caller": "b"}),                             " of caller b"),
        (&["--resource", "https://api/x"],              json!({"resource": "https://api/x"}),               " of resource https://api/x"),
        (&["--user", "u", "--actor", "a"],              json!({"userId": "u", "actorId": "a"}),             " of user u, actor a"),
        (&["--all", "--yes"],                           json!({"all": true}),                               ""),
    ];
    for (named, body, whose) in cases {
        let server = service(revoked());
        let output = asking(&server, &[&["revoke"], named].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{named:?}: {}", errors(&output));
        assert_eq!(
            stdout(&output),
            format!(
                "3 live impersonations{whose} have ended. What was issued until {BEFORE} is refused from now on, \
                 outstanding subject tokens included. New ones may begin.\n"
            )
        );
        assert_eq!(errors(&output), "", "{named:?}");
        let asked = ("POST".to_owned(), "/api/impersonations/revocations".to_owned(), body);
        assert_eq!(asked_for(&server), [asked], "{named:?}");
        assert_eq!(server.last().header("content-type"), Some("application/json"));
    }
}

/// A misspelt name ends nothing, and the output must show it. It is no failure, because no
/// impersonation of that name is live.
#[test]
fn revoke_says_how_many_have_ended_and_doubts_a_name_that_matches_none() {
    #[rustfmt::skip]
    let cases = [
        (json!({"revokedBefore": BEFORE, "ended": 0}),                      "No live impersonation of user typo was found.",                        true),
        (json!({"revokedBefore": BEFORE, "ended": 1}),                      "1 live impersonation of user typo has ended.",                         false),
        (json!({"revokedBefore": BEFORE, "ended": 2, "complete": false}),   "At least 2 live impersonations of user typo have ended.",              false),
        (json!({"revokedBefore": BEFORE, "ended": 0, "complete": false}),   "How many live impersonations of user typo have ended is not known.",   false),
    ];
    for (body, told, asked) in cases {
        let server = service(answered(&body));
        let output = asking(&server, &["revoke", "--user", "typo"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{body}");
        assert!(stdout(&output).starts_with(told), "{body}: {}", stdout(&output));
        assert_eq!(errors(&output).contains("how names are spelt"), asked, "{body}");
    }
    let server = service(answered(&json!({"revokedBefore": BEFORE})));
    let output = asking(&server, &["revoke", "--user", "typo"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    assert!(errors(&output).contains("it is not known whether anything has ended"));
}

#[test]
fn an_impersonation_ends_by_its_id_and_an_unknown_id_is_a_failure() {
    let server = service(Reply::status(204));
    let output = asking(&server, &["revoke", "--id", "0123/../revocations"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(stdout(&output), "The impersonation 0123/../revocations has ended.\n");
    let received = server.last();
    assert_eq!(received.method, "DELETE");
    assert_eq!(received.target, "/api/impersonations/0123%2F%2E%2E%2Frevocations");
    assert!(received.body.is_empty());

    let server = service(refusal(404, "not_found", "there is no live impersonation with this id"));
    let output = asking(&server, &["revoke", "--id", "0123"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    assert!(errors(&output).contains("there is no live impersonation with this id"));
}

#[test]
fn an_imprecise_command_ends_nothing() {
    let server = service(revoked());
    for named in [
        &[][..],
        &["--user"],
        &["--user", ""],
        &["--id", ""],
        &["--id", "x", "--user", "u"],
        &["--all", "--user", "u"],
        &["--all", "--id", "x"],
        &["--yes"],
        &["--yes", "--user", "u"],
        &["--user", "u", "--user", "v"],
        &["user-42"],
        // There is no terminal to ask at.
        &["--all"],
    ] {
        let output = asking(&server, &[&["revoke"], named].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{named:?}: {}", errors(&output));
    }
    assert_eq!(server.calls(), 0);
}
