//! An etcd in memory, with revisions, leases and transactions.
//!
//! Its messages follow etcd's own `rpc.proto` and not the filter's, so that a wrong field number in
//! the filter's fails a test.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use crate::config::EtcdSettings;
use crate::state::etcd::{RecordKeys, Server};
use crate::step::{Call, GrpcCall, GrpcStatus, GrpcStream, Reply, Step};
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(uint64, tag = "2")]
    member_id: u64,
    #[prost(int64, tag = "3")]
    revision: i64,
    #[prost(uint64, tag = "4")]
    raft_term: u64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(int64, tag = "4")]
    version: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
    #[prost(int64, tag = "6")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int64, tag = "4")]
    revision: i64,
    #[prost(bool, tag = "7")]
    serializable: bool,
    #[prost(bool, tag = "8")]
    keys_only: bool,
    #[prost(bool, tag = "9")]
    count_only: bool,
    #[prost(int64, tag = "10")]
    min_mod_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Ranged {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    more: bool,
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
    #[prost(bool, tag = "6")]
    ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
struct PutDone {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(oneof = "OpKind", tags = "1, 2, 3")]
    kind: Option<OpKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OpKind {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Target", tags = "5, 6")]
    union: Option<Target>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum Target {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Op>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
struct Done {
    #[prost(oneof = "DoneKind", tags = "1, 2, 3")]
    kind: Option<DoneKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum DoneKind {
    #[prost(message, tag = "1")]
    Range(Ranged),
    #[prost(message, tag = "2")]
    Put(PutDone),
    #[prost(message, tag = "3")]
    Delete(PutDone),
}

#[derive(Clone, PartialEq, Message)]
struct TxnDone {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<Done>,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TimeToLive {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(bool, tag = "2")]
    keys: bool,
}

/// The response to both calls about leases; a grant leaves the last two fields out.
#[derive(Clone, PartialEq, Message)]
struct LeaseDone {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
    #[prost(int64, tag = "4")]
    granted_ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    keys: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchAsked {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    start_revision: i64,
    #[prost(int32, repeated, tag = "5")]
    filters: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Watched {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(bool, tag = "4")]
    canceled: bool,
    #[prost(int64, tag = "5")]
    compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Written>,
}

#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(message, optional, tag = "2")]
    kv: Option<KeyValue>,
}

// Statuses of gRPC.
const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const FAILED_PRECONDITION: u32 = 9;
const OUT_OF_RANGE: u32 = 11;

/// The filter's view of an etcd, which seals records with these keys.
pub fn etcd_server(record_keys: RecordKeys) -> Rc<Server> {
    let settings = EtcdSettings {
        cluster: "etcd".into(),
        prefix: "/impersonation/".into(),
        timeout: Duration::from_millis(3500),
        authority: None,
    };
    Rc::new(Server::new(&settings, record_keys))
}

/// Plays a task to its end that calls etcd and nothing else. `answer` answers with a message, or
/// with a status of gRPC.
pub fn play_in_etcd<T>(
    mut step: Step<T>,
    mut answer: impl FnMut(&GrpcCall) -> Result<Vec<u8>, u32>,
) -> T {
    loop {
        match step {
            Step::Call(Call::Grpc(call), task) => {
                step = task.resume(Reply::Grpc(answer(&call).map_err(GrpcStatus)));
            }
            Step::Done(outcome) => return outcome,
            Step::Call(..) | Step::Stopped => panic!("neither a call to etcd nor an end"),
        }
    }
}

/// One etcd.
#[derive(Clone, Default)]
pub struct Etcd {
    revision: i64,
    /// Reads at an earlier revision fail.
    compacted: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    /// The seconds that each lease was granted for.
    pub leases: BTreeMap<i64, i64>,
    /// The keys that were ever attached to each lease.
    put_on: BTreeMap<i64, BTreeSet<Vec<u8>>>,
    /// The number of writes to tokens that existed already.
    pub replaced: usize,
    /// Makes this etcd wrong: every comparison of one key succeeds.
    pub compares_nothing: bool,
    /// Every write, for watches.
    written: Vec<KeyValue>,
}

/// A watch of a range of keys.
pub struct EtcdWatch {
    keys: std::ops::Range<Vec<u8>>,
    /// The revision of the next events.
    from: i64,
    created: bool,
}

impl Etcd {
    /// Answers a call with a message, or with a status of gRPC.
    pub fn answer(&mut self, call: &GrpcCall) -> Result<Vec<u8>, u32> {
        let message = &call.message[..];
        match (call.service, call.method) {
            ("etcdserverpb.KV", "Range") => {
                Ok(self.range(&Range::decode(message).unwrap())?.encode_to_vec())
            }
            ("etcdserverpb.KV", "Txn") => {
                Ok(self.transact(Txn::decode(message).unwrap())?.encode_to_vec())
            }
            ("etcdserverpb.Lease", "LeaseGrant") => {
                let Lease { ttl, id } = Lease::decode(message).unwrap();
                assert!(ttl > 0 && id > 0, "{ttl} {id}");
                if self.leases.contains_key(&id) {
                    return Err(FAILED_PRECONDITION);
                }
                self.leases.insert(id, ttl);
                let (granted_ttl, keys) = (0, Vec::new());
                Ok(LeaseDone { header: self.header(), id, ttl, granted_ttl, keys }.encode_to_vec())
            }
            ("etcdserverpb.Lease", "LeaseTimeToLive") => {
                let TimeToLive { id, keys } = TimeToLive::decode(message).unwrap();
                assert!(keys, "the filter asks for the keys of a lease");
                let keys = self.keys_on(id);
                let (header, ttl) = (self.header(), self.leases.get(&id).copied());
                let (ttl, granted_ttl) = (ttl.unwrap_or(-1), ttl.unwrap_or(0));
                Ok(LeaseDone { header, id, ttl, granted_ttl, keys }.encode_to_vec())
            }
            other => panic!("etcd has no {other:?}"),
        }
    }

    /// Begins a watch of puts, as the first message of a stream asks for it.
    pub fn watch(&self, stream: &GrpcStream) -> EtcdWatch {
        assert_eq!((stream.service, stream.method), ("etcdserverpb.Watch", "Watch"));
        let asked = WatchAsked::decode(&stream.message[..]).unwrap();
        let WatchCreate { key, range_end, start_revision, filters } = asked.create.unwrap();
        assert_eq!(filters, [1], "without deletions");
        EtcdWatch { keys: key..range_end, from: start_revision, created: false }
    }

    /// The next message of a watch, if there is one: that the watch exists, that it has ended, or
    /// all events of one revision.
    pub fn news(&self, watch: &mut EtcdWatch) -> Option<Vec<u8>> {
        let mut message = Watched { header: self.header(), ..Watched::default() };
        if !watch.created {
            watch.created = true;
            message.created = true;
        } else if watch.from < self.compacted {
            (message.canceled, message.compact_revision) = (true, self.compacted);
            // That was the last message.
            watch.from = i64::MAX;
        } else {
            let wanted =
                |kv: &&KeyValue| kv.mod_revision >= watch.from && watch.keys.contains(&kv.key);
            let next = self.written.iter().find(wanted)?.mod_revision;
            let events = self.written.iter().filter(|kv| kv.mod_revision == next).filter(wanted);
            message.events = events.map(|kv| Written { kv: Some(kv.clone()) }).collect();
            watch.from = next + 1;
        }
        Some(message.encode_to_vec())
    }

    /// Does what a client without write access can do: revokes every lease that has no keys, and
    /// grants it anew for a moment. Returns their number.
    pub fn shorten_leases(&mut self) -> usize {
        let free = |id: &i64| self.keys_on(*id).is_empty();
        let free: Vec<_> = self.leases.keys().copied().filter(free).collect();
        self.leases.extend(free.iter().map(|id| (*id, 12)));
        free.len()
    }

    /// Ends the leases that were granted for no more than this, and deletes their keys.
    pub fn let_go(&mut self, after_seconds: i64) {
        self.leases.retain(|_, ttl| *ttl > after_seconds);
        let leases = &self.leases;
        self.keys.retain(|_, kv| kv.lease == 0 || leases.contains_key(&kv.lease));
    }

    fn keys_on(&self, lease: i64) -> Vec<Vec<u8>> {
        let put = self.put_on.get(&lease).into_iter().flatten();
        put.filter(|key| self.keys.get(*key).is_some_and(|kv| kv.lease == lease)).cloned().collect()
    }

    /// The keys of one kind, such as `tokens`, with their values.
    pub fn folder(&self, kind: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let folder = format!("/impersonation/{kind}/");
        let all = self.keys.iter().filter(|(key, _)| key.starts_with(folder.as_bytes()));
        all.map(|(key, kv)| (key.clone(), kv.value.clone())).collect()
    }

    /// Writes a key, as an intruder with write access would.
    pub fn put_by_hand(&mut self, key: &[u8], value: &[u8]) {
        self.create_by_hand(key, value, self.keys.get(key).map_or(0, |kv| kv.lease));
    }

    /// Deletes a key, as an intruder with write access would. Returns the key's lease.
    pub fn delete_by_hand(&mut self, key: &[u8]) -> i64 {
        self.revision += 1;
        self.keys.remove(key).unwrap().lease
    }

    /// Writes a key on a lease, as an intruder with write access would.
    pub fn create_by_hand(&mut self, key: &[u8], value: &[u8], lease: i64) {
        self.put(Put { key: key.to_vec(), value: value.to_vec(), lease, ignore_lease: false })
            .unwrap();
    }

    /// Replaces a value, given the lease of its key, and no revision. Nobody can do so through
    /// etcd's API.
    pub fn falsify(&mut self, key: &[u8], value: impl FnOnce(i64) -> Vec<u8>) {
        let kv = self.keys.get_mut(key).unwrap();
        kv.value = value(kv.lease);
    }

    /// Answers a transaction as if its comparisons had failed, if it has any.
    pub fn refuse(&mut self, call: &GrpcCall) -> Result<Vec<u8>, u32> {
        let txn = Txn::decode(&call.message[..]).unwrap();
        let succeeded = txn.compare.is_empty();
        Ok(self.perform(txn, succeeded)?.encode_to_vec())
    }

    /// Ends every lease, and deletes every key.
    pub fn lose_leases(&mut self) {
        self.leases.clear();
        self.keys.clear();
        self.revision += 1;
    }

    /// Makes reads at earlier revisions fail.
    pub fn compact(&mut self) {
        self.compacted = self.revision + 1;
    }

    /// Writes this value under every key.
    pub fn overwrite(&mut self, value: &[u8]) {
        self.revision += 1;
        for kv in self.keys.values_mut() {
            kv.value = value.to_vec();
            kv.mod_revision = self.revision;
        }
    }

    /// All keys and values, one after the other.
    pub fn bytes(&self) -> Vec<u8> {
        self.keys.values().flat_map(|kv| [&kv.key[..], &kv.value].concat()).collect()
    }

    /// The number of keys, without those that protect leases.
    pub fn count(&self) -> usize {
        self.keys.len() - self.folder("leases").len()
    }

    fn header(&self) -> Option<Header> {
        // A new etcd is at revision one.
        Some(Header { cluster_id: 7, member_id: 1, revision: self.revision + 1, raft_term: 2 })
    }

    fn range(&self, range: &Range) -> Result<Ranged, u32> {
        // This fake keeps no history: it answers reads at any other revision as if it had been
        // compacted.
        let compacted = (1..self.compacted).contains(&range.revision);
        if compacted || ![0, self.revision + 1].contains(&range.revision) {
            return Err(OUT_OF_RANGE);
        }
        if !range.range_end.is_empty() {
            return Ok(self.page(range));
        }
        assert!(!range.serializable, "reads of one key are linearizable");
        let kvs: Vec<_> = self.keys.get(&range.key).cloned().into_iter().collect();
        Ok(Ranged { header: self.header(), count: kvs.len() as i64, kvs, more: false })
    }

    fn page(&self, range: &Range) -> Ranged {
        assert!(
            (range.limit > 0 || range.count_only) && (!range.serializable || range.keys_only),
            "only a count may be serializable"
        );
        let all =
            self.keys.range(range.key.clone()..range.range_end.clone().max(range.key.clone()));
        let all = all.filter(|(_, kv)| kv.mod_revision >= range.min_mod_revision);
        let mut kvs: Vec<_> = all.map(|(_, kv)| kv.clone()).collect();
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        let count = kvs.len();
        kvs.truncate(usize::try_from(range.limit).unwrap());
        let more = kvs.len() < count && !range.count_only;
        Ranged { header: self.header(), count: count as i64, kvs, more }
    }

    fn transact(&mut self, txn: Txn) -> Result<TxnDone, u32> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        self.perform(txn, succeeded)
    }

    fn perform(&mut self, txn: Txn, succeeded: bool) -> Result<TxnDone, u32> {
        let ops = if succeeded { txn.success } else { txn.failure };
        let (mut responses, mut writes) = (Vec::new(), false);
        let (before, revision) = (self.revision, self.revision + 1);
        for op in ops {
            // All writes of one transaction have one revision.
            self.revision = before;
            let kind = match op.kind.unwrap() {
                OpKind::Range(range) => DoneKind::Range(self.range(&range)?),
                OpKind::Put(put) => {
                    self.put(put)?;
                    DoneKind::Put(PutDone { header: self.header() })
                }
                OpKind::Delete(delete) => {
                    let range = delete.key.clone()..delete.range_end.clone();
                    self.keys.retain(|key, _| *key != delete.key && !range.contains(key));
                    self.revision += 1;
                    DoneKind::Delete(PutDone { header: self.header() })
                }
            };
            writes |= !matches!(kind, DoneKind::Range(_));
            responses.push(Done { kind: Some(kind) });
        }
        self.revision = if writes { revision } else { before };
        Ok(TxnDone { header: self.header(), succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
        if !compare.range_end.is_empty() {
            let (2, 2, Some(Target::Mod(limit))) = (compare.result, compare.target, compare.union)
            else {
                panic!("a range is only compared by its revisions");
            };
            let mut all = self.keys.range(compare.key.clone()..compare.range_end.clone());
            return all.all(|(_, kv)| kv.mod_revision < limit);
        }
        assert_eq!(compare.result, 0, "equal");
        let found = self.keys.get(&compare.key);
        let (create, modified) =
            found.map_or((0, 0), |found| (found.create_revision, found.mod_revision));
        self.compares_nothing
            || match (compare.target, compare.union.unwrap()) {
                (1, Target::Create(expected)) => create == expected,
                (2, Target::Mod(expected)) => modified == expected,
                other => panic!("{other:?} says two things"),
            }
    }

    fn put(&mut self, put: Put) -> Result<(), u32> {
        let old = self.keys.get(&put.key);
        let lease = match (put.ignore_lease, old) {
            (true, Some(old)) => old.lease,
            (true, None) => return Err(INVALID_ARGUMENT),
            (false, _) if put.lease != 0 && !self.leases.contains_key(&put.lease) => {
                return Err(NOT_FOUND);
            }
            (false, _) => put.lease,
        };
        let is_token = put.key.starts_with(b"/impersonation/tokens/");
        self.replaced += usize::from(old.is_some() && is_token);
        let revision = self.revision + 2;
        let (create_revision, version) =
            old.map_or((revision, 1), |old| (old.create_revision, old.version + 1));
        let Put { key, value, .. } = put;
        self.put_on.entry(lease).or_default().insert(key.clone());
        let mod_revision = revision;
        self.revision += 1;
        let kv =
            KeyValue { key: key.clone(), create_revision, mod_revision, version, value, lease };
        self.written.push(kv.clone());
        self.keys.insert(key, kv);
        Ok(())
    }
}
