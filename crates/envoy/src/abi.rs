//! ABI functions that the SDK does not wrap: the details of a local response, a monotonic clock,
//! and header maps as bytes.
#![expect(unsafe_code, reason = "functions of the ABI that the SDK has no safe wrapper for")]

use std::ptr;
use std::time::Duration;

use proxy_wasm::types::MapType;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_send_local_response(
        status_code: u32,
        details_data: *const u8,
        details_size: usize,
        body_data: *const u8,
        body_size: usize,
        headers_data: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;

    fn proxy_get_header_map_pairs(
        map_type: u32,
        return_map_data: *mut *mut u8,
        return_map_size: *mut usize,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, nanoseconds: *mut u64) -> u16;
}

/// WASI's `CLOCK_MONOTONIC`. Envoy answers with its steady clock, which all VMs of the process
/// share.
const MONOTONIC: u32 = 1;

/// Returns the time of the monotonic clock. The standard library's `Instant` cannot be shared
/// between VMs.
pub(crate) fn uptime() -> Duration {
    let mut nanoseconds = 0;
    // SAFETY: the host writes eight bytes to where the pointer points, and keeps no pointer.
    let errno = unsafe { clock_time_get(MONOTONIC, 1, &raw mut nanoseconds) };
    // A host without this clock always returns zero, so that nothing ever counts as old.
    if errno == 0 { Duration::from_nanos(nanoseconds) } else { Duration::ZERO }
}

unsafe extern "C" {
    /// The SDK's entry point for a callback on a root context.
    safe fn proxy_on_queue_ready(context_id: u32, queue_id: u32);
}

/// Makes the SDK call `on_queue_ready` of the root context, as if Envoy had. Calls that are
/// dispatched there belong to the root context, which receives their replies. Must not be called
/// from a callback of the root context itself, because the SDK has borrowed the context then.
pub fn call_root(root: u32) {
    proxy_on_queue_ready(root, 0);
}

/// The status of an answer over plain HTTP.
const NO_GRPC_STATUS: i32 = -1;

/// Answers the request. `details` becomes `%RESPONSE_CODE_DETAILS%`.
pub(crate) fn send_local_response(
    status: u16,
    details: &str,
    headers: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
    body: &[u8],
) {
    let headers = serialize(headers);
    // SAFETY: each pointer and size are those of a slice that lives until the call returns. The
    // host copies the bytes and keeps no pointer.
    let _status = unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    };
    // Envoy refuses only responses that the core never makes. The stream's timeouts would end it
    // then.
}

/// Returns a header map as the ABI serializes it; empty if there is none. The SDK's own getter
/// panics if a name is not UTF-8.
pub(crate) fn header_map(map: MapType) -> Vec<u8> {
    let mut data: *mut u8 = ptr::null_mut();
    let mut size = 0;
    // SAFETY: the host writes to both, and nothing else.
    let status = unsafe { proxy_get_header_map_pairs(map as u32, &raw mut data, &raw mut size) };
    if status != 0 || data.is_null() {
        return Vec::new();
    }
    // SAFETY: the host allocated the bytes with the SDK's `proxy_on_memory_allocate`: a vector of
    // exactly this capacity. The host filled it and gave up ownership.
    unsafe { Vec::from_raw_parts(data, size, size) }
}

/// Calls `see` with each name and value of a serialized header map. The opposite of [`serialize`].
pub(crate) fn deserialize(map: &[u8], see: &mut dyn FnMut(&[u8], &[u8])) {
    let _: Option<()> = (|| {
        let (count, rest) = length(map)?;
        let (mut lengths, mut fields) = rest.split_at_checked(count.checked_mul(8)?)?;
        for _ in 0..count {
            let (name_len, value_len);
            (name_len, lengths) = length(lengths)?;
            (value_len, lengths) = length(lengths)?;
            let (name, value);
            (name, fields) = text(fields, name_len)?;
            (value, fields) = text(fields, value_len)?;
            see(name, value);
        }
        None
    })();
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*length)).ok()?, rest))
}

/// Splits off `len` bytes and the zero byte behind them.
fn text(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(len)?;
    Some((text, rest.get(1..)?))
}

/// Serializes a header map for the ABI: the number of fields, the lengths of each name and value,
/// then each name and value with a zero byte behind it.
fn serialize(headers: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    let mut push_len = |len: usize| {
        bytes.extend_from_slice(&u32::try_from(len).unwrap_or_default().to_le_bytes());
    };
    push_len(headers.len());
    for (name, value) in headers {
        push_len(name.as_ref().len());
        push_len(value.as_ref().len());
    }
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_ref());
        bytes.push(0);
        bytes.extend_from_slice(value.as_ref());
        bytes.push(0);
    }
    bytes
}
