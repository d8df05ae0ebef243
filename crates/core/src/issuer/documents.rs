//! The two documents that say how our tokens are verified (RFC 7517 §5, OpenID Connect Discovery §3).
//!
//! Before an identity gateway they are its documents with ours added: everybody who trusts the gateway
//! trusts our tokens without being told. A gateway that fails never becomes half a document: whoever kept a
//! key set with our keys alone would refuse every token of the gateway's until it fetched the next one. The
//! gateway's last good document stands in for it (RFC 5861 §4), and without one its failure goes on as it is.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::last_good::LastGood;
use super::routes::{Paths, Route};
use crate::config::Config;
use crate::host::Host;
use crate::jose::PublishedKey;
use crate::metrics;
use crate::oauth::TOKEN_EXCHANGE;
use crate::oauth::uri::HttpUrl;
use crate::secret::Digest;
use crate::step::Response;

/// How long a reader may keep our document where no gateway says so, in seconds. A new key should be
/// published this long before it signs.
const MAX_AGE: &str = "public, max-age=300";

/// The same for a document that stands in for one that the gateway failed to give.
const STAND_IN_MAX_AGE: &str = "max-age=60";

/// What the grants of a provider are that does not list any (OpenID Connect Discovery §3).
const DEFAULT_GRANTS: [&str; 2] = ["authorization_code", "implicit"];

/// Header fields that speak of the gateway's own bytes, and would be wrong beside ours.
pub const STALE_HEADERS: [&str; 9] = [
    "etag",
    "last-modified",
    "content-length",
    "content-encoding",
    "content-md5",
    "digest",
    "content-digest",
    "repr-digest",
    "accept-ranges",
];

/// Whether a header field of the gateway's answer stays in one that is otherwise ours.
pub fn stays_beside(ours: &Response, name: &str) -> bool {
    let of_the_message = name.starts_with(':') || name == "transfer-encoding";
    let replaced = ours.headers.iter().any(|(ours, _)| *ours == name);
    !of_the_message && !replaced && !STALE_HEADERS.contains(&name)
}

/// Request header fields that would let the gateway answer with less than its whole document as it is.
pub const PARTIAL_HEADERS: [&str; 6] = [
    "accept-encoding",
    "if-none-match",
    "if-modified-since",
    "if-match",
    "if-unmodified-since",
    "range",
];

/// Our parts of both documents.
#[derive(Debug)]
pub(crate) struct Documents {
    issuer: String,
    keys: Vec<PublishedKey>,
    jwks: Vec<u8>,
    discovery: Vec<u8>,
    last_jwks: LastGood,
    last_discovery: LastGood,
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
    pub(crate) fn new(config: &Config, paths: &Paths) -> Self {
        let origin = HttpUrl::parse(&config.issuer)
            .map(|url| format!("{}://{}", url.scheme, url.authority))
            .unwrap_or_default();
        let tenant = config.tenant();
        let metadata = Metadata {
            issuer: &config.issuer,
            token_endpoint: format!("{origin}{}", paths.token),
            jwks_uri: format!("{origin}{}", paths.jwks),
            grant_types_supported: [TOKEN_EXCHANGE],
            response_types_supported: [],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: vec![config.signing_key.algorithm.name()],
            token_endpoint_auth_methods_supported: ["client_secret_basic", "none"],
        };
        let keys = KeySetDocument { keys: &config.published_keys };
        // Strings and lists of strings always serialise.
        Self {
            issuer: config.issuer.clone(),
            jwks: serde_json::to_vec(&keys).unwrap_or_default(),
            discovery: serde_json::to_vec(&metadata).unwrap_or_default(),
            keys: config.published_keys.clone(),
            last_jwks: LastGood::new(&tenant, "jwks"),
            last_discovery: LastGood::new(&tenant, "discovery"),
        }
    }

    /// Our document, where there is no gateway.
    pub(crate) fn alone(&self, route: Route, if_none_match: Option<&[u8]>) -> Response {
        self.answer(route, self.ours(route).to_vec(), Some(MAX_AGE), if_none_match)
    }

    /// The gateway's document with ours added; `None` if the gateway sent no such document. The header fields in
    /// the answer replace the gateway's.
    pub(crate) fn merged(
        &self,
        host: &dyn Host,
        route: Route,
        document: &[u8],
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let (merged, is_ours) = self.merge(host, route, document)?;
        // A gateway may write a document by what a request says of its host: one like that is its asker's alone.
        if is_ours {
            self.last_good(route).remember(host, document);
        }
        Some(self.answer(route, merged, None, if_none_match))
    }

    /// The gateway's last good document with ours added, where the gateway failed; `None` without one.
    pub(crate) fn stand_in(
        &self,
        host: &dyn Host,
        route: Route,
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let document = self.last_good(route).recall(host)?;
        let (merged, _) = self.merge(host, route, &document)?;
        Some(self.answer(route, merged, Some(STAND_IN_MAX_AGE), if_none_match))
    }

    fn last_good(&self, route: Route) -> &LastGood {
        match route {
            Route::Jwks => &self.last_jwks,
            _ => &self.last_discovery,
        }
    }

    /// The merged document, and whether it is that of our issuer (OpenID Connect Discovery §4.3); a key set names
    /// none.
    fn merge(&self, host: &dyn Host, route: Route, document: &[u8]) -> Option<(Vec<u8>, bool)> {
        let document: Map<String, Value> = serde_json::from_slice(document).ok()?;
        let is_ours = match route {
            Route::Jwks => true,
            _ => document.get("issuer").is_some_and(|issuer| *issuer == self.issuer),
        };
        let merged = match route {
            Route::Jwks => self.merge_keys(host, document),
            _ => merge_metadata(document),
        };
        Some((Value::Object(merged?).to_string().into_bytes(), is_ours))
    }

    fn ours(&self, route: Route) -> &[u8] {
        match route {
            Route::Jwks => &self.jwks,
            _ => &self.discovery,
        }
    }

    /// Adds our keys. If the gateway has one of the same name ours stays: our tokens name it.
    fn merge_keys(
        &self,
        host: &dyn Host,
        mut document: Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let Value::Array(keys) = document.get_mut("keys")? else { return None };
        let before = keys.len();
        keys.retain(|key| {
            let kid = key.get("kid").and_then(Value::as_str);
            !self.keys.iter().any(|ours| Some(&*ours.kid) == kid)
        });
        if keys.len() != before {
            host.count(metrics::KEY_COLLISIONS.into());
            host.warn(
                "a key of the identity gateway has the kid of one of ours, which replaces it",
            );
        }
        for key in &self.keys {
            keys.push(serde_json::to_value(key).ok()?);
        }
        Some(document)
    }

    fn answer(
        &self,
        route: Route,
        body: Vec<u8>,
        cache_control: Option<&str>,
        if_none_match: Option<&[u8]>,
    ) -> Response {
        let content_type = match route {
            Route::Jwks => "application/jwk-set+json",
            _ => "application/json",
        };
        let tag = Digest::of(&body);
        let tag = tag.as_bytes().first_chunk::<12>().map(|tag| BASE64_URL_SAFE_NO_PAD.encode(tag));
        let etag = format!("\"{}\"", tag.unwrap_or_default());
        let unchanged = if_none_match.is_some_and(|known| names_tag(known, &etag));
        let mut headers = vec![("content-type", content_type.to_owned()), ("etag", etag)];
        headers.extend(cache_control.map(|value| ("cache-control", value.to_owned())));
        if unchanged {
            return Response { status: 304, headers, body: Vec::new() };
        }
        Response { status: 200, headers, body }
    }
}

/// Adds our grant; every other member stays as it is.
fn merge_metadata(mut document: Map<String, Value>) -> Option<Map<String, Value>> {
    let grants = document.entry("grant_types_supported").or_insert_with(|| json!(DEFAULT_GRANTS));
    let Value::Array(grants) = grants else { return None };
    if !grants.iter().any(|grant| grant == TOKEN_EXCHANGE) {
        grants.push(TOKEN_EXCHANGE.into());
    }
    Some(document)
}

/// Whether an `If-None-Match` names a tag (RFC 9110 §13.1.2; the comparison is weak).
fn names_tag(if_none_match: &[u8], etag: &str) -> bool {
    if_none_match.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|known| {
        let strong = known.strip_prefix(b"W/").unwrap_or(known);
        strong == etag.as_bytes() || strong == b"*"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gateway_says_of_its_own_bytes_does_not_stay() {
        let headers = vec![("content-type", "a/b".to_owned()), ("etag", "\"a\"".to_owned())];
        let ours = Response { status: 200, headers, body: Vec::new() };
        for name in ["cache-control", "vary", "set-cookie", "access-control-allow-origin", "date"] {
            assert!(stays_beside(&ours, name), "{name}");
        }
        for name in [":status", "content-type", "etag", "content-length", "transfer-encoding"] {
            assert!(!stays_beside(&ours, name), "{name}");
        }
        for name in STALE_HEADERS {
            assert!(!stays_beside(&ours, name), "{name}");
        }
    }

    #[test]
    fn a_grant_is_added_and_nothing_else_changes() {
        let merge = |document: Value| {
            merge_metadata(document.as_object().unwrap().clone()).map(Value::Object)
        };
        #[rustfmt::skip]
        let cases = [
            (json!({"z": 1, "grant_types_supported": ["a"], "a": {"b": [null]}}),
             Some(json!({"z": 1, "grant_types_supported": ["a", TOKEN_EXCHANGE], "a": {"b": [null]}}))),
            (json!({"grant_types_supported": [TOKEN_EXCHANGE]}),
             Some(json!({"grant_types_supported": [TOKEN_EXCHANGE]}))),
            (json!({"issuer": "i"}),
             Some(json!({"issuer": "i", "grant_types_supported": ["authorization_code", "implicit", TOKEN_EXCHANGE]}))),
            (json!({"grant_types_supported": "a"}), None),
        ];
        for (document, merged) in cases {
            assert_eq!(merge(document.clone()), merged, "{document}");
        }
    }

    #[test]
    fn a_tag_is_found_among_others() {
        #[rustfmt::skip]
        let cases: [(&[u8], bool); 6] = [
            (b"\"a\"",            true),
            (b"\"b\", W/\"a\"",   true),
            (b"*",                true),
            (b"\"b\"",            false),
            (b"a",                false),
            (b"\xff",             false),
        ];
        for (header, found) in cases {
            assert_eq!(names_tag(header, "\"a\""), found, "{}", header.escape_ascii());
        }
    }
}
