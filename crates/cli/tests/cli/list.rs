//! Tests of `list`: the table for people, and the JSON for scripts.

use serde_json::{Value, json};
use testkit::server::{Reply, Server};

use crate::operator::{asked_for, asking, errors, service};
use crate::stdout;

fn listed(user: &str, actor: Option<&str>, expires: &str) -> Value {
    let mut listed = json!({
        "id": "0123456789abcdef0123456789ab", "userId": user, "clientId": "support-portal",
        "caller": "integrator-backend", "resource": "https://api.example.com/orders",
        "scope": "orders:read", "jti": "a-jti",
        "issuedAt": "2026-11-22T03:00:00.000Z", "expiresAt": expires,
    });
    if let Some(actor) = actor {
        listed["actorId"] = json!(actor);
    }
    listed
}

/// Returns a page whose `date` is 03:28:00.
fn page(impersonations: &[Value], cursor: Option<&str>, complete: bool) -> Reply {
    let body = json!({"impersonations": impersonations, "cursor": cursor, "complete": complete});
    Reply::json(&body).header("date", "Sun, 22 Nov 2026 03:28:00 GMT")
}

#[test]
fn all_pages_become_one_table_with_the_time_left_by_the_services_clock() {
    let server = Server::start("service");
    server.answer(|received| match received.index {
        0 => page(
            &[
                listed("user-43", Some("agent-2"), "2026-11-22T03:28:30.999Z"),
                listed("user-42", Some("agent-1"), "2026-11-22T03:31:59.000Z"),
            ],
            Some("next page"),
            true,
        ),
        _ => page(
            &[
                listed("user-44", Some("agent-1"), "2026-11-22T05:33:00.000Z"),
                listed("user-45", None, "2026-11-22T03:27:59.000Z"),
            ],
            None,
            true,
        ),
    });
    let output = asking(&server, &["list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(
        stdout(&output),
        "\
ACTOR    USER     CLIENT          CALLER              RESOURCE                        SCOPE        TIME            ID
-        user-45  support-portal  integrator-backend  https://api.example.com/orders  orders:read  0 s left        0123456789abcdef0123456789ab
agent-1  user-42  support-portal  integrator-backend  https://api.example.com/orders  orders:read  3 min left      0123456789abcdef0123456789ab
agent-1  user-44  support-portal  integrator-backend  https://api.example.com/orders  orders:read  2 h 5 min left  0123456789abcdef0123456789ab
agent-2  user-43  support-portal  integrator-backend  https://api.example.com/orders  orders:read  30 s left       0123456789abcdef0123456789ab
4 impersonations are live.
"
    );
    let targets: Vec<_> = asked_for(&server).into_iter().map(|(_, target, _)| target).collect();
    assert_eq!(
        targets,
        ["/api/impersonations?limit=1000", "/api/impersonations?limit=1000&cursor=next%20page"]
    );
}

#[test]
fn a_cursor_that_comes_again_ends_the_reading() {
    for command in [&["list"][..], &["approvals", "list"]] {
        let server = Server::start("service");
        server.answer(|_| {
            let (rows, cursor) = (json!([]), json!("again"));
            Reply::json(&json!({
                "impersonations": rows, "approvals": rows, "cursor": cursor, "complete": true,
            }))
        });
        let output = asking(&server, command).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {}", errors(&output));
        assert!(errors(&output).contains("does not end"), "{command:?}: {}", errors(&output));
        assert_eq!(server.calls(), 2, "{command:?}");
    }
}

#[test]
fn every_filter_reaches_the_service_unchanged() {
    let server = service(page(&[], None, true));
    let filters = [
        "list",
        "--user",
        "ü & co",
        "--actor",
        "a=b",
        "--client",
        "c+d",
        "--caller",
        "x/../y?#%",
        "--resource",
        "https://api/x?y",
    ];
    let output = asking(&server, &filters).output().unwrap();
    assert_eq!(stdout(&output), "No impersonation is live.\n");
    let received = server.last();
    assert_eq!(received.method, "GET");
    assert_eq!(
        received.target,
        "/api/impersonations?limit=1000&userId=%C3%BC%20%26%20co&actorId=a%3Db&clientId=c%2Bd\
         &caller=x%2F%2E%2E%2Fy%3F%23%25&resource=https%3A%2F%2Fapi%2Fx%3Fy"
    );
    for filter in ["--user", "--actor", "--client", "--caller", "--resource"] {
        let output = asking(&server, &["list", filter, ""]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{filter}");
    }
    assert_eq!(server.calls(), 1);
}

#[test]
fn a_list_with_one_incomplete_page_is_incomplete() {
    let one = listed("user-42", None, "2026-11-22T03:31:59.000Z");
    for first_is_complete in [false, true] {
        let one = one.clone();
        let server = Server::start("service");
        server.answer(move |received| match received.index % 2 {
            0 => page(std::slice::from_ref(&one), Some("2"), first_is_complete),
            _ => page(std::slice::from_ref(&one), None, !first_is_complete),
        });
        let output = asking(&server, &["list"]).output().unwrap();
        assert!(stdout(&output).contains("The list is not complete"), "{}", stdout(&output));
        assert_eq!(output.status.code(), Some(0));
        let output = asking(&server, &["list", "--json"]).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(list["complete"], false);
    }
}

#[test]
fn json_output_is_one_object_with_all_known_facts() {
    let all = [
        listed("user-42", Some("agent-1"), "2026-11-22T03:31:59.000Z"),
        listed("user-43", None, "2026-11-22T03:31:59.000Z"),
    ];
    let server = service(page(&all, None, true));
    let output = asking(&server, &["list", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list, json!({"impersonations": all, "complete": true}));
    assert_eq!(stdout(&output).lines().count(), 1);
}

#[test]
fn the_listed_context_is_a_column() {
    let mut with = listed("user-42", Some("agent-1"), "2026-11-22T03:31:59.000Z");
    with["context"] = json!({"reason": "a call", "ticketId": "T-1001"});
    let without = listed("user-43", Some("agent-2"), "2026-11-22T03:31:59.000Z");
    let server = service(page(&[with, without], None, true));
    let output = asking(&server, &["list"]).output().unwrap();
    let lines: Vec<_> = stdout(&output).lines().collect();
    let [title, first, second, _] = lines[..] else { panic!("{lines:?}") };
    let at = title.find("CONTEXT").unwrap();
    let cell = |line: &str| line.get(at..).unwrap().to_owned();
    assert!(cell(first).starts_with("reason=a call ticketId=T-1001  3 min left"), "{first}");
    assert!(cell(second).starts_with("-    "), "{second}");
}

#[test]
fn no_name_drives_the_terminal() {
    let name = "a\u{1b}]0;x\u{7}\r\n\u{9b}2J\u{7f}\u{202e}b\\";
    let mut listed = listed(name, Some(name), name);
    listed["context"] = json!({name: name});
    let server = service(page(&[listed], None, true));
    for arguments in [&["list"][..], &["list", "--json"]] {
        let output = asking(&server, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        let moves = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(moves), "{text:?}");
        assert_eq!(text.lines().count(), if arguments.len() == 1 { 3 } else { 1 }, "{text:?}");
    }
    let output = asking(&server, &["list"]).output().unwrap();
    assert!(
        stdout(&output).contains("a\\u{1b}]0;x\\u{7}\\u{d}\\u{a}\\u{9b}2J\\u{7f}\\u{202e}b\\\\")
    );
}

#[test]
fn a_configured_path_takes_the_place_of_the_default() {
    let path = ["--impersonations-path", "/support/sessions"];
    let server = service(page(&[], None, true));
    let output = asking(&server, &[&["list"][..], &path].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let by_id = ["revoke", "--id", "0123"];
    let output = asking(&server, &by_id).env("IMPERSONATIONS_PATH", path[1]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    asking(&server, &[&["revoke", "--user", "u"][..], &path].concat()).output().unwrap();
    let targets: Vec<_> = asked_for(&server).into_iter().map(|(_, target, _)| target).collect();
    let expected =
        ["/support/sessions?limit=1000", "/support/sessions/0123", "/support/sessions/revocations"];
    assert_eq!(targets, expected);
    for wrong in ["", "/", "sessions", "/sessions/", "/sessions?x=y", "https://a.example/sessions"]
    {
        let output = asking(&server, &["list", path[0], wrong]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    assert_eq!(server.calls(), 3);
}
