//! A request on the host of a browser session: whose session it is, which page has caused it, and
//! what the application sees of it.

use super::claims::Claims;
use super::streams::Watched;
use crate::browser_session::SessionFields;
use crate::config::GuardSessions;
use crate::http_stream::HttpRequest;

/// The reason why a request does not belong to the session of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOfSession {
    /// The access token is that of another session, or of no impersonation.
    AnotherToken,
    /// A page of another host has caused the request, or may have.
    AnotherOrigin,
}

/// The session of a request's host.
pub(super) struct HostOfSession<'g> {
    domain: &'g str,
    fields: SessionFields,
}

impl<'g> HostOfSession<'g> {
    pub(super) fn read(sessions: &'g GuardSessions, request: &dyn HttpRequest) -> Self {
        let mut fields = SessionFields::default();
        request.visit_request_headers(&mut |name, value| fields.see(name, value));
        Self { domain: &sessions.domain, fields }
    }

    /// Checks that the access token is the session's. A cookie of one session is worth nothing at
    /// the host of another.
    pub(super) fn check_token(&self, claims: &Claims<'_>) -> Result<(), NotOfSession> {
        match self.fields.label(self.domain) {
            Some(label) if label == claims.id => Ok(()),
            _ => Err(NotOfSession::AnotherToken),
        }
    }

    /// Checks that a page of this host has caused the request.
    pub(super) fn check_origin(&self, watched: &Watched) -> Result<(), NotOfSession> {
        match self.fields.is_same_origin(watched.method()) {
            true => Ok(()),
            false => Err(NotOfSession::AnotherOrigin),
        }
    }

    /// Takes the access token out of the cookies that the application sees.
    pub(super) fn hide_token(&self, request: &dyn HttpRequest) {
        let Some(others) = self.fields.cookies_of_application() else { return };
        request.remove_request_header("cookie");
        if !others.is_empty() {
            request.set_request_header("cookie", &others);
        }
    }
}
