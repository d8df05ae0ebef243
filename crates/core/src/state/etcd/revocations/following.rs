//! How an Envoy learns of the revocations of other Envoys: it watches, and it asks.
//!
//! One VM of each Envoy, whose turn it is, follows the revocations for all VMs. It holds a watch,
//! on which etcd sends each new revocation at once, and it asks: it reads the key that every
//! revocation writes, through the majority. **The watch brings the news. Only the answer to a
//! question shows that nothing is missing.**
//!
//! The argument why nothing that has ended continues:
//!
//! - The watch only adds revocations to the copy. So the worst watch can end too much, never too
//!   little. It does not write down that the copy is complete, and it does not make the copy
//!   younger. Without answers the guard is as closed after `max_staleness` as it is without a
//!   watch, however much the watch brings.
//! - An answer confirms the copy only if the copy has all revocations until the last one that the
//!   answer names. There are two ways to know. Either this VM reads from etcd all that the copy
//!   lacks. Or it has [counted](super::counted) each revocation until then, without a gap, from
//!   the last one that a read has shown. A watch that lost, repeated or delayed something, or that
//!   is of another history, leaves a gap. Then the VM reads.
//! - The count belongs to this VM, and the copy to all. A VM that finds that etcd's history began
//!   anew empties the copy. The write that confirms the copy therefore names the revision that the
//!   count builds on, and does nothing if the copy does not reach it any more.
//! - The time of an answer is that of its question, as ever.
//!
//! So a watch that hangs, is cut off, is compacted, or comes from a member that is alone with its
//! history costs time, and no more time than to the next question: see [`Watch`]. Without a
//! believed watch the VM asks at every tick.
//!
//! The watch is also what makes a revocation cheap for etcd. The answer to a question about new
//! revocations takes time for every revocation there is, because etcd looks at all keys of a range.
//! A watch takes time for the new one alone.

use std::time::Duration;

use prost::Message as _;

use super::super::calls::{self, Attempts};
use super::super::proto::{
    EtcdResponse as _, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::EtcdRevocations;
use super::watch::{Tend, Watch};
use crate::host::Host;
use crate::metrics;
use crate::state::remote::{LastRevocation, RemoteFailure, Revision};
use crate::state::revocations::{Learned, Unknown};
use crate::step::{Context, GrpcStatus, GrpcStream, StreamAction, StreamEnd, StreamEvent};

/// The longest wait for new revocations before etcd is asked again.
const PATIENCE: Duration = Duration::from_millis(400);

/// The time that the other VMs wait for the VM that asks: a little over two ticks of the guard, so
/// a VM that died is replaced within a second. Two VMs that ask at once do no harm.
const TURN: Duration = Duration::from_millis(600);

/// `CANCELLED`: etcd has ended a watch.
const CANCELLED: GrpcStatus = GrpcStatus(1);

impl EtcdRevocations {
    /// Returns true if this VM is to ask now.
    pub(crate) fn follows(&self, host: &dyn Host) -> bool {
        if !self.is_our_turn(host) {
            return false;
        }
        host.set(metrics::GUARD_WATCHING, self.watch.is_believed().into());
        !self.waits.get() && !self.watch_suffices(host)
    }

    fn is_our_turn(&self, host: &dyn Host) -> bool {
        self.turn.hold(host, &self.turn_key, TURN).unwrap_or(false)
    }

    /// Returns true if the watch is believed, and the last answer is not old enough for a question.
    fn watch_suffices(&self, host: &dyn Host) -> bool {
        let number = self.copy.number(host).ok().flatten().unwrap_or_default();
        let rest = Watch::rest(self.max_staleness);
        self.watch.is_believed() && number.confirmed_at.is_within(rest, host.now())
    }

    /// Asks once for new revocations, and writes down that the copy is complete.
    pub(crate) async fn follow(&self, context: &Context) {
        let host = context.host();
        self.waits.set(true);
        let asked_at = host.now();
        let followed = async {
            let once = Attempts::new(host, 1, PATIENCE, PATIENCE);
            let last = self.read_last(context, once).await?;
            let had_all = match self.watch.has_all_until(last) {
                Some(known) => {
                    let asked = (asked_at, last.seen_at);
                    self.copy.confirm_since(host, known, asked, last.revision)?
                }
                None => false,
            };
            if !had_all {
                self.learn_until(context, last).await?;
                self.copy.confirm(host, asked_at, last.seen_at)?;
            }
            self.watch.note_read(last, had_all, host.uptime());
            Ok(())
        };
        let followed: Result<(), Unknown> = followed.await;
        self.waits.set(false);
        if let Err(unknown) = followed {
            self.complain(host, &unknown);
        }
        self.compare(context).await;
    }

    /// The action on the stream of the watch that is due at a tick.
    pub(crate) fn tend_watch(&self, host: &dyn Host) -> Option<StreamAction> {
        match self.watch.tend(host.uptime(), self.is_our_turn(host)) {
            Tend::Leave => None,
            Tend::Open(from) => Some(StreamAction::Open(self.stream_from(from))),
            Tend::Cancel => Some(StreamAction::Cancel),
            Tend::Replace => {
                let silent = RemoteFailure::Unreachable(calls::DEADLINE_EXCEEDED);
                self.server.complain(host, silent);
                Some(StreamAction::Cancel)
            }
        }
    }

    /// A watch of all revocations from this revision on.
    fn stream_from(&self, from: Revision) -> GrpcStream {
        let (key, range_end) = self.places.watched();
        // A lease that ends deletes revocations, and nobody needs to know.
        let filters = vec![WatchCreateRequest::NO_DELETE];
        let start_revision = from.as_i64();
        let create = WatchCreateRequest { key, range_end, start_revision, filters };
        self.server.watch(WatchRequest { create: Some(create) }.encode_to_vec())
    }

    /// Takes what happened on the stream of the watch.
    pub(crate) fn on_watch(&self, host: &dyn Host, event: &StreamEvent) {
        let failed = match event {
            StreamEvent::Message(message) if self.watch.is_there() => {
                let failed = self.take_news(host, message).err();
                failed.inspect(|_| self.watch.give_up())
            }
            StreamEvent::Message(_) => None,
            StreamEvent::Ended(end) => {
                self.watch.end();
                match end {
                    StreamEnd::NotOpened => Some(RemoteFailure::NotSent),
                    StreamEnd::Closed(GrpcStatus(0)) => None,
                    StreamEnd::Closed(status) => Some(calls::failure(*status)),
                }
            }
        };
        if let Some(failed) = failed {
            self.server.complain(host, failed);
        }
    }

    /// Puts the revocations of a message into the copy.
    fn take_news(&self, host: &dyn Host, message: &[u8]) -> Result<(), RemoteFailure> {
        let response = WatchResponse::read(message).ok_or(RemoteFailure::Malformed)?;
        if response.canceled {
            return Err(RemoteFailure::Rejected(CANCELLED));
        }
        let last_key = self.places.last_revocation.as_bytes();
        let (mut learned, mut brought) = (Vec::<Learned>::new(), Vec::<LastRevocation>::new());
        let folder = self.places.revocations.as_bytes();
        for kv in response.events.iter().filter_map(|event| event.kv.as_ref()) {
            if kv.key == last_key {
                brought.push(kv.as_last_revocation(response.revision()));
            } else if kv.key.starts_with(folder) {
                learned.push(self.read_value(host, kv, host.now()));
            }
        }
        let is_whole = |last: &LastRevocation| {
            let of_it = |kv: &KeyValue| Revision::new(kv.mod_revision) == last.revision;
            let mut all = response.events.iter().filter_map(|event| event.kv.as_ref());
            all.any(|kv| kv.key.starts_with(folder) && of_it(kv))
        };
        if !learned.is_empty() && self.copy.learn(host, &learned, None).is_err() {
            self.watch.note_gap();
        } else if brought.iter().all(is_whole) {
            self.watch.note_brought(&brought);
        } else {
            self.watch.note_gap();
        }
        if response.created {
            self.watch.confirm();
        }
        Ok(())
    }
}
