//! One call to etcd: its message, its timeout, and what a failure of it means.
//!
//! The gRPC status of a failed call seldom shows if etcd did the work. Timeouts, resets and refused
//! connections are all `UNAVAILABLE`. A node that gives up also answers with a failure, while its
//! peers go on with the work. Only a call that etcd itself refused was surely not done. **Every
//! other failed call may have been done, or may be done in a moment.**

use std::rc::Rc;
use std::time::Duration;

use super::authentic::RecordKeys;
use super::proto::EtcdResponse;
use crate::config::EtcdSettings;
use crate::host::{Host, UnixTime};
use crate::state::remote::{Complaints, RemoteFailure};
use crate::step::{
    CallFailure, Context, GrpcCall, GrpcStatus, GrpcStream, Reply, WhenCallerLeaves,
};

/// A method of etcd's API, and the metadata of its calls.
pub(crate) struct Method {
    service: &'static str,
    name: &'static str,
    metadata: &'static [(&'static str, &'static str)],
}

/// Reads keys as they are now. A node that is cut off from the others refuses at once, instead of
/// letting the caller wait.
pub(crate) const RANGE: Method =
    Method { service: "etcdserverpb.KV", name: "Range", metadata: &[("hasleader", "true")] };

/// Reads the keys as this node has them, even without a leader.
pub(crate) const RANGE_ANYWHERE: Method =
    Method { service: "etcdserverpb.KV", name: "Range", metadata: &[] };

/// Reads several keys at one moment. A node that is cut off refuses at once, as with [`RANGE`].
pub(crate) const READ_TXN: Method =
    Method { service: "etcdserverpb.KV", name: "Txn", metadata: &[("hasleader", "true")] };

/// Compares and writes. The call waits while a leader is elected: that takes less time than to fail
/// and try again, and leaves fewer outcomes unknown.
pub(crate) const TXN: Method = Method { service: "etcdserverpb.KV", name: "Txn", metadata: &[] };

/// Grants a lease.
pub(crate) const LEASE_GRANT: Method =
    Method { service: "etcdserverpb.Lease", name: "LeaseGrant", metadata: &[] };

/// Reads a lease. A node that is cut off refuses at once, as with [`RANGE`].
pub(crate) const LEASE_TIME_TO_LIVE: Method = Method {
    service: "etcdserverpb.Lease",
    name: "LeaseTimeToLive",
    metadata: &[("hasleader", "true")],
};

/// Tells of writes. A node that is cut off from the others ends the watch after some seconds.
pub(crate) const WATCH: Method =
    Method { service: "etcdserverpb.Watch", name: "Watch", metadata: &[("hasleader", "true")] };

/// A call without a usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The call did nothing, and never will.
    NotDone(RemoteFailure),
    /// The call may have been done, or may still be done.
    PerhapsDone(RemoteFailure),
}

impl Unanswered {
    /// The failure itself.
    pub(crate) const fn failure(self) -> RemoteFailure {
        let (Self::NotDone(failure) | Self::PerhapsDone(failure)) = self;
        failure
    }
}

/// `DEADLINE_EXCEEDED`: the time of this filter for the call is over.
pub(crate) const DEADLINE_EXCEEDED: GrpcStatus = GrpcStatus(4);

/// `NOT_FOUND`: there is no such lease.
pub(crate) const NOT_FOUND: GrpcStatus = GrpcStatus(5);

/// `FAILED_PRECONDITION`: the lease exists already.
pub(crate) const FAILED_PRECONDITION: GrpcStatus = GrpcStatus(9);

/// The connection of one worker to etcd.
#[derive(Debug)]
pub struct Server {
    cluster: Rc<str>,
    authority: Option<Rc<str>>,
    /// The beginning of every key.
    pub(crate) prefix: String,
    /// The longest time for an operation, all attempts together.
    timeout: Duration,
    /// The keys that prove that a filter wrote a record.
    pub(crate) record_keys: RecordKeys,
    complaints: Complaints,
}

impl Server {
    /// The etcd of the operator's settings. Without `record_keys` records can be neither written
    /// nor read.
    pub fn new(settings: &EtcdSettings, record_keys: RecordKeys) -> Self {
        let EtcdSettings { cluster, prefix, timeout, authority } = settings;
        Self {
            cluster: Rc::clone(cluster),
            authority: authority.clone(),
            prefix: prefix.clone(),
            timeout: *timeout,
            record_keys,
            complaints: Complaints::default(),
        }
    }

    /// Allows this number of attempts, each with this timeout, within the operator's timeout.
    pub(crate) fn attempts(&self, host: &dyn Host, (count, each): (u32, Duration)) -> Attempts {
        Attempts::new(host, count, each, self.timeout)
    }

    /// Counts a failure, and logs it unless one of its kind was logged a moment ago.
    pub(crate) fn complain(&self, host: &dyn Host, failure: RemoteFailure) {
        self.complaints.note(host, &self.cluster, failure);
    }

    /// The stream of a watch, with its first message.
    pub(crate) fn watch(&self, message: Vec<u8>) -> GrpcStream {
        GrpcStream {
            cluster: Rc::clone(&self.cluster),
            authority: self.authority.clone(),
            service: WATCH.service,
            method: WATCH.name,
            metadata: WATCH.metadata.to_vec(),
            message,
        }
    }

    /// Calls a method, and waits for the answer.
    pub(crate) async fn call<A: EtcdResponse>(
        &self,
        context: &Context,
        method: &Method,
        message: &[u8],
        timeout: Duration,
        when_caller_leaves: WhenCallerLeaves,
    ) -> Result<A, Unanswered> {
        let call = GrpcCall {
            cluster: Rc::clone(&self.cluster),
            authority: self.authority.clone(),
            service: method.service,
            method: method.name,
            metadata: method.metadata.to_vec(),
            message: message.to_vec(),
            timeout,
        };
        let call = crate::step::Call::Grpc(call);
        let reply = match when_caller_leaves {
            WhenCallerLeaves::Cancel => context.call(call).await,
            WhenCallerLeaves::GoOn => context.call_to_the_end(call).await,
        };
        read(&reply)
    }
}

fn read<A: EtcdResponse>(reply: &Reply) -> Result<A, Unanswered> {
    use Unanswered::{NotDone, PerhapsDone};
    match reply {
        Reply::Grpc(Ok(message)) => A::read(message).ok_or(PerhapsDone(RemoteFailure::Malformed)),
        Reply::Grpc(Err(status)) => Err(match failure(*status) {
            failure @ RemoteFailure::Unreachable(_) => PerhapsDone(failure),
            failure => NotDone(failure),
        }),
        Reply::Failed(CallFailure::NotSent) => Err(NotDone(RemoteFailure::NotSent)),
        Reply::Failed(CallFailure::CutOff) | Reply::Http { .. } => {
            Err(PerhapsDone(RemoteFailure::Malformed))
        }
    }
}

/// The failure that a gRPC status means.
pub(crate) const fn failure(status: GrpcStatus) -> RemoteFailure {
    match status.0 {
        7 | 16 => RemoteFailure::Forbidden(status),
        8 => RemoteFailure::Exhausted,
        3 | 5 | 9 | 12 => RemoteFailure::Rejected(status),
        _ => RemoteFailure::Unreachable(status),
    }
}

/// The attempts of a call that are left, and the time for all of them.
pub(crate) struct Attempts {
    left: u32,
    each: Duration,
    until: UnixTime,
}

impl Attempts {
    pub(crate) fn new(host: &dyn Host, count: u32, each: Duration, within: Duration) -> Self {
        let within = each.saturating_mul(count).min(within);
        Self { left: count, each, until: host.now().after(within) }
    }

    /// The time for the next attempt; `None` if there are no more attempts.
    pub(crate) fn next(&mut self, host: &dyn Host) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        self.at_most(host)
    }

    /// The time for a further call of this attempt; `None` if no time is left.
    pub(crate) fn at_most(&self, host: &dyn Host) -> Option<Duration> {
        let left = self.until.since(host.now()).min(self.each);
        // Envoy fails a call with a timeout of zero at once.
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::TxnResponse;
    use super::*;

    #[test]
    fn only_a_call_that_etcd_itself_refuses_was_surely_not_done() {
        for status in 1..=17 {
            let reply = Reply::Grpc(Err(GrpcStatus(status)));
            let unanswered = read::<TxnResponse>(&reply).unwrap_err();
            let definite = matches!(unanswered, Unanswered::NotDone(_));
            assert_eq!(definite, [3, 5, 7, 8, 9, 12, 16].contains(&status), "{status}");
        }
        #[rustfmt::skip]
        let cases = [
            ("not sent",  Reply::Failed(CallFailure::NotSent), Unanswered::NotDone(RemoteFailure::NotSent)),
            ("cut off",   Reply::Failed(CallFailure::CutOff),  Unanswered::PerhapsDone(RemoteFailure::Malformed)),
            ("empty",     Reply::Grpc(Ok(Vec::new())),         Unanswered::PerhapsDone(RemoteFailure::Malformed)),
            ("not proto", Reply::Grpc(Ok(b"<html>".to_vec())), Unanswered::PerhapsDone(RemoteFailure::Malformed)),
        ];
        for (case, reply, expected) in cases {
            assert_eq!(read::<TxnResponse>(&reply), Err(expected), "{case}");
        }
    }
}
