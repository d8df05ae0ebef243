//! Which impersonations have ended before their time.
//!
//! A revocation says what an impersonation must have (an id, a user, an actor, a client, a caller, a resource, or
//! several of them) and ends, of all that have it, what was issued until now. It is by time, never by a list of
//! what there is: what nobody can list any more has ended too, and what begins later has not.
//!
//! # What is promised
//!
//! Once [`Revocations::revoke`] has returned, no worker of this Envoy takes what it ended for alive, and no subject
//! token that was outstanding when it began becomes an access token that lives on. The argument, for an exchange
//! that (1) takes the time for its access token, (2) looks here, (3) spends the subject token, and a revocation
//! that (a) takes the time, (b) writes it, (c) takes the time anew, and (d), if that is later, writes again:
//!
//! - If (2) comes after (b), the exchange sees the revocation, and refuses a subject token that was minted until
//!   (a).
//! - If (2) comes before (b), so does (1), and (c) comes after both: the access token was issued until (c), and has
//!   ended once (d) is written. Nobody was answered before that.
//!
//! With the time of (a) alone an exchange could take its own between (a) and (b), see nothing, and live on.
//!
//! Whatever cannot be known counts as ended: an issue that is only known to the second, a caller that is not known,
//! a table that was full. What cannot be read is an error, and whoever asked must not go on.

mod entry;
mod mark;
mod shared;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub use entry::{CallerTag, Impersonation, Issued, Revocation};
pub use mark::Mark;
pub use shared::{NotRevoked, Revoked};
pub use table::{Known, MAX_ENTRIES};

use crate::host::{Host, HostFailure};
use crate::step::Context;
use shared::SharedTable;

/// The revocations of one service, as one worker knows them. Workers, and the plugins of one `vm_id`, share the
/// revocations, not this value.
#[derive(Debug)]
pub struct Revocations {
    table: SharedTable,
    /// What was read last; the version says whether it still is what there is.
    known: RefCell<Option<Rc<Known>>>,
}

impl Revocations {
    /// The revocations of the service that `tenant` names.
    ///
    /// A revocation is kept for `retention`, or for longer if anybody who shares the table wanted longer: as long
    /// as a subject token and its access token can live, one after the other. Who issues none, and only looks,
    /// gives zero.
    pub fn shared_data(tenant: &str, retention: Duration) -> Self {
        Self { table: SharedTable::new(tenant, retention), known: RefCell::default() }
    }

    /// Lets there be a table. If there was none, nobody knows what was revoked before: whatever was issued until
    /// now has ended. So this is called as early as possible, before anything is issued.
    pub fn begin(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.table.begin(host)
    }

    /// What is known now: one read of a few bytes, and of the whole table only when it has changed. Whatever
    /// [`revoke`](Self::revoke) has returned of is in it.
    pub fn known(&self, host: &dyn Host) -> Result<Rc<Known>, HostFailure> {
        let last = self.known.borrow().clone();
        let known = self.table.known(host, last)?;
        self.known.replace(Some(Rc::clone(&known)));
        Ok(known)
    }

    /// Ends what `revocation` names and was issued until now.
    pub async fn revoke(
        &self,
        context: &Context,
        revocation: &Revocation,
    ) -> Result<Revoked, NotRevoked> {
        self.table.revoke(context.host(), revocation)
    }

    /// Finishes what a worker left behind that died between its two writes.
    pub fn tick(&self, host: &dyn Host) -> Result<(), HostFailure> {
        self.table.begin(host)
    }
}
