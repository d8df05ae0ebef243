//! Values behind the number of their format, so that no version of the filter misreads the value of
//! another.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value; `None` only if memory ran out.
pub fn encode(version: u8, value: &impl Serialize) -> Option<Vec<u8>> {
    postcard::to_extend(value, vec![version]).ok()
}

/// Reads a value; `None` if the bytes have another format.
pub fn decode<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Option<T> {
    let (format, rest) = bytes.split_first()?;
    if *format == version { postcard::from_bytes(rest).ok() } else { None }
}
