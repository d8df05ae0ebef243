//! The running deployment: its filters and APIs, the credentials for them, and what a probe began there.

use std::cell::RefCell;
use std::fs;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use impersonation_core::secret::Secret;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::report::{Outcome, Report};
use super::settings::Settings;
use crate::Failure;
use crate::display::escaped;
use crate::service::{agent, encoded, in_words, token_in};

const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// More of an answer than any check reads.
const LONGEST_ANSWER: u64 = 1 << 20;

/// An address, and the client that sends there.
pub(super) struct At {
    pub(super) address: String,
    pub(super) agent: Agent,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Envoy got the answer from a server behind it.
    pub(super) from_upstream: bool,
    /// The challenge of `WWW-Authenticate` (RFC 6750 §3).
    pub(super) challenge: String,
    location: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// Reads an answer. A body without a length is left unread, unless the answer is an error.
    pub(super) fn read(mut answer: Response<Body>) -> Self {
        let header = |name: &str| {
            let value = answer.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let (challenge, location) = (header("www-authenticate"), header("location"));
        let from_upstream = header("x-envoy-upstream-service-time").is_some();
        let status = answer.status().as_u16();
        // A stream has no length and may have no end: it is not read.
        let is_short = answer.body().content_length().is_some_and(|it| it <= LONGEST_ANSWER);
        let has_end = is_short || header("transfer-encoding").is_some() && status >= 400;
        let body = match has_end {
            true => answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec(),
            false => Ok(Vec::new()),
        };
        Self {
            status,
            from_upstream,
            challenge: challenge.unwrap_or_default(),
            location,
            body: body.unwrap_or_default(),
        }
    }

    /// A string member of the JSON body.
    pub(super) fn member(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body.get(name)?.as_str().map(str::to_owned)
    }

    /// The status and the error code, for a message. It repeats nothing else of the body.
    pub(super) fn in_short(&self) -> String {
        match self.member("error") {
            Some(error) => format!("{} {}", self.status, escaped(&error)),
            None => self.status.to_string(),
        }
    }
}

/// A subject token that was minted.
pub(super) struct SubjectToken {
    pub(super) token: Secret<String>,
    /// Its path below the filter's address.
    path: Option<String>,
}

/// An impersonation that the probe began.
pub(super) struct Impersonation {
    pub(super) access_token: Secret<String>,
    /// The claim `txn`.
    pub(super) id: String,
}

/// Everything that is probed.
pub(super) struct Deployment<'s> {
    pub(super) settings: &'s Settings,
    pub(super) filters: Vec<At>,
    pub(super) apis: Vec<At>,
    caller: Secret<String>,
    actor: Option<Secret<String>>,
    operator: Secret<String>,
    client_secret: Option<Secret<String>>,
    /// Paths of subject tokens that were not exchanged, below the first filter's address.
    unspent: RefCell<Vec<String>>,
    /// Impersonations that were not ended.
    live: RefCell<Vec<String>>,
}

impl<'s> Deployment<'s> {
    /// Reads the credentials. It sends nothing.
    pub(super) fn open(settings: &'s Settings) -> Result<Self, Failure> {
        let at = |bases: &[crate::service::Base]| -> Result<Vec<At>, Failure> {
            let one = |base: &crate::service::Base| {
                let agent = agent(&base.address, settings.cacert.as_deref())?;
                Ok(At { address: base.address.clone(), agent })
            };
            bases.iter().map(one).collect()
        };
        let (filters, apis) = (at(&settings.filters)?, at(&settings.apis)?);
        if filters.is_empty() || apis.is_empty() {
            return Err(Failure("name at least one --filter and one --api".to_owned()));
        }
        let client_secret = settings.client_secret_file.as_ref().map(|file| {
            let text = fs::read_to_string(file).map_err(|it| Failure::new(file.display(), it))?;
            Ok::<_, Failure>(Secret::new(text.trim_end_matches(['\r', '\n']).to_owned()))
        });
        Ok(Self {
            settings,
            filters,
            apis,
            caller: token_in(&settings.caller_token_file)?,
            actor: settings.actor_token_file.as_deref().map(token_in).transpose()?,
            operator: token_in(&settings.operator_token_file)?,
            client_secret: client_secret.transpose()?,
            unspent: RefCell::default(),
            live: RefCell::default(),
        })
    }

    /// The filter that mints and ends.
    fn first(&self) -> Result<&At, Failure> {
        self.filters.first().ok_or_else(|| Failure("name at least one --filter".to_owned()))
    }

    /// Mints a subject token.
    pub(super) fn mint(&self) -> Result<SubjectToken, Failure> {
        let at = self.first()?;
        let mut body = json!({"userId": self.settings.user});
        if let (Some(context), Some(members)) = (&self.settings.context, body.as_object_mut()) {
            members.insert("context".to_owned(), context.clone());
        }
        let answer = self.mint_with(at, Some(&self.caller), &body)?;
        let token = answer.member("subjectToken").filter(|_| answer.status == 201);
        let Some(token) = token else {
            let told = format!("no subject token was minted: {}", answer.in_short());
            return Err(Failure::new(&at.address, told));
        };
        // With a base path the Location repeats it.
        let path = answer.location.as_deref().and_then(|it| it.rsplit_once("/api/"));
        let path = path.map(|(_, rest)| format!("/api/{rest}"));
        self.unspent.borrow_mut().extend(path.clone());
        Ok(SubjectToken { token: Secret::new(token), path })
    }

    /// Sends a mint request with this access token.
    pub(super) fn mint_with(
        &self,
        at: &At,
        token: Option<&Secret<String>>,
        body: &Value,
    ) -> Result<Answer, Failure> {
        let mut request = at.agent.post(format!("{}/api/subject-tokens", at.address));
        request = request.header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        sent(at, request.send(body.to_string()))
    }

    /// Sends an exchange of a subject token with the client's own credentials.
    pub(super) fn exchange(&self, at: &At, token: &SubjectToken) -> Result<Answer, Failure> {
        self.exchange_as(at, token, self.client_secret.as_ref())
    }

    /// Sends an exchange with another client secret.
    pub(super) fn exchange_as(
        &self,
        at: &At,
        token: &SubjectToken,
        secret: Option<&Secret<String>>,
    ) -> Result<Answer, Failure> {
        let settings = self.settings;
        let mut form = vec![
            ("grant_type", EXCHANGE_GRANT),
            ("subject_token", token.token.expose()),
            ("subject_token_type", ACCESS_TOKEN),
            ("resource", &settings.resource),
            ("scope", &settings.scope),
        ];
        if let Some(actor) = &self.actor {
            form.extend([
                ("actor_token", actor.expose().as_str()),
                ("actor_token_type", ACCESS_TOKEN),
            ]);
        }
        let mut request = at.agent.post(format!("{}/oidc/token", at.address));
        request = request.header("content-type", "application/x-www-form-urlencoded");
        match secret {
            Some(secret) => {
                // RFC 6749 §2.3.1: both are form-urlencoded first.
                let pair = format!("{}:{}", encoded(&settings.client_id), encoded(secret.expose()));
                let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
                request = request.header("authorization", basic);
            }
            None => form.push(("client_id", &settings.client_id)),
        }
        let form: Vec<_> =
            form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let answer = sent(at, request.send(form.join("&")))?;
        if answer.status == 200 {
            self.unspent.borrow_mut().retain(|path| Some(path) != token.path.as_ref());
            let begun = answer.member("access_token").and_then(|token| txn(&token));
            self.live.borrow_mut().extend(begun);
        }
        Ok(answer)
    }

    /// Begins an impersonation: mints, and exchanges.
    pub(super) fn begin(&self) -> Result<Impersonation, Failure> {
        let (at, token) = (self.first()?, self.mint()?);
        let answer = self.exchange(at, &token)?;
        let access_token = answer.member("access_token").filter(|_| answer.status == 200);
        let id = access_token.as_deref().and_then(txn);
        let (Some(access_token), Some(id)) = (access_token, id) else {
            let told = format!("the subject token was not exchanged: {}", answer.in_short());
            return Err(Failure::new(&at.address, told));
        };
        Ok(Impersonation { access_token: Secret::new(access_token), id })
    }

    /// Ends an impersonation as an operator does.
    pub(super) fn end(&self, id: &str) -> Result<Answer, Failure> {
        let answer =
            self.delete(&format!("/api/impersonations/{}", encoded(id)), &self.operator)?;
        if matches!(answer.status, 204 | 404) {
            self.live.borrow_mut().retain(|live| live != id);
        }
        Ok(answer)
    }

    fn delete(&self, path: &str, token: &Secret<String>) -> Result<Answer, Failure> {
        let at = self.first()?;
        let request = at.agent.delete(format!("{}{path}", at.address));
        sent(at, request.header("authorization", format!("Bearer {}", token.expose())).call())
    }

    /// Ends what is still live, and takes back each subject token that was not exchanged.
    pub(super) fn clean(&self, report: &mut Report) {
        let at = self.filters.first().map(|at| at.address.clone()).unwrap_or_default();
        let unspent = self.unspent.take();
        let live: Vec<_> = self.live.borrow().clone();
        let ended = live.iter().map(|id| self.end(id));
        let ended: Vec<_> = ended.collect();
        let taken_back = unspent.iter().map(|path| self.delete(path, &self.caller));
        for outcome in ended.into_iter().chain(taken_back) {
            let left = match outcome {
                Ok(answer) if matches!(answer.status, 204 | 404) => continue,
                Ok(answer) => answer.in_short(),
                Err(Failure(message)) => message,
            };
            report.add(&at, "nothing of the probe stays", Outcome::Fails(left));
        }
    }
}

/// An answer, or a failure that names the address.
pub(super) fn sent(
    at: &At,
    answer: Result<Response<Body>, ureq::Error>,
) -> Result<Answer, Failure> {
    answer.map(Answer::read).map_err(|error| Failure::new(&at.address, in_words(&error)))
}

/// The claim `txn` of an access token, unverified: it only names what to end.
fn txn(access_token: &str) -> Option<String> {
    let payload = BASE64_URL_SAFE_NO_PAD.decode(access_token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims.get("txn")?.as_str().map(str::to_owned)
}
