//! A transaction whose keys hang on a lease of a bucket of time, which whoever finds it missing makes.

use std::time::Duration;

use prost::Message as _;

use super::calls::{
    Attempts, FAILED_PRECONDITION, LEASE_GRANT, NOT_FOUND, Server, TXN, Unanswered,
};
use super::failure::EtcdFailure;
use super::lease::Leases;
use super::proto::{LeaseGrantResponse, TxnRequest, TxnResponse};
use crate::step::{Context, WhenCallerLeaves};

impl Server {
    /// Sends a transaction until it is answered, and makes the lease of its puts if there is none yet.
    pub(crate) async fn write(
        &self,
        context: &Context,
        txn: &TxnRequest,
        (leases, lease): (&Leases, i64),
        mut attempts: Attempts,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<TxnResponse, EtcdFailure> {
        let txn = txn.encode_to_vec();
        let mut failed = EtcdFailure::NotSent;
        let mut has_lease = false;
        while let Some(timeout) = attempts.next(context.host()) {
            let answer: Result<TxnResponse, _> =
                self.call(context, &TXN, &txn, timeout, when_caller_leaves).await;
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::NotDone(EtcdFailure::Rejected(NOT_FOUND))) if !has_lease => {
                    let made =
                        self.make_lease(context, leases, lease, timeout, when_caller_leaves).await;
                    match made {
                        Ok(()) => has_lease = true,
                        Err(Unanswered::NotDone(failure)) => return Err(failure),
                        Err(Unanswered::PerhapsDone(failure)) => failed = failure,
                    }
                }
                Err(Unanswered::NotDone(failure)) => return Err(failure),
                Err(Unanswered::PerhapsDone(failure)) => failed = failure,
            }
        }
        Err(failed)
    }

    /// Makes a lease, unless another worker or another Envoy has.
    async fn make_lease(
        &self,
        context: &Context,
        leases: &Leases,
        id: i64,
        timeout: Duration,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<(), Unanswered> {
        let message = leases.grant(id).encode_to_vec();
        let answer: Result<LeaseGrantResponse, _> =
            self.call(context, &LEASE_GRANT, &message, timeout, when_caller_leaves).await;
        match answer {
            Ok(_) => Ok(()),
            Err(Unanswered::NotDone(EtcdFailure::Rejected(FAILED_PRECONDITION))) => Ok(()),
            Err(unanswered) => Err(unanswered),
        }
    }
}
