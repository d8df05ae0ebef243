//! The endpoints that a discovery document may name while it stands in for the gateway's.
//!
//! The filter asks the gateway itself for such a document. A cache before the gateway may still
//! answer with one that a stranger has asked for, and clients would send codes and secrets to its
//! endpoints. Therefore each endpoint must have the issuer's origin, or one that the operator
//! lists.
//!
//! The check is closed. A text counts as an address if any reader could take it for one: a browser
//! reads `https:host` and `\\host` as addresses, too.

use serde_json::{Map, Value};

/// Members with an address for people, or with identifiers that may look like addresses.
const NOT_ENDPOINTS: [&str; 4] =
    ["service_documentation", "op_policy_uri", "op_tos_uri", "protected_resources"];

/// Metadata in a signed form, which overrides the plain members (RFC 8414 §2.1). The filter does
/// not read it.
const SIGNED: &str = "signed_metadata";

/// The issuer of the document, and the origins of its endpoints.
#[derive(Debug)]
pub(super) struct Origins {
    issuer: String,
    allowed: Vec<String>,
}

/// Why a document is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// It is not JSON, or lacks what such a document has.
    #[error("it is not such a document")]
    Malformed,
    /// It belongs to another issuer.
    #[error("it has another issuer")]
    AnotherIssuer,
    /// This member could be an address of another origin.
    #[error("{0:?} names another origin than the issuer's and those of identity_gateway.origins")]
    Elsewhere(String),
}

impl Origins {
    /// Allows endpoints of the issuer's origin, and of `others`.
    pub(super) fn new(issuer: &str, own: &str, others: &[String]) -> Self {
        let allowed = std::iter::once(own.to_owned()).chain(others.iter().cloned()).collect();
        Self { issuer: issuer.to_owned(), allowed }
    }

    /// Refuses the document of another issuer (OpenID Connect Discovery §4.3), or with an endpoint
    /// elsewhere.
    pub(super) fn check(&self, document: &Map<String, Value>) -> Result<(), Unfit> {
        if document.get("issuer").is_none_or(|issuer| *issuer != self.issuer) {
            return Err(Unfit::AnotherIssuer);
        }
        let endpoints = document.iter().filter(|(name, _)| {
            !NOT_ENDPOINTS.contains(&name.as_str()) && !name.ends_with("_supported")
        });
        for (name, value) in endpoints {
            if name == SIGNED || !self.allow(value) {
                return Err(Unfit::Elsewhere(name.clone()));
            }
        }
        Ok(())
    }

    fn allow(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => !text.contains([':', '/', '\\']) || self.has_origin(text),
            Value::Array(values) => values.iter().all(|value| self.allow(value)),
            Value::Object(members) => members.values().all(|value| self.allow(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }

    /// Returns true for an address of an allowed origin. The text behind the origin cannot belong
    /// to its host or port.
    fn has_origin(&self, address: &str) -> bool {
        self.allowed.iter().any(|origin| {
            address
                .strip_prefix(&**origin)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://auth.example.com/oidc";

    #[test]
    fn every_text_that_could_be_an_address_has_an_allowed_origin() {
        let listed = ["https://mtls.example.com:8443".to_owned()];
        let origins = Origins::new(ISSUER, "https://auth.example.com", &listed);
        #[rustfmt::skip]
        let cases = [
            (json!({"token_endpoint": "https://auth.example.com/token"}),                       true),
            (json!({"token_endpoint": "https://auth.example.com"}),                             true),
            (json!({"token_endpoint": "https://auth.example.com?x"}),                           true),
            (json!({"mtls_endpoint_aliases": {"token_endpoint": "https://mtls.example.com:8443/token"}}), true),
            (json!({"op_tos_uri": "https://www.example.org/", "op_policy_uri": "https://www.example.org/", "service_documentation": "https://www.example.org/"}), true),
            (json!({"claims_supported": ["https://example.org/claim"], "acr_values_supported": ["urn:x:y"]}), true),
            (json!({"require_pushed_authorization_requests": true, "version": "1.0", "x": null, "y": 1}), true),
            (json!({"token_endpoint": "https://evil.example/token"}),                           false),
            (json!({"jwks_uri": "http://auth.example.com/jwks"}),                               false),
            (json!({"token_endpoint": "https://auth.example.com:8443/token"}),                  false),
            (json!({"token_endpoint": "https://auth.example.com.evil.example/token"}),          false),
            (json!({"token_endpoint": "https://auth.example.com@evil.example/token"}),          false),
            (json!({"token_endpoint": "https://auth.example.com\\@evil.example/token"}),        false),
            (json!({"token_endpoint": "https:evil.example"}),                                   false),
            (json!({"token_endpoint": "//evil.example/token"}),                                 false),
            (json!({"token_endpoint": "\\\\evil.example\\token"}),                              false),
            (json!({"token_endpoint": " https://evil.example"}),                                false),
            (json!({"token_endpoint": ["https://evil.example"]}),                               false),
            (json!({"an_endpoint_of_tomorrow": "https://evil.example"}),                        false),
            (json!({"mtls_endpoint_aliases": {"token_endpoint": "https://evil.example/token"}}), false),
            (json!({"mtls_endpoint_aliases": {"a": {"b": "https://evil.example/token"}}}),      false),
            (json!({"signed_metadata": "eyJ.eyJ.x"}),                                           false),
        ];
        for (members, good) in cases {
            let mut document = json!({"issuer": ISSUER});
            document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let verdict = origins.check(document.as_object().unwrap());
            assert_eq!(verdict.is_ok(), good, "{members}: {verdict:?}");
        }
    }

    #[test]
    fn a_document_of_another_issuer_is_refused() {
        let origins = Origins::new(ISSUER, "https://auth.example.com", &[]);
        for document in [json!({}), json!({"issuer": "https://auth.example.com/oidc/"})] {
            let verdict = origins.check(document.as_object().unwrap());
            assert_eq!(verdict, Err(Unfit::AnotherIssuer), "{document}");
        }
    }
}
