//! Reads the body of a request: the first checks that endpoints with a body share.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::refusal::Refusal;
use super::request::{Body, Head};
use crate::media_type;
use crate::oauth::form::{Form, FormError};

impl Body {
    /// Reads the body as a form.
    pub(super) fn form(&self, head: &Head) -> Result<Form<'_>, Refusal> {
        let bytes = self.whole()?;
        if !media_type::is_ascii_based(&head.content_type) {
            return Err(FormError::Charset.into());
        }
        Ok(Form::parse(bytes)?)
    }

    /// Reads the body as a JSON object; `malformed` tells the caller which object is expected.
    pub(super) fn json<T: DeserializeOwned>(
        &self,
        head: &Head,
        malformed: &'static str,
    ) -> Result<T, Refusal> {
        if !media_type::is(&head.content_type, "application/json") {
            let told = "the content type must be application/json";
            return Err(Refusal::new(415, "invalid_request", "content_type", told));
        }
        let bytes = self.whole()?;
        parse_object(bytes).ok_or_else(|| Refusal::invalid_request("body_malformed", malformed))
    }

    pub(super) fn whole(&self) -> Result<&[u8], Refusal> {
        match self {
            Self::Whole(bytes) => Ok(bytes),
            Self::TooLong(_) => Err(Refusal::body_too_long()),
        }
    }
}

/// Parses a JSON object. `serde` would also accept a list of the members in their order.
fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
    if is_object { serde_json::from_slice(bytes).ok() } else { None }
}

/// Deserializes a member that is present, `null` included. A `null` must not look like an absent
/// member: a caller that names no value does not mean every value.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
