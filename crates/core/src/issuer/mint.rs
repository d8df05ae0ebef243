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
use crate::step::{Context, Response};
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
    let verified = verify_presented(request, &service.callers).await?;
    let caller = verified.caller().unwrap_or_default().to_owned();
    trail.note(|facts| facts.caller = Some(caller.clone()));

    let max_context_bytes = service.config.subject_tokens.max_context_bytes;
    let request = MintRequest::read(head, &body, max_context_bytes)?;
    let MintRequest { mut grant, context: given_context, mut bounds, breaks_glass } = request;
    let note_bounds = |bounds: &Bounds| {
        let bounds = Some(bounds.clone()).filter(|bounds| !bounds.is_empty());
        trail.note(|facts| facts.bounds = bounds);
    };
    note_bounds(&bounds);
    trail.note(|facts| {
        facts.user_id = Some(grant.user_id.clone());
        facts.context = service.audited(&grant.context);
    });
    let mut offer = Offer::of(&service.config, !service.actors.is_empty());
    let rules = &service.config.subject_tokens.rules;
    let break_glass = breaks_glass.then(|| break_glass(&service.config)).transpose()?;
    offer.lifetime =
        lifetime(&service.config, &needs(service, &bounds, &grant.user_id, breaks_glass));
    bounds.check(&offer, &grant.user_id)?;
    require_context(rules, &given_context)?;
    if let Some(break_glass) = break_glass {
        require_context(&break_glass.rules, &given_context)?;
    }
    protect(rules, &grant.user_id)?;
    let minter = service.mints.as_ref().map(|mints| (mints, mints.minter(&caller)));
    // The limit is checked before the filter calls out for the caller. The mint is counted once it
    // is granted.
    let calls_out = service.config.subject_tokens.user_lookup.is_some()
        || service.config.decision_point.is_some()
        || service.authorizer.is_some();
    if let Some((mints, minter)) = minter.as_ref().filter(|_| calls_out) {
        mints.look(context.host(), minter)?;
    }

    let mut user = Value::Null;
    if let Some(lookup) = &service.config.subject_tokens.user_lookup {
        let describe = service.authorizer.is_some();
        let user_id;
        (user, user_id) = look_up(lookup, context, head, &grant.user_id, describe).await?;
        if let Some(user_id) = user_id.filter(|user_id| *user_id != grant.user_id) {
            trail.note(|facts| facts.user_id = Some(user_id.clone()));
            protect(rules, &user_id)?;
            let needs = needs(service, &bounds, &user_id, breaks_glass);
            offer.lifetime = lifetime(&service.config, &needs);
            bounds.check(&offer, &user_id)?;
            grant.user_id = user_id;
        }
    }

    if let Some(decision_point) = &service.config.decision_point {
        let question = Question {
            caller: &caller,
            user_id: &grant.user_id,
            context: &given_context,
            bounds: &bounds,
            breaks_glass,
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
            user_id: &grant.user_id,
            user: &user,
            context: &grant.context,
            bounds: &bounds,
            breaks_glass,
        };
        let narrower = authorize(authorizer, context.host(), &offer, &input)?;
        bounds = bounds.narrowed_by(narrower).map_err(Refusal::leaves_nothing)?;
        bounds.check(&offer, &grant.user_id).map_err(Refusal::leaves_nothing)?;
        note_bounds(&bounds);
    }

    // If the caller has left, no one could use the token.
    context.still_wanted().await;
    if let Some((mints, minter)) = &minter {
        mints.count(context.host(), minter)?;
    }
    let now = context.host().now();
    let needs = needs(service, &bounds, &grant.user_id, breaks_glass);
    let lifetime = bounds.lifetime(lifetime(&service.config, &needs));
    let mint = Mint { caller, request_id: trail.request_id(), at_millis: now.millis(), bounds };
    let expires_at = now.after(lifetime);
    let approval = (!needs.needs_nobody()).then_some("pending");
    let (token, id) = if needs.needs_nobody() && !breaks_glass {
        service.store.mint(context, mint, grant, expires_at).await?
    } else {
        let subject = verified.subject.clone().filter(|subject| *subject != mint.caller);
        let asked = Asked { mint, grant, expires_at, needs, minted_by: subject };
        mint_with_people(service, context, trail, asked).await?
    };
    let id = id.to_string();
    trail.note(|facts| facts.subject_token_id = Some(id.clone()));

    let (subject_token, expires_in) = (token.reveal(), lifetime.as_secs());
    let body = MintResponse { subject_token, expires_in, approval };
    let mut response = secret_json(201, &body);
    response.headers.push(("location", format!("{}/{id}", service.config.paths.subject_tokens)));
    Ok(response)
}

/// The decisions that a subject token needs before it can be exchanged.
struct Needs {
    approvals: u8,
    consent: bool,
}

impl Needs {
    const fn needs_nobody(&self) -> bool {
        self.approvals == 0 && !self.consent
    }
}

/// Returns the decisions that the operator, the mint and the operator's function ask for. Each of
/// them can only add. A mint that breaks the glass needs none.
fn needs(service: &Service, bounds: &Bounds, user_id: &str, breaks_glass: bool) -> Needs {
    match &service.config.approvals {
        Some(configured) if !breaks_glass => {
            let (approvals, consent) = bounds.asks_for();
            Needs { approvals: configured.required_for(user_id).max(approvals), consent }
        }
        _ => Needs { approvals: 0, consent: false },
    }
}

/// Returns how long a subject token with these needs can be exchanged.
fn lifetime(config: &Config, needs: &Needs) -> Duration {
    match &config.approvals {
        Some(approvals) if !needs.needs_nobody() => approvals.lifetime,
        _ => config.subject_tokens.lifetime,
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
    needs: Needs,
    /// The subject of the caller's access token, if that is not the caller.
    minted_by: Option<String>,
}

/// Mints a token that waits for decisions, or one that goes without them. The required hooks are
/// told before anybody holds the token. If they cannot be told, the token is taken back.
async fn mint_with_people(
    service: &Service,
    context: &Context,
    trail: &Trail,
    asked: Asked,
) -> Result<(SubjectToken, TokenId), Refusal> {
    let Asked { mint, grant, expires_at, needs, minted_by } = asked;
    let host = context.host();
    let store = &service.store;
    let (happening, minted) = if needs.needs_nobody() {
        (Happening::BreakGlassUsed, store.mint(context, mint, grant, expires_at).await?)
    } else {
        trail.note(|facts| {
            facts.approvals_needed = Some(needs.approvals);
            facts.consent_needed = needs.consent;
        });
        let review = Review::needing(needs.approvals, needs.consent, minted_by);
        let minted = store.mint_for_review(context, mint, grant, review, expires_at).await?;
        (Happening::ApprovalRequested, minted)
    };
    let (token, id) = minted;
    if service.notifier.wants(happening)
        && let Err(refusal) = tell(service, context, happening, &id).await
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
    service: &Service,
    context: &Context,
    happening: Happening,
    id: &TokenId,
) -> Result<(), Refusal> {
    let host = context.host();
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

/// Asks the identity gateway, with the caller's token, if the user exists. Returns the gateway's
/// description of the user if `describe`, and the user's canonical id if the configuration names
/// the member that has it.
async fn look_up(
    lookup: &UserLookup,
    context: &Context,
    head: &Head,
    user_id: &str,
    describe: bool,
) -> Result<(Value, Option<String>), Refusal> {
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
            // A success without a body says that the user exists, and nothing else.
            if member.is_none() && !(describe && answer.status == 200) {
                return Ok((Value::Null, None));
            }
            let Strict(user) = answer.json(context.host())?;
            let Some(member) = member else { return Ok((user, None)) };
            match user.get(member).and_then(Value::as_str).filter(|name| is_user_id(name)) {
                Some(name) => {
                    let name = name.to_owned();
                    Ok((user, Some(name)))
                }
                None => Err(answer.malformed(context.host()).into()),
            }
        }
        404 => Err(not_found()),
        401 | 403 => Err(Refusal::user_lookup_refused()),
        _ => Err(answer.unexpected(context.host()).into()),
    }
}

#[cfg(test)]
mod tests;
