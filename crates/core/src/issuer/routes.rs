//! Which requests are ours: a few paths, compared whole and as they are, two of them with an id behind them. Another
//! spelling of one of them is another path, here as in Envoy's own routes.

use std::ops::Deref;

use super::request::Head;
use crate::audit::Operation;
use crate::media_type;

/// The paths that are ours.
#[derive(Debug, PartialEq, Eq)]
pub struct Paths {
    /// Where subject tokens are minted; each has its own path below it.
    pub subject_tokens: String,
    /// The list of impersonations; each has its own path below it.
    pub impersonations: String,
    /// Where impersonations are ended by what they have.
    pub revocations: String,
    /// The token endpoint.
    pub token: String,
    /// The revocation endpoint (RFC 7009).
    pub token_revocation: String,
    /// The introspection endpoint (RFC 7662).
    pub token_introspection: String,
    /// The key set.
    pub jwks: String,
    /// The provider's metadata.
    pub discovery: String,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Mint a subject token; the whole body is needed.
    SubjectTokens,
    /// Take the subject token back that the path names.
    SubjectToken,
    /// List impersonations.
    Impersonations,
    /// End the impersonation that the path names.
    Impersonation,
    /// End impersonations; the whole body is needed.
    Revocations,
    /// Perhaps an exchange: the body decides, if it is a form.
    Token,
    /// Perhaps the revocation of a token of ours: the body decides, if it is a form.
    TokenRevocation,
    /// Perhaps a question about a token of ours: the body decides, if it is a form.
    TokenIntrospection,
    /// Our keys.
    Jwks,
    /// Our metadata.
    Discovery,
    /// Not the one method that there is, for what would have been this.
    MethodNotAllowed(Operation, &'static str),
}

impl Paths {
    /// The paths below `base_path`.
    pub fn new(base_path: &str) -> Self {
        Self {
            subject_tokens: format!("{base_path}/api/subject-tokens"),
            impersonations: format!("{base_path}/api/impersonations"),
            revocations: format!("{base_path}/api/impersonations/revocations"),
            token: format!("{base_path}/oidc/token"),
            token_revocation: format!("{base_path}/oidc/token/revocation"),
            token_introspection: format!("{base_path}/oidc/token/introspection"),
            jwks: format!("{base_path}/oidc/jwks"),
            discovery: format!("{base_path}/oidc/.well-known/openid-configuration"),
        }
    }

    /// Which route a request takes; `None` if it is not ours. Of what has another path the method is not asked for: most of
    /// what passes has.
    pub fn route(&self, method: &impl Deref<Target: AsRef<[u8]>>, path: &[u8]) -> Option<Route> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let method = || -> &[u8] { (**method).as_ref() };
        let only = |allowed: &'static str, route, operation| match method() {
            // A CORS preflight belongs to Envoy's own filter.
            b"OPTIONS" => None,
            method if method == allowed.as_bytes() => Some(route),
            _ => Some(Route::MethodNotAllowed(operation, allowed)),
        };
        // With another method these are the gateway's.
        let post = |route| (method() == b"POST").then_some(route);
        let get = |route| matches!(method(), b"GET" | b"HEAD").then_some(route);
        if path == self.subject_tokens.as_bytes() {
            only("POST", Route::SubjectTokens, Operation::Mint)
        } else if id_below(&self.subject_tokens, path).is_some() {
            only("DELETE", Route::SubjectToken, Operation::Cancel)
        } else if path == self.impersonations.as_bytes() {
            only("GET", Route::Impersonations, Operation::List)
        } else if path == self.revocations.as_bytes() {
            only("POST", Route::Revocations, Operation::Revoke)
        } else if id_below(&self.impersonations, path).is_some() {
            only("DELETE", Route::Impersonation, Operation::Revoke)
        } else if path == self.token.as_bytes() {
            post(Route::Token)
        } else if path == self.token_revocation.as_bytes() {
            post(Route::TokenRevocation)
        } else if path == self.token_introspection.as_bytes() {
            post(Route::TokenIntrospection)
        } else if path == self.jwks.as_bytes() {
            get(Route::Jwks)
        } else if path == self.discovery.as_bytes() {
            get(Route::Discovery)
        } else {
            None
        }
    }
}

/// The one segment that a path has below another.
fn id_below<'p>(folder: &str, path: &'p [u8]) -> Option<&'p [u8]> {
    let id = path.strip_prefix(folder.as_bytes())?.strip_prefix(b"/")?;
    (!id.is_empty() && !id.contains(&b'/')).then_some(id)
}

impl Route {
    /// Whether the body is needed before anything can be said. A token request that is no form is not
    /// ours and need not be held back.
    pub fn needs_body(self, head: &Head) -> bool {
        match self {
            Self::SubjectTokens | Self::Revocations => true,
            Self::Token | Self::TokenRevocation | Self::TokenIntrospection => {
                media_type::is(&head.content_type, "application/x-www-form-urlencoded")
            }
            Self::SubjectToken
            | Self::Impersonations
            | Self::Impersonation
            | Self::Jwks
            | Self::Discovery
            | Self::MethodNotAllowed(..) => false,
        }
    }
}

#[cfg(test)]
mod tests;
