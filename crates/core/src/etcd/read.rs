//! Reading keys as they are now, as often as it takes.

use prost::Message as _;

use super::calls::{Attempts, RANGE, Server, Unanswered};
use super::failure::EtcdFailure;
use super::proto::{RangeRequest, RangeResponse};
use crate::step::{Context, WhenCallerLeaves};

impl Server {
    /// Reads what `request` names, through the majority.
    pub(crate) async fn range(
        &self,
        context: &Context,
        request: &RangeRequest,
        mut attempts: Attempts,
    ) -> Result<RangeResponse, EtcdFailure> {
        let message = request.encode_to_vec();
        let cancel = WhenCallerLeaves::Cancel;
        let mut failed = EtcdFailure::NotSent;
        while let Some(timeout) = attempts.next(context.host()) {
            match self.call(context, &RANGE, &message, timeout, cancel).await {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::NotDone(failure)) => return Err(failure),
                Err(Unanswered::PerhapsDone(failure)) => failed = failure,
            }
        }
        Err(failed)
    }
}
