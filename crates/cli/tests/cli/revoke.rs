//! `revoke`: what it ends, and what it does not.

use serde_json::json;
use testkit::server::Reply;

use crate::operator::{asked_for, asking, errors, refusal, service};
use crate::stdout;

fn revoked() -> Reply {
    Reply { status: 201, ..Reply::json(&json!({"revokedBefore": "2026-11-22T03:28:00.123Z"})) }
}

#[test]
fn what_is_named_ends_and_nothing_else() {
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
                "Every impersonation{whose} that was issued until 2026-11-22T03:28:00.123Z has ended, outstanding \
                 subject tokens included. New ones may begin.\n"
            )
        );
        let asked = ("POST".to_owned(), "/api/impersonations/revocations".to_owned(), body);
        assert_eq!(asked_for(&server), [asked], "{named:?}");
        assert_eq!(server.last().header("content-type"), Some("application/json"));
    }
}

#[test]
fn one_ends_by_its_id_and_one_that_is_not_there_is_a_failure() {
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
fn what_is_not_said_exactly_ends_nothing() {
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
        // Nobody is there to ask.
        &["--all"],
    ] {
        let output = asking(&server, &[&["revoke"], named].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{named:?}: {}", errors(&output));
    }
    assert_eq!(server.calls(), 0);
}
