//! An etcd to which all is well: it does whatever it is asked, and has one token. Its messages are written down from
//! etcd's own `rpc.proto`, apart from the filter's.

use std::hash::Hasher as _;

use impersonation_core::step::GrpcCall;
use prost::Message;
use sha2::{Digest as _, Sha256};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::setting::OWN_KEY;

/// What it is at, always.
const REVISION: i64 = 9;

const TAG_LEN: usize = 16;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TxnDone {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<OperationDone>,
}

#[derive(Clone, PartialEq, Message)]
struct OperationDone {
    #[prost(message, optional, tag = "1")]
    range: Option<Ranged>,
}

#[derive(Clone, PartialEq, Message)]
struct Ranged {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
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
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

/// What both calls about leases are answered with.
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    keys: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
pub(crate) struct Etcd {
    /// The last one that was granted.
    lease: Lease,
    /// What was written first under a name of a token's.
    token: Put,
}

impl Etcd {
    /// Does what a call asks for.
    pub(crate) fn answer(&mut self, call: &GrpcCall) -> Vec<u8> {
        let message = &*call.message;
        match call.method {
            "LeaseGrant" => {
                let LeaseGrant { ttl, id } = LeaseGrant::decode(message).unwrap();
                self.lease = Lease { header: header(), id, ttl, keys: Vec::new() };
                self.lease.encode_to_vec()
            }
            "LeaseTimeToLive" => self.lease.encode_to_vec(),
            "Range" => ranged(Vec::new()).encode_to_vec(),
            _ => {
                let puts = Txn::decode(message).unwrap().success.into_iter();
                let puts: Vec<_> = puts.filter_map(|operation| operation.put).collect();
                if puts.is_empty() {
                    return self.read(true, self.token.value.clone(), false);
                }
                self.lease.keys.extend(puts.iter().map(|put| put.key.clone()));
                let is_token = |put: &Put| put.key.starts_with(b"/impersonation/tokens/");
                let token = puts.into_iter().find(is_token);
                if let Some(put) = token.filter(|_| self.token.key.is_empty()) {
                    self.token = put;
                }
                TxnDone { header: header(), succeeded: true, responses: Vec::new() }.encode_to_vec()
            }
        }
    }

    /// Answers otherwise: with `odd` for what the record says, its tag right all the same; with `odd` as it is where no
    /// tag is; or with what it says of a lease besides. A transaction did not succeed then.
    pub(crate) fn answer_oddly(&mut self, call: &GrpcCall, odd: &[u8], revoked: bool) -> Vec<u8> {
        match call.method {
            "Range" => ranged(vec![self.revocation(odd.to_vec())]).encode_to_vec(),
            "Txn" if odd.is_empty() => self.read(false, self.token.value.clone(), revoked),
            "Txn" => self.read(false, self.sealed(odd), revoked),
            // The later of two fields counts.
            _ => [&*self.answer(call), odd].concat(),
        }
    }

    /// Whether the tags that are made here are the filter's.
    pub(crate) fn seals_as_the_filter_does(&self) -> bool {
        let (content, _) = self.token.value.split_last_chunk::<TAG_LEN>().unwrap();
        self.sealed(content) == self.token.value
    }

    /// The token's key and, if something was `revoked` lately, a key that says so: of that one only its revision counts.
    fn read(&self, succeeded: bool, value: Vec<u8>, revoked: bool) -> Vec<u8> {
        let last = revoked.then(|| self.revocation(Vec::new())).into_iter().collect();
        let ranges = [ranged(vec![self.kv(value)]), ranged(last)];
        let responses = ranges.map(|range| OperationDone { range: Some(range) }).to_vec();
        TxnDone { header: header(), succeeded, responses }.encode_to_vec()
    }

    fn kv(&self, value: Vec<u8>) -> KeyValue {
        let Put { key, lease, .. } = self.token.clone();
        let (create_revision, mod_revision) = (REVISION, REVISION);
        KeyValue { key, create_revision, mod_revision, version: 1, value, lease }
    }

    /// One that ended what there is.
    fn revocation(&self, value: Vec<u8>) -> KeyValue {
        KeyValue { mod_revision: REVISION + 1, ..self.kv(value) }
    }

    /// As the filter seals what creates a key: see `etcd/authentic.rs` of the core.
    fn sealed(&self, content: &[u8]) -> Vec<u8> {
        let hash = Sha256::new().chain_update(b"impersonation-filter: records in etcd\0");
        let hash = hash.chain_update(OWN_KEY).finalize();
        let mut tag = SipHasher24::new_with_key(hash.first_chunk().unwrap());
        let Put { key, lease, .. } = &self.token;
        let (version, created) = (1_i64.to_le_bytes(), 0_i64.to_le_bytes());
        let (len, lease) = ((key.len() as u64).to_le_bytes(), lease.to_le_bytes());
        for part in [b"r", &len[..], key, &lease, &version, &created, content] {
            tag.write(part);
        }
        [content, &tag.finish128().as_bytes()].concat()
    }
}

fn header() -> Option<Header> {
    Some(Header { revision: REVISION })
}

fn ranged(kvs: Vec<KeyValue>) -> Ranged {
    Ranged { header: header(), kvs }
}
