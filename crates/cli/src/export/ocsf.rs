//! The Open Cybersecurity Schema Framework, version 1.8; the classes are alike since 1.6. What it
//! has no attribute for stands in `unmapped`.

use serde_json::{Map, Value, json};

use super::event::{Class, Event};

const VERSION: &str = "1.8.0";

/// The value of what a class requires and the log does not know.
const UNKNOWN: &str = "unknown";

impl Class {
    /// The category and the class.
    const fn ids(self) -> [u64; 2] {
        match self {
            Self::Base => [0, 0],
            Self::Finding => [2, 2004],
            Self::Authentication => [3, 3002],
            Self::EntityManagement => [3, 3004],
            Self::ApiActivity => [6, 6003],
        }
    }
}

/// The values of `http_method`. Another method stays in `unmapped`.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// The severities of `severity_id`.
const INFORMATIONAL: u8 = 1;
const HIGH: u8 = 4;
const CRITICAL: u8 = 5;

/// Makes the event of OCSF.
pub(super) fn event(mut event: Event) -> Map<String, Value> {
    let class = event.row.class;
    let [category, class_uid] = class.ids();
    let is_known = event.known("method").is_some_and(|method| METHODS.contains(&method));
    let method = if is_known { event.text("method") } else { None };
    let activity = match class {
        Class::ApiActivity => activity_of(method.as_deref().or(event.known("method"))),
        _ => event.row.activity,
    };
    let severity = match (event.is_alarm, &*event.name) {
        (true, "subject_token.replayed") => CRITICAL,
        (true, _) => HIGH,
        (false, _) => INFORMATIONAL,
    };
    let mut ocsf = Map::new();
    let mut set = |name: &str, value: Value| drop(ocsf.insert(name.to_owned(), value));
    set("category_uid", category.into());
    set("class_uid", class_uid.into());
    set("activity_id", activity.into());
    set("type_uid", class_uid.saturating_mul(100).saturating_add(activity.into()).into());
    set("time", event.time.millis().into());
    set("severity_id", severity.into());
    let mut metadata = json!({
        "version": VERSION,
        "product": {"name": "impersonation-filter", "vendor_name": "impersonation-filter"},
        "event_code": event.name,
    });
    member(&mut metadata, "correlation_uid", event.id.clone().map(Value::from));
    if class == Class::ApiActivity {
        // The profile that has `disposition_id`.
        member(&mut metadata, "profiles", Some(json!(["security_control"])));
    }
    set("metadata", metadata);

    // A finding has states of its own: 1 is `New`.
    let status = if event.has_failed { 2 } else { 1 };
    set("status_id", status.into());
    if let Some(code) = event.text("error") {
        set("status_code", code.into());
    }
    let reason = event.text("reason");
    if let Some(reason) = &reason {
        set("status_detail", reason.clone().into());
    }

    let session = json!({"uid": event.id.as_deref().unwrap_or(UNKNOWN)});
    let user = json!({"uid": event.user.as_deref().unwrap_or(UNKNOWN)});
    let actor = actor(&event, &session);
    match class {
        Class::Authentication => {
            let mut session = session;
            if activity == 7 {
                set("account_switch_type_id", 2.into());
                set("auth_protocol_id", 6.into());
            } else {
                let expired = event.known("event_type").map(str::to_owned).or(reason);
                member(&mut session, "expiration_reason", expired.map(Value::from));
            }
            set("user", user);
            set("session", session);
            set("service", json!({"name": "impersonation-filter"}));
            set("actor", actor);
        }
        Class::EntityManagement => {
            let uid = event.id.as_deref().unwrap_or(UNKNOWN);
            let mut entity = json!({"type": "impersonation", "uid": uid});
            member(&mut entity, "user", event.user.is_some().then_some(user));
            set("entity", entity);
            set("actor", actor);
            if let Some(comment) = event.text("decision_reason") {
                set("comment", comment.into());
            }
        }
        Class::ApiActivity => {
            let path = event.text("path");
            let named = [method.as_deref(), path.as_deref()];
            let operation = named.into_iter().flatten().collect::<Vec<_>>().join(" ");
            let operation = if operation.is_empty() { UNKNOWN.to_owned() } else { operation };
            let resource = path.clone().unwrap_or_else(|| UNKNOWN.to_owned());
            set("actor", actor);
            set("api", json!({"operation": operation}));
            set("resources", json!([{"name": resource, "owner": user}]));
            let mut request = json!({});
            let url = path.map(|path| json!({"path": path}));
            member(&mut request, "http_method", method.map(Value::from));
            member(&mut request, "url", url);
            member(&mut request, "uid", event.text("request_id").map(Value::from));
            set("http_request", request);
            if let Some(code) = event.number("status") {
                set("http_response", json!({"code": code}));
            }
            set(
                "src_endpoint",
                match event.text("client_address") {
                    Some(address) if address.parse::<std::net::IpAddr>().is_ok() => {
                        json!({"ip": address})
                    }
                    Some(address) => json!({"name": address}),
                    None => json!({"name": UNKNOWN}),
                },
            );
            let (action, disposition) = match (event.has_failed, event.row.types) {
                (true, _) => (2, 2),
                (false, ["info"]) => (3, 17),
                (false, _) => (1, 1),
            };
            set("action_id", action.into());
            set("disposition_id", disposition.into());
            if let Some(duration) = event.number("duration_ms") {
                set("duration", duration.into());
            }
        }
        Class::Finding => {
            let uid = event.id.as_deref().unwrap_or(UNKNOWN);
            set("finding_info", json!({"uid": uid, "title": event.name}));
            set("is_alert", true.into());
            set("evidences", json!([{"actor": actor, "user": user}]));
        }
        // A base event has no place for people.
        Class::Base => {
            let names = [("requested_by", event.acts.take()), ("user_id", event.user.take())];
            for (name, value) in names {
                event.rest.extend(value.map(|value| (name.to_owned(), value.into())));
            }
        }
    }
    if !event.rest.is_empty() {
        ocsf.insert("unmapped".to_owned(), event.rest.into());
    }
    ocsf
}

/// The party that acts: a person, or else the client or the backend.
fn actor(event: &Event, session: &Value) -> Value {
    let mut actor = Map::new();
    match &event.acts {
        Some(person) => drop(actor.insert("user".to_owned(), json!({"uid": person}))),
        None => {
            let programs = ["client_id", "second_client_id", "caller", "sender"];
            let program = programs.iter().find_map(|program| event.known(program));
            actor.insert("app_uid".to_owned(), program.unwrap_or(UNKNOWN).into());
        }
    }
    if event.row.class != Class::Authentication && event.id.is_some() {
        actor.insert("session".to_owned(), session.clone());
    }
    actor.into()
}

fn member(object: &mut Value, name: &str, value: Option<Value>) {
    if let (Value::Object(object), Some(value)) = (object, value) {
        object.insert(name.to_owned(), value);
    }
}

/// The activity of a call.
fn activity_of(method: Option<&str>) -> u8 {
    match method {
        None => 0,
        Some("POST") => 1,
        Some("GET" | "HEAD" | "OPTIONS") => 2,
        Some("PUT" | "PATCH") => 3,
        Some("DELETE") => 4,
        Some(_) => 99,
    }
}
