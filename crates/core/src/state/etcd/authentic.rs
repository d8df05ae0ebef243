//! Tags that prove that a filter wrote a record: only a filter with one of the signing keys can
//! make them.
//!
//! A user who may write in etcd can write any value, and can put back an earlier one. So a tag
//! covers the value, the name of the key, and what etcd itself says of the key: its lease, the
//! number of its writes, and the revision that created it. etcd counts the latter two, and a writer
//! cannot choose them. So a record that was put back does not pass for the current one.
//!
//! A record cannot contain the revision that creates it, because that is known only afterwards. The
//! token contains it: see [`RecordKeys::of_token`].
//!
//! The tags are SipHash-2-4 with a key and a tag of 128 bits each: a keyed function for short
//! messages. An exchange needs four tags. In V8 all four take less than a microsecond; HMAC-SHA256
//! takes fifteen times as long.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

use super::proto::KeyValue;
use crate::secret::{Digest, Secret};
use crate::state::remote::{RemoteFailure, Revision, TAG_LEN, Tag};

/// One key for each private signing key that is listed. The first makes tags, and every one
/// verifies them, so that keys can be rotated.
#[derive(Debug, Default)]
pub struct RecordKeys(Vec<Secret<[u8; 16]>>);

/// The facts besides the value that a tag covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'k> {
    /// The key's name.
    pub(crate) key: &'k [u8],
    /// The lease that the key is on.
    pub(crate) lease: i64,
    /// The number of writes to the key, with this one.
    pub(crate) version: i64,
    /// The revision that created the key; zero for the write that creates it.
    pub(crate) created: i64,
}

impl<'k> Bound<'k> {
    /// The facts of a key that is about to be created.
    pub(crate) const fn new(key: &'k [u8], lease: i64) -> Self {
        Self { key, lease, version: 1, created: 0 }
    }

    /// The facts of a value that is about to replace one that was read, on the same lease.
    pub(crate) fn after(kv: &'k KeyValue) -> Self {
        let version = kv.version.saturating_add(1);
        Self { key: &kv.key, lease: kv.lease, version, created: kv.create_revision }
    }

    /// The facts of a value as it was read.
    pub(crate) fn of(kv: &'k KeyValue) -> Self {
        let created = if kv.version == 1 { 0 } else { kv.create_revision };
        Self { key: &kv.key, lease: kv.lease, version: kv.version, created }
    }
}

impl RecordKeys {
    /// Takes keys that are derived from the signing keys, in the same order.
    pub const fn new(keys: Vec<Secret<[u8; 16]>>) -> Self {
        Self(keys)
    }

    /// Appends the tag to a value.
    pub(crate) fn seal(&self, bound: Bound<'_>, value: &[u8]) -> Result<Vec<u8>, RemoteFailure> {
        let tag = self.first()?.of_record(bound, value);
        Ok([value, &tag].concat())
    }

    /// Verifies the tag of a sealed value, and returns the value before it.
    pub(crate) fn open<'v>(
        &self,
        bound: Bound<'_>,
        sealed: &'v [u8],
    ) -> Result<&'v [u8], RemoteFailure> {
        let (value, tag) =
            sealed.split_last_chunk::<TAG_LEN>().ok_or(RemoteFailure::Unauthentic)?;
        let is_right = self.any(|key| key.of_record(bound, value), tag);
        if is_right { Ok(value) } else { Err(RemoteFailure::Unauthentic) }
    }

    /// The tag by which a token says which revision created its record.
    pub(crate) fn of_token(
        &self,
        digest: &Digest,
        created: Revision,
    ) -> Result<Tag, RemoteFailure> {
        Ok(self.first()?.of_token(digest, created))
    }

    /// Returns true if the token has the tag of that revision.
    pub(crate) fn says(&self, digest: &Digest, created: Revision, tag: &Tag) -> bool {
        self.any(|key| key.of_token(digest, created), tag)
    }

    fn first(&self) -> Result<Key<'_>, RemoteFailure> {
        self.0.first().map(Key).ok_or(RemoteFailure::Unauthentic)
    }

    fn any(&self, make: impl Fn(Key<'_>) -> Tag, tag: &Tag) -> bool {
        self.0.iter().any(|key| make(Key(key)).ct_eq(tag).into())
    }
}

/// One of these keys.
struct Key<'k>(&'k Secret<[u8; 16]>);

impl Key<'_> {
    fn of_record(&self, bound: Bound<'_>, value: &[u8]) -> Tag {
        let Bound { key, lease, version, created } = bound;
        let len = u64::try_from(key.len()).unwrap_or(u64::MAX);
        self.tag(
            b'r',
            &[
                &len.to_le_bytes(),
                key,
                &lease.to_le_bytes(),
                &version.to_le_bytes(),
                &created.to_le_bytes(),
                value,
            ],
        )
    }

    fn of_token(&self, digest: &Digest, created: Revision) -> Tag {
        self.tag(b't', &[digest.as_bytes(), &created.to_bytes()])
    }

    /// Makes a tag. `kind` keeps a tag of a record from passing for a tag of a token.
    fn tag(&self, kind: u8, parts: &[&[u8]]) -> Tag {
        let mut hasher = SipHasher24::new_with_key(self.0.expose());
        hasher.write(&[kind]);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> RecordKeys {
        RecordKeys::new(bytes.iter().map(|byte| Secret::new([*byte; 16])).collect())
    }

    const BOUND: Bound<'static> = Bound { key: b"k", lease: 2, version: 3, created: 4 };

    fn sealed(keys: &RecordKeys) -> Vec<u8> {
        keys.seal(BOUND, b"value").unwrap()
    }

    #[test]
    fn a_record_is_opened_where_and_as_it_was_sealed_and_nowhere_else() {
        let keys = keys(&[1]);
        let sealed = sealed(&keys);
        assert_eq!(keys.open(BOUND, &sealed), Ok(&b"value"[..]));
        #[rustfmt::skip]
        let elsewhere = [
            ("another key",               Bound { key: b"K", ..BOUND }),
            ("a longer key",              Bound { key: b"kv", ..BOUND }),
            ("another lease",             Bound { lease: 1, ..BOUND }),
            ("put back",                  Bound { version: 5, ..BOUND }),
            ("deleted and created again", Bound { created: 9, ..BOUND }),
            ("as if it were new",         Bound::new(b"k", 2)),
        ];
        for (case, bound) in elsewhere {
            assert_eq!(keys.open(bound, &sealed), Err(RemoteFailure::Unauthentic), "{case}");
        }
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(keys.open(BOUND, &changed), Err(RemoteFailure::Unauthentic), "{place}");
            let cut = keys.open(BOUND, &sealed[..place]);
            assert_eq!(cut, Err(RemoteFailure::Unauthentic), "{place}");
        }
    }

    #[test]
    fn tags_are_made_with_the_first_key_and_good_with_any() {
        let (old, both, new, none) = (keys(&[1]), keys(&[2, 1]), keys(&[2]), keys(&[]));
        assert!(both.open(BOUND, &sealed(&old)).is_ok());
        assert!(new.open(BOUND, &sealed(&both)).is_ok());
        assert!(old.open(BOUND, &sealed(&both)).is_err());
        assert!(none.open(BOUND, &sealed(&old)).is_err());
        assert!(none.seal(BOUND, b"value").is_err());
    }

    #[test]
    fn a_token_says_which_revision_created_its_record() {
        let (keys, digest) = (keys(&[1]), Digest::of(b"token"));
        let tag = keys.of_token(&digest, Revision::new(7)).unwrap();
        assert!(keys.says(&digest, Revision::new(7), &tag));
        assert!(!keys.says(&digest, Revision::new(8), &tag));
        assert!(!keys.says(&Digest::of(b"other"), Revision::new(7), &tag));
    }
}
