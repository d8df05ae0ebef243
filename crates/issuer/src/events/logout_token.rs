//! Logout tokens (OpenID Connect Back-Channel Logout 1.0 §2.4): the profile by which an identity
//! gateway says that a session has ended.

use std::time::Duration;

use serde_json::Value;

use super::{CLOCK_SKEW, EventError, Meaning, ReceivedEvent, Senders, when};
use crate::state::revocations::Revocation;
use crate::statement::Untrusted;
use crate::step::Context;

/// The accepted values of `typ`. Senders of before 2022 write `JWT`, or nothing.
const TYPES: [&str; 3] = ["logout+jwt", "application/logout+jwt", "JWT"];

/// The oldest logout token that is accepted without `exp`, which Ory Hydra leaves out. A sender
/// tries again within this time, and the memory of `jti`s lasts longer.
const LONGEST_AGE: Duration = Duration::from_secs(300);

/// The member of `events` that makes a JWT a logout token.
const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";

impl Senders {
    /// Verifies a logout token, as §2.6 requires.
    pub(crate) async fn logout_token(
        &self,
        context: &Context,
        token: &str,
    ) -> Result<ReceivedEvent, EventError> {
        let now = context.host().now();
        let statement = Untrusted::parse(token)?;
        statement.check_type(&TYPES)?;
        let (sender, verified) = self.verify(context, &statement, now).await?;
        verified.check_times_or_age(now, CLOCK_SKEW, LONGEST_AGE)?;
        sender.check_audience(&verified)?;
        let malformed = EventError::Malformed;
        let issued_at = verified.issued_at.ok_or(malformed("no iat"))?;
        let given = |name| verified.text(name).map(|text| text.filter(|text| !text.is_empty()));
        let jti = given("jti")?.ok_or(malformed("no jti"))?.to_owned();
        let events = verified.claim("events").and_then(Value::as_object);
        if !events.and_then(|events| events.get(LOGOUT)).is_some_and(Value::is_object) {
            return Err(malformed("events has no member for a back-channel logout"));
        }
        // Forbidden, so that no ID token passes for a logout token.
        if verified.has("nonce") {
            return Err(malformed("a logout token has no nonce"));
        }
        let name = |name| sender.names.qualify(sender.prefix(), name).ok();
        let ended = match (given("sub")?, given("sid")?) {
            (_, Some(sid)) => {
                name(sid).map(|sid| Revocation { session: Some(sid), ..Revocation::default() })
            }
            (Some(sub), None) => {
                name(sub).map(|sub| Revocation { actor_id: Some(sub), ..Revocation::default() })
            }
            (None, None) => return Err(malformed("neither sub nor sid")),
        };
        Ok(ReceivedEvent {
            issuer: sender.configured.issuer.clone(),
            jti,
            kind: LOGOUT.to_owned(),
            at: when(issued_at, issued_at, now),
            person: given("sub")?.and_then(name),
            meaning: ended
                .map_or(Meaning::SubjectNotUnderstood, |ended| Meaning::Ends(vec![ended])),
        })
    }
}

#[cfg(test)]
mod tests;
