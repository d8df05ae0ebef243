//! An etcd in memory: keys with revisions, leases, transactions. Its messages are written down from etcd's own
//! `rpc.proto`, apart from the filter's.

use std::collections::{BTreeMap, BTreeSet};

use impersonation_core::step::GrpcCall;
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
    #[prost(oneof = "OpKind", tags = "1, 2")]
    kind: Option<OpKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OpKind {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
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
    #[prost(oneof = "DoneKind", tags = "1, 2")]
    kind: Option<DoneKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum DoneKind {
    #[prost(message, tag = "1")]
    Range(Ranged),
    #[prost(message, tag = "2")]
    Put(PutDone),
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
struct LeaseDone {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
}

/// Statuses of gRPC.
const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const FAILED_PRECONDITION: u32 = 9;
const OUT_OF_RANGE: u32 = 11;

/// One etcd.
#[derive(Default)]
pub(crate) struct Etcd {
    revision: i64,
    /// What was before this revision is forgotten.
    compacted: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    pub leases: BTreeSet<i64>,
    /// How many records have been put in the place of others.
    pub replaced: usize,
    /// Takes every comparison for true.
    pub compares_nothing: bool,
}

impl Etcd {
    /// Does what a call asks for. A message, or a status.
    pub(crate) fn answer(&mut self, call: &GrpcCall) -> Result<Vec<u8>, u32> {
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
                if !self.leases.insert(id) {
                    return Err(FAILED_PRECONDITION);
                }
                Ok(LeaseDone { header: self.header(), id, ttl }.encode_to_vec())
            }
            other => panic!("etcd has no {other:?}"),
        }
    }

    /// Every lease ends, and every key with it.
    pub(crate) fn lose_leases(&mut self) {
        self.leases.clear();
        self.keys.clear();
        self.revision += 1;
    }

    /// Forgets all that is not so any more.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision + 1;
    }

    /// Writes something else under every key.
    pub(crate) fn overwrite(&mut self, value: &[u8]) {
        self.revision += 1;
        for kv in self.keys.values_mut() {
            kv.value = value.to_vec();
            kv.mod_revision = self.revision;
        }
    }

    /// All that it holds.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.keys.values().flat_map(|kv| [&kv.key[..], &kv.value].concat()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn header(&self) -> Option<Header> {
        // One that is new is at revision one.
        Some(Header { cluster_id: 7, member_id: 1, revision: self.revision + 1, raft_term: 2 })
    }

    fn range(&self, range: &Range) -> Result<Ranged, u32> {
        if range.revision != 0 && range.revision < self.compacted {
            return Err(OUT_OF_RANGE);
        }
        assert_eq!(range.revision, 0, "only what is now is kept here");
        if !range.range_end.is_empty() {
            return Ok(self.page(range));
        }
        assert!(!range.serializable, "one key is read as it is now");
        let kvs: Vec<_> = self.keys.get(&range.key).cloned().into_iter().collect();
        Ok(Ranged { header: self.header(), count: kvs.len() as i64, kvs, more: false })
    }

    fn page(&self, range: &Range) -> Ranged {
        assert!(range.limit > 0 && range.serializable == range.keys_only, "only a count is late");
        let all = self.keys.range(range.key.clone()..range.range_end.clone());
        let all = all.filter(|(_, kv)| kv.mod_revision >= range.min_mod_revision);
        let mut kvs: Vec<_> = all.map(|(_, kv)| kv.clone()).collect();
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        let count = kvs.len();
        kvs.truncate(usize::try_from(range.limit).unwrap());
        let more = kvs.len() < count;
        Ranged { header: self.header(), count: count as i64, kvs, more }
    }

    fn transact(&mut self, txn: Txn) -> Result<TxnDone, u32> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { txn.success } else { txn.failure };
        let (mut responses, mut writes) = (Vec::new(), false);
        let (before, revision) = (self.revision, self.revision + 1);
        for op in ops {
            // All that one transaction writes has one revision.
            self.revision = before;
            let kind = match op.kind.unwrap() {
                OpKind::Range(range) => DoneKind::Range(self.range(&range)?),
                OpKind::Put(put) => {
                    self.put(put)?;
                    DoneKind::Put(PutDone { header: self.header() })
                }
            };
            responses.push(Done { kind: Some(kind) });
            writes |= matches!(responses.last(), Some(Done { kind: Some(DoneKind::Put(_)) }));
        }
        self.revision = if writes { revision } else { before };
        Ok(TxnDone { header: self.header(), succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
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
            (false, _) if put.lease != 0 && !self.leases.contains(&put.lease) => {
                return Err(NOT_FOUND);
            }
            (false, _) => put.lease,
        };
        self.replaced += usize::from(old.is_some());
        let revision = self.revision + 2;
        let (create_revision, version) =
            old.map_or((revision, 1), |old| (old.create_revision, old.version + 1));
        let Put { key, value, .. } = put;
        let mod_revision = revision;
        self.revision += 1;
        let kv =
            KeyValue { key: key.clone(), create_revision, mod_revision, version, value, lease };
        self.keys.insert(key, kv);
        Ok(())
    }
}
