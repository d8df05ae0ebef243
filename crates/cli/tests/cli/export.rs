//! Tests of `export`: each event has its class, nothing of a line is lost, texts of callers forge
//! nothing, and `report` counts the same.

use serde_json::{Map, Value, json};

use crate::report::{TXN, events_of_the_manual, in_envoys_log, json_of, log, night, waiting};
use crate::{file, stdout, with_input};

/// The events that a log becomes.
fn exported(format: &str, log: &str) -> Vec<Value> {
    let output = with_input(&["export", "--format", format], log.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lines of all kinds.
fn lines() -> Vec<String> {
    let everybody = |event: &str| {
        let line = json!({
            "event": event, "request_id": "r-1", "subject_token_id": TXN, "user_id": "user-42",
            "actor_id": "agent-1", "client_id": "support-portal", "caller": "backend",
            "requested_by": "dana", "resource": "https://api.example.com", "scope": "orders:read",
            "jti": "a-jti", "bounds": {"scope": "orders:read"}, "context": {"ticketId": "T-1"},
            "error": "access_denied", "reason": "denied", "approved_by": ["dana", "erin"],
            "decision_reason": "I know", "decision_id": "d-1", "sender": "https://idp.example.com",
            "event_id": "e-1", "event_type": "logout", "session": "s-1", "outcome": "ended",
            "all": true, "ended": 3, "caller_gone": true,
        });
        in_envoys_log(&line, "21:00:00.000")
    };
    let guards = |enforced: bool| {
        let line = json!({
            "event": "impersonated_request.refused", "request_id": "r-1", "subject_token_id": TXN,
            "user_id": "user-42", "actor_id": "agent-1", "client_id": "support-portal",
            "method": "DELETE", "path": "/orders/1", "error": "insufficient_scope",
            "reason": "rule", "rule": "rules[0]", "enforced": enforced,
        });
        in_envoys_log(&line, "21:00:00.000")
    };
    let alarms = [
        json!({
            "alarm": "subject_token.replayed", "subject_token_id": TXN,
            "mint": {"caller": "backend", "request_id": "r-1", "at_millis": 7},
            "first_exchange": {"client_id": "support-portal", "actor_id": null,
                               "request_id": "r-2", "jti": "a-jti", "at_millis": 8},
            "second_client_id": "thief", "second_request_id": "r-3", "revoked": true,
        }),
        json!({
            "alarm": "break_glass.used", "subject_token_id": TXN, "user_id": "user-42",
            "caller": "backend", "request_id": "r-1",
        }),
    ];
    let mut lines: Vec<_> =
        events_of_the_manual().iter().map(|event| everybody(event.as_str())).collect();
    lines.push(everybody("impersonation.of_a_later_version"));
    lines.extend([guards(true), guards(false)]);
    lines.extend(alarms.iter().map(|alarm| in_envoys_log(alarm, "21:00:00.000")));
    lines.extend(night().into_iter().chain(waiting(TXN, "approval.denied")));
    lines
}

/// The object of a line, without its time.
fn object(line: &str) -> Map<String, Value> {
    let (_, rest) = line.split_once('{').unwrap();
    let mut object: Map<String, Value> = serde_json::from_str(&format!("{{{rest}")).unwrap();
    object.remove("time");
    object
}

/// The line that an event was made of.
fn line_of(format: &str, event: &Value, is_access: bool) -> Map<String, Value> {
    let at = |path: &str| event.pointer(path).cloned();
    let is_ecs = format == "ecs";
    let rest = if is_ecs { "/impersonation" } else { "/unmapped" };
    let mut line = at(rest).map_or_else(Map::new, |rest| rest.as_object().unwrap().clone());
    let mut put = |name: &str, value: Option<Value>| {
        let Some(value) = value else { return };
        let into = match (is_access, name) {
            (true, "error" | "reason") => "impersonation",
            (true, "txn" | "sub" | "act") => "token",
            _ => return drop(line.insert(name.to_owned(), value)),
        };
        line.entry(into).or_insert_with(|| json!({}))[name] = value;
    };
    let [id, user] = if is_access { ["txn", "sub"] } else { ["subject_token_id", "user_id"] };
    let name = if is_ecs { at("/event/action") } else { at("/metadata/event_code") };
    let name = name.unwrap();
    let is_call = name.as_str().unwrap().starts_with("impersonated_request.");
    let is_exchange = name.as_str().unwrap().starts_with("token_exchange.");
    let acts = match (is_access, is_call || is_exchange) {
        (true, _) => "act",
        (false, true) => "actor_id",
        (false, false) => "requested_by",
    };
    let either = |one: &str, other: &str| at(one).or_else(|| at(other));
    let known = |value: &Value| value != "unknown";
    if is_ecs {
        put(id, at("/impersonation/id"));
        put(user, either("/user/effective/id", "/user/target/id"));
        put(acts, at("/user/id"));
        put("reason", at("/event/reason"));
        put("error", at("/error/code"));
        put("request_id", at("/http/request/id"));
        put("method", at("/http/request/method"));
        put("path", at("/url/path"));
        put("status", at("/http/response/status_code"));
        put("client_address", at("/client/address"));
        let duration = at("/event/duration").map(|it| it.as_u64().unwrap() / 1_000_000);
        put("duration_ms", duration.map(Value::from));
    } else {
        put(id, at("/metadata/correlation_uid"));
        let users =
            ["/user/uid", "/entity/user/uid", "/resources/0/owner/uid", "/evidences/0/user/uid"];
        put(user, users.iter().find_map(|path| at(path)).filter(known));
        put(acts, either("/actor/user/uid", "/evidences/0/actor/user/uid"));
        put("reason", at("/status_detail"));
        put("error", at("/status_code"));
        put("request_id", at("/http_request/uid"));
        put("method", at("/http_request/http_method"));
        put("path", at("/http_request/url/path"));
        put("status", at("/http_response/code"));
        put("client_address", either("/src_endpoint/ip", "/src_endpoint/name").filter(known));
        put("duration_ms", at("/duration"));
        put("decision_reason", at("/comment"));
    }
    let is_alarm = at("/event/kind") == Some(json!("alert")) || at("/is_alert").is_some();
    match (is_access, is_alarm, is_call) {
        (true, ..) => {}
        (false, true, _) => put("alarm", Some(name)),
        (false, false, true) => put("event", Some("impersonated_request.refused".into())),
        (false, false, false) => put("event", Some(name)),
    }
    if is_ecs {
        line.remove("id");
    }
    line
}

#[test]
fn nothing_of_a_line_is_lost() {
    let mut mapped = 0_u32;
    for line in lines() {
        let original = object_if_any(&line);
        for format in ["ecs", "ocsf"] {
            let events = exported(format, &format!("{line}\n"));
            let (Some(original), [event]) = (&original, &*events) else { continue };
            let is_access = !original.contains_key("event") && !original.contains_key("alarm");
            let restored = line_of(format, event, is_access);
            assert_eq!(Value::from(restored), Value::from(original.clone()), "{format}: {event}");
            mapped = mapped.saturating_add(1);
        }
    }
    assert!(mapped > 70, "{mapped}");
}

fn object_if_any(line: &str) -> Option<Map<String, Value>> {
    line.contains('{').then(|| object(line))
}

#[test]
fn each_event_has_a_class() {
    let ocsf = exported("ocsf", &log(&lines()));
    let class = |name: &str| {
        let event = ocsf.iter().find(|event| event["metadata"]["event_code"] == name).unwrap();
        [event["class_uid"].as_u64().unwrap(), event["activity_id"].as_u64().unwrap()]
    };
    #[rustfmt::skip]
    let expected = [
        ("subject_token.created",          [3004, 1]),
        ("subject_token.cancelled",        [3004, 4]),
        ("subject_token.shown",            [3004, 2]),
        ("token_exchange.succeeded",       [3002, 7]),
        ("approval.requested",             [3004, 1]),
        ("approval.given",                 [3004, 10]),
        ("approval.denied",                [3004, 11]),
        ("impersonation.revoked",          [3002, 2]),
        ("impersonations.ended",           [3002, 2]),
        ("security_event.received",        [0, 0]),
        ("subject_token.replayed",         [2004, 1]),
        ("impersonated_request.allowed",   [6003, 2]),
        ("impersonated_request.refused",   [6003, 4]),
    ];
    for (name, ids) in expected {
        assert_eq!(class(name), ids, "{name}");
    }
    for event in &ocsf {
        let [class, activity] =
            ["class_uid", "activity_id"].map(|name| event[name].as_u64().unwrap());
        assert_eq!(event["type_uid"], class.saturating_mul(100).saturating_add(activity));
    }
    let broken = ocsf.iter().filter(|event| event["metadata"]["event_code"] == "break_glass.used");
    let severities: Vec<_> = broken.map(|event| event["severity_id"].as_u64().unwrap()).collect();
    assert_eq!(severities, [1, 4], "the mint, and its alarm");
}

#[test]
fn ecs_says_who_acts_as_whom() {
    let events = exported("ecs", &log(&night()));
    let event = |name: &str| events.iter().find(|event| event["event"]["action"] == name).unwrap();
    let exchange = event("token_exchange.succeeded");
    assert_eq!(exchange["user"], json!({"id": "agent-1", "effective": {"id": "user-42"}}));
    assert_eq!(exchange["related"]["user"], json!(["agent-1", "user-42"]));
    assert_eq!(exchange["@timestamp"], "2026-11-22T21:00:02.003Z");
    let call = event("impersonated_request.refused");
    assert_eq!(call["user"], json!({"id": "agent-1", "effective": {"id": "user-42"}}));
    assert_eq!(call["event"]["type"], json!(["access", "denied"]));
    assert_eq!(call["event"]["outcome"], "failure");
    assert_eq!(call["http"]["response"]["status_code"], 403);
    let revoked = event("impersonation.revoked");
    assert_eq!(revoked["user"], json!({"id": "operations"}));
    assert_eq!(revoked["related"]["user"], json!(["operations", "agent-1"]));
}

#[test]
fn the_report_counts_the_same() {
    let log = log(&night());
    let totals = &json_of(&log, &[])["totals"];
    let path = file("envoy.log", &log);
    // A file is known to be an access log before its first line is written; a pipe is not.
    let output = with_input(&["export", "--format", "ecs", path.to_str().unwrap()], b"");
    let of_file: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for events in [of_file, exported("ecs", &log)] {
        let count = |path: &str, value: &str| {
            events.iter().filter(|event| event.pointer(path).unwrap() == value).count()
        };
        let calls = count("/event/dataset", "impersonation.access");
        assert_eq!(totals["calls"], calls);
        assert_eq!(totals["refusedCalls"], count("/event/action", "impersonated_request.refused"));
        assert_eq!(totals["exchanges"], count("/event/action", "token_exchange.succeeded"));
        let revoked = count("/event/action", "impersonation.revoked");
        assert_eq!(revoked, 1);
    }
}

#[test]
fn the_guards_lines_are_the_calls_where_there_is_no_access_log() {
    let lines = night();
    let without_access = lines.iter().filter(|line| !line.starts_with(r#"{"time""#));
    let without_access: Vec<_> = without_access.cloned().collect();
    let events = exported("ecs", &log(&without_access));
    let calls = |event: &&Value| event["event"]["dataset"] == "impersonation.access";
    let calls: Vec<_> = events.iter().filter(calls).collect();
    let [call] = &*calls else { panic!("{calls:?}") };
    assert_eq!(call["url"]["path"], "/orders/2");
}

#[test]
fn texts_of_callers_forge_neither_a_field_nor_a_line() {
    let evil =
        "x\",\"user\":{\"id\":\"root\"},\"@timestamp\":\"\n{\"impersonation_checkpoint\":\"x\"}";
    let line = json!({
        "event": "subject_token.created", "request_id": evil, "subject_token_id": TXN,
        "user_id": evil, "caller": evil, "context": {evil: evil},
    });
    for format in ["ecs", "ocsf"] {
        let events = exported(format, &log(&[in_envoys_log(&line, "21:00:00.000")]));
        let [event] = &*events else { panic!("{events:?}") };
        assert_eq!(event.pointer("/user/id"), None);
        assert!(!event.to_string().contains("root\"}"), "{event}");
    }
}
