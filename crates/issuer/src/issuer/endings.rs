//! Which impersonations have ended, for the hooks.
//!
//! No notice delays or prevents an ending. A request that ends impersonations only notes that it is
//! about to. The background work then looks which listed impersonations have ended since, and tells
//! the hooks. An ending that several workers or Envoys see at once may be told more than once.

use std::cell::RefCell;
use std::rc::Rc;

use super::listing::{Listing, listed};
use super::reviewed::as_json;
use crate::config::Happening;
use crate::host::Host;
use crate::metrics;
use crate::notifications::{Notice, Notifier};
use crate::state::impersonations::LiveImpersonation;
use crate::state::revocations::View;
use crate::state::storage::{List, Revocations};
use crate::step::Context;

/// The most endings that wait to be told, in each worker.
const MOST: usize = 200;

/// An ending that was about to be made.
pub(super) struct Ending {
    /// The impersonation that was to end; `None` if the ending has no id.
    id: Option<String>,
    /// The revocations before this ending.
    before: Rc<View>,
}

/// The endings that the hooks have not been told.
pub(super) struct Endings {
    notifier: Rc<Notifier>,
    /// The source of each event: the issuer.
    source: String,
    waiting: RefCell<Vec<Ending>>,
}

impl Endings {
    pub(super) fn new(notifier: Rc<Notifier>, source: String) -> Self {
        Self { notifier, source, waiting: RefCell::default() }
    }

    /// Notes that an ending is about to be made.
    pub(super) fn expect(&self, host: &dyn Host, revocations: &Revocations, id: Option<&str>) {
        if !self.notifier.wants(Happening::Ended) {
            return;
        }
        let Ok(before) = revocations.local_view(host) else { return };
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MOST {
            waiting.remove(0);
            host.count(metrics::NOTIFICATIONS_DROPPED.into());
            host.warn("notification dropped: too many endings at once");
        }
        waiting.push(Ending { id: id.map(str::to_owned), before });
    }

    pub(super) fn take(&self) -> Vec<Ending> {
        self.waiting.take()
    }

    /// Tells the hooks which of the listed impersonations have ended.
    pub(super) async fn tell(
        &self,
        context: &Context,
        revocations: &Revocations,
        list: &List,
        endings: Vec<Ending>,
    ) {
        let host = context.host();
        let Ok(now) = revocations.local_view(host) else { return };
        let has_ended = |ending: &Ending, entry: &LiveImpersonation| {
            let (impersonation, issued) = listed(entry);
            ending.id.as_ref().is_none_or(|id| *id == entry.id)
                && now.has_ended(&impersonation, issued)
                && !ending.before.has_ended(&impersonation, issued)
        };
        let (named, others): (Vec<_>, Vec<_>) =
            endings.into_iter().partition(|ending| ending.id.is_some());
        for ending in &named {
            let Some(id) = &ending.id else { continue };
            if let Ok(Some(entry)) = list.find(context, id).await
                && has_ended(ending, &entry)
            {
                self.note(host, &entry);
            }
        }
        if others.is_empty() {
            return;
        }
        // The same impersonation may have ended by its id, too: it is told twice then.
        let looked = list.look_through(context, |entry| {
            if others.iter().any(|ending| has_ended(ending, entry)) {
                self.note(host, entry);
            }
        });
        if !looked.await.unwrap_or(false) {
            host.warn("notifications: not every impersonation that has ended could be found");
        }
    }

    fn note(&self, host: &dyn Host, entry: &LiveImpersonation) {
        let data = as_json(&Listing::of(entry));
        let notice = data.and_then(|data| {
            Notice::new(host, &self.source, Happening::Ended, &entry.id, &data, &data)
        });
        match notice {
            Ok(notice) => self.notifier.note_the_end(host, notice),
            Err(failure) => host.warn(&format!("notification failed: {failure}")),
        }
    }
}
