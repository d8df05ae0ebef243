//! Values in Envoy's shared data that several workers change at once.
//!
//! Shared data has no lock, and it never forgets a key. So every write is a compare-and-set that
//! names the version it replaces, and every component uses a fixed set of [`keys`].

pub mod keys;
mod once;
mod secret;
mod turn;

pub use once::{NotRemembered, SeenOnce};
pub(crate) use secret::SharedSecret;
pub(crate) use turn::Turn;

use crate::host::{HostFailure, SharedData, Swap, Version};

/// The new value of a key, and the result for the caller of [`update`].
pub(crate) enum Change<T> {
    /// Writes these bytes.
    Write(Vec<u8>, T),
    /// Writes nothing: the value is right already.
    Keep(T),
}

/// A value of shared data with the version that a write has to name; `None` if the key is missing.
pub(crate) type Read = Option<(Vec<u8>, Version)>;

/// Makes the bytes to write from the current ones.
type NewBytes<'c> = dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>> + 'c;

/// Changes the value of `key` by compare-and-set.
///
/// `change` makes the new value from the current one, which is `None` if the key is missing. When
/// another worker wrote in between, `update` reads the value again and calls `change` again.
/// Returns `None` after `attempts` lost writes.
pub(crate) fn update<T, E: From<HostFailure>>(
    shared: &(impl SharedData + ?Sized),
    key: &str,
    attempts: usize,
    change: impl FnMut(Option<&[u8]>) -> Result<Change<T>, E>,
) -> Result<Option<T>, E> {
    update_read(shared, key, shared.get(key)?, attempts, change)
}

/// Changes the value of `key` like [`update`], and begins with a value that was read a moment ago.
pub(crate) fn update_read<T, E: From<HostFailure>>(
    shared: &(impl SharedData + ?Sized),
    key: &str,
    found: Read,
    attempts: usize,
    mut change: impl FnMut(Option<&[u8]>) -> Result<Change<T>, E>,
) -> Result<Option<T>, E> {
    let mut outcome = None;
    let has_ended = swap(shared, key, found, attempts, &mut |current| {
        let (bytes, result) = match change(current) {
            Ok(Change::Write(bytes, result)) => (Some(bytes), Ok(result)),
            Ok(Change::Keep(result)) => (None, Ok(result)),
            Err(error) => (None, Err(error)),
        };
        outcome = Some(result);
        bytes
    })?;
    outcome.filter(|_| has_ended).transpose()
}

/// The loop of [`update`], which all changes share. `change` returns the bytes to write, or `None`
/// if nothing is to be written. Returns false after `attempts` lost writes.
#[inline(never)]
fn swap(
    shared: &(impl SharedData + ?Sized),
    key: &str,
    mut found: Read,
    attempts: usize,
    change: &mut NewBytes<'_>,
) -> Result<bool, HostFailure> {
    let mut left = attempts;
    while left > 0 {
        left = left.saturating_sub(1);
        let current = found.as_ref().map(|(bytes, _)| &**bytes);
        let Some(bytes) = change(current) else { return Ok(true) };
        let expected = found.map(|(_, version)| version).into();
        match shared.compare_and_set(key, &bytes, expected)? {
            Swap::Done => return Ok(true),
            Swap::Lost if left == 0 => break,
            Swap::Lost => found = shared.get(key)?,
        }
    }
    Ok(false)
}
