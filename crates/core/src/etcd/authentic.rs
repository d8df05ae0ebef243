//! Records that nobody else can have written: each carries a tag that only who has a signing key can make.
//!
//! Who may write in etcd can put there what they like, and put back what was there before. So a tag is made over the
//! value, over the key's name, and over what etcd itself says of the key: its lease, how often it was written, and the
//! revision that created it. etcd counts the latter two, and nobody who writes can choose them. So a record that was
//! put back is not taken for what is there now, whatever it says.
//!
//! A record cannot say which revision creates it, as that is known only afterwards. The token itself says it: see
//! [`RecordKeys::of_token`].
//!
//! SipHash-2-4 with a key and a tag of 128 bits each: a keyed function for short messages, of which an exchange needs
//! four. In V8 all four take less than a microsecond, and HMAC-SHA256 takes fifteen times as long.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

use super::proto::KeyValue;
use crate::remote::{RemoteFailure, Revision, TAG_LEN, Tag};
use crate::secret::{Digest, Secret};

/// One key for each private signing key that is listed. Tags are made with the first, and good with any: so keys can be
/// rotated.
#[derive(Debug, Default)]
pub struct RecordKeys(Vec<Secret<[u8; 16]>>);

/// What a value is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound<'k> {
    /// The key's name.
    pub(crate) key: &'k [u8],
    /// The lease on which it hangs.
    pub(crate) lease: i64,
    /// How often it will have been written.
    pub(crate) version: i64,
    /// The revision that created the key: zero for what creates it.
    pub(crate) created: i64,
}

impl<'k> Bound<'k> {
    /// For a key that is to be created.
    pub(crate) const fn new(key: &'k [u8], lease: i64) -> Self {
        Self { key, lease, version: 1, created: 0 }
    }

    /// For a value that is to follow one that was read, on the same lease.
    pub(crate) fn after(kv: &'k KeyValue) -> Self {
        let version = kv.version.saturating_add(1);
        Self { key: &kv.key, lease: kv.lease, version, created: kv.create_revision }
    }

    /// For a value as it was read.
    pub(crate) fn of(kv: &'k KeyValue) -> Self {
        let created = if kv.version == 1 { 0 } else { kv.create_revision };
        Self { key: &kv.key, lease: kv.lease, version: kv.version, created }
    }
}

impl RecordKeys {
    /// From keys that follow from the signing keys, in their order.
    pub const fn new(keys: Vec<Secret<[u8; 16]>>) -> Self {
        Self(keys)
    }

    /// Puts the tag behind a value.
    pub(crate) fn seal(&self, bound: Bound<'_>, value: &[u8]) -> Result<Vec<u8>, RemoteFailure> {
        let tag = self.first()?.of_record(bound, value);
        Ok([value, &tag].concat())
    }

    /// The value before the tag, if that is right.
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

    /// Lets a token say which revision created its record.
    pub(crate) fn of_token(
        &self,
        digest: &Digest,
        created: Revision,
    ) -> Result<Tag, RemoteFailure> {
        Ok(self.first()?.of_token(digest, created))
    }

    /// Whether a token says so.
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

/// One of the keys.
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

    /// `kind` keeps what is said of one thing from being taken for what is said of another.
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
