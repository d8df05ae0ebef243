//! The key set and the discovery document of a gateway before which the filter stands.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::configuration::{Configuration, ISSUER};
use crate::keys::Key;
use crate::server::{Reply, Server};

pub const JWKS: &str = "/oidc/jwks";
pub const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

/// A configuration with which the filter adds its documents to those of the gateway.
pub fn merging() -> Configuration {
    Configuration::default().with("/identity_gateway", json!({"documents": "merge"}))
}

/// The gateway's own documents.
pub fn gateway_document(target: &str) -> Value {
    match target {
        JWKS => json!({
            "z": [1, 2.5, null, "é"],
            "keys": [
                Key::generate(Algorithm::ES256, "theirs").public_jwk(),
                {"kty": "unheard-of", "n": 1},
            ],
            "a": {"b": {}},
        }),
        _ => json!({
            "issuer": ISSUER,
            "token_endpoint": format!("{ISSUER}/token"),
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "claims_supported": ["sub"],
            "z": null,
        }),
    }
}

/// Gives the gateway documents that stay the same from one request to the next.
pub fn has_documents(gateway: &Server) -> (Value, Value) {
    let (key_set, discovery) = (gateway_document(JWKS), gateway_document(DISCOVERY));
    let documents = (key_set.clone(), discovery.clone());
    gateway.answer(move |asked| {
        let document = if asked.target == JWKS { &documents.0 } else { &documents.1 };
        Reply::json(document)
            .header("etag", "\"theirs\"")
            .header("cache-control", "public, max-age=60")
            .header("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT")
            .header("x-theirs", "kept")
    });
    (key_set, discovery)
}

/// The names of the keys in a key set.
pub fn kids(document: &Value) -> Vec<&str> {
    document["keys"].as_array().unwrap().iter().filter_map(|key| key["kid"].as_str()).collect()
}
