//! Opaque access tokens: their issuer is asked (RFC 7662, OpenID Connect Core §5.3).
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

use super::{BearerError, ExpiringCache, VerifiedToken};
use crate::host::UnixTime;
use crate::secret::{Digest, Secret};
use crate::step::Context;
use crate::upstream::{HttpUri, Upstream, ask};

/// Answers to remember.
const CACHE_CAPACITY: usize = 1024;

type Verdict = Result<Rc<VerifiedToken>, BearerError>;

/// Asks an introspection endpoint.
#[derive(Debug)]
pub struct Introspection {
    http_uri: HttpUri,
    /// The value of our own `authorization` header.
    credentials: Secret<String>,
    required_scopes: Rc<[String]>,
    answers: Answers,
}

/// Asks a userinfo endpoint: a token that it accepts carries the scope `openid`.
#[derive(Debug)]
pub struct Userinfo {
    http_uri: HttpUri,
    answers: Answers,
}

/// What was said a moment ago, good or bad.
#[derive(Debug)]
struct Answers {
    cache_duration: Duration,
    verdicts: RefCell<ExpiringCache<Verdict>>,
}

/// RFC 7662 §2.2.
#[derive(Deserialize)]
struct IntrospectionAnswer {
    active: bool,
    scope: Option<String>,
    client_id: Option<String>,
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
    act: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct UserinfoAnswer {
    sub: String,
}

impl Introspection {
    /// Asks `http_uri` as the client `client_id`.
    pub fn new(
        http_uri: HttpUri,
        client_id: &str,
        client_secret: &Secret<String>,
        required_scopes: Rc<[String]>,
        cache_duration: Duration,
    ) -> Self {
        // RFC 6749 §2.3.1: form-encoded, then base64.
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(client_id), encode(client_secret.expose()));
        let credentials = Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair)));
        Self { http_uri, credentials, required_scopes, answers: Answers::new(cache_duration) }
    }

    /// Verifies a token and that it has the required scopes.
    pub async fn verify(&self, context: &Context, token: &str) -> Verdict {
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
        let verdict = self.judge(answer, now);
        let until =
            verdict.as_ref().map_or(UnixTime::from_millis(u64::MAX), |token| token.expires_at);
        self.answers.insert(digest, now, until, &verdict);
        verdict
    }

    fn judge(&self, answer: IntrospectionAnswer, now: UnixTime) -> Verdict {
        if !answer.active {
            return Err(BearerError::Inactive);
        }
        let expires_at = answer.exp.map_or(UnixTime::from_millis(u64::MAX), numeric_date);
        if expires_at <= now {
            return Err(BearerError::Expired);
        }
        if answer.nbf.is_some_and(|not_before| numeric_date(not_before) > now) {
            return Err(BearerError::NotYetValid);
        }
        if answer.act.is_some() {
            return Err(BearerError::Delegated);
        }
        let named = |name: Option<String>| name.filter(|name| !name.is_empty());
        let (subject, client_id) = (named(answer.sub), named(answer.client_id));
        if subject.is_none() && client_id.is_none() {
            return Err(BearerError::Nobody);
        }
        let scope = answer.scope.unwrap_or_default();
        Rc::new(VerifiedToken {
            subject,
            client_id,
            scopes: scope.split(' ').map(str::to_owned).collect(),
            expires_at,
            required_scopes: Rc::clone(&self.required_scopes),
        })
        .with_required_scopes()
    }
}

impl Userinfo {
    /// Asks `http_uri`.
    pub fn new(http_uri: HttpUri, cache_duration: Duration) -> Self {
        Self { http_uri, answers: Answers::new(cache_duration) }
    }

    /// Verifies a token; its user is the answer's `sub`.
    pub async fn verify(&self, context: &Context, token: &str) -> Verdict {
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
            _ => {
                let UserinfoAnswer { sub } = answer.json(context.host())?;
                self.judge(sub)
            }
        };
        self.answers.insert(digest, now, UnixTime::from_millis(u64::MAX), &verdict);
        verdict
    }

    fn judge(&self, sub: String) -> Verdict {
        if sub.is_empty() {
            return Err(BearerError::Nobody);
        }
        Ok(Rc::new(VerifiedToken {
            subject: Some(sub),
            client_id: None,
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
