//! A request on its way to an API, as Envoy shows it to the guard.

use std::cell::RefCell;
use std::collections::BTreeMap;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::Value;

use super::Headers;
use crate::http_stream::HttpRequest;

/// A request, and what the guard did with it.
#[derive(Default)]
pub struct FakeApiRequest {
    metadata: Vec<u8>,
    /// The properties of the connection, by their names.
    pub connection: BTreeMap<String, Vec<u8>>,
    pub headers: RefCell<Headers>,
    /// Status and header fields of the guard's answer.
    pub answered: RefCell<Option<(u16, Headers)>>,
    pub filter_state: RefCell<BTreeMap<String, String>>,
}

impl FakeApiRequest {
    /// A request with the metadata that the filters before the guard left.
    pub fn new(headers: &[(&str, &[u8])], metadata: Vec<u8>) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        Self { metadata, headers: RefCell::new(headers.collect()), ..Self::default() }
    }

    /// The status of the guard's answer; `None` if the request goes on.
    pub fn status(&self) -> Option<u16> {
        self.answered.borrow().as_ref().map(|(status, _)| *status)
    }
}

impl HttpRequest for FakeApiRequest {
    fn metadata(&self) -> Vec<u8> {
        self.metadata.clone()
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        let headers = self.headers.borrow();
        headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        self.headers.borrow().iter().for_each(|(name, value)| see(name.as_bytes(), value));
    }

    fn connection_property(&self, name: &str) -> Option<Vec<u8>> {
        self.connection.get(name).cloned()
    }

    fn set_request_header(&self, name: &str, value: &str) {
        assert!(!value.chars().any(char::is_control), "{name}: {value:?}");
        self.headers.borrow_mut().push((name.into(), value.into()));
    }

    fn remove_request_header(&self, name: &str) {
        self.headers.borrow_mut().retain(|(known, _)| known != name);
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], _body: &[u8], _details: &str) {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), value.to_vec()));
        let before = self.answered.replace(Some((status, headers.collect())));
        assert!(before.is_none(), "answered twice");
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        assert!(!value.chars().any(char::is_control), "{name}: {value:?}");
        self.filter_state.borrow_mut().insert(name.into(), value.into());
    }
}

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
