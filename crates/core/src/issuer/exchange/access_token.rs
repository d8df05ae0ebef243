//! The access token of an exchange: its claims, those of the operator's function among them.

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::refusal::Refusal;
use super::super::service::CustomClaims;
use super::actor::AuthenticatedActor;
use crate::claims::{ClaimsError, Input};
use crate::config::{Config, OnError};
use crate::confirmation::Confirmation;
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::oauth::TOKEN_EXCHANGE;

/// The claims of an access token (RFC 9068 §2.2, RFC 8693 §4.1).
#[derive(Serialize)]
pub(super) struct AccessTokenClaims<'a> {
    pub(super) iss: &'a str,
    pub(super) sub: &'a str,
    pub(super) aud: &'a str,
    pub(super) client_id: &'a str,
    pub(super) iat: u64,
    pub(super) exp: u64,
    pub(super) jti: &'a str,
    /// The subject token's id (RFC 8417 §2.2). It marks the access token as one of an
    /// impersonation, and connects mint, exchange and use in the audit log.
    pub(super) txn: &'a str,
    pub(super) scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) act: Option<ActClaim<'a>>,
    /// The keys that the access token is bound to (RFC 7800).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cnf: Option<&'a Confirmation>,
    /// The claims of the operator's function. None has one of the names above.
    #[serde(flatten)]
    pub(super) custom: Map<String, Value>,
}

/// The claims that the operator's function sees.
#[derive(Serialize)]
struct ScriptToken<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    client_id: &'a str,
    jti: &'a str,
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<&'a ActClaim<'a>>,
}

/// The claim `act` (RFC 8693 §4.1).
#[derive(Serialize)]
pub(super) struct ActClaim<'a> {
    sub: &'a str,
    /// The session in which the acting user signed in. It ends with that session.
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    /// The class of the acting user's sign-in, if a rule looks at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<&'a str>,
    /// The time of the acting user's sign-in, if a rule looks at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_time: Option<u64>,
}

impl<'a> ActClaim<'a> {
    pub(super) fn of(actor: &'a AuthenticatedActor, config: &Config) -> Self {
        let (asks_for_acr, asks_for_time) = config.asks_for_sign_in();
        let AuthenticatedActor { id, sign_in } = actor;
        Self {
            sub: id,
            sid: sign_in.session.as_deref(),
            acr: sign_in.acr.as_deref().filter(|_| asks_for_acr),
            auth_time: sign_in.auth_time.map(UnixTime::secs).filter(|_| asks_for_time),
        }
    }
}

/// Runs the operator's function, which adds claims.
pub(super) fn run_script(
    custom_claims: &CustomClaims,
    host: &dyn Host,
    claims: &AccessTokenClaims<'_>,
    subject_token_context: &str,
) -> Result<Map<String, Value>, Refusal> {
    let token = ScriptToken {
        iss: claims.iss,
        sub: claims.sub,
        aud: claims.aud,
        client_id: claims.client_id,
        jti: claims.jti,
        scope: claims.scope,
        act: claims.act.as_ref(),
    };
    let token = serde_json::to_string(&token).map_err(|_| HostFailure("memory for claims"))?;
    let input = Input { token: &token, grant_type: TOKEN_EXCHANGE, subject_token_context };
    match custom_claims.script.run(&input, &mut |line| host.debug(&format!("console: {line}"))) {
        Ok(custom) => Ok(custom),
        Err(error @ ClaimsError::Denied(_)) => Err(error.into()),
        Err(error) => {
            host.count(metrics::CUSTOM_CLAIMS_FAILURES.into());
            host.warn(&format!("custom claims: {error}"));
            match custom_claims.on_error {
                OnError::Refuse => Err(error.into()),
                OnError::IssueWithout => Ok(Map::new()),
            }
        }
    }
}
