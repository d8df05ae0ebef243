//! The paths that endpoints of the filter have in one configuration.

/// The paths of one configuration. Below some of them the table of endpoints has further paths.
#[derive(Debug, PartialEq, Eq)]
pub struct Paths {
    /// Mints subject tokens. Each token has its own path below.
    pub subject_tokens: String,
    /// Lists impersonations. Each impersonation has its own path below, and so have revocations.
    pub(crate) impersonations: String,
    /// The token endpoint.
    pub token: String,
    /// The revocation endpoint (RFC 7009).
    pub(crate) token_revocation: String,
    /// The introspection endpoint (RFC 7662).
    pub(crate) token_introspection: String,
    /// The key set.
    pub jwks: String,
    /// The provider's metadata.
    pub(crate) discovery: String,
}

impl Paths {
    /// Puts the default paths below `base_path`.
    pub fn new(base_path: &str) -> Self {
        let below = |path: &str| format!("{base_path}{path}");
        Self {
            subject_tokens: below("/api/subject-tokens"),
            impersonations: below("/api/impersonations"),
            token: below("/oidc/token"),
            token_revocation: below("/oidc/token/revocation"),
            token_introspection: below("/oidc/token/introspection"),
            jwks: below("/oidc/jwks"),
            discovery: below("/oidc/.well-known/openid-configuration"),
        }
    }
}
