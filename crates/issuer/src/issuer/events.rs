//! The part that the endpoints of logout tokens and of security events share: a verified event is
//! kept, and its `jti` is remembered after that.
//!
//! The audit event of an ending says what ended it: the sender, the event, the actor, the user, the
//! session. It does not say how many impersonations ended, as that of an operator's revocation
//! does. To count them, the filter would read the list of all impersonations at each logout of an
//! ordinary user, and under etcd that is a request for each page.
//!
//! An event is answered only when it is kept. If it could not be kept, the sender gets 503, and
//! tries again; nothing of it is remembered.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use super::oversight::Oversight;
use super::refusal::Refusal;
use crate::audit::Trail;
use crate::config::{EventSender, LONGEST_ACCESS_TOKEN_LIFETIME};
use crate::events::{EventError, Meaning, ReceivedEvent, Senders};
use crate::host::HostFailure;
use crate::jose::TestedCrypto;
use crate::metrics;
use crate::state::revocations::{Happened, Revocation, Told};
use crate::state::shared_data::SeenOnce;
use crate::statement::{Names, StatementError};
use crate::step::Context;

/// How long the `jti` of an event is remembered. A later repetition is old news for the table of
/// revocations, and ends nothing either.
const REMEMBERED_FOR: Duration = Duration::from_secs(86_400);

/// How long an API may accept an expired access token, and how far a sender's clock may be behind.
/// An event is kept so much longer than any token that it ends or refuses.
const LEEWAY: Duration = Duration::from_secs(600);

/// The possible outcomes of an event, for the audit log and the metrics.
const OUTCOMES: [&str; 6] =
    [ENDED, REPEATED, "verification", "stream_updated", "nothing", "subject_not_understood"];
const ENDED: &str = "ended";
const REPEATED: &str = "repeated";

/// The senders of one kind of event, and the events that they sent.
pub(crate) struct Inbox {
    pub(super) senders: Senders,
    seen: SeenOnce,
    kind: &'static str,
    /// The time for which an event is kept.
    kept_for: Duration,
}

impl Inbox {
    /// Believes these senders. `kind` keeps the `jti`s of different kinds of event apart. No actor
    /// token is accepted that is older than `oldest`.
    pub(super) fn new(
        senders: Vec<EventSender>,
        names: Rc<Names>,
        crypto: Option<Rc<TestedCrypto>>,
        tenant: &str,
        kind: &'static str,
        oldest: Duration,
    ) -> Self {
        let senders = Senders::new(senders, names, crypto);
        let kept_for = oldest.max(LONGEST_ACCESS_TOKEN_LIFETIME).saturating_add(LEEWAY);
        Self { senders, seen: SeenOnce::new(tenant, kind), kind, kept_for }
    }

    /// The counters of all senders, which begin at zero: so the first event of a sender is growth,
    /// and a sender who never sent anything can be told from one who is not configured.
    pub(super) fn counters(&self) -> impl Iterator<Item = Cow<'static, str>> {
        let senders = 0..self.senders.count();
        senders.flat_map(|place| {
            OUTCOMES.map(|outcome| metrics::sender_event(self.kind, place, outcome))
        })
    }

    /// Ends what a verified event names, and remembers the event.
    pub(super) async fn keep(
        &self,
        oversight: &Oversight,
        context: &Context,
        trail: &Trail,
        event: ReceivedEvent,
    ) -> Result<(), Refusal> {
        let host = context.host();
        let ReceivedEvent { issuer, jti, kind, at, person, meaning } = event;
        let id = [issuer.as_bytes(), b"\0", jti.as_bytes()].concat();
        let place = self.senders.place_of(&issuer);
        let happened = Happened::new(&issuer, at.millis(), self.kept_for);
        let happened = Happened { person, ..happened };
        trail.note(|facts| {
            facts.sender = Some(issuer);
            facts.event_id = Some(jti);
            facts.event_type = Some(kind);
        });
        let outcome = if self.seen.has(host, &id)? {
            REPEATED
        } else {
            match &meaning {
                Meaning::Ends(ended) => {
                    self.end(oversight, context, trail, ended, &happened).await?
                }
                Meaning::Verification { .. } => "verification",
                Meaning::StreamUpdated { status } => {
                    if status != "enabled" {
                        host.count(metrics::EVENT_STREAMS_STOPPED.into());
                        host.warn("a sender has paused or disabled its stream of security events");
                    }
                    "stream_updated"
                }
                Meaning::Nothing => "nothing",
                Meaning::SubjectNotUnderstood => "subject_not_understood",
            }
        };
        trail.note(|facts| facts.outcome = Some(outcome));
        self.seen.remember(host, &id, host.now().after(REMEMBERED_FOR))?;
        if let Some(place) = place {
            host.count(metrics::sender_event(self.kind, place, outcome));
        }
        Ok(())
    }

    /// Ends what an event names, one revocation after the other. Returns the outcome for the audit
    /// log.
    async fn end(
        &self,
        oversight: &Oversight,
        context: &Context,
        trail: &Trail,
        ended: &[Revocation],
        happened: &Happened,
    ) -> Result<&'static str, Refusal> {
        let mut is_news = false;
        for revocation in ended {
            let Revocation { actor_id, session, user_id, .. } = revocation;
            let named = actor_id.as_ref().or(session.as_ref()).or(user_id.as_ref());
            let name = named.map_or("", String::as_str);
            let (people, whose) = self.senders.people_of(name, &happened.sender);
            let happened = Happened { people, whose, ..happened.clone() };
            trail.note(|facts| {
                facts.actor_id = revocation.actor_id.clone().or(facts.actor_id.take());
                facts.user_id = revocation.user_id.clone().or(facts.user_id.take());
                facts.session = revocation.session.clone().or(facts.session.take());
            });
            is_news |= oversight.keep_event(context, revocation, &happened).await? != Told::OldNews;
        }
        if is_news {
            trail.has_ended_by_itself();
        }
        Ok(if is_news { ENDED } else { REPEATED })
    }
}

impl From<EventError> for Refusal {
    fn from(error: EventError) -> Self {
        let reason = error.reason();
        match &error {
            EventError::Statement(StatementError::Upstream(_)) => {
                Self::temporarily_unavailable(reason, "")
            }
            EventError::Authentication => {
                let told = "the Authorization header is not the one that was agreed on";
                Self::new(401, error.code(), reason, told).challenged_for_bearer()
            }
            EventError::Statement(StatementError::Issuer(_)) => {
                Self::new(400, error.code(), reason, "the issuer is not one that may send events")
            }
            EventError::Audience => {
                Self::new(400, error.code(), reason, "aud does not name this receiver")
            }
            _ => Self::new(400, error.code(), reason, "the event is malformed or not valid"),
        }
        .because(format_args!("event refused: {error}"))
    }
}

impl From<crate::state::shared_data::NotRemembered> for Refusal {
    fn from(error: crate::state::shared_data::NotRemembered) -> Self {
        match error {
            crate::state::shared_data::NotRemembered::Host(failure) => failure.into(),
            _ => HostFailure("memory for the id of an event").into(),
        }
    }
}
