//! The syntax and the identifiers of OAuth 2.0 (RFC 6749) and Token Exchange (RFC 8693).

pub mod form;
pub mod scope;
pub mod uri;

/// The grant that this filter serves (RFC 8693 §2.1).
pub const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The token type of subject tokens, actor tokens and issued tokens (RFC 8693 §3).
pub const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The token type of JWTs (RFC 8693 §3). The issued tokens are JWTs.
pub const JWT_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";
