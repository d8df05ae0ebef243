//! The metadata that Envoy's filters leave, in the encoding that the guard reads.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::Value;

/// `envoy.config.core.v3.Metadata`.
#[derive(Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
}

/// Metadata in which `jwt_authn` left these payloads, by their names.
pub fn jwt_metadata(payloads: &Value) -> Vec<u8> {
    let filter_metadata =
        BTreeMap::from([("envoy.filters.http.jwt_authn".to_owned(), protobuf_struct(payloads))]);
    Metadata { filter_metadata }.encode_to_vec()
}

/// A JSON object as `google.protobuf.Struct`.
pub fn protobuf_struct(json: &Value) -> Struct {
    let members = json.as_object().unwrap();
    let fields = members.iter().map(|(name, json)| (name.clone(), protobuf_value(json)));
    Struct { fields: fields.collect() }
}

/// A JSON value as `google.protobuf.Value`.
pub fn protobuf_value(json: &Value) -> prost_types::Value {
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap()),
        Value::String(value) => Kind::StringValue(value.clone()),
        Value::Array(list) => {
            Kind::ListValue(ListValue { values: list.iter().map(protobuf_value).collect() })
        }
        Value::Object(_) => Kind::StructValue(protobuf_struct(json)),
    };
    prost_types::Value { kind: Some(kind) }
}
