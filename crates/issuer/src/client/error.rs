//! Why a client is not authenticated. The client learns less: see
//! [`Refusal`](crate::issuer).

use crate::state::shared_data::NotRemembered;
use crate::statement::StatementError;

/// Why a client was not authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientAuthError {
    /// Neither the form nor `Authorization` names a client.
    #[error("no client_id")]
    NoClientId,
    /// The form names one client, `Authorization` or the assertion another.
    #[error("client_id in the form and in the credentials differ")]
    TwoClients,
    /// The request uses two methods of authentication (RFC 6749 §2.3).
    #[error("more than one method of client authentication")]
    TwoMethods,
    /// `Authorization` is not `Basic`, or not base64 of `id:secret`.
    #[error("the authorization header is not proper Basic")]
    Malformed,
    /// A confidential client sent no credentials.
    #[error("a confidential client without its credentials")]
    CredentialsMissing,
    /// The credentials are right, but the client is configured to use another method.
    #[error("the client is configured to authenticate by another method")]
    AnotherMethod,
    /// The client does not exist, or the secret is wrong.
    #[error("unknown client or wrong secret")]
    Failed,
    /// `client_assertion_type` is missing, given alone, or not the type of JWTs.
    #[error("client_assertion_type is not that of a JWT")]
    AssertionType,
    /// The assertion is not a statement of the client.
    #[error("the assertion is not accepted: {0}")]
    Assertion(#[from] StatementError),
    /// The assertion breaks a rule of its profile.
    #[error("the assertion is not accepted: {0}")]
    AssertionRule(&'static str),
    /// The assertion could not be remembered, so nobody knows if it is new.
    #[error("the assertion could not be remembered: {0}")]
    NotRemembered(#[from] NotRemembered),
    /// The client has connected without a certificate, or with another one than its own.
    #[error("the client certificate is missing or another one")]
    Certificate,
}
