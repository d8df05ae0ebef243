//! How many tokens are outstanding, of all Envoys together, counted on a timer and never on the way of a request.
//!
//! One VM of each Envoy reads the keys without their values, a page to a tick, from whichever node answers: that a
//! count is a few seconds old does no harm. A key that was never written again was not spent, and its lease tells
//! when it was minted.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use prost::Message as _;

use super::Etcd;
use crate::etcd::calls::{RANGE_ANYWHERE, Unanswered};
use crate::etcd::lease;
use crate::etcd::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::host::{Host, UnixTime};
use crate::metrics;
use crate::step::{Context, WhenCallerLeaves};
use crate::store::census::TURN;
use crate::store::slots::Occupancy;
use crate::turn::Turn;

/// Keys to a page, of about a hundred bytes each.
const PAGE: i64 = 2000;

/// How long a page is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A count under way.
#[derive(Debug, Default)]
pub(super) struct Count {
    turn: Turn,
    /// Whether a page is waited for.
    waits: Cell<bool>,
    /// The last key of the page before, once there was one.
    last: RefCell<Option<Vec<u8>>>,
    counted: Cell<Occupancy>,
}

impl Etcd {
    /// Whether this VM counts, and can go on with it.
    pub(in crate::store) fn counts(&self, host: &dyn Host) -> bool {
        let Count { turn, waits, last, counted } = &self.count;
        if waits.get() {
            return false;
        }
        let ours = turn.hold(host, &format!("{}census", self.places.tokens), TURN).unwrap_or(false);
        if !ours {
            last.take();
            counted.take();
        }
        ours
    }

    /// Counts another page. `Some` after the last.
    pub(in crate::store) async fn count(&self, context: &Context) -> Option<Occupancy> {
        let Count { waits, last, counted, .. } = &self.count;
        let mut message = RangeRequest {
            serializable: true,
            keys_only: true,
            ..RangeRequest::below(&self.places.tokens, PAGE)
        };
        if let Some(last) = last.take() {
            message = message.behind(&last);
        }
        waits.set(true);
        let cancel = WhenCallerLeaves::Cancel;
        let message = message.encode_to_vec();
        let answer: Result<RangeResponse, _> =
            self.server.call(context, &RANGE_ANYWHERE, &message, PATIENCE, cancel).await;
        waits.set(false);
        let page = match answer {
            Ok(page) => page,
            Err(Unanswered::NotDone(failure) | Unanswered::PerhapsDone(failure)) => {
                // Requests that meet it are told of in the log; the metrics know before there are any.
                context.host().count(metrics::store_failed(failure.kind()));
                counted.take();
                return None;
            }
        };
        let now = context.host().now();
        let mut so_far = counted.take();
        page.kvs.iter().for_each(|kv| self.add(kv, now, &mut so_far));
        match page.kvs.last() {
            Some(kv) if page.more => {
                last.replace(Some(kv.key.clone()));
                counted.set(so_far);
                None
            }
            _ => Some(so_far),
        }
    }

    fn add(&self, kv: &KeyValue, now: UnixTime, counted: &mut Occupancy) {
        let expiry = lease::made_at(kv.lease).after(self.lifetime);
        if kv.version != 1 || expiry <= now {
            return;
        }
        counted.outstanding = counted.outstanding.saturating_add(1);
        let first = counted.first_expiry.map_or(expiry, |first| first.min(expiry));
        counted.first_expiry = Some(first);
    }
}
