//! Decides if a form is the filter's, at an endpoint that the identity gateway has too. Every other
//! form goes on to the gateway byte for byte.

use super::request::{Body, Head};
use super::service::Service;
use crate::config::ForeignSubjectTokens;
use crate::media_type;
use crate::oauth::form::{Looks, looks_like_exchange, values};
use crate::state::store;

/// Returns true if a form at the token endpoint is the filter's. Where foreign subject tokens are
/// refused, a form that is too long to be read is refused as well: it could be an exchange.
pub(super) fn is_our_exchange(service: &Service, head: &Head, body: &Body) -> bool {
    // The filter cannot read such a charset, and the gateway perhaps can: the filter refuses it.
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

/// Returns true if a form may name a token of ours, as far as that shows without verifying a
/// signature. A form that is too long to be read whole, or in a charset that the filter does not
/// read, may name one too: the filter takes such a form, to refuse it.
pub(super) fn names_our_token(service: &Service, head: &Head, body: &Body) -> bool {
    if !media_type::is_ascii_based(&head.content_type) || matches!(body, Body::TooLong(_)) {
        return true;
    }
    values(body.bytes(), "token").iter().any(|token| {
        token.starts_with(store::PREFIX.as_bytes())
            || std::str::from_utf8(token)
                .is_ok_and(|token| service.own_tokens.may_have_issued(token))
    })
}
