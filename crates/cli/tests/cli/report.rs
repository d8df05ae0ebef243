//! Tests of `report`: what it puts together, what it selects, and how it shows texts that are meant
//! to do harm.

use std::process::{Command, Output};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{command, file, stdout, with_input};

pub(super) const TXN: &str = "0123456789abcdef0123456789ab";

fn minted(txn: &str, user: &str, second: u32) -> Value {
    json!({
        "time": format!("2026-11-22T21:00:{second:02}.000Z"), "request_id": format!("mint-{txn}"),
        "method": "POST", "path": "/api/subject-tokens", "status": 201, "client_address": "10.0.0.9",
        "impersonation": {
            "event": "subject_token.created", "subject_token_id": txn, "user_id": user,
            "caller": "integrator-backend",
        },
    })
}

fn exchanged(txn: &str, user: &str, actor: &str, second: u32) -> Value {
    json!({
        "time": format!("2026-11-22T21:00:{second:02}.000Z"), "request_id": format!("exchange-{txn}"),
        "method": "POST", "path": "/oidc/token", "status": 200,
        "impersonation": {
            "event": "token_exchange.succeeded", "subject_token_id": txn, "user_id": user,
            "actor_id": actor, "client_id": "support-portal", "caller": "integrator-backend",
            "resource": "https://api.example.com/orders", "scope": "orders:read", "jti": "a-jti",
        },
    })
}

fn called(txn: &str, user: &str, actor: &str, path: &str, second: u32) -> Value {
    json!({
        "time": format!("2026-11-22T21:00:{second:02}.000Z"), "request_id": format!("call-{txn}-{second}"),
        "method": "GET", "path": path, "status": 200, "guard": "allowed: default",
        "token": {"txn": txn, "sub": user, "act": actor, "jti": "a-jti"},
    })
}

/// A call that the guard refused: its line in the access log, and the guard's audit line.
fn refused(txn: &str, user: &str, actor: &str, path: &str, second: u32) -> [String; 2] {
    let mut access = called(txn, user, actor, path, second);
    access["status"] = json!(403);
    access["method"] = json!("DELETE");
    access["guard"] = json!("refused: rules[0]");
    access["impersonation"] = json!({
        "event": "impersonated_request.refused", "subject_token_id": txn, "user_id": user,
        "error": "insufficient_scope", "reason": "rule",
    });
    let audit = json!({
        "event": "impersonated_request.refused", "request_id": format!("call-{txn}-{second}"),
        "subject_token_id": txn, "user_id": user, "actor_id": actor, "client_id": "support-portal",
        "method": "DELETE", "path": path, "error": "insufficient_scope", "reason": "rule",
        "rule": "rules[0]", "enforced": true,
    });
    [access.to_string(), in_envoys_log(&audit, "21:00:59.001")]
}

/// The line of an audit event in Envoy's log.
pub(super) fn in_envoys_log(event: &Value, time: &str) -> String {
    // The filter writes `event` first.
    let mut event = event.to_string();
    assert!(event.starts_with(r#"{"event""#) || event.starts_with(r#"{"alarm""#), "{event}");
    event.insert_str(
        0,
        &format!(
            "[2026-11-22 {time}][2622][info][wasm] [source/extensions/common/wasm/context.cc:1151] \
             wasm log impersonation impersonation: "
        ),
    );
    event
}

/// The filter's audit line of a line in the access log.
fn audit_of(access: &Value, time: &str) -> String {
    let mut event = json!({"event": "", "request_id": access["request_id"]});
    for (name, value) in access["impersonation"].as_object().unwrap() {
        event[name] = value.clone();
    }
    in_envoys_log(&event, time)
}

pub(super) fn log(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn report(log: &str, arguments: &[&str]) -> Output {
    let file = file("envoy.log", log);
    let mut command = command(&["report"]);
    let output = command.args(arguments).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

pub(super) fn json_of(log: &str, arguments: &[&str]) -> Value {
    let output = report(log, &[arguments, &["--json"]].concat());
    serde_json::from_str(stdout(&output)).unwrap()
}

/// An impersonation with one refused call, which an operator ends, in both logs; among requests of
/// others.
pub(super) fn night() -> Vec<String> {
    let mint = minted(TXN, "user-42", 1);
    let exchange = exchanged(TXN, "user-42", "agent-1", 2);
    let revoked = json!({
        "time": "2026-11-22T21:00:30.000Z", "request_id": "revoke", "method": "POST",
        "path": "/api/impersonations/revocations", "status": 201,
        // As an access log that does not print `requested_by`.
        "impersonation": {"event": "impersonation.revoked", "actor_id": "agent-1"},
    });
    let mut revoked_audit = revoked.clone();
    revoked_audit["impersonation"]["requested_by"] = json!("operations");
    let mut lines = vec![
        "[2026-11-22 21:00:00.000][1][info][main] [source/server/server.cc:1] starting".to_owned(),
        audit_of(&mint, "21:00:01.007"),
        mint.to_string(),
        exchange.to_string(),
        audit_of(&exchange, "21:00:02.003"),
        json!({"time": "2026-11-22T21:00:03.000Z", "path": "/orders/1", "status": 200, "token": {"sub": "user-7", "jti": "x"}}).to_string(),
        called(TXN, "user-42", "agent-1", "/orders/1", 4).to_string(),
        called(TXN, "user-42", "agent-1", "/orders/2", 5).to_string(),
    ];
    lines.extend(refused(TXN, "user-42", "agent-1", "/orders/2", 6));
    lines.push(audit_of(&revoked_audit, "21:00:30.002"));
    lines.push(revoked.to_string());
    lines
}

#[test]
fn an_auditor_reads_who_did_what_as_whom_in_order() {
    let output = report(&log(&night()), &["--txn", TXN]);
    assert_eq!(
        stdout(&output),
        "\
Impersonation 0123456789abcdef0123456789ab
  agent-1 as user-42
  minted by integrator-backend, exchanged by support-portal
  for https://api.example.com/orders, scope orders:read
  Ended by operations (all impersonations of actor agent-1), 2026-11-22T21:00:30.000Z.
    2026-11-22T21:00:01.000Z  mint           201  POST /api/subject-tokens  by integrator-backend, from 10.0.0.9
    2026-11-22T21:00:02.000Z  exchange       200  POST /oidc/token  by support-portal
    2026-11-22T21:00:04.000Z  call           200  GET /orders/1  allowed: default
    2026-11-22T21:00:05.000Z  call           200  GET /orders/2  allowed: default
    2026-11-22T21:00:06.000Z  call           403  DELETE /orders/2  refused: rules[0]
    2026-11-22T21:00:30.000Z  end              -  by operations, all impersonations of actor agent-1
  3 calls, 1 refused.


Totals
             1  impersonations
             1  ended before they expired
             1  mints
             1  exchanges
             3  calls
             1  refused calls
             0  calls that the guard only reported
             0  calls past the guard
             0  replays
             1  subject_token.created
             1  token_exchange.succeeded

12 lines were read: 10 about impersonations, 2 about other things, 0 broken.
"
    );
}

/// An impersonation for which two people must agree: the lines of its requests until the exchange,
/// or until somebody denies it.
pub(super) fn waiting(txn: &str, decision: &str) -> Vec<String> {
    let mut mint = minted(txn, "user-42", 1);
    mint["impersonation"]["event"] = json!("approval.requested");
    let mut mint_audit = mint.clone();
    mint_audit["impersonation"]["approvals_needed"] = json!(1);
    mint_audit["impersonation"]["consent_needed"] = json!(true);
    let early = json!({
        "time": "2026-11-22T21:00:02.000Z", "request_id": "early", "method": "POST",
        "path": "/oidc/token", "status": 400,
        "impersonation": {
            "event": "token_exchange.refused", "subject_token_id": txn, "client_id": "support-portal",
            "error": "authorization_pending", "reason": "undecided",
        },
    });
    let decided = |event: &str, by: &str, status: u32, second: u32| {
        json!({
            "time": format!("2026-11-22T21:00:{second:02}.000Z"), "request_id": by, "method": "POST",
            "path": format!("/api/approvals/{txn}"), "status": status,
            "impersonation": {
                "event": event, "subject_token_id": txn, "user_id": "user-42", "actor_id": "agent-1",
                "caller": "integrator-backend", "requested_by": by,
            },
        })
    };
    let mut own = decided("approval.refused", "agent-1", 403, 3);
    own["impersonation"]["error"] = json!("access_denied");
    own["impersonation"]["reason"] = json!("own_request");
    let consent = decided("approval.given", "user-42", 200, 4);
    let last = decided(decision, "dana", 200, 5);
    let mut last_audit = last.clone();
    last_audit["impersonation"]["decision_reason"] = json!("I know\n\u{202e}the ticket");
    vec![
        mint.to_string(),
        audit_of(&mint_audit, "21:00:01.007"),
        early.to_string(),
        audit_of(&early, "21:00:02.001"),
        own.to_string(),
        audit_of(&own, "21:00:03.001"),
        consent.to_string(),
        audit_of(&consent, "21:00:04.001"),
        last.to_string(),
        audit_of(&last_audit, "21:00:05.001"),
    ]
}

#[test]
fn decisions_are_told_with_their_reasons() {
    let mut lines = waiting(TXN, "approval.given");
    lines.push(exchanged(TXN, "user-42", "agent-1", 6).to_string());
    let output = report(&log(&lines), &["--txn", TXN]);
    assert_eq!(
        stdout(&output).split("\n\n").next().unwrap(),
        "\
Impersonation 0123456789abcdef0123456789ab
  agent-1 as user-42
  minted by integrator-backend, exchanged by support-portal
  for https://api.example.com/orders, scope orders:read
  No end is in these logs: the token expires by itself.
    2026-11-22T21:00:01.000Z  mint           201  POST /api/subject-tokens  approval.requested, by integrator-backend, waits for 1 approval and the user's consent, from 10.0.0.9
    2026-11-22T21:00:02.000Z  exchange       400  POST /oidc/token  refused, by support-portal, reason undecided
    2026-11-22T21:00:03.000Z  approval       403  POST /api/approvals/0123456789abcdef0123456789ab  approval.refused, refused, by agent-1, reason own_request
    2026-11-22T21:00:04.000Z  approval       200  POST /api/approvals/0123456789abcdef0123456789ab  approval.given, by user-42
    2026-11-22T21:00:05.000Z  approval       200  POST /api/approvals/0123456789abcdef0123456789ab  approval.given, by dana, reason given: I know\\u{a}\\u{202e}the ticket
    2026-11-22T21:00:06.000Z  exchange       200  POST /oidc/token  by support-portal
  0 calls."
    );
    let totals = &json_of(&log(&lines), &[])["totals"];
    assert_eq!([&totals["mints"], &totals["exchanges"]], [1, 1]);
    assert_eq!(totals["events"]["approval.given"], 2);
    // The user learns neither who decided nor why.
    let output = report(&log(&lines), &["--txn", TXN, "--user-facing"]);
    let told = stdout(&output);
    assert!(
        !told.contains("dana") && !told.contains("ticket") && !told.contains("agent-1"),
        "{told}"
    );
}

/// The names of the events that docs/operations.md lists.
pub(super) fn events_of_the_manual() -> Vec<String> {
    let page = testkit::repository().join("docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let item = page.split_once("\n- `event`: ").unwrap().1.split_once("\n- ").unwrap().0;
    let words = item.split('`').skip(1).step_by(2);
    let mut family = "";
    let mut events = Vec::new();
    for word in words {
        match word.strip_suffix('.') {
            Some(name) => family = name,
            None if word.contains('.') => events.push(word.to_owned()),
            None => events.push(format!("{family}.{word}")),
        }
    }
    events
}

#[test]
fn each_event_of_the_audit_log_counts() {
    let events = events_of_the_manual();
    assert!(events.len() > 20, "{events:?}");
    let lines = events.iter().enumerate().map(|(index, event)| {
        let request_id = format!("request-{index}");
        in_envoys_log(&json!({"event": event, "request_id": request_id}), "21:00:00.000")
    });
    let totals = &json_of(&log(&lines.collect::<Vec<_>>()), &[])["totals"];
    let counted: Vec<_> = totals["events"].as_object().unwrap().keys().collect();
    let mut expected: Vec<_> = events.iter().collect();
    expected.sort();
    assert_eq!(counted, expected);
}

#[test]
fn a_denial_is_the_end_of_an_impersonation() {
    let lines = log(&waiting(TXN, "approval.denied"));
    let reported = json_of(&lines, &[]);
    let [entry] = &**reported["impersonations"].as_array().unwrap() else { panic!("{reported}") };
    assert_eq!(
        entry["ended"],
        json!({"at": "2026-11-22T21:00:05.000Z", "cause": "denied", "by": "dana"})
    );
    assert_eq!(reported["totals"]["ended"], 1);
    let told = report(&lines, &["--txn", TXN, "--user-facing"]);
    assert!(stdout(&told).contains("Refused before it began, 2026-11-22T21:00:05.000Z."));
}

#[test]
fn a_mint_that_broke_the_glass_says_so() {
    let mut mint = minted(TXN, "user-42", 1);
    mint["impersonation"]["event"] = json!("break_glass.used");
    let alarm = json!({"alarm": "break_glass.used", "subject_token_id": TXN, "user_id": "user-42"});
    let lines = log(&[mint.to_string(), in_envoys_log(&alarm, "21:00:01.001")]);
    let told = report(&lines, &["--txn", TXN]);
    assert!(
        stdout(&told).contains("POST /api/subject-tokens  break_glass.used, by integrator-backend")
    );
    let reported = json_of(&lines, &[]);
    assert_eq!(reported["totals"]["mints"], 1);
    assert_eq!(reported["impersonations"][0]["steps"].as_array().unwrap().len(), 1);
}

#[test]
fn every_request_appears_once_in_whatever_order_the_lines_come() {
    let expected = json_of(&log(&night()), &[]);
    assert_eq!(expected["totals"]["calls"], 3);
    assert_eq!(expected["otherRequests"].as_array().unwrap().len(), 1, "the revocation");
    let mut lines = night();
    for turn in 0..lines.len() {
        lines.rotate_left(1);
        if turn % 3 == 0 {
            lines.reverse();
        }
        assert_eq!(json_of(&log(&lines), &[]), expected, "{turn}");
    }
    // Both logs as files of their own, and through a pipe.
    let (access, envoy): (Vec<_>, Vec<_>) =
        night().into_iter().partition(|line| line.starts_with('{'));
    let (access, envoy) = (file("access.log", &log(&access)), file("envoy.log", &log(&envoy)));
    let output = command(&["report", "--json"]).args([&envoy, &access]).output().unwrap();
    assert_eq!(serde_json::from_str::<Value>(stdout(&output)).unwrap(), expected);
    let output = with_input(&["report", "--json"], log(&night()).as_bytes());
    assert_eq!(serde_json::from_str::<Value>(stdout(&output)).unwrap(), expected);
}

#[test]
fn each_log_alone_is_enough_for_what_is_in_it() {
    let (access, envoy): (Vec<_>, Vec<_>) =
        night().into_iter().partition(|line| line.starts_with('{'));
    let of_access = json_of(&log(&access), &[]);
    assert_eq!(of_access["totals"]["calls"], 3);
    assert_eq!(of_access["totals"]["refusedCalls"], 1);
    assert_eq!(
        of_access["impersonations"][0]["ended"]["of"],
        "all impersonations of actor agent-1"
    );

    let output = report(&log(&envoy), &[]);
    let text = stdout(&output);
    assert!(text.contains("DELETE /orders/2  refused: rules[0]"), "{text}");
    assert!(text.contains("calls that the guard allowed are missing"), "{text}");

    // Audit lines alone, as under `audit: {log: access_log}`.
    let bare = envoy.iter().filter_map(|line| line.split_once("impersonation: "));
    let bare: Vec<_> = bare.map(|(_, event)| event.to_owned()).collect();
    let of_bare = json_of(&log(&bare), &[]);
    assert_eq!(of_bare["totals"]["refusedCalls"], 1);
    assert_eq!(of_bare["totals"]["exchanges"], 1);
    assert_eq!(of_bare["lines"]["withoutTime"], 4);
}

/// Reports on several files.
fn json_of_files(logs: &[String]) -> Value {
    let files = logs.iter().map(|log| file("access.log", log));
    let output = command(&["report", "--json"]).args(files).output().unwrap();
    serde_json::from_str(stdout(&output)).unwrap()
}

fn repetitions(report: &Value) -> Vec<&str> {
    let entries = ["impersonations", "otherRequests"];
    let entries = entries.iter().flat_map(|name| report[name].as_array().unwrap());
    let steps = entries.flat_map(|entry| entry["steps"].as_array().unwrap());
    steps.filter_map(|step| step["repetition"].as_str()).collect()
}

#[test]
fn only_a_line_that_no_other_request_can_have_left_is_a_copy() {
    let call = |line_id: &str| {
        let mut call = called(TXN, "user-42", "agent-1", "/orders/1", 1);
        call["request_id"] = json!("chosen");
        if !line_id.is_empty() {
            call["line_id"] = json!(line_id);
        }
        format!("{call}\n")
    };
    let refusal = {
        let event = json!({
            "event": "subject_token.refused", "request_id": "chosen", "user_id": "root",
            "caller": "integrator-backend", "error": "access_denied", "reason": "protected_user",
        });
        format!("{}\n", in_envoys_log(&event, "21:00:01.000"))
    };
    let exchange =
        format!("{}\n", audit_of(&exchanged(TXN, "user-42", "agent-1", 2), "21:00:02.000"));
    let [one, other, older] = [call("1"), call("2"), call("")];
    #[rustfmt::skip]
    let cases = [
        // What it is, the files; then calls, refusals and exchanges, copies and equals.
        ("other ids",                   vec![one.clone() + &other],                             [2, 0, 0], [0, 0]),
        ("one id in two files",         vec![one.clone(), one.clone()],                         [1, 0, 0], [1, 0]),
        ("one id twice in a file",      vec![one.repeat(2)],                                    [1, 0, 0], [1, 0]),
        ("no id, in one file",          vec![older.repeat(3)],                                  [3, 0, 0], [0, 3]),
        ("no id, in two files",         vec![older.repeat(2), older.clone()],                   [3, 0, 0], [0, 3]),
        ("refusals in a file",          vec![refusal.repeat(2)],                                [0, 2, 0], [0, 2]),
        ("a refusal in two files",      vec![refusal.clone(), refusal.clone()],                 [0, 1, 0], [1, 0]),
        ("refusals in two files",       vec![refusal.repeat(2), refusal.repeat(3)],             [0, 3, 0], [2, 3]),
        ("an exchange, twice",          vec![exchange.repeat(2), exchange.clone()],             [0, 0, 1], [2, 0]),
    ];
    for (case, files, [calls, refusals, exchanges], [repeated, alike]) in cases {
        let report = json_of_files(&files);
        let (totals, lines) = (&report["totals"], &report["lines"]);
        let refused = totals["events"]["subject_token.refused"].as_u64().unwrap_or(0);
        assert_eq!([&totals["calls"], &totals["exchanges"]], [calls, exchanges], "{case}");
        assert_eq!(refused, refusals, "{case}");
        assert_eq!([&lines["repeated"], &lines["alike"]], [repeated, alike], "{case}");
        let told = repetitions(&report);
        let expected = calls + refusals + exchanges;
        let expected = if repeated + alike > 0 { expected } else { 0 };
        assert_eq!(u64::try_from(told.len()).unwrap(), expected, "{case}: {told:?}");
    }
    let text = stdout(&report(&older.repeat(3), &[])).to_owned();
    assert_eq!(text.matches("allowed: default, one of 3 equal lines").count(), 3, "{text}");
    let text = stdout(&report(&one.repeat(3), &["--user", "user-42", "--user-facing"])).to_owned();
    assert!(text.contains("GET /orders/1  its line is 3 times in the logs"), "{text}");
}

#[test]
fn calls_that_the_guard_only_reported_are_all_counted_without_an_access_log() {
    let line = |reason: &str, second: u32| {
        let event = json!({
            "event": "impersonated_request.refused", "request_id": "chosen", "subject_token_id": TXN,
            "method": "GET", "path": "/events", "error": "x", "reason": reason, "enforced": false,
        });
        in_envoys_log(&event, &format!("21:00:{second:02}.000"))
    };
    let mut lines: Vec<_> = (0..5).map(|second| line("rule", second)).collect();
    // Three of the five streams were open when the impersonation ended.
    lines.extend((10..13).map(|second| line("ended_while_open", second)));
    assert_eq!(json_of(&log(&lines), &[])["totals"]["reportedCalls"], 5);
}

#[test]
fn many_requests_with_one_id_are_all_counted() {
    let mut lines = Vec::new();
    for number in 0..20_000 {
        let [access, audit] = refused(TXN, "user-42", "agent-1", &format!("/orders/{number}"), 6);
        lines.extend([access, audit.replace("59.001", &format!("59.{:03}", number % 1000))]);
    }
    let report = json_of(&log(&lines), &[]);
    assert_eq!(report["totals"]["calls"], 20_000);
    assert_eq!(report["totals"]["refusedCalls"], 20_000);
}

#[test]
fn what_ended_an_impersonation_is_named() {
    let exchange = exchanged(TXN, "user-42", "agent-1", 2).to_string();
    let event = |event: Value| in_envoys_log(&event, "21:00:20.000");
    let ended = |by: &str| json!({"at": "2026-11-22T21:00:20.000Z", "cause": "revoked", "by": by});
    let alarm = json!({
        "alarm": "subject_token.replayed", "subject_token_id": TXN,
        "mint": {"caller": "integrator-backend", "request_id": "m", "at_millis": 0},
        "first_exchange": {"client_id": "support-portal", "request_id": "e", "jti": "j", "at_millis": 0},
        "second_client_id": "thief", "second_request_id": "r", "revoked": true,
    });
    let revocation = |names: Value| {
        let mut revoked = json!({"event": "impersonation.revoked", "request_id": "r", "requested_by": "operations"});
        revoked.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        revoked
    };
    let by_names = |of: &str| {
        let mut end = ended("operations");
        end["of"] = json!(format!("all impersonations of {of}"));
        end
    };
    let told = |names: Value| {
        let mut told = json!({"event": "impersonations.ended", "request_id": "r", "sender": "https://auth.example.com", "event_type": "logout"});
        told.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        told
    };
    let by_event = |of: &str| json!({"at": "2026-11-22T21:00:20.000Z", "cause": "event", "by": "https://auth.example.com", "of": format!("all impersonations of {of}")});
    let mut call = called(TXN, "user-42", "agent-1", "/orders/1", 10);
    call["token"]["sid"] = json!("s-1");
    #[rustfmt::skip]
    let cases = [
        ("logout",      told(json!({"actor_id": "agent-1"})),                                           by_event("actor agent-1")),
        ("logout from a session", told(json!({"session": "s-1"})),                                      by_event("session s-1")),
        ("logout from another session", told(json!({"actor_id": "agent-1", "session": "s-2"})),         Value::Null),
        ("an account that is an actor's or a user's", told(json!({"actor_id": "user-42", "user_id": "user-42"})), by_event("actor user-42, user user-42")),
        ("another account", told(json!({"actor_id": "user-43", "user_id": "user-43"})),                 Value::Null),
        ("an event about nobody", told(json!({})),                                                      Value::Null),
        ("nothing",     json!({"event": "impersonations.listed", "request_id": "r"}),                   Value::Null),
        ("by its id",   revocation(json!({"subject_token_id": TXN})),                                   ended("operations")),
        ("by client",   json!({"event": "impersonation.revoked", "request_id": "r", "subject_token_id": TXN, "client_id": "support-portal"}), ended("support-portal")),
        ("by actor",    revocation(json!({"actor_id": "agent-1"})),                                     by_names("actor agent-1")),
        ("by user and client", revocation(json!({"user_id": "user-42", "client_id": "support-portal"})), by_names("user user-42, client support-portal")),
        ("everybody",   revocation(json!({"all": true})),                                               by_names("everybody")),
        ("another",     revocation(json!({"actor_id": "agent-2"})),                                     Value::Null),
        ("refused",     json!({"event": "impersonation.revocation_refused", "request_id": "r", "actor_id": "agent-1", "error": "insufficient_scope", "reason": "insufficient_scope"}), Value::Null),
        ("replay",      alarm,                                                                          json!({"at": "2026-11-22T21:00:20.000Z", "cause": "replayed", "by": "thief"})),
        ("cancelled",   json!({"event": "subject_token.cancelled", "request_id": "r", "subject_token_id": TXN, "caller": "integrator-backend"}), json!({"at": "2026-11-22T21:00:20.000Z", "cause": "cancelled", "by": "integrator-backend"})),
        ("guard",       json!({"event": "impersonated_request.refused", "request_id": "r", "subject_token_id": TXN, "method": "GET", "path": "/", "error": "invalid_token", "reason": "ended", "enforced": true}), json!({"at": "2026-11-22T21:00:20.000Z", "cause": "unknown"})),
    ];
    for (case, line, end) in cases {
        let lines = [event(line), exchange.clone(), call.to_string()];
        let report = json_of(&log(&lines), &["--txn", TXN]);
        let impersonation = &report["impersonations"][0];
        assert_eq!(impersonation["ended"], end, "{case}: {impersonation}");
    }
    // A revocation before the impersonation began did not end it.
    let early = in_envoys_log(&revocation(json!({"all": true})), "20:00:00.000");
    assert!(json_of(&log(&[early, exchange]), &[])["impersonations"][0]["ended"].is_null());
}

#[test]
fn an_open_stream_that_the_guard_ended_is_one_call() {
    let call = called(TXN, "user-42", "agent-1", "/events", 4);
    let cut = |reason: &str, enforced: bool| {
        let event = json!({
            "event": "impersonated_request.refused", "request_id": format!("call-{TXN}-4"),
            "subject_token_id": TXN, "method": "GET", "path": "/events", "error": "invalid_token",
            "reason": reason, "enforced": enforced,
        });
        in_envoys_log(&event, "21:00:50.000")
    };
    let cases = [
        (cut("ended_while_open", true), "cut_off", 1),
        (cut("ended_while_open", false), "reported", 0),
    ];
    for (line, outcome, refused) in cases {
        for lines in [[call.to_string(), line.clone()], [line.clone(), call.to_string()]] {
            let report = json_of(&log(&lines), &[]);
            let steps = report["impersonations"][0]["steps"].as_array().unwrap();
            assert_eq!(steps.len(), 1, "{report}");
            assert_eq!(steps[0]["outcome"], outcome);
            assert_eq!(report["totals"]["refusedCalls"], refused);
        }
    }
}

#[test]
fn a_report_is_about_what_was_asked_for() {
    let other = "00000000000000000000000000ff";
    let mut lines = night();
    let mut later = exchanged(other, "user-43", "agent-2", 40);
    later["impersonation"]["caller"] = json!("another-backend");
    lines.push(later.to_string());
    lines.push(called(other, "user-43", "agent-2", "/orders/9", 41).to_string());
    let log = log(&lines);
    #[rustfmt::skip]
    let cases: [(&[&str], &[&str]); 11] = [
        (&[],                                           &[TXN, other]),
        (&["--txn", TXN],                               &[TXN]),
        (&["--txn", "unknown"],                         &[]),
        (&["--actor", "agent-2"],                       &[other]),
        (&["--user", "user-42"],                        &[TXN]),
        (&["--user", "user-42", "--actor", "agent-2"],  &[]),
        (&["--caller", "integrator-backend"],           &[TXN]),
        (&["--since", "2026-11-22T21:00:35Z"],          &[other]),
        (&["--until", "2026-11-22T23:00:35+02:00"],     &[TXN]),
        (&["--since", "2026-11-22T22:00:00Z"],          &[]),
        (&["--until", "2026-11-22T20:00:00Z"],          &[]),
    ];
    for (arguments, expected) in cases {
        let report = json_of(&log, arguments);
        let ids: Vec<_> = report["impersonations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].clone())
            .collect();
        assert_eq!(ids, expected, "{arguments:?}");
    }
    // A selected impersonation is shown as a whole.
    let report = json_of(&log, &["--since", "2026-11-22T21:00:06Z", "--actor", "agent-1"]);
    assert_eq!(report["totals"]["calls"], 3);
}

#[test]
fn a_user_learns_what_was_done_and_no_internal_name() {
    let log = log(&night());
    let text = stdout(&report(&log, &["--user", "user-42", "--user-facing"])).to_owned();
    assert!(text.contains("GET /orders/1"), "{text}");
    assert!(text.contains("DELETE /orders/2  refused"), "{text}");
    assert!(text.contains("Ended early, 2026-11-22T21:00:30.000Z."), "{text}");
    for form in [&[][..], &["--html"], &["--json"], &["--csv"]] {
        let arguments = [&["--user", "user-42", "--user-facing"], form].concat();
        let output = report(&log, &arguments);
        for internal in [
            "agent-1",
            "integrator-backend",
            "support-portal",
            "operations",
            "10.0.0.9",
            "a-jti",
            "rules[0]",
            "call-0123",
            "reason",
            "/oidc/token",
        ] {
            let shown = stdout(&output).lines().skip(usize::from(form == ["--csv"]));
            let shown: String = shown.collect();
            assert!(!shown.contains(internal), "{form:?}: {internal}: {shown}");
        }
        assert!(stdout(&output).contains("/orders/2"), "{form:?}");
    }
    let output = command(&["report", "--user-facing", "-"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a user gets no report about other users");
}

#[test]
fn markup_controls_and_long_names_are_shown_as_text() {
    let long = "n".repeat(4096);
    let odd = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "=HYPERLINK(\"http://x\")",
        "a\u{1b}[2Jb\u{7}",
        "\u{202e}nimda",
        "\u{2066}x\u{2069}",
        "a\r\nb",
        "&amp;",
        long.as_str(),
    ];
    for name in odd {
        let mut mint = minted(TXN, name, 1);
        mint["path"] = json!(name);
        mint["client_address"] = json!(name);
        let exchange = exchanged(TXN, name, name, 2);
        let mut event = json!({"event": "", "request_id": format!("mint-{TXN}"), "context": {name: name, "a": [name]}});
        for (member, value) in mint["impersonation"].as_object().unwrap() {
            event[member] = value.clone();
        }
        let refused = json!({"event": "subject_token.refused", "request_id": "x", "user_id": name, "reason": name});
        let lines = [
            mint.to_string(),
            exchange.to_string(),
            in_envoys_log(&event, "21:00:01.000"),
            called(TXN, name, name, name, 4).to_string(),
            in_envoys_log(&refused, "21:00:09.000"),
        ];
        let log = log(&lines);
        for form in [&[][..], &["--html"], &["--csv"], &["--json"]] {
            let output = report(&log, form);
            let shown = stdout(&output);
            let bad = |c: char| {
                (c.is_control() && c != '\n' && !(c == '\r' && form == ["--csv"]))
                    || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            assert!(!shown.contains(bad), "{form:?}: {name:?}: {shown:?}");
            if name == long {
                assert!(shown.contains(&long), "{form:?}: a long name is shown whole");
            }
        }
        let page = stdout(&report(&log, &["--html"])).to_owned();
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        assert_eq!(page.matches("</tr>").count(), page.matches("<tr>").count());
        let sheet = stdout(&report(&log, &["--csv"])).to_owned();
        for row in sheet.lines() {
            assert!(!row.contains(",=") && !row.contains(",\"="), "{row}");
        }
        let read = json_of(&log, &[]);
        assert_eq!(read["impersonations"][0]["userId"], name, "{name:?}");
        assert_eq!(read["impersonations"][0]["context"][name], name, "{name:?}");
    }
}

#[test]
fn lines_that_are_broken_or_not_ours_are_counted_and_imitate_nothing() {
    let call = called(TXN, "user-42", "agent-1", "/orders/1", 4).to_string();
    let event =
        json!({"event": "token_exchange.succeeded", "request_id": "r", "subject_token_id": TXN});
    let raw = call.replace("/orders/1", "/\u{fffd}");
    let mut not_utf8 = raw.into_bytes();
    let place = not_utf8.windows(3).position(|bytes| bytes == "\u{fffd}".as_bytes()).unwrap();
    not_utf8[place] = 0xff;
    #[rustfmt::skip]
    let cases: [(&str, Vec<u8>, [u64; 4]); 14] = [
        // What it is, the line; then read, ours, others and broken.
        ("empty",               b"\n".to_vec(),                                     [1, 0, 1, 0]),
        ("text",                b"hello\n".to_vec(),                                [1, 0, 1, 0]),
        ("other JSON",          b"{\"event\":\"user.login\"}\n".to_vec(),           [1, 0, 1, 0]),
        ("other shape",         b"{\"txn\":1,\"token\":\"x\"}\n".to_vec(),          [1, 0, 1, 0]),
        ("no line feed",        call.clone().into_bytes(),                          [1, 1, 0, 0]),
        ("carriage return",     format!("{call}\r\n").into_bytes(),                 [1, 1, 0, 0]),
        ("cut off",             call.as_bytes().strip_suffix(b"}").unwrap().into(), [1, 0, 0, 1]),
        ("cut off early",       call.as_bytes()[..20].into(),                       [1, 0, 0, 1]),
        ("two in a line",       format!("{call}{call}\n").into_bytes(),             [1, 1, 0, 0]),
        ("mixed",               format!("{call}[2026{call}\n").into_bytes(),        [1, 0, 0, 1]),
        ("not UTF-8",           not_utf8,                                           [1, 1, 0, 0]),
        ("container runtime",   format!("2026-11-22T21:00:04.1Z stdout F {call}\nenvoy-1  | {call}\n").into_bytes(), [2, 2, 0, 0]),
        ("header in a debug line", format!("[2026-11-22 21:00:04.1][1][debug][http] [x.cc:1] wasm log x: {event}\n").into_bytes(), [1, 0, 1, 0]),
        ("header on its own line", format!("'user-agent', 'wasm log x: {event}'\n").into_bytes(), [1, 0, 1, 0]),
    ];
    for (case, bytes, [read, ours, others, broken]) in cases {
        let output = with_input(&["report", "--json"], &bytes);
        let report: Value = serde_json::from_str(stdout(&output)).unwrap();
        let lines = &report["lines"];
        let counted = [&lines["read"], &lines["ours"], &lines["others"], &lines["broken"]];
        assert_eq!(counted, [read, ours, others, broken], "{case}: {report}");
        let found = report["totals"]["calls"].as_u64().unwrap() > 0;
        assert_eq!(found, ours > 0 || case == "mixed", "{case}");
    }
}

#[test]
fn the_exit_status_says_if_there_is_a_report() {
    const OURS: &[u8] = br#"{"token": {"txn": "one"}}"#;
    #[rustfmt::skip]
    let cases: [(&[&str], &[u8], i32, &str); 7] = [
        (&["report"],                                       b"",                1, "0 lines were read, and none is about impersonations"),
        (&["report", "-"],                                  b"nothing\n",       1, "1 lines were read, and none is about impersonations"),
        (&["report", "--txn", "another"],                   OURS,               0, ""),
        (&["report", "/nowhere/envoy.log"],                 b"",                2, "/nowhere/envoy.log"),
        (&["report", "-", "-"],                             b"",                2, "named twice"),
        (&["report", "-"],                                  b"\x1f\x8b\x08",    2, "zcat"),
        (&["report", "--since", "yesterday"],               b"",                2, "24h"),
    ];
    for (arguments, input, status, message) in cases {
        let output = with_input(arguments, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        let expected = if status == 0 { "No impersonation was found." } else { "" };
        assert!(stdout(&output).contains(expected), "{arguments:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_log_makes_the_report_panic(
        pieces in prop::collection::vec(
            (0..12_usize, prop::collection::vec(any::<u8>(), 0..12), 0..400_usize), 0..20),
        form in prop::sample::select(vec!["--json", "--html", "--csv", "--log-offset=+01:00"]),
    ) {
        let lines = night();
        let mut log = Vec::new();
        for (line, noise, cut) in pieces {
            let line = lines[line].as_bytes();
            log.extend_from_slice(&line[..cut.min(line.len())]);
            log.extend(noise);
            if cut % 2 == 0 {
                log.push(b'\n');
            }
        }
        prop_assume!(!log.starts_with(&[0x1f, 0x8b]));
        let output = with_input(&["report", form], &log);
        prop_assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_request_whose_id_is_not_utf_8_is_one_in_both_logs() {
    // The id has the bytes F8, B8, `y`, C3, A9 and FF: the access log has a character for each.
    let [mut access, mut audit] = [json!({}), json!({})];
    for (line, id) in [
        (&mut access, "\u{f8}\u{b8}y\u{c3}\u{a9}\u{ff}"),
        (&mut audit, "\u{fffd}\u{fffd}y\u{e9}\u{fffd}"),
    ] {
        *line = json!({
            "time": "2026-11-22T21:00:01.000Z", "request_id": id, "status": 400,
            "impersonation": {"event": "subject_token.refused", "error": "invalid_request", "reason": "malformed"},
        });
    }
    let lines = [access.to_string(), audit_of(&audit, "21:00:01.001")];
    let reported = json_of(&log(&lines), &[]);
    assert_eq!(reported["totals"]["events"]["subject_token.refused"], 1);
    // Two such requests stay two.
    let twice = [lines.clone(), lines.map(|line| line.replace("01.00", "02.00"))].concat();
    let reported = json_of(&log(&twice), &[]);
    assert_eq!(reported["totals"]["events"]["subject_token.refused"], 2);
}

#[test]
fn the_progress_is_shown_on_a_terminal_and_nowhere_else() {
    let file = file("envoy.log", &log(&night()));
    let program = env!("CARGO_BIN_EXE_impersonation-filter");
    let words = format!("'{program}' report --json '{}' >/dev/null", file.display());
    // The terminal is what `script` makes, and prints.
    let terminal =
        Command::new("script").args(["-qec", &words, "/dev/null"]).output().expect("bsdutils");
    assert!(terminal.status.success(), "{terminal:?}");
    let shown = stdout(&terminal);
    assert!(shown.contains("0 of 0 MB read"), "{shown:?}");
    // Nothing of it is left.
    assert!(shown.ends_with("\r\u{1b}[K"), "{shown:?}");
    let output = report(&log(&night()), &["--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
