//! Why a request is refused: one value for the caller, the operator, the metrics and the audit log.
//!
//! The caller reads an error code and what to change, and never which check of a credential failed.
//! The operator's log says what was wrong. Metrics and audit name the check by a word of low
//! cardinality. Each check of an endpoint makes its refusal at its own line, so that a reviewer can
//! compare what is checked with what a stranger is told. Errors of other modules become refusals
//! here, each in one place.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::browser_session::pages;
use crate::audit::Replay;
use crate::bearer::BearerError;
use crate::claims::{ClaimsError, NotAuthorized};
use crate::client::ClientAuthError;
use crate::dpop::ProofError;
use crate::host::HostFailure;
use crate::jose::SignError;
use crate::metrics;
use crate::notifications::Untold;
use crate::oauth::form::FormError;
use crate::policy::BoundsError;
use crate::state::mint_rate::NotCounted;
use crate::state::remote::RemoteFailure;
use crate::state::revocations::{NotRevoked, Unknown};
use crate::state::store::{NotDecided, NotStored, StoreFailure};
use crate::statement::StatementError;
use crate::step::Response;
use crate::upstream::UpstreamFailure;

/// The `realm` of our challenges (RFC 9110 §11.5).
const REALM: &str = "impersonation";

/// The header with the nonce for a client's next proof (RFC 9449 §8).
pub(super) const NONCE: &str = "dpop-nonce";

/// The description for every client whose authentication failed, whichever check it was.
const CLIENT_REFUSED: &str = "client authentication failed: a client that has a secret must send it in the \
     Authorization header (Basic), or in the form if it is configured with client_secret_post";

/// When a caller may try again, in seconds. A full table and a failed callout both pass quickly.
const RETRY_AFTER: &str = "1";

/// A header field.
type Header = (&'static str, Cow<'static, str>);

/// The header fields of a refusal, each name once.
#[derive(Debug, Default)]
struct Headers(Vec<Header>);

/// A refused request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: u16,
    error: &'static str,
    reason: &'static str,
    /// The `error_description`: ASCII without quotes or backslashes (RFC 6749 §5.2), and without
    /// secrets.
    told: Cow<'static, str>,
    /// The text for the operator's log; empty if it would repeat `told`.
    wrong: String,
    headers: Option<Box<Headers>>,
    counter: Option<&'static str>,
    alarm: Option<Box<Replay>>,
    readers: Readers,
}

/// The readers of a refusal, and so the form of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Clients of OAuth: JSON as in RFC 6749 §5.2.
    Clients,
    /// Transmitters of events: JSON as in RFC 8935 §2.3.
    Transmitters,
    /// People: a page.
    People,
}

impl Refusal {
    /// Refuses with a status, an `error` code, the name of the check, and the caller's description.
    pub(super) const fn new(
        status: u16,
        error: &'static str,
        reason: &'static str,
        told: &'static str,
    ) -> Self {
        Self {
            status,
            error,
            reason,
            told: Cow::Borrowed(told),
            wrong: String::new(),
            headers: None,
            counter: None,
            alarm: None,
            readers: Readers::Clients,
        }
    }

    /// Refuses with `invalid_request` (RFC 6749 §5.2, RFC 8693 §2.2.2).
    pub(super) const fn invalid_request(reason: &'static str, told: &'static str) -> Self {
        Self::new(400, "invalid_request", reason, told)
    }

    /// Refuses with `invalid_target` (RFC 8707 §2).
    pub(super) const fn invalid_target(reason: &'static str, told: &'static str) -> Self {
        Self::new(400, "invalid_target", reason, told)
    }

    /// Refuses with `invalid_scope` (RFC 6749 §5.2).
    pub(super) const fn invalid_scope(reason: &'static str, told: &'static str) -> Self {
        Self::new(400, "invalid_scope", reason, told)
    }

    /// Refuses a client that has not authenticated (RFC 6749 §5.2).
    fn invalid_client(reason: &'static str, told: &'static str) -> Self {
        Self::new(401, "invalid_client", reason, told)
            .challenged(&format!("Basic realm=\"{REALM}\", charset=\"UTF-8\""))
    }

    /// Refuses a mint that breaks a rule of the operator (RFC 6749 §4.1.2.1 has the code).
    pub(super) const fn access_denied(reason: &'static str, told: &'static str) -> Self {
        Self::new(403, "access_denied", reason, told)
    }

    /// Refuses a mint whose bounds have nothing in common with those that the operator's function
    /// returned.
    pub(super) fn leaves_nothing(error: BoundsError) -> Self {
        Self::access_denied("authorization_denied", "").telling(error.to_string())
    }

    /// Refuses a request that cannot be decided now. The same request may succeed in a moment.
    pub(super) fn temporarily_unavailable(reason: &'static str, wrong: impl fmt::Display) -> Self {
        Self::new(503, "temporarily_unavailable", reason, "try again in a moment").because(wrong)
    }

    /// Refuses a body that is longer than the limit.
    pub(super) const fn body_too_long() -> Self {
        let told = "the request body is longer than 64 KiB";
        Self::new(413, "invalid_request", "body_too_long", told)
    }

    /// Refuses an exchange whose spend has an unknown outcome. The client presents the token again,
    /// and learns whether it was spent.
    pub(super) fn spend_unknown(failure: RemoteFailure) -> Self {
        Self::temporarily_unavailable("spend_unknown", failure).counted(metrics::SPEND_UNKNOWN)
    }

    /// Refuses a request whose endpoint waits for something that never comes.
    pub(super) const fn stalled() -> Self {
        Self::new(500, "server_error", "stalled", "internal error")
    }

    /// Refuses a request about something that does not exist or is not this caller's. The caller
    /// cannot tell which.
    pub(super) const fn not_found(reason: &'static str, told: &'static str) -> Self {
        Self::new(404, "not_found", reason, told)
    }

    /// Refuses a bearer token that does not suffice for the endpoint (RFC 6750 §3).
    pub(super) fn bearer(error: &BearerError) -> Self {
        let reason = error.reason();
        match error {
            BearerError::Upstream(_) => Self::temporarily_unavailable(reason, ""),
            BearerError::InsufficientScope(scopes) => Self::new(
                403,
                "insufficient_scope",
                reason,
                "the access token lacks a required scope",
            )
            .challenged(&format!(
                "Bearer realm=\"{REALM}\", error=\"insufficient_scope\", scope=\"{}\"",
                scopes.join(" ")
            )),
            _ => {
                let told = "the access token is invalid or expired";
                Self::new(401, "invalid_token", reason, told).challenged(&format!(
                    "Bearer realm=\"{REALM}\", error=\"invalid_token\", error_description=\"{told}\""
                ))
            }
        }
        .because(format_args!("bearer refused: {error}"))
    }

    /// Refuses the proof of an exchange (RFC 9449 §5, §8).
    pub(super) fn proof(error: ProofError) -> Self {
        let reason = error.reason();
        match error {
            ProofError::NotRemembered(_) => Self::temporarily_unavailable(reason, ""),
            ProofError::Nonce => {
                let told = "put the nonce of the header DPoP-Nonce into the proof";
                Self::new(400, "use_dpop_nonce", reason, told)
            }
            ProofError::Missing => {
                let told = "a proof in the header DPoP is required";
                Self::new(400, "invalid_dpop_proof", reason, told)
            }
            _ => Self::new(400, "invalid_dpop_proof", reason, "the proof is invalid")
                .telling(format!("the proof is invalid: {error}")),
        }
        .because(format_args!("proof refused: {error}"))
    }

    /// Refuses the proof beside an access token (RFC 9449 §7.1, §9).
    pub(super) fn presented_proof(error: ProofError) -> Self {
        let refusal = match error {
            ProofError::AnotherKey => {
                let told = "the access token is not bound to the key of the proof";
                Self::new(401, "invalid_token", error.reason(), told)
            }
            _ => Self::proof(error),
        };
        Self { status: if refusal.status == 400 { 401 } else { refusal.status }, ..refusal }
            .because(format_args!("proof refused: {error}"))
    }

    /// Tells the client the nonce for its next proof.
    #[must_use]
    pub(super) fn offering(self, nonce: Option<String>) -> Self {
        match nonce {
            Some(nonce) => self.with((NONCE, nonce.into())),
            None => self,
        }
    }

    /// Asks for a proof of possession (RFC 9449 §7.1), if the refusal asks for credentials.
    #[must_use]
    pub(super) fn challenged_for_proof(self, algorithms: &str) -> Self {
        if self.status != 401 {
            return self;
        }
        let error = self.error;
        self.challenged(&format!(
            "DPoP realm=\"{REALM}\", error=\"{error}\", algs=\"{algorithms}\""
        ))
    }

    /// Refuses a request without a bearer token. The challenge has no error code, because the
    /// caller did not try to authenticate (RFC 6750 §3.1).
    pub(super) fn no_bearer() -> Self {
        let told = "a bearer access token is required";
        Self::new(401, "invalid_token", "bearer_missing", told)
            .challenged(&format!("Bearer realm=\"{REALM}\""))
    }

    /// Refuses a mint because the gateway does not let the caller look up the user.
    pub(super) fn user_lookup_refused() -> Self {
        let told = "the access token does not allow looking up this user";
        Self::new(403, "insufficient_scope", "user_lookup_refused", told)
            .challenged(&format!("Bearer realm=\"{REALM}\", error=\"insufficient_scope\""))
    }

    /// Refuses an actor token. Only the operator learns which check failed.
    pub(super) fn actor(error: &BearerError) -> Self {
        match error {
            BearerError::Upstream(_) => Self::temporarily_unavailable("callout_failed", ""),
            _ => Self::invalid_actor("actor_token"),
        }
        .because(format_args!("actor token refused: {error}"))
    }

    /// Refuses an actor who must sign in again, or in another way (RFC 9470).
    pub(super) const fn unmet_sign_in(reason: &'static str, told: &'static str) -> Self {
        Self::new(400, "unmet_authentication_requirements", reason, told)
    }

    /// Refuses an actor token with the same description for every check.
    pub(super) const fn invalid_actor(reason: &'static str) -> Self {
        let told = "the actor token is invalid, expired or lacks the openid scope";
        Self::invalid_request(reason, told)
    }

    /// Sets the text for the operator's log.
    #[must_use]
    pub(super) fn because(self, wrong: impl fmt::Display) -> Self {
        Self { wrong: wrong.to_string(), ..self }
    }

    /// Replaces the description for the caller.
    #[must_use]
    pub(super) fn telling(self, told: String) -> Self {
        Self { told: told.into(), ..self }
    }

    /// Moves another counter as well.
    #[must_use]
    pub(super) const fn counted(mut self, counter: &'static str) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Raises an alarm as well.
    #[must_use]
    pub(super) fn alarming(self, alarm: Replay) -> Self {
        Self { alarm: Some(Box::new(alarm)), ..self }
    }

    /// Lists the allowed methods (RFC 9110 §10.2.1).
    #[must_use]
    pub(super) fn allowing(self, methods: String) -> Self {
        self.with(("allow", methods.into()))
    }

    /// Records in the alarm that the impersonation was ended.
    pub(super) fn take_note_of_the_end(&mut self) {
        if let Some(alarm) = &mut self.alarm {
            alarm.revoked = true;
        }
    }

    /// Tells the caller when the same request may succeed, rounded up to whole seconds (RFC 9110
    /// §10.2.3).
    fn retried_after(self, left: Duration) -> Self {
        let seconds = left.as_millis().div_ceil(1000).max(1).to_string();
        self.with(("retry-after", seconds.into()))
    }

    fn challenged(self, challenge: &str) -> Self {
        self.with(("www-authenticate", challenge.to_owned().into()))
    }

    /// Sets a header field, in place of an earlier one with this name.
    fn with(mut self, header: Header) -> Self {
        let headers = &mut self.headers.get_or_insert_default().0;
        headers.retain(|(name, _)| *name != header.0);
        headers.push(header);
        self
    }

    /// Names the members of the body as RFC 8935 §2.3 does.
    #[must_use]
    pub(super) fn in_terms_of_events(self) -> Self {
        Self { readers: Readers::Transmitters, ..self }
    }

    /// Tells people, in a page.
    #[must_use]
    pub(super) fn in_terms_of_people(self) -> Self {
        Self { readers: Readers::People, ..self }
    }

    /// Turns a code of RFC 8935, which OAuth does not know, into `invalid_request`.
    #[must_use]
    pub(super) fn in_terms_of_oauth(self) -> Self {
        if self.status == 400 { Self { error: "invalid_request", ..self } } else { self }
    }

    /// Asks for the `Authorization` header that the operator has agreed on with the sender.
    #[must_use]
    pub(super) fn challenged_for_bearer(self) -> Self {
        self.challenged(&format!("Bearer realm=\"{REALM}\""))
    }

    /// The `error` code.
    pub(super) const fn error(&self) -> &'static str {
        self.error
    }

    /// The name of the check, for metrics, audit and `%RESPONSE_CODE_DETAILS%`.
    pub(super) const fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns true if nobody knows whether the subject token was spent.
    pub(super) fn is_of_unknown_spend(&self) -> bool {
        self.counter == Some(metrics::SPEND_UNKNOWN)
    }

    /// The counter that moves besides that of refusals.
    pub(super) const fn counter(&self) -> Option<&'static str> {
        self.counter
    }

    /// Takes the alarm, if there is one.
    pub(super) fn take_alarm(&mut self) -> Option<Box<Replay>> {
        self.alarm.take()
    }

    /// The response for the caller.
    pub(super) fn into_response(self) -> Response {
        let (error, description) = match self.readers {
            Readers::People => return self.into_page(),
            Readers::Transmitters => ("err", "description"),
            Readers::Clients => ("error", "error_description"),
        };
        let body = TwoMembers([(error, self.error), (description, &*self.told)]);
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("pragma", "no-cache".to_owned()),
        ];
        headers.extend(more(self.status, self.headers));
        Response {
            status: self.status,
            headers,
            // Two strings can always be serialized.
            body: serde_json::to_vec(&body).unwrap_or_default(),
        }
    }

    /// The page for people. A browser would ask them for a password if it were challenged.
    fn into_page(self) -> Response {
        let page = pages::refused(self.error, &self.told);
        let more = more(self.status, self.headers);
        let more = more.filter(|(name, _)| *name != "www-authenticate");
        pages::response(self.status, more.collect(), page)
    }
}

/// The header fields of a refusal, besides those of its body.
fn more(
    status: u16,
    headers: Option<Box<Headers>>,
) -> impl Iterator<Item = (&'static str, String)> {
    let headers = headers.map(|headers| headers.0).unwrap_or_default();
    let headers = headers.into_iter().map(|(name, value)| (name, value.into_owned()));
    headers.chain((status == 503).then(|| ("retry-after", RETRY_AFTER.to_owned())))
}

/// An object of two texts, in this order.
struct TwoMembers<'a>([(&'static str, &'a str); 2]);

impl Serialize for TwoMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

/// Writes the text for the operator's log.
impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.wrong.is_empty() { &self.told } else { &self.wrong })
    }
}

impl From<FormError> for Refusal {
    fn from(error: FormError) -> Self {
        match error {
            FormError::Encoding => {
                Self::invalid_request("form_malformed", "the form is not properly encoded")
            }
            FormError::Charset => {
                Self::invalid_request("form_malformed", "the form must be in UTF-8")
            }
            FormError::TooMany => {
                Self::invalid_request("form_malformed", "the form has more than 64 parameters")
            }
            FormError::Repeated => {
                Self::invalid_request("parameter_repeated", "a parameter is given twice")
            }
            FormError::SeveralResources => {
                Self::invalid_target("several_resources", "only one resource may be given")
            }
        }
    }
}

impl From<ClientAuthError> for Refusal {
    fn from(error: ClientAuthError) -> Self {
        const REASON: &str = "client_authentication";
        match error {
            ClientAuthError::NoClientId => Self::invalid_request(REASON, "client_id is missing"),
            ClientAuthError::TwoMethods => Self::invalid_request(
                REASON,
                "a request must use one method of client authentication only",
            ),
            ClientAuthError::Assertion(StatementError::Upstream(_))
            | ClientAuthError::NotRemembered(_) => Self::temporarily_unavailable(REASON, ""),
            // The request alone shows this fault. No client was looked up.
            ClientAuthError::TwoClients => Self::invalid_client(
                REASON,
                "client_id in the form must name the client that authenticates, or be left out",
            ),
            // One description for all others: it reveals neither which clients exist nor how one
            // authenticates.
            _ => Self::invalid_client(REASON, CLIENT_REFUSED),
        }
        .because(format_args!("client authentication failed: {error}"))
    }
}

impl From<ClaimsError> for Refusal {
    fn from(error: ClaimsError) -> Self {
        let wrong = error.to_string();
        match error {
            ClaimsError::Denied(message) => {
                Self::new(400, "access_denied", "custom_claims_denied", "").telling(message)
            }
            _ => Self::new(
                500,
                "server_error",
                "custom_claims_failed",
                "the custom claims could not be made",
            ),
        }
        .because(wrong)
    }
}

impl From<NotAuthorized> for Refusal {
    fn from(error: NotAuthorized) -> Self {
        let wrong = error.to_string();
        match error {
            NotAuthorized::Script(ClaimsError::Denied(message)) => {
                Self::access_denied("authorization_denied", "").telling(message)
            }
            NotAuthorized::NeedsPeople => {
                let told = "people must decide about this impersonation: breakGlass is not allowed";
                Self::access_denied("break_glass_not_allowed", told)
            }
            _ => {
                let told = "whether this may be minted could not be decided";
                Self::new(500, "server_error", "authorization_failed", told)
            }
        }
        .because(wrong)
    }
}

impl From<SignError> for Refusal {
    fn from(error: SignError) -> Self {
        const REASON: &str = "signing_failed";
        match error {
            SignError::Key(_) => {
                Self::new(500, "server_error", REASON, "the access token could not be signed")
                    .because(error)
            }
            SignError::Host(..) => Self::temporarily_unavailable(REASON, error),
        }
    }
}

impl From<BoundsError> for Refusal {
    fn from(error: BoundsError) -> Self {
        Self::invalid_request("bounds", "").telling(error.to_string())
    }
}

impl From<NotCounted> for Refusal {
    fn from(error: NotCounted) -> Self {
        match error {
            NotCounted::TooMany(left) => {
                let told = "this caller has minted as often as it may for now";
                Self::new(429, "temporarily_unavailable", "too_many_mints", told)
                    .retried_after(left)
            }
            NotCounted::Host(failure) => failure.into(),
        }
    }
}

impl From<NotStored> for Refusal {
    fn from(error: NotStored) -> Self {
        let refusal = match error {
            NotStored::Full => {
                Self::temporarily_unavailable("store_full", "").counted(metrics::STORE_FULL)
            }
            NotStored::HoldsTooMany => {
                let told = "too many subject tokens of this caller wait for a decision";
                Self::new(429, "temporarily_unavailable", "too_many_waiting", told)
                    .retried_after(Duration::from_secs(60))
            }
            NotStored::Host(_) => Self::temporarily_unavailable("host_failed", ""),
            NotStored::Remote(_) => Self::temporarily_unavailable("store_failed", ""),
        };
        refusal.because(format_args!("not stored: {error}"))
    }
}

impl From<NotDecided> for Refusal {
    fn from(error: NotDecided) -> Self {
        match error {
            NotDecided::Store(failure) => failure.into(),
            NotDecided::Unknown(_) => Self::temporarily_unavailable("decision_unknown", error),
        }
    }
}

impl From<NotRevoked> for Refusal {
    fn from(error: NotRevoked) -> Self {
        match error {
            NotRevoked::Contended => Self::temporarily_unavailable("revocation_failed", error),
            NotRevoked::NoRoom => Self::temporarily_unavailable("no_room_for_event", error)
                .counted(metrics::EVENTS_OVERFLOWED),
            NotRevoked::Host(failure) => failure.into(),
            NotRevoked::Remote(failure) => StoreFailure::from(failure).into(),
        }
    }
}

impl From<Unknown> for Refusal {
    fn from(error: Unknown) -> Self {
        match error {
            Unknown::Host(failure) => failure.into(),
            Unknown::Remote(failure) => StoreFailure::from(failure).into(),
            Unknown::NotYet | Unknown::Stale => {
                Self::temporarily_unavailable("revocations_unknown", error)
            }
        }
    }
}

impl From<UpstreamFailure> for Refusal {
    fn from(failure: UpstreamFailure) -> Self {
        Self::temporarily_unavailable("callout_failed", failure)
    }
}

impl From<Untold> for Refusal {
    fn from(untold: Untold) -> Self {
        Self::temporarily_unavailable("notification_failed", untold)
    }
}

impl From<StoreFailure> for Refusal {
    fn from(failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::Host(failure) => failure.into(),
            StoreFailure::Remote(failure) => Self::temporarily_unavailable("store_failed", failure),
        }
    }
}

impl From<HostFailure> for Refusal {
    fn from(failure: HostFailure) -> Self {
        Self::temporarily_unavailable("host_failed", failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_503_and_429_have_retry_after() {
        let retry = |refusal: Refusal| {
            let response = refusal.into_response();
            response.headers.iter().any(|(name, _)| *name == "retry-after")
        };
        assert!(retry(HostFailure("randomness").into()));
        assert!(!retry(Refusal::stalled()));
        let refusal = Refusal::from(NotCounted::TooMany(Duration::from_millis(1001)));
        let headers = refusal.into_response().headers;
        assert!(headers.contains(&("retry-after", "2".to_owned())));
    }

    #[test]
    fn the_log_has_the_reason_or_else_the_callers_description() {
        let refusal = Refusal::invalid_request("x", "scope is missing");
        assert_eq!(refusal.to_string(), "scope is missing");
        assert_eq!(refusal.because("no scope").to_string(), "no scope");
    }
}
