//! The revocations that a worker has read.

use std::cell::RefCell;
use std::rc::Rc;

use super::entry::{Concerned, Impersonation, IssuedAt, Order, Revocation};
use super::table::Table;
use crate::host::UnixTime;

/// All revocations that a worker knows at one moment.
#[derive(Debug)]
pub struct View {
    /// The revocations; `None` before the first one in a remote store.
    pub(crate) table: Option<Rc<Table>>,
    order: Order,
}

impl View {
    /// Returns true if an impersonation has ended whose subject token or access token was issued at
    /// that time.
    ///
    /// Everything that was issued while another store was in use has ended, because this store may
    /// lack the revocations that the other one had.
    pub fn has_ended(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        !issued.is_in(self.order)
            || self.table().is_some_and(|table| table.has_ended(impersonation, issued))
    }

    /// Returns true if a revocation has ended an impersonation whose subject token was issued at
    /// that time. Events do not count: most end no subject token.
    pub fn has_revoked(&self, impersonation: &Impersonation<'_>, issued: IssuedAt) -> bool {
        self.table().is_some_and(|table| table.has_revoked(impersonation, issued))
    }

    /// Returns true if an event about one of these people has ended a subject token that was issued
    /// at that time.
    pub fn event_has_ended(&self, concerned: Concerned<'_>, issued: IssuedAt) -> bool {
        self.table().is_some_and(|table| table.event_has_ended(concerned, issued))
    }

    /// Returns true if an event about one of these people happened at that time or later, by the
    /// clock of its sender.
    pub fn has_event_since(&self, concerned: Concerned<'_>, time: UnixTime) -> bool {
        self.table().is_some_and(|table| table.has_event_since(concerned, time))
    }

    /// Returns true if this very revocation, or one of everyone, has ended what was issued at that
    /// time.
    pub fn has(&self, revocation: &Revocation, issued: IssuedAt) -> bool {
        self.table().is_some_and(|table| table.has(revocation, issued))
    }

    /// The number of revocations that are told apart.
    pub fn len(&self) -> usize {
        self.table().map_or(0, Table::len)
    }

    /// Returns true if there are no revocations but those of everyone.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> Option<&Table> {
        self.table.as_deref()
    }
}

/// The last view of a worker. As long as nothing changes, the worker gets the same view again.
#[derive(Debug)]
pub(crate) struct LastView(RefCell<Rc<View>>);

impl LastView {
    /// A view without revocations.
    pub(crate) fn new(order: Order) -> Self {
        Self(RefCell::new(Rc::new(View { table: None, order })))
    }

    pub(crate) fn get(&self) -> Rc<View> {
        Rc::clone(&self.0.borrow())
    }

    /// The view of this table.
    pub(crate) fn of(&self, table: Option<Rc<Table>>) -> Rc<View> {
        let last = self.get();
        let is_same = match (&table, &last.table) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return last;
        }
        let view = Rc::new(View { table, order: last.order });
        self.0.replace(Rc::clone(&view));
        view
    }
}
