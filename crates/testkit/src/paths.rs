//! The paths of Keycloak's realm `acme`, in the place of the default ones.
//!
//! Rules name an endpoint by its default path. A world whose configuration has paths sends their
//! requests to Keycloak's path instead, so that one test can run at both.

use serde_json::{Map, Value};

/// A member of `paths`, its default, and Keycloak's path. A path stands before those that it begins
/// with.
const PATHS: [(&str, &str, &str); 7] = [
    ("revocation", "/oidc/token/revocation", "/realms/acme/protocol/openid-connect/revoke"),
    (
        "introspection",
        "/oidc/token/introspection",
        "/realms/acme/protocol/openid-connect/token/introspect",
    ),
    ("token", "/oidc/token", "/realms/acme/protocol/openid-connect/token"),
    ("jwks", "/oidc/jwks", "/realms/acme/protocol/openid-connect/certs"),
    (
        "discovery",
        "/oidc/.well-known/openid-configuration",
        "/realms/acme/.well-known/openid-configuration",
    ),
    ("subject_tokens", "/api/subject-tokens", "/realms/acme/impersonation/subject-tokens"),
    ("impersonations", "/api/impersonations", "/realms/acme/impersonation/sessions"),
];

/// Keycloak's document of RFC 8414. It has no default path.
pub const OAUTH_DISCOVERY: &str = "/.well-known/oauth-authorization-server/realms/acme";

/// The configuration's member `paths`.
pub fn keycloaks() -> Value {
    let members = PATHS.map(|(name, _, keycloaks)| (name.to_owned(), keycloaks.into()));
    let oauth_discovery = ("oauth_discovery".to_owned(), OAUTH_DISCOVERY.into());
    Map::from_iter(members.into_iter().chain([oauth_discovery])).into()
}

/// Returns the target of a request at Keycloak's paths: a default path and what follows it are
/// moved, and every other target stays.
pub fn moved(target: &str) -> String {
    let rest_of = |(_, default, keycloaks): &(_, &str, &str)| {
        let rest = target.strip_prefix(default)?;
        let ends = rest.is_empty() || rest.starts_with(['/', '?', ';']);
        ends.then(|| format!("{keycloaks}{rest}"))
    };
    PATHS.iter().find_map(rest_of).unwrap_or_else(|| target.to_owned())
}

/// The default paths.
pub fn defaults() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|(_, default, _)| *default)
}
