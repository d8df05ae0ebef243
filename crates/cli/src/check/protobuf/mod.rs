//! Reads protobuf in JSON as Envoy's own parser does, into one canonical form.
//!
//! Protobuf allows many spellings of one message, and Envoy allows more than the specification: a
//! boolean may be `"yes"`, an enum a number or in small letters, a list of one item that item
//! alone. A judgement that knew one spelling would be passed by with the next. So everything behind
//! this module reads the canonical form only: fields by their own names, true booleans and numbers,
//! enums by their names, lists as lists, wrappers without the wrapper, and a typed struct as the
//! message that it stands for. All of this was tried with Envoy 1.36.4 and 1.40.0;
//! `tests/envoy/spellings.rs` shows each spelling. What Envoy refuses is a fault.
//!
//! The canonical form keeps the place of each value: a fault is reported by the line where the
//! value stands in the file.

mod scalar;
mod table;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::tree::{item_path, member_path, type_of};

use self::table::{Kind, Number};

pub(super) const BOOTSTRAP: &str = "envoy.config.bootstrap.v3.Bootstrap";
pub(super) const DISCOVERY_RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
pub(super) const CONFIG_DUMP: &str = "envoy.admin.v3.ConfigDump";

const ANY: &str = "google.protobuf.Any";

/// Types of a plain struct that stands for a message of another type.
const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

/// The types that JSON writes as one value.
const WRAPPERS: [(&str, Kind); 9] = [
    ("google.protobuf.BoolValue", Kind::Bool),
    ("google.protobuf.BytesValue", Kind::Text),
    ("google.protobuf.DoubleValue", Kind::Float),
    ("google.protobuf.FloatValue", Kind::Float),
    ("google.protobuf.Int32Value", Kind::Int),
    ("google.protobuf.Int64Value", Kind::Int),
    ("google.protobuf.StringValue", Kind::Text),
    ("google.protobuf.UInt32Value", Kind::Uint),
    ("google.protobuf.UInt64Value", Kind::Uint),
];

/// The types that JSON writes as they come.
const VERBATIM: [&str; 5] = [
    "google.protobuf.FieldMask",
    "google.protobuf.ListValue",
    "google.protobuf.Struct",
    "google.protobuf.Timestamp",
    "google.protobuf.Value",
];

const DURATION: &str = "google.protobuf.Duration";

/// The messages that the patches of Istio's `EnvoyFilter` change, by `applyTo`.
const PATCHED: [(&str, &str); 9] = [
    ("BOOTSTRAP", BOOTSTRAP),
    ("CLUSTER", "envoy.config.cluster.v3.Cluster"),
    ("FILTER_CHAIN", "envoy.config.listener.v3.FilterChain"),
    ("HTTP_FILTER", "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"),
    ("HTTP_ROUTE", "envoy.config.route.v3.Route"),
    ("LISTENER", "envoy.config.listener.v3.Listener"),
    ("NETWORK_FILTER", "envoy.config.listener.v3.Filter"),
    ("ROUTE_CONFIGURATION", "envoy.config.route.v3.RouteConfiguration"),
    ("VIRTUAL_HOST", "envoy.config.route.v3.VirtualHost"),
];

/// The canonical form of a file.
#[derive(Debug, Default)]
pub(super) struct Canonical {
    pub(super) value: Value,
    /// The line of each value, by its path in the canonical form and by that in the file.
    pub(super) lines: HashMap<String, usize>,
    pub(super) faults: Vec<Fault>,
}

/// A place that Envoy does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) path: String,
    pub(super) text: String,
    /// Another Envoy may know the type.
    pub(super) is_unknown_type: bool,
}

/// Returns the name of a field, which a file may spell in two ways.
pub(super) fn field_name(message: &str, name: &str) -> Option<&'static str> {
    table::field(message, name).map(|field| field.name)
}

/// Reads a message of this type.
pub(super) fn read(
    message: &'static str,
    value: &Value,
    lines: HashMap<String, usize>,
) -> Canonical {
    let mut reader = Reader { canonical: Canonical { lines, ..Canonical::default() } };
    let value = reader.one(Kind::Message(message), value, &At::root());
    Canonical { value, ..reader.canonical }
}

/// Reads the messages in a file of another format: each that has its type beside it.
pub(super) fn read_within(value: &Value, lines: HashMap<String, usize>) -> Canonical {
    let mut reader = Reader { canonical: Canonical { lines, ..Canonical::default() } };
    let value = reader.other(value, &At::root());
    Canonical { value, ..reader.canonical }
}

/// The place of a value: its path in the file, and its path in the canonical form.
#[derive(Clone)]
struct At {
    file: String,
    canonical: String,
}

impl At {
    const fn root() -> Self {
        Self { file: String::new(), canonical: String::new() }
    }

    fn member(&self, name: &str, canonical: &str) -> Self {
        Self {
            file: member_path(&self.file, name),
            canonical: member_path(&self.canonical, canonical),
        }
    }

    fn item(&self, index: usize, canonical: usize) -> Self {
        Self {
            file: item_path(&self.file, index),
            canonical: item_path(&self.canonical, canonical),
        }
    }
}

struct Reader {
    canonical: Canonical,
}

impl Reader {
    fn fault(&mut self, at: &At, text: impl Into<String>) {
        let (path, text) = (at.file.clone(), text.into());
        self.canonical.faults.push(Fault { path, text, is_unknown_type: false });
    }

    fn keep_line(&mut self, at: &At) {
        let lines = &mut self.canonical.lines;
        if at.file != at.canonical
            && let Some(line) = lines.get(&at.file).copied()
        {
            lines.insert(at.canonical.clone(), line);
        }
    }

    /// Reads one value of a kind.
    fn one(&mut self, kind: Kind, value: &Value, at: &At) -> Value {
        self.keep_line(at);
        let Kind::Message(name) = kind else { return self.scalar(kind, value, at) };
        if VERBATIM.contains(&name) {
            return value.clone();
        }
        if let Some((_, kind)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) {
            let inner = value.as_object().filter(|wrapper| wrapper.len() == 1);
            let inner = inner.and_then(|wrapper| wrapper.get("value"));
            return self.scalar(*kind, inner.unwrap_or(value), at);
        }
        match name {
            ANY => self.any(value, at),
            DURATION if !value.is_object() => self.scalar(Kind::Text, value, at),
            DURATION => scalar::duration(value),
            _ => self.message(name, value, at),
        }
    }

    fn scalar(&mut self, kind: Kind, value: &Value, at: &At) -> Value {
        scalar::read(kind, value).unwrap_or_else(|expected| {
            self.fault(at, format!("is not read by Envoy: expected {expected}"));
            value.clone()
        })
    }

    fn message(&mut self, name: &str, value: &Value, at: &At) -> Value {
        let mut message = Map::new();
        let Some(members) = value.as_object() else {
            self.fault(at, "is not read by Envoy: expected an object");
            return message.into();
        };
        let mut oneofs = HashSet::new();
        for (given, value) in members.iter().filter(|(name, _)| *name != "@type") {
            let Some(field) = table::field(name, given) else {
                let at = at.member(given, given);
                self.fault(&at, "is not known to Envoy, which does not start with it");
                message.insert(given.clone(), value.clone());
                continue;
            };
            let at = at.member(given, field.name);
            if value.is_null() && field.kind != Kind::Message("google.protobuf.Value") {
                continue;
            }
            let one = self.field(field, value, &at);
            if message.insert(field.name.to_owned(), one).is_some() {
                self.fault(&at, "is given in two spellings: Envoy drops the first without a word");
            } else if field.oneof.is_some_and(|oneof| !oneofs.insert(oneof)) {
                self.fault(&at, "is given beside another of which Envoy takes one only");
            }
        }
        message.into()
    }

    fn field(&mut self, field: table::Field, value: &Value, at: &At) -> Value {
        match (field.number, value) {
            (Number::One, _) => self.one(field.kind, value, at),
            (Number::Map, Value::Object(members)) => {
                self.keep_line(at);
                let read = |(name, value): (&String, &Value)| {
                    (name.clone(), self.item(field.kind, value, &at.member(name, name)))
                };
                members.iter().map(read).collect()
            }
            (Number::Map, _) => {
                self.fault(at, "is not read by Envoy: expected an object");
                Map::new().into()
            }
            (Number::List, _) => {
                self.keep_line(at);
                let mut items = Vec::new();
                self.items(field.kind, value, at, &at.canonical, &mut items);
                items.into()
            }
        }
    }

    /// Reads the items of a list. Envoy takes a single value for a list of one, and the items of a
    /// list in a list for items.
    fn items(&mut self, kind: Kind, value: &Value, at: &At, list: &str, items: &mut Vec<Value>) {
        let Value::Array(values) = value else {
            let at = At { file: at.file.clone(), canonical: item_path(list, items.len()) };
            items.push(self.item(kind, value, &at));
            return;
        };
        for (index, value) in values.iter().enumerate() {
            self.items(kind, value, &at.item(index, index), list, items);
        }
    }

    /// Reads an item of a list or a map, in which null stands for the default.
    fn item(&mut self, kind: Kind, value: &Value, at: &At) -> Value {
        match kind {
            Kind::Message(name) if value.is_null() && !VERBATIM.contains(&name) => {
                self.keep_line(at);
                Map::new().into()
            }
            _ => self.one(kind, value, at),
        }
    }

    fn any(&mut self, value: &Value, at: &At) -> Value {
        let url = value.get("@type").and_then(Value::as_str).filter(|url| url.contains('/'));
        let Some(url) = url else {
            let is_empty = value.as_object().is_some_and(Map::is_empty);
            if !is_empty {
                self.fault(at, "has no @type, and Envoy does not read it");
            }
            return value.clone();
        };
        let name = type_of(url);
        if !TYPED_STRUCTS.contains(&name) {
            return self.typed(url, value, at);
        }
        let url = value.get("type_url").or_else(|| value.get("typeUrl")).and_then(Value::as_str);
        let (Some(url), Some(fields)) = (url, value.get("value")) else {
            self.fault(at, "has no type_url and value, of which a typed struct consists");
            return value.clone();
        };
        let at = At { file: member_path(&at.file, "value"), canonical: at.canonical.clone() };
        self.typed(url, fields, &at)
    }

    /// Reads a message whose type stands beside it.
    fn typed(&mut self, url: &str, value: &Value, at: &At) -> Value {
        let name = type_of(url);
        let as_value = VERBATIM.contains(&name)
            || name == DURATION
            || name == ANY
            || WRAPPERS.iter().any(|(wrapper, _)| *wrapper == name);
        let mut fields = if as_value {
            let inner = value.get("value").unwrap_or(&Value::Null);
            let at = at.member("value", "value");
            let inner = match table::message(name) {
                Some(name) if name != ANY => self.one(Kind::Message(name), inner, &at),
                _ => inner.clone(),
            };
            Map::from_iter([("value".to_owned(), inner)])
        } else if table::message(name).is_some() {
            match self.message(name, value, at) {
                Value::Object(fields) => fields,
                _ => Map::new(),
            }
        } else {
            self.canonical.faults.push(Fault {
                path: at.file.clone(),
                text: format!("{name} is not a message of Envoy's, and nobody knows what it does"),
                is_unknown_type: true,
            });
            match self.other_members(value, at) {
                Value::Object(fields) => fields,
                _ => Map::new(),
            }
        };
        fields.insert("@type".into(), url.into());
        fields.into()
    }

    /// Reads a value of another format, which can have messages in it.
    fn other(&mut self, value: &Value, at: &At) -> Value {
        let has_type = value.get("@type").is_some_and(Value::is_string);
        if has_type { self.any(value, at) } else { self.other_members(value, at) }
    }

    fn other_members(&mut self, value: &Value, at: &At) -> Value {
        self.keep_line(at);
        match value {
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(index, item)| self.other(item, &at.item(index, index))).collect()
            }
            Value::Object(members) => {
                let applied = members.get("applyTo").and_then(Value::as_str);
                let patched = PATCHED.iter().find(|(name, _)| Some(*name) == applied);
                let read = |(name, value): (&String, &Value)| {
                    let at = at.member(name, name);
                    let value = match patched {
                        Some((_, message)) if name == "patch" => self.patch(message, value, &at),
                        _ => self.other(value, &at),
                    };
                    (name.clone(), value)
                };
                members.iter().map(read).collect()
            }
            _ => value.clone(),
        }
    }

    /// Reads the `patch` of an Istio `EnvoyFilter`.
    fn patch(&mut self, message: &'static str, value: &Value, at: &At) -> Value {
        let Value::Object(members) = value else { return value.clone() };
        let read = |(name, value): (&String, &Value)| {
            let at = at.member(name, name);
            let value = match &**name {
                "value" => self.one(Kind::Message(message), value, &at),
                _ => self.other(value, &at),
            };
            (name.clone(), value)
        };
        members.iter().map(read).collect()
    }
}
