//! `POST /api/subject-tokens`: a backend asks for a subject token for one of its users.
//!
//! The filter verifies the caller before it reads the body, so a stranger learns nothing about the
//! requests that are accepted. The backend decides who may impersonate the user; the filter holds
//! the backend accountable for it.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::secret_json;
use super::decision_point::{Question, evaluate};
use super::presented::verify_presented;
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::request_context::RequestContext;
use super::reviewed::{Reviewed, as_json};
use super::service::Service;
use crate::audit::Trail;
use crate::claims::{Authorizer, AuthorizerInput, ClaimsError, NotAuthorized};
use crate::config::{BreakGlass, Config, Happening, Rules, UserLookup};
use crate::host::{Host, HostFailure, UnixTime};
use crate::metrics;
use crate::notifications::Notice;
use crate::policy::{Bounds, Offer, is_user_id};
use crate::state::store::{Grant, Mint, Review, SubjectToken, TokenId};
use crate::step::Response;
use crate::strict_json::Strict;
use crate::upstream::{Upstream, ask};

/// Returns true for a member that the body may have. An unknown member is refused: it could be a
/// misspelt bound, and without that bound the token would be worth more than the caller wanted.
fn is_member(name: &str) -> bool {
    ["userId", "context", "breakGlass"].contains(&name) || Bounds::MEMBERS.contains(&name)
}

/// A mint request that is well formed.
#[derive(Debug)]
struct MintRequest {
    grant: Grant,
    /// The context, as JSON.
    context: Value,
    bounds: Bounds,
    /// The mint goes without approval.
    breaks_glass: bool,
}

impl MintRequest {
    fn read(head: &Head, body: &Body, max_context_bytes: usize) -> Result<Self, Refusal> {
        let mut members = body.members(
            head,
            is_member,
            "the body must be a JSON object of userId, context and bounds, each given once",
        )?;
        let user_id = match members.get("userId") {
            Some(Value::String(user_id)) if is_user_id(user_id) => user_id.clone(),
            _ => {
                return Err(Refusal::invalid_request(
                    "user_id",
                    "userId must be a string of 1 to 255 characters without control characters",
                ));
            }
        };
        let given_context = members.remove("context").unwrap_or_else(|| Map::new().into());
        if !given_context.is_object() {
            return Err(Refusal::invalid_request("context", "context must be an object"));
        }
        let context = given_context.to_string();
        if context.len() > max_context_bytes {
            let told = format!(
                "context must not be longer than {max_context_bytes} bytes as compact JSON"
            );
            return Err(Refusal::new(413, "invalid_request", "context_too_long", "").telling(told));
        }
        let bounds = Bounds::MEMBERS.into_iter();
        let bounds = Bounds::of(bounds.filter_map(|name| Some((name, members.get(name)?))))?;
        let breaks_glass = match members.get("breakGlass") {
            None => false,
            Some(Value::Bool(breaks_glass)) => *breaks_glass,
            Some(_) => {
                let told = "breakGlass must be true or false";
                return Err(Refusal::invalid_request("break_glass", told));
            }
        };
        let grant = Grant { user_id, context };
        Ok(Self { grant, context: given_context, bounds, breaks_glass })
    }

    fn note_bounds(&self, trail: &Trail) {
        let bounds = Some(self.bounds.clone()).filter(|bounds| !bounds.is_empty());
        trail.note(|facts| facts.bounds = bounds);
    }

    /// Refuses bounds that can never be met. Returns the limits that they were checked against.
    fn check<'s>(&self, service: &'s Service) -> Result<Offer<'s>, Refusal> {
        let mut offer = Offer::of(&service.config, !service.actors.is_empty());
        offer.lifetime = self.terms(&service.config).lifetime;
        self.bounds.check(&offer, &self.grant.user_id)?;
        Ok(offer)
    }

    /// Returns the decisions that the operator, the mint and the operator's function ask for, and
    /// the lifetime that follows. Each of them can only add a decision. A mint that breaks the
    /// glass needs none.
    fn terms(&self, config: &Config) -> Terms {
        let (approvals, consent) = match &config.approvals {
            Some(configured) if !self.breaks_glass => {
                let (approvals, consent) = self.bounds.asks_for();
                (configured.required_for(&self.grant.user_id).max(approvals), consent)
            }
            _ => (0, false),
        };
        let lifetime = match &config.approvals {
            Some(configured) if approvals > 0 || consent => configured.lifetime,
            _ => config.subject_tokens.lifetime,
        };
        Terms { approvals, consent, lifetime }
    }
}

/// The body of the response.
#[derive(Serialize)]
struct MintResponse {
    #[serde(rename = "subjectToken")]
    subject_token: String,
    #[serde(rename = "expiresIn")]
    expires_in: u64,
    /// `pending` while the token waits for a decision; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'static str>,
}

/// Mints a subject token.
pub(super) async fn mint(request: RequestContext<'_>, body: Body) -> Result<Response, Refusal> {
    let RequestContext { service, context, trail, head } = request;
    let config = &service.config;
    let rules = &config.subject_tokens.rules;
    let verified = verify_presented(request, &service.callers).await?;
    let caller = verified.caller().unwrap_or_default().to_owned();
    trail.note(|facts| facts.caller = Some(caller.clone()));

    let max_context_bytes = config.subject_tokens.max_context_bytes;
    let mut wanted = MintRequest::read(head, &body, max_context_bytes)?;
    wanted.note_bounds(trail);
    trail.note(|facts| {
        facts.user_id = Some(wanted.grant.user_id.clone());
        facts.context = service.audited(&wanted.grant.context);
    });
    let break_glass = wanted.breaks_glass.then(|| break_glass(config)).transpose()?;
    let mut offer = wanted.check(service)?;
    require_context(rules, &wanted.context)?;
    if let Some(break_glass) = break_glass {
        require_context(&break_glass.rules, &wanted.context)?;
    }
    protect(rules, &wanted.grant.user_id)?;
    let minter = service.mints.as_ref().map(|mints| (mints, mints.minter(&caller)));
    // The limit is checked before the filter calls out for the caller. The mint is counted once it
    // is granted.
    let calls_out = config.subject_tokens.user_lookup.is_some()
        || config.decision_point.is_some()
        || service.authorizer.is_some();
    if let Some((mints, minter)) = minter.as_ref().filter(|_| calls_out) {
        mints.look(request.host(), minter)?;
    }

    let mut user = LookedUp::default();
    if let Some(lookup) = &config.subject_tokens.user_lookup {
        user = look_up(request, lookup, &wanted.grant.user_id).await?;
        let canonical = user.id.take().filter(|user_id| *user_id != wanted.grant.user_id);
        if let Some(user_id) = canonical {
            trail.note(|facts| facts.user_id = Some(user_id.clone()));
            protect(rules, &user_id)?;
            wanted.grant.user_id = user_id;
            offer = wanted.check(service)?;
        }
    }

    if let Some(decision_point) = &config.decision_point {
        let question = Question {
            caller: &caller,
            user_id: &wanted.grant.user_id,
            context: &wanted.context,
            bounds: &wanted.bounds,
            breaks_glass: wanted.breaks_glass,
            request_id: trail.request_id(),
        };
        evaluate(decision_point, context, &question).await?;
    }

    if let Some(authorizer) = &service.authorizer {
        let scope = verified.scopes.join(" ");
        let input = AuthorizerInput {
            client_id: verified.client_id.as_deref(),
            subject: verified.subject.as_deref(),
            scope: &scope,
            user_id: &wanted.grant.user_id,
            user: &user.description,
            context: &wanted.grant.context,
            bounds: &wanted.bounds,
            breaks_glass: wanted.breaks_glass,
        };
        let narrower = authorize(authorizer, request.host(), &offer, &input)?;
        wanted.bounds = wanted.bounds.narrowed_by(narrower).map_err(Refusal::leaves_nothing)?;
        let checked = wanted.bounds.check(&offer, &wanted.grant.user_id);
        checked.map_err(Refusal::leaves_nothing)?;
        wanted.note_bounds(trail);
    }

    // If the caller has left, no one could use the token.
    context.still_wanted().await;
    if let Some((mints, minter)) = &minter {
        mints.count(request.host(), minter)?;
    }
    let now = request.host().now();
    let terms = wanted.terms(config);
    let lifetime = wanted.bounds.lifetime(terms.lifetime);
    let MintRequest { grant, bounds, breaks_glass, .. } = wanted;
    let mint = Mint { caller, request_id: trail.request_id(), at_millis: now.millis(), bounds };
    let expires_at = now.after(lifetime);
    let approval = (!terms.needs_nobody()).then_some("pending");
    let (token, id) = if terms.needs_nobody() && !breaks_glass {
        service.store.mint(context, mint, grant, expires_at).await?
    } else {
        let subject = verified.subject.clone().filter(|subject| *subject != mint.caller);
        let asked = Asked { mint, grant, expires_at, terms, minted_by: subject };
        mint_with_people(request, asked).await?
    };
    let id = id.to_string();
    trail.note(|facts| facts.subject_token_id = Some(id.clone()));

    let (subject_token, expires_in) = (token.reveal(), lifetime.as_secs());
    let body = MintResponse { subject_token, expires_in, approval };
    let mut response = secret_json(201, &body);
    response.headers.push(("location", format!("{}/{id}", config.paths.subject_tokens)));
    Ok(response)
}

/// The decisions that a subject token needs before it can be exchanged, and how long it can be.
struct Terms {
    approvals: u8,
    consent: bool,
    lifetime: Duration,
}

impl Terms {
    const fn needs_nobody(&self) -> bool {
        self.approvals == 0 && !self.consent
    }
}

/// Finds the rules for a mint without approval. Refuses it where the operator allows none.
fn break_glass(config: &Config) -> Result<&BreakGlass, Refusal> {
    let Some(approvals) = &config.approvals else {
        let told = "breakGlass needs people who may approve: approvals";
        return Err(Refusal::invalid_request("break_glass", told));
    };
    approvals.break_glass.as_ref().ok_or_else(|| {
        Refusal::access_denied("break_glass_not_allowed", "breakGlass is not allowed")
    })
}

/// A subject token that people decide about, or would have decided about.
struct Asked {
    mint: Mint,
    grant: Grant,
    expires_at: UnixTime,
    terms: Terms,
    /// The subject of the caller's access token, if that is not the caller.
    minted_by: Option<String>,
}

/// Mints a token that waits for decisions, or one that goes without them. The required hooks are
/// told before anybody holds the token. If they cannot be told, the token is taken back.
async fn mint_with_people(
    request: RequestContext<'_>,
    asked: Asked,
) -> Result<(SubjectToken, TokenId), Refusal> {
    let RequestContext { service, context, trail, .. } = request;
    let Asked { mint, grant, expires_at, terms, minted_by } = asked;
    let host = request.host();
    let store = &service.store;
    let (happening, minted) = if terms.needs_nobody() {
        (Happening::BreakGlassUsed, store.mint(context, mint, grant, expires_at).await?)
    } else {
        trail.note(|facts| {
            facts.approvals_needed = Some(terms.approvals);
            facts.consent_needed = terms.consent;
        });
        let review = Review::needing(terms.approvals, terms.consent, minted_by);
        let minted = store.mint_for_review(context, mint, grant, review, expires_at).await?;
        (Happening::ApprovalRequested, minted)
    };
    let (token, id) = minted;
    if service.notifier.wants(happening)
        && let Err(refusal) = tell(request, happening, &id).await
    {
        // Nobody holds the token yet. If it cannot be taken back, it expires.
        if let Err(failure) = store.cancel(context, &id, |_, _| true).await {
            host.warn(&format!("a token whose mint was refused is not taken back: {failure}"));
        }
        return Err(refusal);
    }
    match happening {
        Happening::BreakGlassUsed => {
            trail.uses_break_glass();
            host.count(metrics::BREAK_GLASS.into());
            host.warn(&trail.break_glass(id.to_string()));
        }
        _ => trail.waits_for_approval(),
    }
    Ok((token, id))
}

/// Tells the hooks of a token that was minted a moment ago.
async fn tell(
    request: RequestContext<'_>,
    happening: Happening,
    id: &TokenId,
) -> Result<(), Refusal> {
    let RequestContext { service, context, .. } = request;
    let host = request.host();
    let Some(known) = service.store.known(context, id).await? else {
        return Err(HostFailure("the token that was minted").into());
    };
    let data = Reviewed::new(id, &known, host.now());
    let (issuer, data) = (&service.config.issuer, as_json(&data)?);
    let notice = Notice::new(host, issuer, happening, &id.to_string(), &data, &data)?;
    let announced = service.notifier.announce(context, notice).await?;
    service.notifier.note(host, announced.has_happened());
    Ok(())
}

/// Refuses a mint whose context lacks a member that the operator requires.
fn require_context(rules: &Rules, context: &Value) -> Result<(), Refusal> {
    match rules.missing_context(context) {
        None => Ok(()),
        Some(name) => Err(Refusal::access_denied("required_context", "")
            .telling(format!("context must have {name}, a string that is not empty"))),
    }
}

/// Refuses a user whom the operator protects from impersonation.
fn protect(rules: &Rules, user_id: &str) -> Result<(), Refusal> {
    match rules.protects(user_id) {
        false => Ok(()),
        true => Err(Refusal::access_denied("protected_user", "this user must not be impersonated")),
    }
}

/// Asks the operator's function for bounds. Bounds that no exchange could meet are a failure of the
/// function.
fn authorize(
    authorizer: &Authorizer,
    host: &dyn Host,
    offer: &Offer<'_>,
    input: &AuthorizerInput<'_>,
) -> Result<Bounds, Refusal> {
    let narrower = authorizer.run(input, &mut |line| host.debug(&format!("console: {line}")));
    let checked = narrower.and_then(|bounds| {
        bounds.check(offer, input.user_id)?;
        Ok(bounds)
    });
    checked.map_err(|error| {
        let is_denial = matches!(
            error,
            NotAuthorized::Script(ClaimsError::Denied(_)) | NotAuthorized::NeedsPeople
        );
        if !is_denial {
            host.warn(&format!("authorize_subject_token: {error}"));
        }
        error.into()
    })
}

/// A user, as the identity gateway knows them.
#[derive(Default)]
struct LookedUp {
    /// The canonical id, if the configuration names the member that has it.
    id: Option<String>,
    /// The gateway's JSON about the user; `null` if nothing reads it, or there is none.
    description: Value,
}

/// Asks the identity gateway, with the caller's token, if the user exists.
async fn look_up(
    request: RequestContext<'_>,
    lookup: &UserLookup,
    user_id: &str,
) -> Result<LookedUp, Refusal> {
    let RequestContext { service, context, head, .. } = request;
    let not_found = || {
        Refusal::new(404, "user_not_found", "user_not_found", "there is no user with this userId")
    };
    let authorization =
        head.authorization.as_deref().and_then(|value| std::str::from_utf8(value).ok());
    let call = lookup.call(user_id, authorization.unwrap_or_default()).ok_or_else(not_found)?;
    let answer = ask(context, Upstream::UserLookup, call).await?;
    match answer.status {
        _ if answer.says_yes() => {
            let member = lookup.user_id_member.as_deref();
            let describes = service.authorizer.is_some() && answer.status == 200;
            // A success without a body says that the user exists, and nothing else.
            if member.is_none() && !describes {
                return Ok(LookedUp::default());
            }
            let Strict(description) = answer.json(request.host())?;
            let Some(member) = member else { return Ok(LookedUp { id: None, description }) };
            let id = description.get(member).and_then(Value::as_str);
            match id.filter(|id| is_user_id(id)).map(str::to_owned) {
                Some(id) => Ok(LookedUp { id: Some(id), description }),
                None => Err(answer.malformed(request.host()).into()),
            }
        }
        404 => Err(not_found()),
        401 | 403 => Err(Refusal::user_lookup_refused()),
        _ => Err(answer.unexpected(request.host()).into()),
    }
}

#[cfg(test)]
mod tests;
