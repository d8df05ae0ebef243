//! Opaque access tokens that the filter asks an introspection endpoint about (RFC 7662).
//!
//! `active` only says that the endpoint knows the token. It may answer for every token of every
//! client, including refresh tokens and bound tokens. Therefore the rest of the answer is checked
//! by the same rules as the claims of a JWT. A member that is `null` counts as absent.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use form_urlencoded::byte_serialize;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::answers::{Answers, TokenVerdict};
use super::identity::{Identity, NameClaims};
use super::jwt::confirmation;
use super::scopes::Scopes;
use super::sign_in::{SignIn, SignInClaims};
use super::{BearerError, VerifiedToken};
use crate::config::{self, HttpUri, TokenRules};
use crate::host::UnixTime;
use crate::secret::{Digest, Secret};
use crate::statement::{Names, StatementError};
use crate::step::Context;
use crate::upstream::{Upstream, ask};

/// Verifies tokens by asking an introspection endpoint (RFC 7662).
#[derive(Debug)]
pub(super) struct IntrospectionVerifier {
    http_uri: HttpUri,
    /// The value of the `authorization` header with which the filter asks.
    credentials: Secret<String>,
    rules: TokenRules,
    name_prefix: String,
    answers: Answers,
}

/// An introspection answer: the members of RFC 7662 §2.2, and those by which some issuers say more.
#[derive(Deserialize)]
struct IntrospectionAnswer {
    active: bool,
    scope: Option<Scopes>,
    client_id: Option<String>,
    azp: Option<String>,
    sub: Option<String>,
    iss: Option<String>,
    /// May have any type, because it is read only where audiences are configured.
    aud: Option<Value>,
    exp: Option<f64>,
    nbf: Option<f64>,
    token_type: Option<String>,
    token_use: Option<String>,
    typ: Option<String>,
    act: Option<IgnoredAny>,
    txn: Option<IgnoredAny>,
    nonce: Option<IgnoredAny>,
    at_hash: Option<IgnoredAny>,
    c_hash: Option<IgnoredAny>,
    cnf: Option<Value>,
    iat: Option<f64>,
    sid: Option<String>,
    acr: Option<Value>,
    auth_time: Option<Value>,
}

impl IntrospectionAnswer {
    /// The kind that the answer names for the token, if that is not an access token. `DPoP` is the
    /// type of an access token that is bound to a key (RFC 9449 §6.2), and of no other.
    /// `token_type` is a value of RFC 6749 §7.1, an identifier of RFC 8693 §3, or the last word of
    /// one. Some issuers always say `Bearer` there, and name the kind in a member of their own.
    fn not_an_access_token(&self) -> Option<&str> {
        const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
        const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
        // OpenID Connect Core §2, §3.3.2.11: an ID token has these, and no access token.
        let of_id_tokens =
            [("nonce", self.nonce), ("at_hash", self.at_hash), ("c_hash", self.c_hash)];
        if let Some((name, _)) = of_id_tokens.into_iter().find(|(_, member)| member.is_some()) {
            return Some(name);
        }
        let members: [(&Option<String>, &[&str]); 3] = [
            (&self.token_type, &["Bearer", "access_token", ACCESS_TOKEN, JWT]),
            (&self.token_use, &["access_token", "access"]),
            (&self.typ, &["Bearer", "at+jwt", "application/at+jwt", "JWT"]),
        ];
        let is_bound = self.cnf.as_ref().is_some_and(|cnf| cnf.get("jkt").is_some());
        members.into_iter().find_map(|(member, accepted)| {
            let said = member.as_deref()?;
            if is_bound && said.eq_ignore_ascii_case("DPoP") {
                return None;
            }
            let known = accepted.iter().any(|known| known.eq_ignore_ascii_case(said));
            if known { None } else { Some(said) }
        })
    }

    /// Returns true if `aud` names one of `audiences`.
    fn is_for(&self, audiences: &[String]) -> bool {
        let named = |value: &Value| {
            value.as_str().is_some_and(|value| audiences.iter().any(|audience| audience == value))
        };
        match &self.aud {
            Some(Value::Array(list)) => list.iter().any(named),
            Some(one) => named(one),
            None => false,
        }
    }
}

impl IntrospectionVerifier {
    /// Creates a verifier with an empty memory.
    pub(super) fn new(config: config::Introspection) -> Self {
        let config::Introspection {
            http_uri,
            client_id,
            client_secret,
            rules,
            name_prefix,
            cache_duration,
        } = config;
        // RFC 6749 §2.3.1: form-encoded, then base64.
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(&client_id), encode(client_secret.expose()));
        let credentials = Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair)));
        Self {
            http_uri,
            credentials,
            rules,
            name_prefix: name_prefix.unwrap_or_default(),
            answers: Answers::new(cache_duration),
        }
    }

    /// Verifies a token, and checks that it has the required scopes. A JWT says more itself,
    /// without proof: its issuer, if it has one, and that it [is an access
    /// token](VerifiedToken::is_marked).
    pub(super) async fn verify(
        &self,
        context: &Context,
        names: &Names,
        token: &str,
        said_by_itself: (Option<&str>, Option<bool>),
    ) -> TokenVerdict {
        let digest = Digest::of(token.as_bytes());
        let now = context.host().now();
        if let Some(verdict) = self.answers.get(&digest, now) {
            return verdict;
        }
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let headers = vec![
            ("authorization", self.credentials.expose().clone()),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
            ("accept", "application/json".to_owned()),
        ];
        let call = self.http_uri.call("POST", headers, body.into_bytes());
        let answer = ask(context, Upstream::Introspection, call).await?;
        let answer: IntrospectionAnswer = answer.json(context.host())?;
        let verdict = self.judge(names, answer, said_by_itself, now);
        let until =
            verdict.as_ref().map_or(UnixTime::from_millis(u64::MAX), |token| token.expires_at);
        self.answers.insert(digest, now, until, &verdict);
        verdict
    }

    fn judge(
        &self,
        names: &Names,
        answer: IntrospectionAnswer,
        (issuer, is_marked): (Option<&str>, Option<bool>),
        now: UnixTime,
    ) -> TokenVerdict {
        if !answer.active {
            return Err(BearerError::Inactive);
        }
        if let Some(said) = answer.not_an_access_token() {
            return Err(BearerError::NotAnAccessToken(said.to_owned()));
        }
        // RFC 7662 §2.2: `iss` is the issuer of the token. An answer with another is about another
        // token.
        if let (Some(named), Some(said)) = (issuer, &answer.iss)
            && named != said
        {
            return Err(StatementError::Issuer(said.clone()).into());
        }
        if let Some(issuer) = answer.iss.as_deref().or(issuer) {
            names.check_spoken_for(&self.name_prefix, issuer)?;
        }
        let expires_at =
            answer.exp.map_or(UnixTime::from_millis(u64::MAX), UnixTime::from_numeric_date);
        if expires_at <= now {
            return Err(StatementError::Expired.into());
        }
        if answer.nbf.is_some_and(|not_before| UnixTime::from_numeric_date(not_before) > now) {
            return Err(StatementError::NotYetValid.into());
        }
        if self.rules.audiences.as_ref().is_some_and(|audiences| !answer.is_for(audiences)) {
            return Err(BearerError::Audience);
        }
        if answer.act.is_some() || answer.txn.is_some() {
            return Err(BearerError::Delegated);
        }
        let confirmation = confirmation(answer.cnf.as_ref())?;
        let issued_at = answer.iat.map(UnixTime::from_numeric_date);
        let sign_in = SignInClaims {
            sid: answer.sid,
            acr: answer.acr.as_ref(),
            auth_time: answer.auth_time.as_ref(),
        };
        let sign_in = sign_in.read(names, &self.name_prefix, issued_at)?;
        let sign_in = SignIn { vouched_at: Some(now), ..sign_in };
        let names_a_grant = answer.scope.is_some() || answer.client_id.is_some();
        let named = NameClaims { sub: answer.sub, client_id: answer.client_id, azp: answer.azp };
        let client_ids = self.rules.client_ids.as_deref();
        let Identity { subject, client_id } =
            Identity::new(names, &self.name_prefix, named, client_ids)?;
        Rc::new(VerifiedToken {
            subject,
            client_id,
            scopes: answer.scope.map(Scopes::into_list).unwrap_or_default(),
            expires_at,
            sign_in,
            is_marked: is_marked.unwrap_or(names_a_grant),
            confirmation,
            required_scopes: Rc::clone(&self.rules.required_scopes),
        })
        .with_required_scopes()
    }
}
