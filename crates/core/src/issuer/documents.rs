//! The two documents that say how our tokens are verified (RFC 7517 §5, OpenID Connect Discovery §3).
//!
//! Before an identity gateway they are its documents with ours added: everybody who trusts the gateway
//! trusts our tokens without being told. A gateway that fails never becomes half a document: whoever kept a
//! key set with our keys alone would refuse every token of the gateway's until it fetched the next one. The
//! gateway's last good document stands in for it (RFC 5861 §4), and without one its failure goes on as it is.
//!
//! Discovery says of us what is true of this configuration: the endpoints that we have, and the ways in which a
//! configured client authenticates. Where the gateway has an endpoint of its own for the same, at another path, its
//! path stays in the document: the gateway's clients depend on it, and our path would not serve them.

use std::cell::Cell;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::last_good::LastGood;
use super::paths::Paths;
use crate::config::{ClientAuthentication, Config};
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

/// How clients authenticate at an endpoint of a provider that does not say so: at the token endpoint and at the
/// revocation endpoint (RFC 8414 §2). For introspection there is no such default.
const DEFAULT_METHODS: [&str; 1] = [ClientAuthentication::ClientSecretBasic.name()];

/// The members of a discovery document that have ours beside the gateway's.
const GRANTS: &str = "grant_types_supported";
const TOKEN_METHODS: &str = "token_endpoint_auth_methods_supported";
const REVOCATION: &str = "revocation_endpoint";
const REVOCATION_METHODS: &str = "revocation_endpoint_auth_methods_supported";
const INTROSPECTION: &str = "introspection_endpoint";
const INTROSPECTION_METHODS: &str = "introspection_endpoint_auth_methods_supported";

/// Header fields that speak of the gateway's own bytes, and would be wrong beside ours.
pub(crate) const STALE_HEADERS: [&str; 9] = [
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
pub(crate) fn stays_beside(ours: &Response, name: &str) -> bool {
    let of_the_message = name.starts_with(':') || name == "transfer-encoding";
    let replaced = ours.headers.iter().any(|(ours, _)| *ours == name);
    !of_the_message && !replaced && !STALE_HEADERS.contains(&name)
}

/// Request header fields that would let the gateway answer with less than its whole document as it is.
pub(crate) const PARTIAL_HEADERS: [&str; 6] = [
    "accept-encoding",
    "if-none-match",
    "if-modified-since",
    "if-match",
    "if-unmodified-since",
    "range",
];

/// A document that the filter publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// The key set (RFC 7517 §5).
    Jwks,
    /// The provider's metadata (OpenID Connect Discovery §3).
    Discovery,
}

/// Our parts of both documents.
#[derive(Debug)]
pub(crate) struct Documents {
    issuer: String,
    keys: Vec<PublishedKey>,
    jwks: Vec<u8>,
    discovery: Vec<u8>,
    supported: Supported,
    /// Whether the operator was told that the gateway has an endpoint at another path.
    told: Cell<bool>,
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
    #[serde(flatten)]
    supported: &'a Supported,
}

/// Our endpoints for what clients do with tokens of ours, and how the configured clients authenticate there.
#[derive(Debug, Serialize)]
struct Supported {
    token_endpoint_auth_methods_supported: Vec<&'static str>,
    revocation_endpoint: String,
    revocation_endpoint_auth_methods_supported: Vec<&'static str>,
    #[serde(flatten)]
    introspection: Option<Introspection>,
}

/// It is for confidential clients: without one there is nobody to whom it would answer.
#[derive(Debug, Serialize)]
struct Introspection {
    introspection_endpoint: String,
    introspection_endpoint_auth_methods_supported: Vec<&'static str>,
}

impl Supported {
    fn new(config: &Config, origin: &str, paths: &Paths) -> Self {
        let used: BTreeSet<_> =
            config.clients.values().map(|client| client.authentication).collect();
        let methods: Vec<_> = used.iter().map(|method| method.name()).collect();
        let public = ClientAuthentication::None.name();
        let confidential: Vec<_> =
            methods.iter().copied().filter(|method| *method != public).collect();
        Self {
            token_endpoint_auth_methods_supported: methods.clone(),
            revocation_endpoint: format!("{origin}{}", paths.token_revocation),
            revocation_endpoint_auth_methods_supported: methods,
            introspection: (!confidential.is_empty()).then(|| Introspection {
                introspection_endpoint: format!("{origin}{}", paths.token_introspection),
                introspection_endpoint_auth_methods_supported: confidential,
            }),
        }
    }

    /// Adds them to the gateway's. Says whether the gateway has one of the endpoints at another path.
    fn add_to(&self, document: &mut Map<String, Value>) -> bool {
        let default = Some(&DEFAULT_METHODS[..]);
        let methods = &self.token_endpoint_auth_methods_supported;
        add_to_list(document, TOKEN_METHODS, default, methods);
        let mut elsewhere = add_endpoint(
            document,
            (REVOCATION, &self.revocation_endpoint),
            (REVOCATION_METHODS, default, &self.revocation_endpoint_auth_methods_supported),
        );
        if let Some(ours) = &self.introspection {
            elsewhere |= add_endpoint(
                document,
                (INTROSPECTION, &ours.introspection_endpoint),
                (INTROSPECTION_METHODS, None, &ours.introspection_endpoint_auth_methods_supported),
            );
        }
        elsewhere
    }
}

impl Documents {
    /// Writes the documents of a configuration.
    pub(crate) fn new(config: &Config, paths: &Paths) -> Self {
        let origin = HttpUrl::parse(&config.issuer)
            .map(|url| format!("{}://{}", url.scheme, url.authority))
            .unwrap_or_default();
        let tenant = config.tenant();
        let supported = Supported::new(config, &origin, paths);
        let metadata = Metadata {
            issuer: &config.issuer,
            token_endpoint: format!("{origin}{}", paths.token),
            jwks_uri: format!("{origin}{}", paths.jwks),
            grant_types_supported: [TOKEN_EXCHANGE],
            response_types_supported: [],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: vec![config.signing_key.algorithm.name()],
            supported: &supported,
        };
        let keys = KeySetDocument { keys: &config.published_keys };
        // Strings and lists of strings always serialise.
        Self {
            issuer: config.issuer.clone(),
            jwks: serde_json::to_vec(&keys).unwrap_or_default(),
            discovery: serde_json::to_vec(&metadata).unwrap_or_default(),
            keys: config.published_keys.clone(),
            supported,
            told: Cell::default(),
            last_jwks: LastGood::new(&tenant, "jwks"),
            last_discovery: LastGood::new(&tenant, "discovery"),
        }
    }

    /// Our document, where there is no gateway.
    pub(crate) fn alone(&self, which: Document, if_none_match: Option<&[u8]>) -> Response {
        self.answer(which, self.ours(which).to_vec(), Some(MAX_AGE), if_none_match)
    }

    /// The gateway's document with ours added; `None` if the gateway sent no such document. The header fields in
    /// the answer replace the gateway's.
    pub(crate) fn merged(
        &self,
        host: &dyn Host,
        which: Document,
        document: &[u8],
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let (merged, is_ours) = self.merge(host, which, document)?;
        // A gateway may write a document by what a request says of its host: one like that is its asker's alone.
        if is_ours {
            self.last_good(which).remember(host, document);
        }
        Some(self.answer(which, merged, None, if_none_match))
    }

    /// The gateway's last good document with ours added, where the gateway failed; `None` without one.
    pub(crate) fn stand_in(
        &self,
        host: &dyn Host,
        which: Document,
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let document = self.last_good(which).recall(host)?;
        let (merged, _) = self.merge(host, which, &document)?;
        Some(self.answer(which, merged, Some(STAND_IN_MAX_AGE), if_none_match))
    }

    fn last_good(&self, which: Document) -> &LastGood {
        match which {
            Document::Jwks => &self.last_jwks,
            Document::Discovery => &self.last_discovery,
        }
    }

    /// The merged document, and whether it is that of our issuer (OpenID Connect Discovery §4.3); a key set names
    /// none.
    fn merge(&self, host: &dyn Host, which: Document, document: &[u8]) -> Option<(Vec<u8>, bool)> {
        let document: Map<String, Value> = serde_json::from_slice(document).ok()?;
        let is_ours = match which {
            Document::Jwks => true,
            Document::Discovery => {
                document.get("issuer").is_some_and(|issuer| *issuer == self.issuer)
            }
        };
        let merged = match which {
            Document::Jwks => self.merge_keys(host, document),
            Document::Discovery => self.merge_metadata(host, document, is_ours),
        };
        Some((Value::Object(merged?).to_string().into_bytes(), is_ours))
    }

    fn ours(&self, which: Document) -> &[u8] {
        match which {
            Document::Jwks => &self.jwks,
            Document::Discovery => &self.discovery,
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

    /// Adds our grant, and to our issuer's document our endpoints. Every other member stays as it is.
    fn merge_metadata(
        &self,
        host: &dyn Host,
        mut document: Map<String, Value>,
        is_ours: bool,
    ) -> Option<Map<String, Value>> {
        if !add_to_list(&mut document, GRANTS, Some(&DEFAULT_GRANTS), &[TOKEN_EXCHANGE]) {
            return None;
        }
        if is_ours && self.supported.add_to(&mut document) && !self.told.replace(true) {
            host.warn(
                "the identity gateway revokes or introspects at another path than the filter: its own stays in the \
                 discovery document, and does not know the filter's tokens",
            );
        }
        Some(document)
    }

    fn answer(
        &self,
        which: Document,
        body: Vec<u8>,
        cache_control: Option<&str>,
        if_none_match: Option<&[u8]>,
    ) -> Response {
        let content_type = match which {
            Document::Jwks => "application/jwk-set+json",
            Document::Discovery => "application/json",
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

/// Adds what is not in a list yet. `default` is what the document means without the member; where that is not known
/// the member stays away. Says whether the member is a list.
fn add_to_list(
    document: &mut Map<String, Value>,
    member: &'static str,
    default: Option<&[&str]>,
    ours: &[&str],
) -> bool {
    let list = match (document.get_mut(member), default) {
        (Some(list), _) => list,
        (None, Some(default)) => document.entry(member).or_insert_with(|| json!(default)),
        (None, None) => return true,
    };
    let Value::Array(list) = list else { return false };
    for one in ours {
        if !list.iter().any(|known| known == one) {
            list.push((*one).into());
        }
    }
    true
}

/// Adds an endpoint and how clients authenticate there. Says whether the gateway has its own, at another path.
fn add_endpoint(
    document: &mut Map<String, Value>,
    (endpoint, ours): (&'static str, &str),
    (member, default, methods): (&'static str, Option<&[&str]>, &[&str]),
) -> bool {
    match document.get(endpoint) {
        None => {
            document.insert(endpoint.to_owned(), ours.into());
            add_to_list(document, member, Some(&[]), methods);
            false
        }
        Some(theirs) if theirs == ours => {
            add_to_list(document, member, default, methods);
            false
        }
        Some(_) => true,
    }
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
    fn what_is_missing_is_added_to_a_list_and_nothing_else_changes() {
        let merge = |document: Value, default| {
            let mut document = document.as_object().unwrap().clone();
            let ours = [TOKEN_EXCHANGE, "b"];
            add_to_list(&mut document, GRANTS, default, &ours).then_some(Value::Object(document))
        };
        let default = Some(&DEFAULT_GRANTS[..]);
        #[rustfmt::skip]
        let cases = [
            (json!({"z": 1, "grant_types_supported": ["a", "b"], "a": {"b": [null]}}), default,
             Some(json!({"z": 1, "grant_types_supported": ["a", "b", TOKEN_EXCHANGE], "a": {"b": [null]}}))),
            (json!({"grant_types_supported": [TOKEN_EXCHANGE]}), default,
             Some(json!({"grant_types_supported": [TOKEN_EXCHANGE, "b"]}))),
            (json!({"issuer": "i"}), default,
             Some(json!({"issuer": "i", "grant_types_supported": ["authorization_code", "implicit", TOKEN_EXCHANGE, "b"]}))),
            (json!({"issuer": "i"}), None, Some(json!({"issuer": "i"}))),
            (json!({"grant_types_supported": "a"}), default, None),
        ];
        for (document, default, merged) in cases {
            assert_eq!(merge(document.clone(), default), merged, "{document}");
        }
    }

    #[test]
    fn an_endpoint_of_the_gateway_stays_the_gateways() {
        let supported = Supported {
            token_endpoint_auth_methods_supported: vec!["client_secret_post", "none"],
            revocation_endpoint: "https://a/revoke".to_owned(),
            revocation_endpoint_auth_methods_supported: vec!["client_secret_post", "none"],
            introspection: Some(Introspection {
                introspection_endpoint: "https://a/introspect".to_owned(),
                introspection_endpoint_auth_methods_supported: vec!["client_secret_post"],
            }),
        };
        let all = |endpoints: Value| {
            let mut document = json!({
                "token_endpoint_auth_methods_supported":
                    ["client_secret_basic", "client_secret_post", "none"],
            });
            document.as_object_mut().unwrap().extend(endpoints.as_object().unwrap().clone());
            document
        };
        #[rustfmt::skip]
        let cases = [
            ("the gateway has none", json!({}), false, all(json!({
                "revocation_endpoint": "https://a/revoke",
                "revocation_endpoint_auth_methods_supported": ["client_secret_post", "none"],
                "introspection_endpoint": "https://a/introspect",
                "introspection_endpoint_auth_methods_supported": ["client_secret_post"],
            }))),
            ("at the same paths, how is not said", json!({
                "revocation_endpoint": "https://a/revoke", "introspection_endpoint": "https://a/introspect",
             }), false, all(json!({
                "revocation_endpoint": "https://a/revoke",
                "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
                "introspection_endpoint": "https://a/introspect",
            }))),
            ("at the same paths, by other methods", json!({
                "revocation_endpoint": "https://a/revoke",
                "revocation_endpoint_auth_methods_supported": ["private_key_jwt"],
                "introspection_endpoint": "https://a/introspect",
                "introspection_endpoint_auth_methods_supported": ["private_key_jwt"],
             }), false, all(json!({
                "revocation_endpoint": "https://a/revoke",
                "revocation_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_post", "none"],
                "introspection_endpoint": "https://a/introspect",
                "introspection_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_post"],
            }))),
            ("at other paths", json!({
                "revocation_endpoint": "https://a/other", "introspection_endpoint": "https://b/introspect",
             }), true, all(json!({
                "revocation_endpoint": "https://a/other", "introspection_endpoint": "https://b/introspect",
            }))),
        ];
        for (case, document, elsewhere, merged) in cases {
            let mut document = document.as_object().unwrap().clone();
            assert_eq!(supported.add_to(&mut document), elsewhere, "{case}");
            assert_eq!(Value::Object(document), merged, "{case}");
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
