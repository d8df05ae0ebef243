//! Transactions that put keys on a [lease](super::lease), which is granted and verified first.

use prost::Message as _;

use super::calls::{
    Attempts, DEADLINE_EXCEEDED, FAILED_PRECONDITION, LEASE_GRANT, LEASE_TIME_TO_LIVE, NOT_FOUND,
    Server, TXN, Unanswered,
};
use super::lease::{Lease, Leases, Seen};
use super::proto::{
    LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, TxnRequest, TxnResponse,
};
use crate::state::remote::RemoteFailure;
use crate::step::{Context, WhenCallerLeaves};

impl Server {
    /// Sends a transaction until it is answered. `txn` makes the transaction for the lease of its
    /// keys. If a lease is gone, every key that an earlier attempt wrote is gone too, and `txn`
    /// makes it for another lease.
    pub(crate) async fn write(
        &self,
        context: &Context,
        leases: &Leases,
        txn: &mut dyn FnMut(i64) -> Result<TxnRequest, RemoteFailure>,
        mut attempts: Attempts,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<TxnResponse, RemoteFailure> {
        let mut failed = RemoteFailure::NotSent;
        while attempts.next(context.host()).is_some() {
            let lease = match self.lease(context, leases, &attempts, when_caller_leaves).await {
                Ok(lease) => lease,
                Err(Unanswered::NotDone(failure)) => return Err(failure),
                Err(Unanswered::PerhapsDone(failure)) => {
                    failed = failure;
                    continue;
                }
            };
            let message = txn(lease)?.encode_to_vec();
            let Some(timeout) = attempts.at_most(context.host()) else { break };
            let answer: Result<TxnResponse, _> =
                self.call(context, &TXN, &message, timeout, when_caller_leaves).await;
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::NotDone(failure @ RemoteFailure::Rejected(NOT_FOUND))) => {
                    // An etcd that was restored or began empty does not have the lease.
                    leases.forget(lease);
                    failed = failure;
                }
                Err(Unanswered::NotDone(failure)) => return Err(failure),
                Err(Unanswered::PerhapsDone(failure)) => failed = failure,
            }
        }
        Err(failed)
    }

    /// A verified lease for the keys that are written now.
    pub(crate) async fn lease(
        &self,
        context: &Context,
        leases: &Leases,
        attempts: &Attempts,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<i64, Unanswered> {
        let drawn = leases.current(context.host());
        let Lease { id, is_good } =
            drawn.map_err(|failure| Unanswered::NotDone(RemoteFailure::Host(failure)))?;
        if is_good {
            return Ok(id);
        }
        let made = self.make_lease(context, leases, id, attempts, when_caller_leaves).await;
        match made {
            Ok(()) => leases.has_proved_good(id),
            Err(_) => leases.forget(id),
        }
        if let Err(Unanswered::PerhapsDone(failure @ RemoteFailure::LeaseChanged)) = made {
            self.complain(context.host(), failure);
        }
        made.map(|()| id)
    }

    /// Grants a lease, puts its anchor, and verifies it. A request that joins while this is under
    /// way does the same: a second grant and a second anchor change nothing. It does not matter who
    /// granted the lease, only how it is found in the end.
    async fn make_lease(
        &self,
        context: &Context,
        leases: &Leases,
        id: i64,
        attempts: &Attempts,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<(), Unanswered> {
        let late = || Unanswered::PerhapsDone(RemoteFailure::Unreachable(DEADLINE_EXCEEDED));
        let left = || attempts.at_most(context.host()).ok_or_else(late);

        let message = leases.grant(id).encode_to_vec();
        let granted: Result<LeaseGrantResponse, _> =
            self.call(context, &LEASE_GRANT, &message, left()?, when_caller_leaves).await;
        match granted {
            Ok(_) | Err(Unanswered::NotDone(RemoteFailure::Rejected(FAILED_PRECONDITION))) => {}
            Err(unanswered) => return Err(unanswered),
        }

        let message = TxnRequest::default().and_put(leases.anchor(id)).encode_to_vec();
        let anchored: Result<TxnResponse, _> =
            self.call(context, &TXN, &message, left()?, when_caller_leaves).await;
        match anchored {
            Ok(_) => {}
            Err(Unanswered::NotDone(RemoteFailure::Rejected(NOT_FOUND))) => {
                return Err(Unanswered::PerhapsDone(RemoteFailure::LeaseChanged));
            }
            Err(unanswered) => return Err(unanswered),
        }

        let message = LeaseTimeToLiveRequest { id, keys: true }.encode_to_vec();
        let found: LeaseTimeToLiveResponse =
            self.call(context, &LEASE_TIME_TO_LIVE, &message, left()?, when_caller_leaves).await?;
        match leases.look_at(id, &found) {
            Seen::Good => Ok(()),
            Seen::Changed => Err(Unanswered::PerhapsDone(RemoteFailure::LeaseChanged)),
            Seen::TooEarly => Err(late()),
        }
    }
}
