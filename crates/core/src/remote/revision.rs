//! What etcd counts: its changes, one after the other, in whatever Envoy they were made.

/// A revision of etcd's: how many changes there had been to all that it keeps. It orders what clocks cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Revision(u64);

impl Revision {
    /// Later than any that there will be.
    pub const LAST: Self = Self(u64::MAX);

    /// As etcd says it: one or more. What is less is none.
    pub fn new(revision: i64) -> Self {
        Self(u64::try_from(revision).unwrap_or(0))
    }

    /// As a message says it.
    pub(crate) fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Whether there is one: etcd's first is one.
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// As it is written down.
    pub(crate) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    pub(crate) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}
