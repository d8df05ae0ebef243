//! One notice: a CloudEvent as structured JSON.

use std::fmt;

use serde_json::json;

use crate::config::Happening;
use crate::host::{Host, HostFailure, UnixTime};

/// An event that a hook is told.
pub(crate) struct Notice {
    /// The kind of the event.
    pub(super) happening: Happening,
    /// The id of the event, the same in each try.
    pub(super) id: String,
    /// The event as JSON.
    pub(super) body: String,
    /// The event with which this one is taken back: its name, and the event as JSON.
    contradiction: Option<(&'static str, String)>,
    /// The name of the event.
    name: &'static str,
    /// The id of the subject token.
    subject: String,
}

impl Notice {
    /// Makes the notice that something happens to the impersonation of the subject token with this
    /// id. `source` is the issuer, and `data` is an object as JSON. If the notice is taken back,
    /// the hooks get `otherwise` as data.
    pub(crate) fn new(
        host: &dyn Host,
        source: &str,
        happening: Happening,
        subject: &str,
        data: &str,
        otherwise: &str,
    ) -> Result<Self, HostFailure> {
        let mut random = [0; 16];
        host.random(&mut random)?;
        let id = base16ct::lower::encode_string(&random);
        let (now, name) = (host.now(), name(happening));
        let body = event(&id, source, name, subject, now, data);
        let contradiction = taken_back_as(happening)
            .map(|name| (name, event(&contradicting(&id), source, name, subject, now, otherwise)));
        Ok(Self { happening, id, body, contradiction, name, subject: subject.to_owned() })
    }

    /// The notice that this did not happen; `None` where nobody needs it.
    pub(super) fn contradiction(&self) -> Option<Self> {
        let (name, body) = self.contradiction.clone()?;
        Some(Self {
            happening: self.happening,
            id: contradicting(&self.id),
            body,
            contradiction: None,
            name,
            subject: self.subject.clone(),
        })
    }
}

/// The event that takes back that this happens; `None` where nothing does.
pub(crate) const fn taken_back_as(happening: Happening) -> Option<&'static str> {
    match happening {
        Happening::ApprovalGiven => Some("approval.not_given"),
        Happening::ApprovalDenied => Some("approval.not_denied"),
        Happening::Began => Some("impersonation.not_begun"),
        Happening::ApprovalRequested | Happening::BreakGlassUsed | Happening::Ended => None,
    }
}

fn contradicting(id: &str) -> String {
    format!("{id}-0")
}

/// Writes an event (CloudEvents 1.0 §3.1).
fn event(id: &str, source: &str, name: &str, subject: &str, now: UnixTime, data: &str) -> String {
    let attributes = json!({
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": format!("{name}.v1"),
        "subject": subject,
        "time": now.rfc3339().to_string(),
        "datacontenttype": "application/json",
    });
    let mut event = attributes.to_string();
    // The attributes are an object that is not empty.
    event.pop();
    event.push_str(",\"data\":");
    event.push_str(data);
    event.push('}');
    event
}

const fn name(happening: Happening) -> &'static str {
    match happening {
        Happening::ApprovalRequested => "approval.requested",
        Happening::ApprovalGiven => "approval.given",
        Happening::ApprovalDenied => "approval.denied",
        Happening::BreakGlassUsed => "break_glass.used",
        Happening::Began => "impersonation.began",
        Happening::Ended => "impersonation.ended",
    }
}

/// Names the notice for the operator's log.
impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}, event {}", self.name, self.subject, self.id)
    }
}
