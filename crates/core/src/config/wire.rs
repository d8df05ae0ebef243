//! Decodes the plugin's configuration from the bytes that Envoy hands over: JSON text (from a
//! `StringValue`) or a serialized `google.protobuf.Struct`.

use prost::Message as _;
use prost_types::value::Kind;
use serde_json::Value;

use crate::strict_json::{Strict, from_double};

/// The reason why the bytes are no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The plugin has no `configuration`.
    #[error("the plugin has no configuration")]
    Missing,
    /// The text begins like JSON, but is not valid JSON.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// The bytes are neither JSON nor a Struct.
    #[error("neither JSON nor a google.protobuf.Struct: give the configuration as either")]
    Unknown,
}

/// Decodes a configuration from either form.
pub fn decode(bytes: &[u8]) -> Result<Value, WireError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(WireError::Missing);
    }
    // A serialized Struct can begin with "\n{", just as JSON can (field 1 with 123 bytes). If the
    // bytes do not parse as JSON, try a Struct.
    match serde_json::from_slice(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(json_error) => match prost_types::Struct::decode(bytes) {
            Ok(fields) if !fields.fields.is_empty() => Ok(from_struct(fields)),
            _ if bytes.trim_ascii_start().first() == Some(&b'{') => {
                Err(WireError::Json(without_text(&json_error)))
            }
            _ => Err(WireError::Unknown),
        },
    }
}

/// Describes the syntax error and its position without quoting the text, which may hold a key.
fn without_text(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Data => "a member is given twice",
        serde_json::error::Category::Eof => "it ends too early",
        _ => "a syntax error",
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

fn from_struct(fields: prost_types::Struct) -> Value {
    let members = fields.fields.into_iter().map(|(name, value)| (name, from_value(value)));
    Value::Object(members.collect())
}

fn from_value(value: prost_types::Value) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::NumberValue(value)) => from_double(value),
        Some(Kind::StringValue(value)) => Value::String(value),
        Some(Kind::StructValue(fields)) => from_struct(fields),
        Some(Kind::ListValue(list)) => {
            Value::Array(list.values.into_iter().map(from_value).collect())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fakes::protobuf_struct;

    /// Serializes a Struct as Envoy does.
    pub(in crate::config) fn wire(value: &Value) -> Vec<u8> {
        protobuf_struct(value).encode_to_vec()
    }

    #[test]
    fn both_forms_decode_to_the_same_value() {
        let value = serde_json::json!({
            "a": [1, 2.5, -3, true, null, {"b": "c"}], "d": {}, "long": "x".repeat(300), "e": 1_000_000,
        });
        assert_eq!(decode(&wire(&value)).unwrap(), value);
        assert_eq!(decode(value.to_string().as_bytes()).unwrap(), value);
        assert_eq!(decode(format!("\n{value}\n").as_bytes()).unwrap(), value);
    }

    #[test]
    fn a_struct_that_begins_like_json_is_still_a_struct() {
        // Field 1 with 123 bytes begins with "\n{".
        let value = serde_json::json!({"k": "x".repeat(116)});
        let bytes = wire(&value);
        assert!(bytes.starts_with(b"\n{"));
        assert_eq!(decode(&bytes).unwrap(), value);
    }

    #[test]
    fn an_error_never_quotes_the_configuration() {
        #[rustfmt::skip]
        let cases = [
            ("",                          "the plugin has no configuration"),
            (" \n",                       "the plugin has no configuration"),
            ("{\"a\": secret}",           "not valid JSON: a syntax error at line 1 column 7"),
            ("{\"a\": 1,\n \"a\": 2}",    "not valid JSON: a member is given twice at line 2 column 8"),
            ("{\"a\": {\"b\": ",          "not valid JSON: it ends too early at line 1 column 12"),
            ("secret",                    "neither JSON nor a google.protobuf.Struct: give the configuration as either"),
        ];
        for (text, message) in cases {
            assert_eq!(decode(text.as_bytes()).unwrap_err().to_string(), message, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = decode(text.as_bytes());
        }
    }
}
