//! The messages of etcd's v3 API that the filter needs (`rpc.proto` and `kv.proto` of etcd,
//! packages `etcdserverpb` and `mvccpb`). Other fields of a reply are skipped.

use prost::{Message, Oneof};

use crate::state::remote::{LastRevocation, Revision};

/// The header of every reply.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    /// The store's revision, from one on. A message without it is not from etcd.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    /// The number of writes to the key: one for a key that was never changed.
    #[prost(int64, tag = "4")]
    pub(crate) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

impl KeyValue {
    /// Reads the last revocation from this write of the key that every revocation writes.
    pub(crate) fn as_last_revocation(&self, seen_at: Revision) -> LastRevocation {
        LastRevocation {
            revision: Revision::new(self.mod_revision),
            number: u64::try_from(self.version).unwrap_or_default(),
            counted_since: Revision::new(self.create_revision),
            seen_at,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key behind the range; empty for one key alone.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// Read the keys as they were at this revision; zero for now.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    /// Read the keys as the node has them, even if it lags behind.
    #[prost(bool, tag = "7")]
    pub(crate) serializable: bool,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    /// Read the number of keys alone.
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
    /// Leave out keys that were last written before this revision.
    #[prost(int64, tag = "10")]
    pub(crate) min_mod_revision: i64,
}

impl RangeRequest {
    /// One key, as it is now.
    pub(crate) fn of(key: Vec<u8>) -> Self {
        Self { key, ..Self::default() }
    }

    /// The first `limit` of the keys that begin with `prefix`, whose last character is ASCII.
    pub(crate) fn below(prefix: &str, limit: i64) -> Self {
        let mut range_end = prefix.as_bytes().to_vec();
        if let Some(last) = range_end.last_mut() {
            *last = last.saturating_add(1);
        }
        Self { key: prefix.as_bytes().to_vec(), range_end, limit, ..Self::default() }
    }

    /// This request, from the next key after `key` on.
    pub(crate) fn behind(self, key: &[u8]) -> Self {
        Self { key: [key, b"\0"].concat(), ..self }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// The number of keys of the range.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

/// A comparison of one key, or of each key of a range.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// `EQUAL`, the default, or [`LESS`].
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    /// [`CREATE`] or [`MOD`].
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "5, 6")]
    pub(crate) revision: Option<Compared>,
    /// The first key behind the range; empty for one key alone.
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

/// `CompareResult::LESS`.
const LESS: i32 = 2;

/// `CompareTarget::CREATE`.
const CREATE: i32 = 1;
/// `CompareTarget::MOD`.
const MOD: i32 = 2;

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Compared {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key behind the range.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

/// The answer to one operation of a transaction. Only the answer to a range is needed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    /// Ask for the keys on the lease, too.
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Whole seconds that are left; less than zero if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) keys: Vec<Vec<u8>>,
}

/// The first message of a watch. Its `request_union` has other requests, too.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key behind the range.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The revision of the first events that are wanted.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// The kinds of events that are not wanted.
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
}

impl WatchCreateRequest {
    /// Leaves out deletions.
    pub(crate) const NO_DELETE: i32 = 1;
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The watch exists from now on.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    /// The watch has ended, or was never allowed.
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// A write to a watched key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

impl TxnRequest {
    /// Writes `put` if its key has this revision; reads the key otherwise.
    pub(crate) fn put_if(revision: Compared, put: PutRequest) -> Self {
        let target = match revision {
            Compared::Create(_) => CREATE,
            Compared::Mod(_) => MOD,
        };
        let key = put.key.clone();
        Self {
            compare: vec![Compare {
                target,
                key: key.clone(),
                revision: Some(revision),
                ..Compare::default()
            }],
            success: vec![Request::Put(put).into()],
            failure: vec![Request::Range(RangeRequest::of(key)).into()],
        }
    }

    /// Also writes `put` if the comparisons succeed.
    pub(crate) fn and_put(mut self, put: PutRequest) -> Self {
        self.success.push(Request::Put(put).into());
        self
    }

    /// Also writes `put`, whether the comparisons succeed or not.
    pub(crate) fn and_put_anyway(mut self, put: PutRequest) -> Self {
        self.failure.push(Request::Put(put.clone()).into());
        self.and_put(put)
    }

    /// Also deletes these keys, if the comparisons succeed.
    pub(crate) fn and_delete_keys(mut self, keys: impl Iterator<Item = Vec<u8>>) -> Self {
        let delete = |key| Request::Delete(DeleteRangeRequest { key, range_end: Vec::new() });
        self.success.extend(keys.map(|key| delete(key).into()));
        self
    }

    /// Adds the comparison that this key was last written at that revision; zero for a missing key.
    pub(crate) fn only_if_still_at(mut self, key: Vec<u8>, revision: i64) -> Self {
        let revision = Some(Compared::Mod(revision));
        self.compare.push(Compare { target: MOD, key, revision, ..Compare::default() });
        self
    }

    /// Deletes the keys from `key` to `range_end`, and adds the comparison that none of them was
    /// written after `revision`.
    pub(crate) fn and_delete(mut self, key: Vec<u8>, range_end: Vec<u8>, revision: i64) -> Self {
        self.compare.push(Compare {
            result: LESS,
            target: MOD,
            key: key.clone(),
            revision: Some(Compared::Mod(revision.saturating_add(1))),
            range_end: range_end.clone(),
        });
        self.success.push(Request::Delete(DeleteRangeRequest { key, range_end }).into());
        self
    }

    /// Reads several ranges at one moment.
    pub(crate) fn read(ranges: impl IntoIterator<Item = RangeRequest>) -> Self {
        let reads = ranges.into_iter().map(|range| Request::Range(range).into());
        Self { success: reads.collect(), ..Self::default() }
    }
}

impl From<Request> for RequestOp {
    fn from(request: Request) -> Self {
        Self { request: Some(request) }
    }
}

impl TxnResponse {
    /// The range that the operation with this number read.
    pub(crate) fn ranged(&self, operation: usize) -> Option<&RangeResponse> {
        self.responses.get(operation)?.range.as_ref()
    }
}

/// A message that etcd sends.
pub(crate) trait EtcdResponse: Message + Default {
    /// The header of the answer.
    fn header(&self) -> Option<&ResponseHeader>;

    /// The store's revision when it answered.
    fn revision(&self) -> Revision {
        self.header().map(|header| Revision::new(header.revision)).unwrap_or_default()
    }

    /// The last revocation, as `key` of this answer says it.
    fn last_revocation(&self, key: Option<&RangeResponse>) -> LastRevocation {
        let kv = key.and_then(|key| key.kvs.first());
        kv.cloned().unwrap_or_default().as_last_revocation(self.revision())
    }

    /// Reads an answer; `None` if it is not from etcd.
    fn read(bytes: &[u8]) -> Option<Self> {
        let answer = Self::decode(bytes).ok()?;
        // Without this check an empty message would be a whole answer, and mean that there is no
        // such token.
        let revision = answer.header()?.revision;
        (revision > 0).then_some(answer)
    }
}

impl EtcdResponse for RangeResponse {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }
}

impl EtcdResponse for WatchResponse {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }
}

impl EtcdResponse for TxnResponse {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }
}

impl EtcdResponse for LeaseGrantResponse {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }
}

impl EtcdResponse for LeaseTimeToLiveResponse {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_transaction_has_the_bytes_that_etcd_expects() {
        let put = PutRequest { key: b"k".into(), value: b"v".into(), lease: 7 };
        let created = TxnRequest::put_if(Compared::Create(0), put.clone());
        // Written by hand from rpc.proto: a revision of zero is present, not left out.
        let compare = b"\x0a\x07\x10\x01\x1a\x01k\x28\x00";
        let success = b"\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x07";
        let failure = b"\x1a\x05\x0a\x03\x0a\x01k";
        assert_eq!(created.encode_to_vec(), [&compare[..], success, failure].concat());

        let modified = TxnRequest::put_if(Compared::Mod(5), put);
        let compare = b"\x0a\x07\x10\x02\x1a\x01k\x30\x05";
        assert_eq!(modified.encode_to_vec(), [&compare[..], success, failure].concat());
    }

    #[test]
    fn a_message_without_a_revision_is_not_from_etcd() {
        for bytes in [&b""[..], b"\x0a\x00", b"\x0a\x02\x18\x00", b"\x10\x01"] {
            assert_eq!(RangeResponse::read(bytes), None, "{bytes:?}");
            assert_eq!(TxnResponse::read(bytes), None, "{bytes:?}");
            assert_eq!(LeaseGrantResponse::read(bytes), None, "{bytes:?}");
        }
        assert!(RangeResponse::read(b"\x0a\x02\x18\x01").is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoders_panic(bytes: Vec<u8>) {
            let _ = RangeResponse::read(&bytes);
            let _ = TxnResponse::read(&bytes);
            let _ = LeaseGrantResponse::read(&bytes);
            let _ = LeaseTimeToLiveResponse::read(&bytes);
            let _ = WatchResponse::read(&bytes);
        }

        #[test]
        fn a_truncated_answer_is_none_or_names_a_revision(value: Vec<u8>, cut in 0_usize..64) {
            let header = Some(ResponseHeader { revision: 9 });
            let kv = KeyValue { mod_revision: 3, value, ..KeyValue::default() };
            let whole = RangeResponse { header, kvs: vec![kv], more: false, count: 0 };
            let bytes = whole.encode_to_vec();
            let read = RangeResponse::read(&bytes[..bytes.len().saturating_sub(cut)]);
            // A cut between two fields leaves a whole message. gRPC gives the length of a message,
            // so such a cut never arrives.
            prop_assert!(read.is_none_or(|read| read == whole || read.kvs.is_empty()));
        }
    }
}
