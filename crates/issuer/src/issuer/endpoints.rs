//! The table of endpoints. A row has all that is particular to an endpoint: its path, its methods,
//! the body that it reads, its operation in the audit log, and the function that answers.
//!
//! Routing, refusals of other methods, the paths that `check` looks for, and the comparison with
//! docs/openapi.yaml follow from the rows.
//!
//! Paths are compared whole and byte by byte. Another spelling of a path is another path, here as
//! in Envoy's own routes.

use std::ops::Deref;
use std::pin::Pin;

use super::answer::Outcome;
use super::documents::Document;
use super::ours::{is_our_exchange, names_our_token};
use super::page::banner;
use super::refusal::Refusal;
use super::request::{Body, Head};
use super::request_context::RequestContext;
use super::service::Service;
use super::{
    approvals, browser_session, cancel, exchange, introspect, list, logout, mint, revoke,
    revoke_token, security_event, subject_token,
};
use crate::audit::Operation;
use crate::config::Paths;
use crate::media_type;
use crate::step::Response;

/// A function that answers requests to an endpoint.
pub(super) type Handler = for<'r> fn(RequestContext<'r>, Body) -> Answering<'r>;

type Answering<'r> = Pin<Box<dyn Future<Output = Result<Outcome<Response>, Refusal>> + 'r>>;

/// A function that decides whether a form is the filter's.
pub(super) type IsOurs = fn(&Service, &Head, &Body) -> bool;

/// A function that shows a page; `None` if the configuration has none.
pub(super) type Show = fn(&Service, &Head) -> Option<Response>;

/// A row of the table.
struct Row {
    /// The configured path, and what follows it. Without a path the endpoint is not the filter's.
    path: (fn(&Paths) -> Option<&str>, Rest),
    /// The methods that the filter answers.
    methods: &'static [&'static str],
    answered_by: AnsweredBy,
    purpose: Purpose,
}

/// The end of a path, behind a configured one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// These characters.
    Fixed(&'static str),
    /// A slash and one segment.
    Id,
}

/// The part of the filter that answers at an endpoint, and the requests that it answers.
#[derive(Clone, Copy)]
pub(super) enum AnsweredBy {
    /// A handler answers. The path is the filter's alone, and other methods are refused.
    Handler(Reads, Operation, Handler),
    /// A handler answers forms that are the filter's. The identity gateway has the same endpoint:
    /// other forms, other bodies and other methods go on to it.
    FormHandler(IsOurs, Operation, Handler),
    /// A public document answers. The identity gateway has the same document: other methods go on
    /// to it.
    Document(Document),
    /// A page answers, or the script of one. The path is the filter's alone, and other methods are
    /// refused.
    Page(Show),
}

/// The part of a request that a handler reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// The head.
    Head,
    /// The head, and a body of JSON.
    Json,
    /// The head, and a body of another kind.
    Body,
}

/// The use of an endpoint, which is lost if no request reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The endpoint issues tokens.
    Issue,
    /// The endpoint shows or ends impersonations.
    Oversee,
    /// The endpoint publishes a document.
    Publish,
    /// The endpoint is part of a browser session. It is on the hosts of sessions alone.
    Browse,
}

/// Makes a [`Handler`] of an `async fn`. After `head only`, the function takes no body.
macro_rules! handler {
    (head only $function:path) => {
        |request, _| Box::pin(async move { Ok($function(request).await?.into()) })
    };
    ($function:path) => {
        |request, body| Box::pin(async move { Ok($function(request, body).await?.into()) })
    };
}

/// Declares [`Endpoint`] from the rows.
macro_rules! endpoints {
    ($($(#[$meaning:meta])+ $name:ident = $row:expr;)+) => {
        /// An endpoint of the filter: a row of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Endpoint {
            $($(#[$meaning])+ $name,)+
        }

        impl Endpoint {
            /// All endpoints, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$name => const { &$row },)+
                }
            }
        }
    };
}

endpoints! {
    /// Mints a subject token.
    SubjectTokens = Row {
        path: (|paths| Some(&paths.subject_tokens), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(Reads::Json, Operation::Mint, handler!(mint::mint)),
        purpose: Purpose::Issue,
    };
    /// Takes back the subject token that the path names.
    SubjectToken = Row {
        path: (|paths| Some(&paths.subject_tokens), Rest::Id),
        methods: &["DELETE"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::Cancel,
            handler!(head only cancel::cancel),
        ),
        purpose: Purpose::Oversee,
    };
    /// Shows the subject token that the path names, where tokens can wait for a decision.
    SubjectTokenState = Row {
        path: (
            |paths| paths.approvals.as_ref().map(|_| paths.subject_tokens.as_str()),
            Rest::Id,
        ),
        methods: &["GET"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::Show,
            handler!(head only subject_token::show),
        ),
        purpose: Purpose::Oversee,
    };
    /// Lists what waits for a decision.
    Approvals = Row {
        path: (|paths| paths.approvals.as_deref(), Rest::Fixed("")),
        methods: &["GET"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::ListApprovals,
            handler!(head only approvals::list),
        ),
        purpose: Purpose::Oversee,
    };
    /// Decides about the subject token that the path names.
    Approval = Row {
        path: (|paths| paths.approvals.as_deref(), Rest::Id),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Json,
            Operation::Decide,
            handler!(approvals::decide),
        ),
        purpose: Purpose::Oversee,
    };
    /// Lists impersonations.
    Impersonations = Row {
        path: (|paths| Some(&paths.impersonations), Rest::Fixed("")),
        methods: &["GET"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::List,
            handler!(head only list::list),
        ),
        purpose: Purpose::Oversee,
    };
    /// Ends the impersonation that the path names.
    Impersonation = Row {
        path: (|paths| Some(&paths.impersonations), Rest::Id),
        methods: &["DELETE"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::Revoke,
            handler!(head only revoke::revoke_one),
        ),
        purpose: Purpose::Oversee,
    };
    /// Ends all impersonations that have the named members.
    Revocations = Row {
        path: (|paths| Some(&paths.impersonations), Rest::Fixed("/revocations")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Json,
            Operation::Revoke,
            handler!(revoke::revoke_many),
        ),
        purpose: Purpose::Oversee,
    };
    /// Receives logout tokens.
    BackChannelLogout = Row {
        path: (|paths| paths.back_channel_logout.as_deref(), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Body,
            Operation::Event,
            handler!(logout::logout),
        ),
        purpose: Purpose::Oversee,
    };
    /// Receives security events.
    SecurityEvents = Row {
        path: (|paths| paths.security_events.as_deref(), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Body,
            Operation::Event,
            handler!(security_event::security_event),
        ),
        purpose: Purpose::Oversee,
    };
    /// Shows live impersonations to people.
    Console = Row {
        path: (|paths| paths.console.as_deref(), Rest::Fixed("")),
        methods: &["GET", "HEAD"],
        answered_by: AnsweredBy::Page(|service, head| Some(service.page.as_ref()?.answer(head))),
        purpose: Purpose::Oversee,
    };
    /// Begins a browser session.
    SessionBegin = Row {
        path: (|paths| paths.browser_sessions, Rest::Fixed("/begin")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Body,
            Operation::Exchange,
            handler!(browser_session::begin),
        ),
        purpose: Purpose::Browse,
    };
    /// Shows a browser session.
    SessionMe = Row {
        path: (|paths| paths.browser_sessions, Rest::Fixed("/me")),
        methods: &["GET"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::ShowSession,
            handler!(head only browser_session::me),
        ),
        purpose: Purpose::Browse,
    };
    /// Ends a browser session.
    SessionEnd = Row {
        path: (|paths| paths.browser_sessions, Rest::Fixed("/end")),
        methods: &["POST"],
        answered_by: AnsweredBy::Handler(
            Reads::Head,
            Operation::Revoke,
            handler!(head only browser_session::end),
        ),
        purpose: Purpose::Browse,
    };
    /// Serves the banner of browser sessions.
    SessionBanner = Row {
        path: (|paths| paths.browser_sessions, Rest::Fixed("/banner.js")),
        methods: &["GET", "HEAD"],
        answered_by: AnsweredBy::Page(|service, head| Some(banner(service.banner?, head))),
        purpose: Purpose::Browse,
    };
    /// Exchanges a subject token.
    Token = Row {
        path: (|paths| Some(&paths.token), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::FormHandler(
            is_our_exchange,
            Operation::Exchange,
            handler!(exchange::exchange),
        ),
        purpose: Purpose::Issue,
    };
    /// Revokes a token of the filter (RFC 7009).
    TokenRevocation = Row {
        path: (|paths| Some(&paths.revocation), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::FormHandler(
            names_our_token,
            Operation::Revoke,
            handler!(revoke_token::revoke_token),
        ),
        purpose: Purpose::Oversee,
    };
    /// Introspects a token of the filter (RFC 7662).
    TokenIntrospection = Row {
        path: (|paths| Some(&paths.introspection), Rest::Fixed("")),
        methods: &["POST"],
        answered_by: AnsweredBy::FormHandler(
            names_our_token,
            Operation::Introspect,
            handler!(introspect::introspect),
        ),
        purpose: Purpose::Oversee,
    };
    /// Publishes the key set.
    Jwks = Row {
        path: (|paths| Some(&paths.jwks), Rest::Fixed("")),
        methods: &["GET", "HEAD"],
        answered_by: AnsweredBy::Document(Document::Jwks),
        purpose: Purpose::Publish,
    };
    /// Publishes the provider's metadata.
    Discovery = Row {
        path: (|paths| Some(&paths.discovery), Rest::Fixed("")),
        methods: &["GET", "HEAD"],
        answered_by: AnsweredBy::Document(Document::Discovery),
        purpose: Purpose::Publish,
    };
    /// Publishes the provider's metadata where RFC 8414 has them.
    OauthDiscovery = Row {
        path: (|paths| paths.oauth_discovery.as_deref(), Rest::Fixed("")),
        methods: &["GET", "HEAD"],
        answered_by: AnsweredBy::Document(Document::OauthDiscovery),
        purpose: Purpose::Publish,
    };
}

impl Endpoint {
    /// Finds the endpoint at a path; `None` if the path is not the filter's. A fixed path goes
    /// before one with an id.
    fn at(paths: &Paths, path: &[u8]) -> Option<Self> {
        let mut with_id = None;
        for endpoint in Self::ALL {
            let (configured, rest) = endpoint.row().path;
            let Some(configured) = configured(paths) else { continue };
            let Some(found) = path.strip_prefix(configured.as_bytes()) else { continue };
            match rest {
                Rest::Fixed(fixed) if found == fixed.as_bytes() => return Some(*endpoint),
                Rest::Id if is_one_segment(found) => with_id = Some(*endpoint),
                _ => {}
            }
        }
        with_id
    }

    /// The endpoints at the same path, each with other methods.
    fn at_same_path(self, paths: &Paths) -> impl Iterator<Item = Self> {
        let place = |one: Self| (one.row().path.0(paths), one.row().path.1);
        Self::ALL.iter().copied().filter(move |other| place(*other) == place(self))
    }

    /// The endpoint's path; `None` if the configuration has none. `{id}` stands for a segment.
    pub fn path(self, paths: &Paths) -> Option<String> {
        let (configured, rest) = self.row().path;
        let rest = match rest {
            Rest::Fixed(fixed) => fixed,
            Rest::Id => "/{id}",
        };
        Some(format!("{}{rest}", configured(paths)?))
    }

    /// Returns the use of the endpoint.
    pub const fn purpose(self) -> Purpose {
        self.row().purpose
    }

    /// The methods at the endpoint's path, for the header `Allow` (RFC 9110 §10.2.1).
    pub(super) fn allowed_methods(self, paths: &Paths) -> String {
        let methods = self.at_same_path(paths).flat_map(|endpoint| endpoint.row().methods);
        methods.copied().collect::<Vec<_>>().join(", ")
    }

    pub(super) const fn answered_by(self) -> AnsweredBy {
        self.row().answered_by
    }

    /// Returns true if the endpoint is on the hosts of browser sessions alone.
    const fn is_of_session(self) -> bool {
        matches!(self.purpose(), Purpose::Browse)
    }

    /// Returns true if the endpoint publishes a document.
    pub(crate) const fn is_document(self) -> bool {
        matches!(self.answered_by(), AnsweredBy::Document(_))
    }

    /// Returns true if the endpoint must read the body before it can answer. A body that is no form
    /// is not held back where only a form can be the filter's.
    pub(super) fn needs_body(self, head: &Head) -> bool {
        match self.answered_by() {
            AnsweredBy::Handler(reads, ..) => reads != Reads::Head,
            AnsweredBy::FormHandler(..) => {
                media_type::is(&head.content_type, "application/x-www-form-urlencoded")
            }
            AnsweredBy::Document(_) | AnsweredBy::Page(_) => false,
        }
    }
}

/// Returns true if the end of a path is a slash and one segment.
fn is_one_segment(rest: &[u8]) -> bool {
    rest.strip_prefix(b"/").is_some_and(|id| !id.is_empty() && !id.contains(&b'/'))
}

/// The way of a request that is the filter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The endpoint answers.
    To(Endpoint),
    /// The path is this endpoint's, and no endpoint at the path has the method.
    MethodNotAllowed(Endpoint),
}

impl Route {
    /// Finds the way of a request; `None` if the request is not the filter's. The method is read
    /// only if the path is the filter's: most requests have another path.
    pub(crate) fn find(
        paths: &Paths,
        method: &impl Deref<Target: AsRef<[u8]>>,
        path: &[u8],
    ) -> Option<Self> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let at = Endpoint::at(paths, path)?;
        let method: &[u8] = (**method).as_ref();
        let has_method =
            |one: &Endpoint| one.row().methods.iter().any(|known| known.as_bytes() == method);
        match (at.at_same_path(paths).find(has_method), at.answered_by()) {
            (Some(endpoint), _) => Some(Self::To(endpoint)),
            // Envoy's CORS filter answers a preflight.
            (None, AnsweredBy::Handler(..)) if method == b"OPTIONS" && !at.is_of_session() => None,
            (None, AnsweredBy::Handler(..) | AnsweredBy::Page(_)) => {
                Some(Self::MethodNotAllowed(at))
            }
            (None, AnsweredBy::FormHandler(..) | AnsweredBy::Document(_)) => None,
        }
    }

    /// Returns true if the body must be read before the request can be answered.
    pub(crate) fn needs_body(self, head: &Head) -> bool {
        match self {
            Self::To(endpoint) => endpoint.needs_body(head),
            Self::MethodNotAllowed(_) => false,
        }
    }

    /// Returns true if the request is for a document.
    pub(crate) const fn is_to_document(self) -> bool {
        matches!(self, Self::To(endpoint) if endpoint.is_document())
    }

    /// Returns true if the request is for a page, or for the script of one.
    pub(crate) const fn is_to_page(self) -> bool {
        matches!(self, Self::To(endpoint) if matches!(endpoint.answered_by(), AnsweredBy::Page(_)))
    }

    /// Returns true if the endpoint is on the hosts of browser sessions alone.
    pub(crate) const fn is_of_session(self) -> bool {
        let (Self::To(endpoint) | Self::MethodNotAllowed(endpoint)) = self;
        endpoint.is_of_session()
    }
}

#[cfg(test)]
mod tests;
