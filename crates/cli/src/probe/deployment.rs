//! The running deployment: its filters and APIs, the credentials for them, and what a probe began
//! there.
//!
//! Nothing stays. The path of each subject token is known before the token is exchanged, and
//! `DELETE` of that path by its caller ends what the token was exchanged for, too. So the end of
//! the probe needs no answer to an exchange, and no operator.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use impersonation_core::secret::Secret;
use serde_json::{Value, json};
use ureq::AsSendBody;
use ureq::http::{Method, Request};

use super::answer::{Answer, Reading};
use super::credential::{Credential, Key, Target};
use super::interruption::Interruption;
use super::report::{Group, Outcome, Report};
use super::settings::{SessionSettings, Settings};
use crate::http::{Base, Client, bearer, encoded, in_words, token_in};
use crate::{Failure, text_in};

const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// How long, all in all, an address is asked again that says it is unavailable.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the probe tries to take back what it began.
const CLEANINGS: usize = 3;

/// An address, and the client that sends there.
pub(super) struct At {
    pub(super) address: String,
    /// The address as clients see it, for proofs: without its path if it is another one than
    /// `address`.
    origin: Option<String>,
    client: Client,
    /// Milliseconds of [`PATIENCE`] that were spent here.
    waited: AtomicU64,
}

impl At {
    pub(super) fn new(
        base: &Base,
        cacert: Option<&Path>,
        origin: Option<&Base>,
    ) -> Result<Self, Failure> {
        base.warn_if_in_clear();
        let address = base.address.clone();
        let origin = origin.map(|origin| origin.address.clone());
        let client = Client::new(&address, cacert)?;
        Ok(Self { address, origin, client, waited: AtomicU64::new(0) })
    }

    /// The address of `target` as clients see it. Proofs name it.
    pub(super) fn public(&self, target: &str) -> String {
        let Some(origin) = &self.origin else { return format!("{}{target}", self.address) };
        let authority = self.address.split_once("://").map_or("", |(_, rest)| rest);
        let path = authority.find('/').and_then(|at| authority.get(at..)).unwrap_or_default();
        format!("{origin}{path}{target}")
    }

    /// Sends a request once. The failure names the address, and repeats nothing of the request.
    pub(super) fn send(
        &self,
        request: Request<impl AsSendBody>,
        reading: Reading,
    ) -> Result<Answer, Failure> {
        let asked = Instant::now();
        let answer = self.client.send(request);
        answer.map(|answer| Answer::read(answer, reading, asked)).map_err(|error| {
            let told = match error {
                // These repeat the address with its query.
                ureq::Error::BadUri(_) | ureq::Error::Http(_) => "it cannot be sent".to_owned(),
                error => in_words(&error),
            };
            Failure::new(&self.address, told)
        })
    }

    /// Opens a response that is read later.
    pub(super) fn open(
        &self,
        request: Request<()>,
        longest: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let answer = self.client.open(request, longest);
        answer.map_err(|error| Failure::new(&self.address, in_words(&error)))
    }

    /// Waits as an answer asks for. Returns false if there was enough waiting.
    fn wait(&self, answer: &Answer) -> bool {
        let pause = answer.retry_after.unwrap_or(Duration::from_secs(1));
        let pause = pause.clamp(Duration::from_millis(100), Duration::from_secs(2));
        let all = Duration::from_millis(self.waited.load(Ordering::SeqCst)).saturating_add(pause);
        if all > PATIENCE {
            return false;
        }
        let all = u64::try_from(all.as_millis()).unwrap_or(u64::MAX);
        self.waited.store(all, Ordering::SeqCst);
        sleep(pause);
        true
    }
}

/// A subject token that was minted.
pub(super) struct SubjectToken {
    token: Secret<String>,
    pub(super) id: String,
}

/// An impersonation that the probe began.
pub(super) struct Impersonation {
    pub(super) credential: Credential,
    /// The claim `txn`.
    pub(super) id: String,
}

/// A subject token, exchanged or not, that must be taken back in the end.
struct Begun {
    /// The index of the filter that minted it.
    at: usize,
    id: String,
}

/// Everything that is probed.
pub(super) struct Deployment {
    pub(super) settings: Settings,
    pub(super) filters: Vec<At>,
    pub(super) apis: Vec<At>,
    pub(super) interruption: Interruption,
    /// The access token of an ordinary user.
    pub(super) ordinary: Option<Secret<String>>,
    /// Access tokens that the APIs must refuse, and the files with them.
    pub(super) refused: Vec<(String, Secret<String>)>,
    caller: Secret<String>,
    actor: Option<Secret<String>>,
    operator: Secret<String>,
    client_secret: Option<Secret<String>>,
    /// The key that the probe's tokens are bound to, once it is known that they are.
    key: OnceLock<Arc<Key>>,
    /// The last nonce of a filter, and the token endpoint as the filter's metadata have it.
    nonce: Mutex<Option<String>>,
    token_endpoint: OnceLock<String>,
    begun: Mutex<Vec<Begun>>,
}

/// The proof of an exchange.
#[derive(Clone, Copy)]
pub(super) enum Proof<'p> {
    /// A new one, if the probe's tokens are bound.
    Usual,
    /// No proof, or this one.
    Given(Option<&'p str>),
}

impl Deployment {
    /// Reads the credentials. It sends nothing.
    pub(super) fn open(settings: Settings, interruption: Interruption) -> Result<Self, Failure> {
        let at = |bases: &[Base], origin: Option<&Base>| -> Result<Vec<At>, Failure> {
            bases.iter().map(|base| At::new(base, settings.cacert.as_deref(), origin)).collect()
        };
        let filters = at(&settings.filters, None)?;
        let apis = at(&settings.apis, settings.public_origin.as_ref())?;
        if filters.is_empty() || apis.is_empty() {
            return Err(Failure("name at least one --filter and one --api".to_owned()));
        }
        let optional = |file: &Option<_>| file.as_deref().map(token_in).transpose();
        let refused = settings.refused_token_files.iter().map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok::<_, Failure>((name, token_in(file)?))
        });
        let refused = refused.collect::<Result<_, _>>()?;
        Ok(Self {
            filters,
            apis,
            interruption,
            ordinary: optional(&settings.ordinary_token_file)?,
            refused,
            caller: token_in(&settings.caller_token_file)?,
            actor: optional(&settings.actor_token_file)?,
            operator: token_in(&settings.operator_token_file)?,
            client_secret: settings.client_secret_file.as_deref().map(secret_in).transpose()?,
            key: if settings.dpop { Arc::new(Key::new()).into() } else { OnceLock::new() },
            nonce: Mutex::default(),
            token_endpoint: OnceLock::new(),
            begun: Mutex::default(),
            settings,
        })
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filter(&self, at: usize) -> Result<&At, Failure> {
        self.filters.get(at).ok_or_else(|| Failure("name at least one --filter".to_owned()))
    }

    /// Sends a request, unless the probe was interrupted. Asks again for a while if the address is
    /// unavailable.
    pub(super) fn send<B: AsSendBody + Clone>(
        &self,
        at: &At,
        request: &Request<B>,
        reading: Reading,
    ) -> Result<Answer, Failure> {
        loop {
            self.interruption.check()?;
            let answer = at.send(request.clone(), reading)?;
            if !matches!(answer.status, 429 | 503) || !at.wait(&answer) {
                return Ok(answer);
            }
        }
    }

    /// Mints a subject token at a filter.
    pub(super) fn mint(&self, at: usize) -> Result<SubjectToken, Failure> {
        self.mint_for(at, None)
    }

    /// Mints a subject token whose access token lives for so long.
    fn mint_for(&self, at: usize, lifetime: Option<Duration>) -> Result<SubjectToken, Failure> {
        let minted = self.mint_with(at, Some(&self.caller), lifetime)?;
        self.minted(at, minted)
    }

    /// Mints a subject token for a browser session at the first filter.
    pub(super) fn mint_for_session(
        &self,
        session: &SessionSettings,
    ) -> Result<SubjectToken, Failure> {
        let bounds = (&*session.resource, &*session.scope);
        let minted = self.mint_within(0, Some(&self.caller), None, bounds)?;
        self.minted(0, minted)
    }

    fn minted(
        &self,
        at: usize,
        (answer, minted): (Answer, Option<SubjectToken>),
    ) -> Result<SubjectToken, Failure> {
        minted.ok_or_else(|| {
            let told = format!("no subject token was minted: {}", answer.in_short());
            self.filter(at).map_or_else(|it| it, |at| Failure::new(&at.address, told))
        })
    }

    /// Mints with this access token.
    pub(super) fn mint_with(
        &self,
        index: usize,
        token: Option<&Secret<String>>,
        lifetime: Option<Duration>,
    ) -> Result<(Answer, Option<SubjectToken>), Failure> {
        let bounds = (&*self.settings.resource, &*self.settings.scope);
        self.mint_within(index, token, lifetime, bounds)
    }

    fn mint_within(
        &self,
        index: usize,
        token: Option<&Secret<String>>,
        lifetime: Option<Duration>,
        (resource, scope): (&str, &str),
    ) -> Result<(Answer, Option<SubjectToken>), Failure> {
        let settings = &self.settings;
        let at = self.filter(index)?;
        // The bounds make a stolen token worth little.
        let mut body = json!({
            "userId": settings.user,
            "clientId": settings.client_id,
            "resource": resource,
            "scope": scope,
        });
        if let (Some(context), Some(members)) = (&settings.context, body.as_object_mut()) {
            members.insert("context".to_owned(), context.clone());
        }
        if let (Some(lifetime), Some(members)) = (lifetime, body.as_object_mut()) {
            members.insert("accessTokenExpiresIn".to_owned(), lifetime.as_secs().into());
        }
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{}", at.address, settings.subject_tokens_path))
            .header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", bearer(token));
        }
        let request = built(at, request, body.to_string())?;
        let answer = self.send(at, &request, Reading::Whole)?;
        let id = answer.location.as_deref().and_then(|it| it.rsplit('/').next());
        let minted = match (answer.status, id, answer.member("subjectToken")) {
            (201, Some(id), Some(token)) => {
                self.begun().push(Begun { at: index, id: id.to_owned() });
                Some(SubjectToken { token: Secret::new(token), id: id.to_owned() })
            }
            _ => None,
        };
        Ok((answer, minted))
    }

    /// Exchanges a subject token with the client's own credentials.
    pub(super) fn exchange(&self, at: &At, token: &SubjectToken) -> Result<Answer, Failure> {
        self.exchange_with(at, token, Proof::Usual)
    }

    /// Exchanges a subject token with this proof.
    pub(super) fn exchange_with(
        &self,
        at: &At,
        token: &SubjectToken,
        proof: Proof<'_>,
    ) -> Result<Answer, Failure> {
        self.exchange_as(at, token, self.client_secret.as_ref(), proof)
    }

    /// Makes a proof for an exchange; `None` if the probe's tokens are bound to no key.
    pub(super) fn proof_of_exchange(&self, at: &At) -> Option<String> {
        let key = self.key.get()?;
        let url = self.token_endpoint.get_or_init(|| self.look_up_token_endpoint(at));
        let nonce = self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(key.prove(Target { method: "POST", url }, None, nonce.as_deref()))
    }

    /// The token endpoint as the filter's metadata have it: an address of one Envoy may be another
    /// one.
    fn look_up_token_endpoint(&self, at: &At) -> String {
        let path = &self.settings.token_path;
        let base = path.rsplit_once('/').map_or("", |(base, _)| base);
        let request = Request::builder()
            .uri(format!("{}{base}/.well-known/openid-configuration", at.address));
        let answer = built(at, request, ()).and_then(|it| self.send(at, &it, Reading::Whole));
        let named = answer.ok().and_then(|answer| answer.member("token_endpoint"));
        named.unwrap_or_else(|| format!("{}{path}", at.address))
    }

    /// Exchanges a subject token with another client secret.
    pub(super) fn exchange_as(
        &self,
        at: &At,
        token: &SubjectToken,
        secret: Option<&Secret<String>>,
        proof: Proof<'_>,
    ) -> Result<Answer, Failure> {
        loop {
            let (made, is_usual) = match proof {
                Proof::Usual => (self.proof_of_exchange(at), true),
                Proof::Given(given) => (given.map(str::to_owned), false),
            };
            let answer = self.exchange_once(at, token, secret, made.as_deref())?;
            let mut known = self.nonce.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = answer.nonce.is_some() && *known != answer.nonce;
            if is_new {
                known.clone_from(&answer.nonce);
            }
            let error = answer.member("error");
            let again = match error.as_deref() {
                Some("use_dpop_nonce") => is_new,
                // The client or the resource asks for a proof.
                Some("invalid_dpop_proof") if made.is_none() => {
                    is_usual && self.key.set(Arc::new(Key::new())).is_ok()
                }
                _ => false,
            };
            if !(again && is_usual) {
                return Ok(answer);
            }
        }
    }

    fn exchange_once(
        &self,
        at: &At,
        token: &SubjectToken,
        secret: Option<&Secret<String>>,
        proof: Option<&str>,
    ) -> Result<Answer, Failure> {
        let settings = &self.settings;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{}", at.address, settings.token_path));
        if let Some(proof) = proof {
            request = request.header("dpop", proof);
        }
        let bounds = (&*settings.resource, &*settings.scope);
        let (request, form) = self.form(request, token, secret, bounds);
        let request = built(at, request, form)?;
        self.send(at, &request, Reading::Whole)
    }

    /// Exchanges a subject token for the resource of browser sessions, where nobody may.
    pub(super) fn exchange_for_session(
        &self,
        session: &SessionSettings,
        token: &SubjectToken,
    ) -> Result<Answer, Failure> {
        let at = self.filter(0)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{}", at.address, self.settings.token_path));
        let request = self.begin_session(request, session, token);
        self.send(at, &built(at, request.0, request.1)?, Reading::Whole)
    }

    /// Completes a request that begins a browser session.
    pub(super) fn begin_session(
        &self,
        request: ureq::http::request::Builder,
        session: &SessionSettings,
        token: &SubjectToken,
    ) -> (ureq::http::request::Builder, String) {
        let bounds = (&*session.resource, &*session.scope);
        self.form(request, token, self.client_secret.as_ref(), bounds)
    }

    /// Completes the head of an exchange, and returns its form.
    fn form(
        &self,
        request: ureq::http::request::Builder,
        token: &SubjectToken,
        secret: Option<&Secret<String>>,
        (resource, scope): (&str, &str),
    ) -> (ureq::http::request::Builder, String) {
        let settings = &self.settings;
        let mut request = request.header("content-type", "application/x-www-form-urlencoded");
        let mut form = vec![
            ("grant_type", EXCHANGE_GRANT),
            ("subject_token", token.token.expose()),
            ("subject_token_type", ACCESS_TOKEN),
            ("resource", resource),
            ("scope", scope),
        ];
        if let Some(actor) = &self.actor {
            form.extend([
                ("actor_token", actor.expose().as_str()),
                ("actor_token_type", ACCESS_TOKEN),
            ]);
        }
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
        (request, form.join("&"))
    }

    /// Begins an impersonation: mints at a filter, and exchanges there.
    pub(super) fn begin(&self, at: usize) -> Result<Impersonation, Failure> {
        self.begin_for(at, None)
    }

    /// Begins an impersonation whose access token lives for so long.
    pub(super) fn begin_for(
        &self,
        at: usize,
        lifetime: Option<Duration>,
    ) -> Result<Impersonation, Failure> {
        let token = self.mint_for(at, lifetime)?;
        let at = self.filter(at)?;
        let answer = self.exchange(at, &token)?;
        let access_token = answer.member("access_token").filter(|_| answer.status == 200);
        let Some(access_token) = access_token else {
            let told = format!("the subject token was not exchanged: {}", answer.in_short());
            return Err(Failure::new(&at.address, told));
        };
        if txn(&access_token).as_deref() != Some(&*token.id) {
            let told =
                "the access token does not name its impersonation as `txn`: it is not the filter's";
            return Err(Failure::new(&at.address, told));
        }
        let key = self.key.get().map(Arc::clone);
        let is_bound =
            answer.member("token_type").is_some_and(|it| it.eq_ignore_ascii_case("DPoP"));
        if key.is_some() != is_bound {
            let told = "the access token is not bound to the key of the exchange's proof";
            return Err(Failure::new(&at.address, told));
        }
        let credential = Credential { token: Secret::new(access_token), key };
        self.learn_nonce(&credential)?;
        Ok(Impersonation { credential, id: token.id })
    }

    /// Learns the nonce that the guards ask for, if they do: from the refusal of a request without
    /// a proof.
    fn learn_nonce(&self, credential: &Credential) -> Result<(), Failure> {
        let Some(key) = &credential.key else { return Ok(()) };
        for api in &self.apis {
            let request = Request::builder()
                .uri(format!("{}{}", api.address, self.settings.read))
                .header("authorization", credential.authorization());
            let answer = self.send(api, &built(api, request, ())?, Reading::IfShort)?;
            answer.nonce.into_iter().for_each(|nonce| key.learn(nonce));
        }
        Ok(())
    }

    /// Ends an impersonation as an operator does.
    pub(super) fn end(&self, at: &At, id: &str) -> Result<Answer, Failure> {
        self.end_with(at, id, &self.operator)
    }

    /// Tries to end an impersonation with this access token.
    pub(super) fn end_with(
        &self,
        at: &At,
        id: &str,
        token: &Secret<String>,
    ) -> Result<Answer, Failure> {
        let path = &self.settings.impersonations_path;
        self.send(at, &deletion(at, path, id, token)?, Reading::Whole)
    }

    /// Takes back every subject token, which ends what it was exchanged for. An interruption does
    /// not keep it from that.
    pub(super) fn clean(&self, report: &mut Report) {
        let begun = std::mem::take(&mut *self.begun());
        for Begun { at, id } in begun {
            let Ok(at) = self.filter(at) else { continue };
            let outcome = match self.take_back(at, &id) {
                Ok(()) => Outcome::Holds,
                Err(told) => Outcome::Fails(format!("{id} may be live: {told}")),
            };
            report.add(Group::Clean, &at.address, "nothing of the probe stays", outcome);
        }
    }

    fn take_back(&self, at: &At, id: &str) -> Result<(), String> {
        let path = &self.settings.subject_tokens_path;
        let mut told = String::new();
        for _ in 0..CLEANINGS {
            let answer = deletion(at, path, id, &self.caller)
                .and_then(|request| at.send(request, Reading::Whole));
            match answer {
                Ok(answer) if answer.status == 204 => return Ok(()),
                Ok(answer) => told = answer.in_short(),
                Err(Failure(message)) => told = message,
            }
            sleep(Duration::from_secs(1));
        }
        Err(told)
    }
}

fn deletion(at: &At, path: &str, id: &str, token: &Secret<String>) -> Result<Request<()>, Failure> {
    let request = Request::builder()
        .method(Method::DELETE)
        .uri(format!("{}{path}/{}", at.address, encoded(id)))
        .header("authorization", bearer(token));
    built(at, request, ())
}

/// Completes a request. The failure repeats nothing of it.
pub(super) fn built<B>(
    at: &At,
    request: ureq::http::request::Builder,
    body: B,
) -> Result<Request<B>, Failure> {
    request.body(body).map_err(|_| Failure::new(&at.address, "it cannot be sent"))
}

fn secret_in(file: &Path) -> Result<Secret<String>, Failure> {
    let text = text_in(file)?;
    let secret = text.trim_end_matches(['\r', '\n']);
    match secret.is_empty() || secret.contains(['\r', '\n']) {
        true => Err(Failure::new(file.display(), "expected a client secret and nothing else")),
        false => Ok(Secret::new(secret.to_owned())),
    }
}

/// The claim `txn` of an access token, unverified: it only names what to end.
fn txn(access_token: &str) -> Option<String> {
    let payload = BASE64_URL_SAFE_NO_PAD.decode(access_token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims.get("txn")?.as_str().map(str::to_owned)
}
