//! The recipient of an access token: the client, or a browser. The token of a browser session is in
//! the cookie of the session's host, and nowhere else.

use super::refusal::Refusal;
use crate::browser_session::LONGEST_TOKEN;
use crate::config::Config;

/// The recipient of an access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    /// The client that exchanges the subject token.
    Client,
    /// A browser, which keeps the access token in a cookie.
    Browser,
}

impl Recipient {
    /// Refuses the resource of browser sessions to clients, and all others to browsers.
    pub(super) fn check_resource(self, config: &Config, indicator: &str) -> Result<(), Refusal> {
        let sessions = config.browser_sessions.as_ref();
        let is_of_sessions = sessions.is_some_and(|sessions| sessions.resource == indicator);
        match (self, is_of_sessions) {
            (Self::Client, false) | (Self::Browser, true) => Ok(()),
            (Self::Client, true) => {
                let told = "this resource is for browser sessions alone";
                Err(Refusal::invalid_target("resource_of_sessions", told))
            }
            (Self::Browser, false) => {
                let told = "a browser session cannot be for this resource";
                Err(Refusal::invalid_target("resource_of_no_session", told))
            }
        }
    }

    /// Refuses an access token that does not fit into a cookie.
    pub(super) fn check_size(self, access_token: &str) -> Result<(), Refusal> {
        if self == Self::Browser && access_token.len() > LONGEST_TOKEN {
            let told =
                "the access token is too long for a cookie: it needs fewer or shorter claims";
            return Err(Refusal::invalid_request("token_too_long", told));
        }
        Ok(())
    }
}
