//! Opaque access tokens: their issuer is asked (RFC 7662, OpenID Connect Core §5.3).
//!
//! `active` says that the issuer knows the token, not that it is one for us: an endpoint may answer for
//! every token of every client, refresh tokens and bound ones among them. So the rest of the answer is held
//! against the same rules as the claims of a JWT. A member that is `null` is not there.
//!
//! An answer is remembered for a moment, so that a burst of requests with one token asks once. A failure
//! to answer is not: it says nothing about the token.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use form_urlencoded::byte_serialize;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::names::{Named, Names, Said};
use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::config::{self, HttpUri, TokenRules};
use crate::host::UnixTime;
use crate::secret::{Digest, Secret};
use crate::step::Context;
use crate::upstream::{Upstream, ask};

/// Answers to remember.
const CACHE_CAPACITY: usize = 1024;

type Verdict = Result<Rc<VerifiedToken>, BearerError>;

/// Asks an introspection endpoint.
#[derive(Debug)]
pub(super) struct Introspection {
    http_uri: HttpUri,
    /// The value of our own `authorization` header.
    credentials: Secret<String>,
    rules: TokenRules,
    name_prefix: String,
    answers: Answers,
}

/// Asks a userinfo endpoint: a token that it accepts carries the scope `openid`.
#[derive(Debug)]
pub(super) struct Userinfo {
    http_uri: HttpUri,
    name_prefix: String,
    answers: Answers,
}

/// What was said a moment ago, good or bad.
#[derive(Debug)]
struct Answers {
    cache_duration: Duration,
    verdicts: RefCell<ExpiringCache<Verdict>>,
}

/// RFC 7662 §2.2, and those members by which some issuers say more.
#[derive(Deserialize)]
struct IntrospectionAnswer {
    active: bool,
    scope: Option<String>,
    client_id: Option<String>,
    azp: Option<String>,
    sub: Option<String>,
    iss: Option<String>,
    /// Of any type: it is looked at only where it must name somebody.
    aud: Option<Value>,
    exp: Option<f64>,
    nbf: Option<f64>,
    token_type: Option<String>,
    token_use: Option<String>,
    typ: Option<String>,
    act: Option<IgnoredAny>,
    cnf: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct UserinfoAnswer {
    sub: String,
    act: Option<IgnoredAny>,
}

impl IntrospectionAnswer {
    /// What it is, where it says that it is something else than a bearer's access token. `token_type` is
    /// RFC 6749 §7.1's, or an identifier of RFC 8693 §3 or the last word of one. Some issuers always say
    /// `Bearer` there and have a member of their own for what it is.
    fn not_an_access_token(&self) -> Option<&str> {
        const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
        const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
        let members: [(&Option<String>, &[&str]); 3] = [
            (&self.token_type, &["Bearer", "access_token", ACCESS_TOKEN, JWT]),
            (&self.token_use, &["access_token", "access"]),
            (&self.typ, &["Bearer", "at+jwt", "application/at+jwt", "JWT"]),
        ];
        members.into_iter().find_map(|(member, accepted)| {
            let said = member.as_deref()?;
            let known = accepted.iter().any(|known| known.eq_ignore_ascii_case(said));
            if known { None } else { Some(said) }
        })
    }

    /// Whether it is meant for one of `audiences`.
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

impl Introspection {
    /// One that was asked nothing yet.
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

    /// Verifies a token and that it has the required scopes. `issuer` is whose it is by its own word, if it
    /// is a JWT that says so.
    pub(super) async fn verify(
        &self,
        context: &Context,
        names: &Names,
        token: &str,
        issuer: Option<&str>,
    ) -> Verdict {
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
        let verdict = self.judge(names, answer, issuer, now);
        let until =
            verdict.as_ref().map_or(UnixTime::from_millis(u64::MAX), |token| token.expires_at);
        self.answers.insert(digest, now, until, &verdict);
        verdict
    }

    fn judge(
        &self,
        names: &Names,
        answer: IntrospectionAnswer,
        issuer: Option<&str>,
        now: UnixTime,
    ) -> Verdict {
        if !answer.active {
            return Err(BearerError::Inactive);
        }
        if let Some(said) = answer.not_an_access_token() {
            return Err(BearerError::NotAnAccessToken(said.to_owned()));
        }
        // RFC 7662 §2.2: the issuer of this token. An answer that names another is about another token.
        if let (Some(named), Some(said)) = (issuer, &answer.iss)
            && named != said
        {
            return Err(BearerError::Issuer(said.clone()));
        }
        if let Some(issuer) = answer.iss.as_deref().or(issuer) {
            names.check_spoken_for(&self.name_prefix, issuer)?;
        }
        let expires_at = answer.exp.map_or(UnixTime::from_millis(u64::MAX), numeric_date);
        if expires_at <= now {
            return Err(BearerError::Expired);
        }
        if answer.nbf.is_some_and(|not_before| numeric_date(not_before) > now) {
            return Err(BearerError::NotYetValid);
        }
        if self.rules.audiences.as_ref().is_some_and(|audiences| !answer.is_for(audiences)) {
            return Err(BearerError::Audience);
        }
        if answer.act.is_some() {
            return Err(BearerError::Delegated);
        }
        if answer.cnf.is_some() {
            return Err(BearerError::SenderConstrained);
        }
        let said = Said { sub: answer.sub, client_id: answer.client_id, azp: answer.azp };
        let client_ids = self.rules.client_ids.as_deref();
        let Named { subject, client_id } = names.identify(&self.name_prefix, said, client_ids)?;
        let scope = answer.scope.unwrap_or_default();
        Rc::new(VerifiedToken {
            subject,
            client_id,
            scopes: scope.split(' ').map(str::to_owned).collect(),
            expires_at,
            required_scopes: Rc::clone(&self.rules.required_scopes),
        })
        .with_required_scopes()
    }
}

impl Userinfo {
    /// One that was asked nothing yet.
    pub(super) fn new(config: config::Userinfo) -> Self {
        let config::Userinfo { http_uri, name_prefix, cache_duration } = config;
        let name_prefix = name_prefix.unwrap_or_default();
        Self { http_uri, name_prefix, answers: Answers::new(cache_duration) }
    }

    /// Verifies a token; its user is the answer's `sub`. `issuer` is whose it is by its own word, if it is a JWT that
    /// says so.
    pub(super) async fn verify(
        &self,
        context: &Context,
        names: &Names,
        token: &str,
        issuer: Option<&str>,
    ) -> Verdict {
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
            // RFC 6750 §3.1: what is wrong with the token.
            400 | 401 | 403 => Err(BearerError::Inactive),
            _ => self.judge(names, answer.json(context.host())?, issuer),
        };
        self.answers.insert(digest, now, UnixTime::from_millis(u64::MAX), &verdict);
        verdict
    }

    fn judge(&self, names: &Names, answer: UserinfoAnswer, issuer: Option<&str>) -> Verdict {
        if answer.act.is_some() {
            return Err(BearerError::Delegated);
        }
        if let Some(issuer) = issuer {
            names.check_spoken_for(&self.name_prefix, issuer)?;
        }
        let said = Said { sub: Some(answer.sub), ..Said::default() };
        let Named { subject, client_id } = names.identify(&self.name_prefix, said, None)?;
        Ok(Rc::new(VerifiedToken {
            subject,
            client_id,
            scopes: Vec::new(),
            expires_at: UnixTime::from_millis(u64::MAX),
            required_scopes: Rc::new([]),
        }))
    }
}

impl Answers {
    fn new(cache_duration: Duration) -> Self {
        Self { cache_duration, verdicts: RefCell::new(ExpiringCache::new(CACHE_CAPACITY)) }
    }

    fn get(&self, digest: &Digest, now: UnixTime) -> Option<Verdict> {
        self.verdicts.borrow().get(digest, now)
    }

    /// Remembers a verdict, at most until the token expires.
    fn insert(&self, digest: Digest, now: UnixTime, until: UnixTime, verdict: &Verdict) {
        if !self.cache_duration.is_zero() {
            let until = until.min(now.after(self.cache_duration));
            self.verdicts.borrow_mut().insert(digest, now, until, verdict.clone());
        }
    }
}

/// A `NumericDate` may have a fraction (RFC 7519 §2).
fn numeric_date(date: f64) -> UnixTime {
    // A float beyond the range of the integer becomes its end, which is what is meant.
    UnixTime::from_secs(date as i64)
}
