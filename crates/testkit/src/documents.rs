//! The key set and the discovery document of a gateway before which the filter stands.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::configuration::{Configuration, ISSUER};
use crate::gateway::IDENTITY_GATEWAY;
use crate::keys::Key;
use crate::server::{Reply, Server};

pub const JWKS: &str = "/oidc/jwks";
pub const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

/// A configuration with which the filter adds its documents to those of the gateway.
pub fn merging() -> Configuration {
    Configuration::default().with("/identity_gateway", json!({"documents": "merge"}))
}

/// A configuration with which the filter also fetches the gateway's documents itself, so that one
/// can stand in. `identity_gateway` has these members, too.
pub fn keeping(members: &Value) -> Configuration {
    let mut gateway = json!({"documents": "merge", "cluster": IDENTITY_GATEWAY});
    gateway.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Configuration::default().with("/identity_gateway", gateway)
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

/// Answers that are not documents, by name.
pub fn answers_that_are_no_documents() -> Vec<(&'static str, Reply)> {
    let body = |text: &str| Reply { body: text.into(), ..Reply::json(&Value::Null) };
    #[rustfmt::skip]
    let replies = vec![
        ("404", Reply::status(404)), ("204", Reply::status(204)),
        ("401", Reply::status(401).header("www-authenticate", "Basic realm=\"x\"")),
        ("429", Reply { status: 429, ..Reply::json(&json!({"keys": []})) }),
        ("302", Reply::status(302).header("location", "/login")),
        ("an error in JSON", Reply { status: 500, ..Reply::json(&json!({"keys": []})) }),
        ("a list", body("[]")), ("a string", body("\"keys\"")), ("half a document", body("{\"keys\": [")),
        ("more than one", body("{\"keys\": []} {}")), ("not UTF-8", Reply { body: vec![b'{', 0xff, b'}'], ..body("") }),
        ("members of other types", body("{\"keys\": {}, \"grant_types_supported\": {}}")),
        ("deep", body(&"{\"a\":".repeat(2000))),
        ("too long", body(&json!({"keys": [], "x": "y".repeat(512 * 1024)}).to_string())),
    ];
    replies
}

/// The names of the keys in a key set.
pub fn kids(document: &Value) -> Vec<&str> {
    document["keys"].as_array().unwrap().iter().filter_map(|key| key["kid"].as_str()).collect()
}
