//! The number of a change of a store outside Envoy.

/// A revision of the store: the number of changes to all of its keys. It orders changes of
/// different Envoys, whose clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Revision(u64);

impl Revision {
    /// A revision later than any other.
    pub const LAST: Self = Self(u64::MAX);

    /// Reads a revision of the store's protocol: one or more. Less than one is none.
    pub fn new(revision: i64) -> Self {
        Self(u64::try_from(revision).unwrap_or(0))
    }

    /// The revision in the store's protocol.
    pub(crate) fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// The next revision.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns true if there is a revision: the first is one.
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Reads the eight bytes of [`Self::to_bytes`].
    pub(crate) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    pub(crate) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}
