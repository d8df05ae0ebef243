//! The revocations that a worker has read.

use std::cell::RefCell;
use std::rc::Rc;

use super::entry::{Concerned, Impersonation, IssuedAt, Revocation};
use super::table::Table;
use crate::host::UnixTime;

/// All revocations that a worker knows at one moment.
#[derive(Debug, Default)]
pub struct View {
    /// The table of this Envoy. In front of a remote store it has the revocations that were made
    /// before there was one.
    pub(crate) local: Option<Rc<Table>>,
    /// The copy of the revocations in a remote store.
    pub(crate) copy: Option<Rc<Table>>,
}

impl View {
    /// Returns true if an impersonation has ended whose subject token or access token was issued at
    /// that time.
    pub fn has_ended(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        self.tables().any(|table| table.has_ended(impersonation, issued))
    }

    /// Returns true if a revocation has ended an impersonation whose subject token was issued at
    /// that time. Events do not count: most end no subject token.
    pub(crate) fn has_revoked(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        self.tables().any(|table| table.has_revoked(impersonation, issued))
    }

    /// Returns true if an event about one of these people has ended a subject token that was issued
    /// at that time.
    pub(crate) fn event_has_ended(&self, concerned: Concerned<'_>, issued: IssuedAt) -> bool {
        self.tables().any(|table| table.event_has_ended(concerned, issued))
    }

    /// Returns true if an event about one of these people happened at that time or later, by the
    /// clock of its sender.
    pub fn has_event_since(&self, concerned: Concerned<'_>, time: UnixTime) -> bool {
        self.tables().any(|table| table.has_event_since(concerned, time))
    }

    /// Returns true if this very revocation, or one of everyone, has ended what was issued at that
    /// time.
    pub(crate) fn has(&self, revocation: &Revocation, issued: IssuedAt) -> bool {
        self.tables().any(|table| table.has(revocation, issued))
    }

    /// The number of revocations that are told apart.
    pub fn len(&self) -> usize {
        self.tables().map(Table::len).sum()
    }

    /// Returns true if there are no revocations but those of everyone.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        [&self.local, &self.copy].into_iter().flatten().map(|table| &**table)
    }
}

/// The last view of a worker. As long as nothing changes, the worker gets the same view again.
#[derive(Debug, Default)]
pub(crate) struct LastView(RefCell<Rc<View>>);

impl LastView {
    pub(crate) fn get(&self) -> Rc<View> {
        Rc::clone(&self.0.borrow())
    }

    /// The view of these tables.
    pub(crate) fn of(&self, local: Option<Rc<Table>>, copy: Option<Rc<Table>>) -> Rc<View> {
        let last = self.get();
        let is_same = |one: &Option<Rc<Table>>, other: &Option<Rc<Table>>| match (one, other) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if is_same(&local, &last.local) && is_same(&copy, &last.copy) {
            return last;
        }
        let view = Rc::new(View { local, copy });
        self.0.replace(Rc::clone(&view));
        view
    }
}
