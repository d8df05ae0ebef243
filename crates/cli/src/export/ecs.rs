//! The Elastic Common Schema, version 9. What it has no field for stands below `impersonation`.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::event::{Event, Roles};

const VERSION: &str = "9.0.0";

/// Makes the event of ECS. The audit log's names stay below `impersonation`.
pub(super) fn event(mut event: Event) -> Map<String, Value> {
    let mut ecs = Map::new();
    let mut set = |path: &str, value: Option<Value>| {
        if let Some(value) = value {
            put(&mut ecs, path, value);
        }
    };
    let people = event.people();
    set("@timestamp", Some(event.time.rfc3339().to_string().into()));
    set("ecs.version", Some(VERSION.into()));
    set("event.kind", Some(if event.is_alarm { "alert" } else { "event" }.into()));
    set("event.category", Some(json!(event.row.categories)));
    set("event.type", Some(json!(event.row.types)));
    if !event.is_alarm {
        set("event.outcome", Some(if event.has_failed { "failure" } else { "success" }.into()));
    }
    set("event.dataset", Some(event.row.dataset().into()));
    set("event.module", Some("impersonation".into()));
    let user = match event.row.roles {
        Roles::ActsAs => "user.effective.id",
        Roles::Administers => "user.target.id",
    };
    set("user.id", event.acts.take().map(Value::from));
    set(user, event.user.take().map(Value::from));
    if !people.is_empty() {
        set("related.user", Some(people.into()));
    }
    set("event.reason", event.text("reason").map(Value::from));
    set("error.code", event.text("error").map(Value::from));
    set("http.request.id", event.text("request_id").map(Value::from));
    set("http.request.method", event.text("method").map(Value::from));
    set("http.response.status_code", event.number("status").map(Value::from));
    set("url.path", event.text("path").map(Value::from));
    if let Some(address) = event.text("client_address") {
        set("client.ip", address.parse::<IpAddr>().is_ok().then(|| address.clone().into()));
        set("client.address", Some(address.into()));
    }
    set("event.duration", event.number("duration_ms").and_then(nanoseconds).map(Value::from));
    set("event.action", Some(event.name.into()));
    set("impersonation.id", event.id.map(Value::from));
    if let Some(Value::Object(ours)) = ecs.get_mut("impersonation") {
        ours.extend(event.rest);
    } else if !event.rest.is_empty() {
        ecs.insert("impersonation".to_owned(), event.rest.into());
    }
    ecs
}

/// ECS counts in nanoseconds.
fn nanoseconds(milliseconds: u64) -> Option<u64> {
    milliseconds.checked_mul(1_000_000)
}

/// Sets a field by its path.
fn put(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(object.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}
