//! Opaque access tokens of users that the filter asks a userinfo endpoint about (OpenID Connect
//! Core §5.3).

use std::rc::Rc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::answers::{Answers, TokenVerdict};
use super::identity::{Identity, NameClaims};
use super::sign_in::{SignIn, SignInClaims};
use super::{BearerError, VerifiedToken};
use crate::config::{self, HttpUri};
use crate::confirmation::Confirmation;
use crate::host::UnixTime;
use crate::secret::Digest;
use crate::statement::Names;
use crate::step::Context;
use crate::upstream::{Upstream, ask};

/// Verifies tokens by asking a userinfo endpoint. A token that the endpoint accepts has the scope
/// `openid`.
#[derive(Debug)]
pub(super) struct UserinfoVerifier {
    http_uri: HttpUri,
    name_prefix: String,
    answers: Answers,
}

#[derive(Deserialize)]
struct UserinfoAnswer {
    sub: String,
    act: Option<IgnoredAny>,
    txn: Option<IgnoredAny>,
    sid: Option<String>,
    acr: Option<Value>,
    auth_time: Option<Value>,
}

impl UserinfoVerifier {
    /// Creates a verifier with an empty memory.
    pub(super) fn new(config: config::Userinfo) -> Self {
        let config::Userinfo { http_uri, name_prefix, cache_duration } = config;
        let name_prefix = name_prefix.unwrap_or_default();
        Self { http_uri, name_prefix, answers: Answers::new(cache_duration) }
    }

    /// Verifies a token, whose user is the answer's `sub`. `issuer` is the token's unverified
    /// `iss`, if the token is a JWT that has one.
    pub(super) async fn verify(
        &self,
        context: &Context,
        names: &Names,
        token: &str,
        issuer: Option<&str>,
    ) -> TokenVerdict {
        let digest = Digest::of(token.as_bytes());
        let now = context.host().now();
        if let Some(verdict) = self.answers.get(&digest, now) {
            return verdict;
        }
        let headers = vec![
            ("authorization", format!("Bearer {token}")),
            ("accept", "application/json".to_owned()),
        ];
        let call = self.http_uri.call("GET", headers, Vec::new());
        let answer = ask(context, Upstream::Userinfo, call).await?;
        let verdict = match answer.status {
            // RFC 6750 §3.1: the endpoint refuses the token.
            400 | 401 | 403 => Err(BearerError::Inactive),
            _ => self.judge(names, answer.json(context.host())?, issuer, now),
        };
        self.answers.insert(digest, now, UnixTime::from_millis(u64::MAX), &verdict);
        verdict
    }

    fn judge(
        &self,
        names: &Names,
        answer: UserinfoAnswer,
        issuer: Option<&str>,
        now: UnixTime,
    ) -> TokenVerdict {
        if answer.act.is_some() || answer.txn.is_some() {
            return Err(BearerError::Delegated);
        }
        if let Some(issuer) = issuer {
            names.check_spoken_for(&self.name_prefix, issuer)?;
        }
        let sign_in = SignInClaims {
            sid: answer.sid,
            acr: answer.acr.as_ref(),
            auth_time: answer.auth_time.as_ref(),
        };
        let sign_in = sign_in.read(names, &self.name_prefix, None)?;
        let sign_in = SignIn { vouched_at: Some(now), ..sign_in };
        let named = NameClaims { sub: Some(answer.sub), ..NameClaims::default() };
        let Identity { subject, client_id } = Identity::new(names, &self.name_prefix, named, None)?;
        Ok(Rc::new(VerifiedToken {
            subject,
            client_id,
            scopes: Vec::new(),
            expires_at: UnixTime::from_millis(u64::MAX),
            sign_in,
            is_marked: false,
            confirmation: Confirmation::default(),
            required_scopes: Rc::new([]),
        }))
    }
}
