//! Reads the body of a request: the first checks that endpoints with a body share.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::request::{Body, Head};
use crate::media_type;
use crate::oauth::form::{Form, FormError};

impl Body {
    /// Reads the body as a form. An empty parameter counts as omitted (RFC 6749 §3.2).
    pub(super) fn form(&self, head: &Head) -> Result<Form<'_>, Refusal> {
        let bytes = self.whole()?;
        if !media_type::is_ascii_based(&head.content_type) {
            return Err(FormError::Charset.into());
        }
        Ok(Form::parse(bytes)?.without_empty())
    }

    /// Reads the body as a JSON object whose members are known, each given once. `malformed` tells
    /// the caller which object is expected.
    pub(super) fn members(
        &self,
        head: &Head,
        is_known: fn(&str) -> bool,
        malformed: &'static str,
    ) -> Result<Map<String, Value>, Refusal> {
        if !media_type::is(&head.content_type, "application/json") {
            let told = "the content type must be application/json";
            return Err(Refusal::new(415, "invalid_request", "content_type", told));
        }
        match serde_json::from_slice(self.whole()?) {
            Ok(Members(members)) if members.keys().all(|name| is_known(name)) => Ok(members),
            _ => Err(Refusal::invalid_request("body_malformed", malformed)),
        }
    }

    pub(super) fn whole(&self) -> Result<&[u8], Refusal> {
        match self {
            Self::Whole(bytes) => Ok(bytes),
            Self::TooLong(_) => Err(Refusal::body_too_long()),
        }
    }
}

/// The members of an object. A list is not accepted, nor is a name that is given twice.
struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Members, A::Error> {
                let mut members = Map::new();
                while let Some((name, value)) = given.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a member is given twice"));
                    }
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}
