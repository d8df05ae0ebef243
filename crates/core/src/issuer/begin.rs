//! From a request whose body is known to the endpoint that answers it.

use std::rc::Rc;

use super::answer::{Answer, Outcome};
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::routes::Route;
use super::service::Service;
use super::{cancel, exchange, introspect, list, mint, revoke, revoke_token};
use crate::audit::{Operation, Trail};
use crate::config::{DocumentSource, ForeignSubjectTokens};
use crate::host::Host;
use crate::media_type;
use crate::oauth::form::{Looks, looks_like_exchange, values};
use crate::step::{Context, Response, Step, Task};
use crate::store;

/// What becomes of a request once its body is known.
pub enum Begun {
    /// Not ours: it goes on byte for byte.
    PassThrough,
    /// It goes on, as a `GET` without [`PARTIAL_HEADERS`](super::PARTIAL_HEADERS); to the document that comes
    /// back ours is added.
    Merge(Route, Option<Vec<u8>>),
    /// Ours, and answered at once.
    Answer(Answer),
    /// Ours, and somebody is accountable for it.
    Endpoint(Step<Outcome<Answer>>, Trail),
}

/// Begins to answer a request whose body is known, as far as its route needs it.
pub fn begin(
    service: &Rc<Service>,
    host: Rc<dyn Host>,
    route: Route,
    head: Head,
    body: Body,
) -> Begun {
    let shared = Rc::clone(service);
    match route {
        Route::Token if !route.needs_body(&head) || !is_ours(service, &head, &body) => {
            Begun::PassThrough
        }
        Route::Token => {
            endpoint(host, Operation::Exchange, head, |context, trail, head| async move {
                exchange::exchange(&shared, &context, &trail, head, body).await
            })
        }
        Route::SubjectTokens => {
            endpoint(host, Operation::Mint, head, |context, trail, head| async move {
                mint::mint(&shared, &context, &trail, head, body).await
            })
        }
        Route::SubjectToken => {
            endpoint(host, Operation::Cancel, head, |context, trail, head| async move {
                cancel::cancel(&shared, &context, &trail, head).await
            })
        }
        Route::Impersonations => {
            endpoint(host, Operation::List, head, |context, trail, head| async move {
                list::list(&shared, &context, &trail, head).await
            })
        }
        Route::Impersonation => {
            endpoint(host, Operation::Revoke, head, |context, trail, head| async move {
                revoke::revoke_one(&shared, &context, &trail, head).await
            })
        }
        Route::Revocations => {
            endpoint(host, Operation::Revoke, head, |context, trail, head| async move {
                revoke::revoke_many(&shared, &context, &trail, head, body).await
            })
        }
        Route::TokenRevocation | Route::TokenIntrospection
            if !route.needs_body(&head) || !names_our_token(service, &head, &body) =>
        {
            Begun::PassThrough
        }
        Route::TokenRevocation => {
            endpoint(host, Operation::Revoke, head, |context, trail, head| async move {
                revoke_token::revoke_token(&shared, &context, &trail, head, body).await
            })
        }
        Route::TokenIntrospection => {
            endpoint(host, Operation::Introspect, head, |context, trail, head| async move {
                introspect::introspect(&shared, &context, &trail, head, body).await
            })
        }
        Route::MethodNotAllowed(operation, allowed) => {
            endpoint(host, operation, head, move |_, _, _| async move {
                let refusal = Refusal::new(405, "invalid_request", "method_not_allowed", "");
                let refusal = refusal.telling(format!("only {allowed} is allowed here"));
                Err::<Response, _>(refusal.allowing(allowed))
            })
        }
        Route::Jwks | Route::Discovery => match service.config.documents {
            DocumentSource::Alone => {
                let document = service.documents.alone(route, head.if_none_match.as_deref());
                Begun::Answer(Answer::document(document))
            }
            DocumentSource::Merged => Begun::Merge(route, head.if_none_match),
        },
    }
}

fn endpoint<F, R>(
    host: Rc<dyn Host>,
    operation: Operation,
    head: Head,
    endpoint: impl FnOnce(Context, Trail, Head) -> F + 'static,
) -> Begun
where
    F: Future<Output = Result<R, Refusal>> + 'static,
    R: Into<Outcome<Response>>,
{
    let trail = Trail::new(operation, head.request_id.clone());
    let step = Task::start(host, head.traceparent.clone(), |context| {
        let trail = trail.clone();
        async move {
            let outcome = match endpoint(context, trail.clone(), head).await.map(Into::into) {
                Ok(Outcome::PassThrough) => return Outcome::PassThrough,
                Ok(Outcome::Answer(response)) => Ok(response),
                Err(refusal) => Err(refusal),
            };
            Outcome::Answer(Answer::new(outcome, &trail))
        }
    });
    Begun::Endpoint(step, trail)
}

/// Whether a form on the token endpoint is for us. What is too long to be read whole could be anything: where
/// foreign tokens are refused, nothing goes on that was not looked at.
fn is_ours(service: &Service, head: &Head, body: &Body) -> bool {
    // What it says cannot be read here, and perhaps behind us: it is ours, to refuse it.
    if !media_type::is_ascii_based(&head.content_type) {
        return true;
    }
    let refuse = service.config.foreign_subject_tokens == ForeignSubjectTokens::Refuse;
    match looks_like_exchange(body.bytes(), store::PREFIX) {
        Looks::LikeOurExchange => true,
        Looks::LikeForeignExchange => refuse,
        Looks::LikeAnotherGrant => refuse && matches!(body, Body::TooLong(_)),
    }
}

/// Returns true if a form may name a token of ours, as far as that shows without verifying a signature.
/// A form that is too long to be read whole, or in a charset that the filter does not read, may name one
/// too: the filter takes such a form, to refuse it.
fn names_our_token(service: &Service, head: &Head, body: &Body) -> bool {
    if !media_type::is_ascii_based(&head.content_type) || matches!(body, Body::TooLong(_)) {
        return true;
    }
    values(body.bytes(), "token").iter().any(|token| {
        token.starts_with(store::PREFIX.as_bytes())
            || std::str::from_utf8(token)
                .is_ok_and(|token| service.own_tokens.may_have_issued(token))
    })
}
