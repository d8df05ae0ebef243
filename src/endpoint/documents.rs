//! The two documents that say how our tokens are verified (RFC 7517 §5, OpenID Connect Discovery §3),
//! served alone where there is no identity gateway behind us.

use serde::Serialize;

use crate::config::Config;
use crate::jose::PublishedKey;
use crate::oauth::TOKEN_EXCHANGE;
use crate::oauth::uri::HttpUrl;
use crate::step::Response;

/// How long a reader may keep a document, in seconds. A new key should be published this long before it
/// signs.
const MAX_AGE: u32 = 300;

/// Both documents, written once.
#[derive(Debug)]
pub struct Documents {
    jwks: Vec<u8>,
    discovery: Vec<u8>,
}

#[derive(Serialize)]
struct KeySetDocument<'a> {
    keys: &'a [PublishedKey],
}

#[derive(Serialize)]
struct Metadata<'a> {
    issuer: &'a str,
    token_endpoint: String,
    jwks_uri: String,
    grant_types_supported: [&'a str; 1],
    response_types_supported: [&'a str; 0],
    subject_types_supported: [&'a str; 1],
    id_token_signing_alg_values_supported: Vec<&'a str>,
    token_endpoint_auth_methods_supported: [&'a str; 2],
}

impl Documents {
    /// Writes the documents of a configuration.
    pub fn new(config: &Config) -> Self {
        let origin = HttpUrl::parse(&config.issuer)
            .map(|url| format!("{}://{}", url.scheme, url.authority))
            .unwrap_or_default();
        let base = format!("{origin}{}", config.base_path);
        let metadata = Metadata {
            issuer: &config.issuer,
            token_endpoint: format!("{base}/oidc/token"),
            jwks_uri: format!("{base}/oidc/jwks"),
            grant_types_supported: [TOKEN_EXCHANGE],
            response_types_supported: [],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: vec![config.signing_key.algorithm().name()],
            token_endpoint_auth_methods_supported: ["client_secret_basic", "none"],
        };
        let keys = KeySetDocument { keys: &config.published_keys };
        // Strings and lists of strings always serialise.
        Self {
            jwks: serde_json::to_vec(&keys).unwrap_or_default(),
            discovery: serde_json::to_vec(&metadata).unwrap_or_default(),
        }
    }

    /// Our keys.
    pub fn jwks(&self) -> Response {
        // RFC 7517 §8.5.2 has a type of its own for key sets; readers know both.
        document("application/jwk-set+json", &self.jwks)
    }

    /// Our metadata.
    pub fn discovery(&self) -> Response {
        document("application/json", &self.discovery)
    }
}

fn document(content_type: &str, body: &[u8]) -> Response {
    let headers = vec![
        ("content-type", content_type.to_owned()),
        ("cache-control", format!("public, max-age={MAX_AGE}")),
    ];
    Response { status: 200, headers, body: body.to_vec() }
}
