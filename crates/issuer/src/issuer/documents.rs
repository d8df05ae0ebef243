//! The key set (RFC 7517 §5) and the discovery document (OpenID Connect Discovery §3), by which
//! APIs verify our tokens.
//!
//! In front of an identity gateway, the filter serves the gateway's documents with our parts added.
//! An API that trusts the gateway then trusts our tokens without being configured. When the gateway
//! fails, the filter never serves our part alone: an API that cached a key set without the
//! gateway's keys would refuse every token of the gateway until it fetched the next one. A document
//! that the filter has fetched itself stands in (RFC 5861 §4). If there is none, the gateway's
//! failure passes through unchanged.
//!
//! The discovery document lists the endpoints of this configuration, and how the configured clients
//! authenticate. If the gateway has such an endpoint at another path, the gateway's path stays in
//! the document: the gateway's clients depend on it, and our path would not serve them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::origins::Origins;
use super::stand_in::{Fitting, StandIn};
use crate::client::Assertions;
use crate::config::{ClientAuthentication, Config, HttpUri};
use crate::dpop::Proofs;
use crate::host::Host;
use crate::jose::PublishedKey;
use crate::metrics;
use crate::oauth::TOKEN_EXCHANGE;
use crate::oauth::uri::HttpUrl;
use crate::secret::Digest;
use crate::step::Response;

/// How long a reader may cache our document where there is no gateway, in seconds. A new key should
/// be published this long before it signs.
const MAX_AGE: &str = "public, max-age=300";

/// How long a reader may cache a document that stands in while the gateway fails.
const STAND_IN_MAX_AGE: &str = "max-age=60";

/// How long the gateway may take for a document that may stand in. No request waits for it.
const STAND_IN_TIMEOUT: Duration = Duration::from_secs(5);

/// The grants of a provider that does not list any (OpenID Connect Discovery §3).
const DEFAULT_GRANTS: [&str; 2] = ["authorization_code", "implicit"];

/// How clients authenticate at the token endpoint and the revocation endpoint of a provider that
/// does not say so (RFC 8414 §2). The introspection endpoint has no such default.
const DEFAULT_METHODS: [&str; 1] = [ClientAuthentication::ClientSecretBasic.name()];

/// The members of a discovery document to which the filter adds our values.
const GRANTS: &str = "grant_types_supported";
const TOKEN_METHODS: &str = "token_endpoint_auth_methods_supported";
const TOKEN_ALGORITHMS: &str = "token_endpoint_auth_signing_alg_values_supported";
const PROOF_ALGORITHMS: &str = "dpop_signing_alg_values_supported";
const BOUND_TO_CERTIFICATES: &str = "tls_client_certificate_bound_access_tokens";
const REVOCATION: &str = "revocation_endpoint";
const REVOCATION_METHODS: &str = "revocation_endpoint_auth_methods_supported";
const REVOCATION_ALGORITHMS: &str = "revocation_endpoint_auth_signing_alg_values_supported";
const INTROSPECTION: &str = "introspection_endpoint";
const INTROSPECTION_METHODS: &str = "introspection_endpoint_auth_methods_supported";
const INTROSPECTION_ALGORITHMS: &str = "introspection_endpoint_auth_signing_alg_values_supported";

/// Header fields that describe the gateway's own bytes. They would be wrong beside a merged
/// document.
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

/// Returns true if a header field of the gateway's answer stays when our answer replaces it.
pub(crate) fn stays_beside(ours: &Response, name: &str) -> bool {
    let of_the_message = name.starts_with(':') || name == "transfer-encoding";
    let replaced = ours.headers.iter().any(|(ours, _)| *ours == name);
    !of_the_message && !replaced && !STALE_HEADERS.contains(&name)
}

/// Request header fields by which the gateway might answer with less than its whole document.
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
    /// The discovery document, for clients that look for it by RFC 8414 §3.
    OauthDiscovery,
}

/// Our parts of the key set and of the discovery document.
#[derive(Debug)]
pub(crate) struct Documents {
    issuer: String,
    keys: Vec<PublishedKey>,
    jwks: Vec<u8>,
    discovery: Vec<u8>,
    supported: Supported,
    /// True once the operator was warned that the gateway has an endpoint at another path.
    told: Cell<bool>,
    /// The documents that may stand in for the gateway's.
    stand_ins: Vec<(Document, Rc<StandIn>)>,
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

/// The endpoints where clients use our tokens, and how the configured clients authenticate there.
#[derive(Debug, Serialize)]
struct Supported {
    token_endpoint_auth_methods_supported: Vec<&'static str>,
    /// The algorithms of client assertions; absent if no client uses them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    token_endpoint_auth_signing_alg_values_supported: Vec<&'static str>,
    revocation_endpoint: String,
    revocation_endpoint_auth_methods_supported: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    revocation_endpoint_auth_signing_alg_values_supported: Vec<&'static str>,
    #[serde(flatten)]
    introspection: Option<Introspection>,
    /// The algorithms of proofs (RFC 9449 §5.1); absent if none is read.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    dpop_signing_alg_values_supported: Vec<&'static str>,
    /// Access tokens can be bound to certificates (RFC 8705 §3.3).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tls_client_certificate_bound_access_tokens: bool,
}

/// The introspection endpoint, which answers confidential clients only. It is left out if no client
/// is confidential.
#[derive(Debug, Serialize)]
struct Introspection {
    introspection_endpoint: String,
    introspection_endpoint_auth_methods_supported: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    introspection_endpoint_auth_signing_alg_values_supported: Vec<&'static str>,
}

impl Supported {
    fn new(config: &Config, proofs: Option<&Proofs>, origin: &str) -> Self {
        let paths = &config.paths;
        let mut used = BTreeSet::new();
        used.extend(
            config.clients.values().flat_map(|client| client.authentication.iter().copied()),
        );
        let methods: Vec<_> = used.iter().map(|method| method.name()).collect();
        let public = ClientAuthentication::None.name();
        let confidential: Vec<_> =
            methods.iter().copied().filter(|method| *method != public).collect();
        let signed = match used.contains(&ClientAuthentication::PrivateKeyJwt) {
            true => Assertions::algorithm_names(config.profile),
            false => Vec::new(),
        };
        let proofs = proofs.map(Proofs::algorithms).unwrap_or_default();
        Self {
            token_endpoint_auth_methods_supported: methods.clone(),
            token_endpoint_auth_signing_alg_values_supported: signed.clone(),
            revocation_endpoint: format!("{origin}{}", paths.revocation),
            revocation_endpoint_auth_methods_supported: methods,
            revocation_endpoint_auth_signing_alg_values_supported: signed.clone(),
            introspection: (!confidential.is_empty()).then(|| Introspection {
                introspection_endpoint: format!("{origin}{}", paths.introspection),
                introspection_endpoint_auth_methods_supported: confidential,
                introspection_endpoint_auth_signing_alg_values_supported: signed,
            }),
            dpop_signing_alg_values_supported: proofs.iter().map(|one| one.name()).collect(),
            tls_client_certificate_bound_access_tokens: config.binds_to_certificates(),
        }
    }

    /// Adds our endpoints to the gateway's document. Returns true if the gateway has one of them at
    /// another path.
    fn add_to(&self, document: &mut Map<String, Value>) -> bool {
        let default = Some(&DEFAULT_METHODS[..]);
        let methods = &self.token_endpoint_auth_methods_supported;
        add_to_list(document, TOKEN_METHODS, default, methods);
        let signed = &self.token_endpoint_auth_signing_alg_values_supported;
        let proofs = &self.dpop_signing_alg_values_supported;
        for (member, ours) in [(TOKEN_ALGORITHMS, signed), (PROOF_ALGORITHMS, proofs)] {
            if !ours.is_empty() {
                add_to_list(document, member, Some(&[]), ours);
            }
        }
        if self.tls_client_certificate_bound_access_tokens {
            document.insert(BOUND_TO_CERTIFICATES.to_owned(), true.into());
        }
        let mut elsewhere = add_endpoint(
            document,
            (REVOCATION, &self.revocation_endpoint),
            (REVOCATION_METHODS, default, &self.revocation_endpoint_auth_methods_supported),
            (REVOCATION_ALGORITHMS, &self.revocation_endpoint_auth_signing_alg_values_supported),
        );
        if let Some(ours) = &self.introspection {
            elsewhere |= add_endpoint(
                document,
                (INTROSPECTION, &ours.introspection_endpoint),
                (INTROSPECTION_METHODS, None, &ours.introspection_endpoint_auth_methods_supported),
                (
                    INTROSPECTION_ALGORITHMS,
                    &ours.introspection_endpoint_auth_signing_alg_values_supported,
                ),
            );
        }
        elsewhere
    }
}

impl Documents {
    /// Writes our parts for a configuration. `proofs` says which proofs are accepted.
    pub(crate) fn new(config: &Config, proofs: Option<&Proofs>) -> Self {
        let origin = HttpUrl::parse(&config.issuer)
            .map(|url| format!("{}://{}", url.scheme, url.authority))
            .unwrap_or_default();
        let supported = Supported::new(config, proofs, &origin);
        let metadata = Metadata {
            issuer: &config.issuer,
            token_endpoint: format!("{origin}{}", config.paths.token),
            jwks_uri: format!("{origin}{}", config.paths.jwks),
            grant_types_supported: [TOKEN_EXCHANGE],
            response_types_supported: [],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: vec![config.signing_key.algorithm.name()],
            supported: &supported,
        };
        let keys = KeySetDocument { keys: &config.published_keys };
        // Strings and lists of strings can always be serialized.
        Self {
            issuer: config.issuer.clone(),
            jwks: serde_json::to_vec(&keys).unwrap_or_default(),
            discovery: serde_json::to_vec(&metadata).unwrap_or_default(),
            keys: config.published_keys.clone(),
            supported,
            told: Cell::default(),
            stand_ins: stand_ins(config, &origin),
        }
    }

    /// Answers with our document alone, where there is no gateway.
    pub(crate) fn alone(&self, which: Document, if_none_match: Option<&[u8]>) -> Response {
        self.answer(which, self.ours(which).to_vec(), Some(MAX_AGE), if_none_match)
    }

    /// Answers with the gateway's document and our part in it; `None` if the gateway sent no such
    /// document. The header fields of the answer replace the gateway's.
    pub(crate) fn merged(
        &self,
        host: &dyn Host,
        which: Document,
        document: &[u8],
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let merged = self.merge(host, which, document)?;
        Some(self.answer(which, merged, None, if_none_match))
    }

    /// Answers with the document that stands in and our part in it, when the gateway failed; `None`
    /// if there is no such document.
    pub(crate) fn stand_in(
        &self,
        host: &dyn Host,
        which: Document,
        if_none_match: Option<&[u8]>,
    ) -> Option<Response> {
        let (_, stand_in) = self.stand_ins.iter().find(|(document, _)| *document == which)?;
        let merged = self.merge(host, which, &stand_in.recall(host)?)?;
        Some(self.answer(which, merged, Some(STAND_IN_MAX_AGE), if_none_match))
    }

    /// The documents that the background task fetches.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = &Rc<StandIn>> {
        self.stand_ins.iter().map(|(_, stand_in)| stand_in)
    }

    /// Merges a document of the gateway with our part.
    fn merge(&self, host: &dyn Host, which: Document, document: &[u8]) -> Option<Vec<u8>> {
        let document: Map<String, Value> = serde_json::from_slice(document).ok()?;
        let merged = match which {
            Document::Jwks => self.merge_keys(host, document),
            Document::Discovery | Document::OauthDiscovery => self.merge_metadata(host, document),
        };
        Some(Value::Object(merged?).to_string().into_bytes())
    }

    fn ours(&self, which: Document) -> &[u8] {
        match which {
            Document::Jwks => &self.jwks,
            Document::Discovery | Document::OauthDiscovery => &self.discovery,
        }
    }

    /// Adds our keys to the gateway's. Our key replaces a key of the gateway with the same `kid`,
    /// because our tokens name it.
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
                "a key of the identity gateway has the kid of one of our keys, which replaces it",
            );
        }
        for key in &self.keys {
            keys.push(serde_json::to_value(key).ok()?);
        }
        Some(document)
    }

    /// Adds our grant to the gateway's document, and our endpoints if the document belongs to our
    /// issuer (OpenID Connect Discovery §4.3). Every other member stays as it is.
    fn merge_metadata(
        &self,
        host: &dyn Host,
        mut document: Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let is_ours = document.get("issuer").is_some_and(|issuer| *issuer == self.issuer);
        if !add_to_list(&mut document, GRANTS, Some(&DEFAULT_GRANTS), &[TOKEN_EXCHANGE]) {
            return None;
        }
        if is_ours && self.supported.add_to(&mut document) && !self.told.replace(true) {
            host.warn(
                "the identity gateway revokes or introspects tokens at another path than the filter: the \
                 gateway's path stays in the discovery document, and does not know the filter's tokens",
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
            Document::Discovery | Document::OauthDiscovery => "application/json",
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

/// The documents of a configuration that may stand in for the gateway's; none without the gateway's
/// cluster. `origin` is the issuer's.
fn stand_ins(config: &Config, origin: &str) -> Vec<(Document, Rc<StandIn>)> {
    let source = config.stand_ins.as_ref().zip(HttpUrl::parse(&config.issuer));
    let Some((source, issuer)) = source else { return Vec::new() };
    let paths = &config.paths;
    let documents = [
        (Document::Jwks, Some(&paths.jwks)),
        (Document::Discovery, Some(&paths.discovery)),
        (Document::OauthDiscovery, paths.oauth_discovery.as_ref()),
    ];
    let stand_in = |(which, path): (Document, Option<&String>)| {
        let address = HttpUri {
            cluster: Rc::clone(&source.cluster),
            scheme: issuer.scheme.into(),
            authority: issuer.authority.into(),
            path: path?.clone(),
            timeout: STAND_IN_TIMEOUT,
        };
        let fitting = match which {
            Document::Jwks => Fitting::KeySet,
            Document::Discovery | Document::OauthDiscovery => {
                Fitting::Metadata(Origins::new(&config.issuer, origin, &source.origins))
            }
        };
        Some((which, Rc::new(StandIn::new(address, fitting))))
    };
    documents.into_iter().filter_map(stand_in).collect()
}

/// Adds our values to a list, each once. `default` is the meaning of a document without the list;
/// if there is no default, an absent list stays absent. Returns false if the member is not a list.
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

/// Adds an endpoint and how clients authenticate there. Returns true if the gateway has the
/// endpoint at another path.
fn add_endpoint(
    document: &mut Map<String, Value>,
    (endpoint, ours): (&'static str, &str),
    (member, default, methods): (&'static str, Option<&[&str]>, &[&str]),
    (algorithms_member, algorithms): (&'static str, &[&str]),
) -> bool {
    match document.get(endpoint) {
        None => {
            document.insert(endpoint.to_owned(), ours.into());
            add_to_list(document, member, Some(&[]), methods);
        }
        Some(theirs) if theirs == ours => {
            add_to_list(document, member, default, methods);
        }
        Some(_) => return true,
    }
    if !algorithms.is_empty() {
        add_to_list(document, algorithms_member, Some(&[]), algorithms);
    }
    false
}

/// Returns true if an `If-None-Match` names a tag (RFC 9110 §13.1.2, by weak comparison).
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
    fn header_fields_about_the_gateways_bytes_are_replaced() {
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
    fn a_list_gets_the_missing_values_and_nothing_else_changes() {
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
    fn an_endpoint_of_the_gateway_keeps_its_path() {
        let supported = Supported {
            token_endpoint_auth_methods_supported: vec!["client_secret_post", "none"],
            revocation_endpoint: "https://a/revoke".to_owned(),
            revocation_endpoint_auth_methods_supported: vec!["client_secret_post", "none"],
            token_endpoint_auth_signing_alg_values_supported: Vec::new(),
            revocation_endpoint_auth_signing_alg_values_supported: Vec::new(),
            dpop_signing_alg_values_supported: Vec::new(),
            tls_client_certificate_bound_access_tokens: false,
            introspection: Some(Introspection {
                introspection_endpoint_auth_signing_alg_values_supported: Vec::new(),
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
            ("at the same paths, methods not listed", json!({
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
    fn an_if_none_match_with_several_tags_names_each() {
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
