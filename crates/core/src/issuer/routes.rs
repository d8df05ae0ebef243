//! Which requests are ours: four paths, compared whole and as they are. Another spelling of one of them is another
//! path, here as in Envoy's own routes.

use super::request::Head;
use crate::media_type;

/// The paths that are ours, whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Paths {
    /// Where subject tokens are minted.
    pub subject_tokens: String,
    /// The token endpoint.
    pub token: String,
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
    /// Perhaps an exchange: the body decides, if it is a form.
    Token,
    /// Our keys.
    Jwks,
    /// Our metadata.
    Discovery,
    /// Not a method of the subject token endpoint.
    MethodNotAllowed,
}

impl Paths {
    /// The paths below `base_path`.
    pub fn new(base_path: &str) -> Self {
        Self {
            subject_tokens: format!("{base_path}/api/subject-tokens"),
            token: format!("{base_path}/oidc/token"),
            jwks: format!("{base_path}/oidc/jwks"),
            discovery: format!("{base_path}/oidc/.well-known/openid-configuration"),
        }
    }

    /// Which route a request takes; `None` if it is not ours.
    pub fn route(&self, method: &[u8], path: &[u8]) -> Option<Route> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        if path == self.subject_tokens.as_bytes() {
            match method {
                b"POST" => Some(Route::SubjectTokens),
                // A CORS preflight belongs to Envoy's own filter.
                b"OPTIONS" => None,
                _ => Some(Route::MethodNotAllowed),
            }
        } else if path == self.token.as_bytes() {
            (method == b"POST").then_some(Route::Token)
        } else if !matches!(method, b"GET" | b"HEAD") {
            None
        } else if path == self.jwks.as_bytes() {
            Some(Route::Jwks)
        } else if path == self.discovery.as_bytes() {
            Some(Route::Discovery)
        } else {
            None
        }
    }
}

impl Route {
    /// Whether the body is needed before anything can be said. A token request that is no form is not
    /// ours and need not be held back.
    pub fn needs_body(self, head: &Head) -> bool {
        match self {
            Self::SubjectTokens => true,
            Self::Token => media_type::is(&head.content_type, "application/x-www-form-urlencoded"),
            Self::Jwks | Self::Discovery | Self::MethodNotAllowed => false,
        }
    }
}

#[cfg(test)]
mod tests;
