//! The routes of contract section 1: what is ours, and what each of them does with a request.

mod documents;
mod exchange;
mod mint;
mod service;

use std::fmt;
use std::rc::Rc;

pub use documents::{Documents, PARTIAL_HEADERS, STALE_HEADERS, stays_beside};
pub use service::Service;

use crate::audit::Operation;
use crate::config::{DocumentSource, ForeignSubjectTokens};
use crate::host::Host;
use crate::media_type;
use crate::oauth::error::ErrorResponse;
use crate::oauth::form::{Looks, looks_like_exchange};
use crate::secret::redacted;
use crate::step::{Finished, Origin, Response, Step, Task};
use crate::store;

/// The most bytes of a request body that is ours.
pub const MAX_BODY: usize = 64 * 1024;

/// The paths that are ours, whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Paths {
    /// Where subject tokens are minted.
    pub subject_tokens: String,
    /// The token endpoint.
    pub token: String,
    /// The key set.
    pub jwks: String,
    /// The provider's metadata.
    pub discovery: String,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Mint a subject token; the whole body is needed.
    SubjectTokens,
    /// Perhaps an exchange: the body decides, if it is a form.
    Token,
    /// Our keys.
    Jwks,
    /// Our metadata.
    Discovery,
    /// Not a method of the subject token endpoint.
    MethodNotAllowed,
}

/// The head of a request, as far as it matters.
#[derive(Clone, Default)]
pub struct Head {
    /// Envoy's id of the request, and its place in a trace.
    pub origin: Origin,
    /// `authorization`, as it came.
    pub authorization: Option<Vec<u8>>,
    /// `content-type`, as it came.
    pub content_type: Option<Vec<u8>>,
    /// `if-none-match`, as it came.
    pub if_none_match: Option<Vec<u8>>,
}

/// A request body.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of one that is longer than [`MAX_BODY`].
    TooLong(Vec<u8>),
}

impl fmt::Debug for Head {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Head").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) = match self {
            Self::Whole(bytes) => ("Whole", bytes),
            Self::TooLong(bytes) => ("TooLong", bytes),
        };
        formatter.debug_tuple(name).field(&redacted(bytes)).finish()
    }
}

/// What becomes of a request once its body is known.
pub enum Begun {
    /// Not ours: it goes on byte for byte.
    PassThrough,
    /// It goes on, as a `GET` without [`PARTIAL_HEADERS`]; to the document that comes back ours is added.
    Merge(Route, Option<Vec<u8>>),
    /// Ours.
    Step(Step),
}

impl Paths {
    /// The paths below `base_path`.
    pub fn new(base_path: &str) -> Self {
        Self {
            subject_tokens: format!("{base_path}/api/subject-tokens"),
            token: format!("{base_path}/oidc/token"),
            jwks: format!("{base_path}/oidc/jwks"),
            discovery: format!("{base_path}/oidc/.well-known/openid-configuration"),
        }
    }

    /// Which route a request takes; `None` if it is not ours.
    pub fn route(&self, method: &[u8], path: &[u8]) -> Option<Route> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        if path == self.subject_tokens.as_bytes() {
            match method {
                b"POST" => Some(Route::SubjectTokens),
                // A CORS preflight belongs to Envoy's own filter.
                b"OPTIONS" => None,
                _ => Some(Route::MethodNotAllowed),
            }
        } else if path == self.token.as_bytes() {
            (method == b"POST").then_some(Route::Token)
        } else if !matches!(method, b"GET" | b"HEAD") {
            None
        } else if path == self.jwks.as_bytes() {
            Some(Route::Jwks)
        } else if path == self.discovery.as_bytes() {
            Some(Route::Discovery)
        } else {
            None
        }
    }
}

impl Route {
    /// Whether the body is needed before anything can be said. A token request that is no form is not
    /// ours and need not be held back.
    pub fn needs_body(self, head: &Head) -> bool {
        match self {
            Self::SubjectTokens => true,
            Self::Token => media_type::is(&head.content_type, "application/x-www-form-urlencoded"),
            Self::Jwks | Self::Discovery | Self::MethodNotAllowed => false,
        }
    }
}

impl Service {
    /// Begins to answer a request whose body is known, as far as its route needs it.
    pub fn begin(
        self: &Rc<Self>,
        host: Rc<dyn Host>,
        route: Route,
        head: Head,
        body: Body,
    ) -> Begun {
        let service = Rc::clone(self);
        let step = match route {
            Route::Token if !route.needs_body(&head) || !self.is_ours(&body) => {
                return Begun::PassThrough;
            }
            Route::Token => {
                Task::start(host, Operation::Exchange, head.origin.clone(), |context| {
                    exchange::exchange(service, context, head, body)
                })
            }
            Route::SubjectTokens => {
                Task::start(host, Operation::Mint, head.origin.clone(), |context| {
                    mint::mint(service, context, head, body)
                })
            }
            Route::MethodNotAllowed => {
                Task::start(host, Operation::Mint, head.origin, |_| mint::method_not_allowed())
            }
            Route::Jwks | Route::Discovery => match self.config.documents {
                DocumentSource::Alone => {
                    let document = self.documents.alone(route, head.if_none_match.as_deref());
                    Step::Done(Finished::document(document))
                }
                DocumentSource::Merged => return Begun::Merge(route, head.if_none_match),
            },
        };
        Begun::Step(step)
    }

    /// A context as the audit log gets it: not at all, unless the operator wants it, as it may hold
    /// personal data.
    fn audited(&self, context: &str) -> Option<serde_json::Value> {
        if self.config.audit_context { serde_json::from_str(context).ok() } else { None }
    }

    fn is_ours(&self, body: &Body) -> bool {
        let (Body::Whole(bytes) | Body::TooLong(bytes)) = body;
        match looks_like_exchange(bytes, store::PREFIX) {
            Looks::LikeOurExchange => true,
            Looks::LikeForeignExchange => {
                self.config.foreign_subject_tokens == ForeignSubjectTokens::Refuse
            }
            Looks::LikeAnotherGrant => false,
        }
    }
}

/// The token of an `Authorization: Bearer` header (RFC 6750 §2.1); `None` for anything else.
fn bearer_token(head: &Head) -> Option<&str> {
    let header = std::str::from_utf8(head.authorization.as_deref()?).ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty()).then_some(token)
}

/// The reason of a refusal that is an alarm: a spent subject token was presented again.
pub const REPLAYED: &str = "subject_token_spent";

/// The reason of a mint that found every slot taken.
pub const STORE_FULL: &str = "store_full";

/// The name that our challenges give the protection space.
const REALM: &str = "impersonation";

/// The answer to a body over [`MAX_BODY`].
fn body_too_long() -> ErrorResponse {
    ErrorResponse::new(413, "invalid_request", "the request body is longer than 64 KiB")
}

/// The answer when the store or the host failed.
fn temporarily_unavailable() -> ErrorResponse {
    ErrorResponse::new(503, "temporarily_unavailable", "try again in a moment")
}

/// A granted request: the answer, with the headers that every answer with a secret has.
fn secret_json(status: u16, body: Vec<u8>) -> Response {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("pragma", "no-cache".to_owned()),
    ];
    Response { status, headers, body }
}

#[cfg(test)]
mod tests;
