//! An etcd whose answers somebody forged. It seals records with code of its own, and not with the
//! filter's.

use std::hash::Hasher as _;

use impersonation_core::fakes::Etcd;
use impersonation_core::step::GrpcCall;
use sha2::{Digest as _, Sha256};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::setting::OWN_KEY;

const TAG_LEN: usize = 16;

/// Answers with `odd` as the content of the token's record, under a right tag; as a revocation,
/// which has no tag; or as more fields of a lease. A transaction with comparisons does not succeed.
/// `revoked` adds a revocation beside the record.
pub(crate) fn answer_oddly(
    etcd: &mut Etcd,
    call: &GrpcCall,
    odd: &[u8],
    revoked: bool,
) -> Result<Vec<u8>, u32> {
    let (key, _) = token(etcd);
    let folder = str::from_utf8(&key).unwrap().replacen("/tokens/", "/revocations/", 1);
    let (folder, _) = folder.rsplit_once('/').unwrap();
    match call.method {
        "Range" => {
            etcd.put_by_hand(format!("{folder}/odd").as_bytes(), odd);
            etcd.answer(call)
        }
        "Txn" => {
            if !odd.is_empty() {
                etcd.falsify(&key, |lease| sealed(&key, lease, odd));
            }
            if revoked {
                // Only the revision of this key counts.
                etcd.put_by_hand(format!("{folder}.last").as_bytes(), b"");
            }
            etcd.refuse(call)
        }
        // The later of two fields counts.
        _ => Ok([&*etcd.answer(call)?, odd].concat()),
    }
}

/// Returns true if the tags of this module are the filter's.
pub(crate) fn seals_as_the_filter_does(mut etcd: Etcd) -> bool {
    let (key, value) = token(&etcd);
    let (content, _) = value.split_last_chunk::<TAG_LEN>().unwrap();
    etcd.falsify(&key, |lease| sealed(&key, lease, content));
    token(&etcd).1 == value
}

/// The key of the first token and its value.
fn token(etcd: &Etcd) -> (Vec<u8>, Vec<u8>) {
    etcd.folder("tokens").swap_remove(0)
}

/// Seals a record as the filter seals one that creates its key: see `etcd/authentic.rs` of the
/// core.
fn sealed(key: &[u8], lease: i64, content: &[u8]) -> Vec<u8> {
    let hash = Sha256::new().chain_update(b"impersonation-filter: records in etcd\0");
    let hash = hash.chain_update(OWN_KEY).finalize();
    let mut tag = SipHasher24::new_with_key(hash.first_chunk().unwrap());
    let (version, created) = (1_i64.to_le_bytes(), 0_i64.to_le_bytes());
    let (len, lease) = ((key.len() as u64).to_le_bytes(), lease.to_le_bytes());
    for part in [b"r", &len[..], key, &lease, &version, &created, content] {
        tag.write(part);
    }
    [content, &tag.finish128().as_bytes()].concat()
}
