//! The access token of an exchange: its claims, those of the operator's function among them.

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::refusal::Refusal;
use super::super::request_context::RequestContext;
use super::super::service::CustomClaims;
use super::actor::AuthenticatedActor;
use crate::claims::{ClaimsError, Input};
use crate::client::AuthenticatedClient;
use crate::config::{Config, OnError, Resource};
use crate::confirmation::Confirmation;
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::oauth::TOKEN_EXCHANGE;
use crate::state::remote::Revision;
use crate::state::revocations::Mark;
use crate::state::store::Outstanding;

/// The rights that the checks of an exchange have granted, and their holder.
pub(super) struct Granted<'r> {
    pub(super) client: AuthenticatedClient,
    /// The name of the resource.
    pub(super) indicator: &'r str,
    pub(super) resource: &'r Resource,
    pub(super) scope: String,
    /// The keys that the access token will be bound to.
    pub(super) confirmation: Confirmation,
    pub(super) actor: Option<AuthenticatedActor>,
}

/// A signed access token.
pub(super) struct AccessToken {
    pub(super) text: String,
    pub(super) jti: String,
    pub(super) issued_at: UnixTime,
    pub(super) expires_at: UnixTime,
    /// The lifetime, in seconds.
    pub(super) expires_in: u64,
}

impl AccessToken {
    /// Signs an access token with these rights, for the user of the subject token. `revision` is
    /// that of a remote store, if there is one.
    pub(super) fn sign(
        request: RequestContext<'_>,
        subject: &Outstanding,
        granted: &Granted<'_>,
        revision: Revision,
    ) -> Result<Self, Refusal> {
        let Granted { client, indicator, resource, scope, confirmation, actor } = granted;
        let (service, config, host) = (request.service, &request.service.config, request.host());
        let id = subject.id().to_string();
        let mut random = [0; 16];
        host.random(&mut random)?;
        let issued_at = host.now();
        let actor_since = actor.as_ref().and_then(|actor| actor.sign_in.known_since());
        let jti = Mark::jti(random, &subject.mint.caller, issued_at, revision, actor_since);
        let lifetime = resource.access_token_lifetime.unwrap_or(config.access_token_lifetime);
        let expires_in = subject.mint.bounds.access_token_lifetime(lifetime).as_secs();
        let mut claims = AccessTokenClaims {
            iss: &config.issuer,
            sub: &subject.grant.user_id,
            aud: indicator,
            client_id: &client.client_id,
            iat: issued_at.secs(),
            exp: issued_at.secs().saturating_add(expires_in),
            jti: &jti,
            txn: &id,
            scope,
            act: actor.as_ref().map(|actor| ActClaim::of(actor, config)),
            cnf: Some(confirmation).filter(|confirmation| confirmation.is_bound()),
            custom: Map::new(),
        };
        if let Some(custom_claims) = &service.custom_claims {
            claims.custom = run_script(custom_claims, host, &claims, &subject.grant.context)?;
        }
        let expires_at = UnixTime::from_millis(claims.exp.saturating_mul(1000));
        let claims = serde_json::to_vec(&claims).map_err(|_| HostFailure("memory for claims"))?;
        let r#type = resource.access_token_type.unwrap_or(config.access_token_type);
        let text =
            service.signing_key.sign_jwt(host, service.crypto.as_deref(), r#type, &claims)?;
        Ok(Self { text, jti, issued_at, expires_at, expires_in })
    }
}

/// The claims of an access token (RFC 9068 §2.2, RFC 8693 §4.1).
#[derive(Serialize)]
struct AccessTokenClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    client_id: &'a str,
    iat: u64,
    exp: u64,
    jti: &'a str,
    /// The subject token's id (RFC 8417 §2.2). It marks the access token as one of an
    /// impersonation, and connects mint, exchange and use in the audit log.
    txn: &'a str,
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<ActClaim<'a>>,
    /// The keys that the access token is bound to (RFC 7800).
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<&'a Confirmation>,
    /// The claims of the operator's function. None has one of the names above.
    #[serde(flatten)]
    custom: Map<String, Value>,
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
struct ActClaim<'a> {
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
    fn of(actor: &'a AuthenticatedActor, config: &Config) -> Self {
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
fn run_script(
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
