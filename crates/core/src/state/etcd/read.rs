//! Reads of keys as they are now, with several attempts.

use prost::Message;

use super::calls::{Attempts, Method, RANGE, READ_TXN, Server, Unanswered};
use super::proto::{EtcdResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use crate::state::remote::RemoteFailure;
use crate::step::{Context, WhenCallerLeaves};

impl Server {
    /// Reads a range of keys, through the majority.
    pub(crate) async fn range(
        &self,
        context: &Context,
        request: &RangeRequest,
        attempts: Attempts,
    ) -> Result<RangeResponse, RemoteFailure> {
        self.ask(context, &RANGE, request, attempts).await
    }

    /// Reads all ranges of `request` at one moment, through the majority.
    pub(crate) async fn read(
        &self,
        context: &Context,
        request: &TxnRequest,
        attempts: Attempts,
    ) -> Result<TxnResponse, RemoteFailure> {
        self.ask(context, &READ_TXN, request, attempts).await
    }

    /// Sends a read until it is answered. A read can be sent again whatever came of it, and ends
    /// when its caller leaves.
    async fn ask<A: EtcdResponse>(
        &self,
        context: &Context,
        method: &Method,
        request: &impl Message,
        mut attempts: Attempts,
    ) -> Result<A, RemoteFailure> {
        let message = request.encode_to_vec();
        let cancel = WhenCallerLeaves::Cancel;
        let mut failed = RemoteFailure::NotSent;
        while let Some(timeout) = attempts.next(context.host()) {
            match self.call(context, method, &message, timeout, cancel).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::NotDone(failure)) => return Err(failure),
                Err(Unanswered::PerhapsDone(failure)) => failed = failure,
            }
        }
        Err(failed)
    }
}
