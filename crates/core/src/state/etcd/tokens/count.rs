//! The count of outstanding tokens of all Envoys together. A timer counts them; no request waits
//! for it.
//!
//! One VM of each Envoy reads the keys without their values, one page in each tick. Any node may
//! answer: a count that is a few seconds old does no harm. A key that was written once belongs to a
//! token that is not spent, and its lease shows when it was minted.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use prost::Message as _;

use super::EtcdTokens;
use crate::host::{Host, UnixTime};
use crate::metrics;
use crate::state::etcd::calls::{RANGE_ANYWHERE, Unanswered};
use crate::state::etcd::lease;
use crate::state::etcd::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::state::local::TURN;
use crate::state::shared_data::Turn;
use crate::state::store::Occupancy;
use crate::step::{Context, WhenCallerLeaves};

/// The number of keys in a page, of about a hundred bytes each.
const PAGE: i64 = 2000;

/// The longest wait for a page.
const PATIENCE: Duration = Duration::from_secs(1);

/// A count that is under way.
#[derive(Debug)]
pub(super) struct TokenCount {
    turn: Turn,
    /// The key of the lease of the VM that counts.
    turn_key: String,
    /// True while a page is under way.
    waits: Cell<bool>,
    /// The last key of the previous page.
    last: RefCell<Option<Vec<u8>>>,
    counted: Cell<Occupancy>,
}

impl TokenCount {
    pub(super) fn new(turn_key: String) -> Self {
        let (turn, waits, last, counted) = Default::default();
        Self { turn, turn_key, waits, last, counted }
    }
}

impl EtcdTokens {
    /// Returns true if this VM counts, and no page is under way.
    pub(crate) fn counts(&self, host: &dyn Host) -> bool {
        let TokenCount { turn, turn_key, waits, last, counted } = &self.count;
        if waits.get() {
            return false;
        }
        let ours = turn.hold(host, turn_key, TURN).unwrap_or(false);
        if !ours {
            last.take();
            counted.take();
        }
        ours
    }

    /// Counts the next page, and sets the gauges after the last one.
    pub(crate) async fn count(&self, context: &Context) {
        if let Some(occupancy) = self.count_page(context).await {
            occupancy.set_gauges(context.host(), self.lifetime);
        }
    }

    /// Counts the next page. Returns `Some` after the last one.
    async fn count_page(&self, context: &Context) -> Option<Occupancy> {
        let TokenCount { waits, last, counted, .. } = &self.count;
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
                // A request that fails logs the failure. The metric shows it before there is such a
                // request.
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
        counted.add(expiry);
    }
}
