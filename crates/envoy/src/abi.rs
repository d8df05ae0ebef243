//! What the SDK does not pass on: the details of a local response, a clock that nobody sets, and a way to act as another
//! context.
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

/// `CLOCK_MONOTONIC` of WASI. Envoy answers with its own steady clock, which is one for the whole process.
const MONOTONIC: u32 = 1;

/// The time by a clock that nobody sets. The standard library's `Instant` cannot be shared between VMs.
pub(crate) fn uptime() -> Duration {
    let mut nanoseconds = 0;
    // SAFETY: the host writes eight bytes to where the pointer points, and keeps no pointer.
    let errno = unsafe { clock_time_get(MONOTONIC, 1, &raw mut nanoseconds) };
    // A host without this clock says zero, always: then nothing is ever old.
    if errno == 0 { Duration::from_nanos(nanoseconds) } else { Duration::ZERO }
}

unsafe extern "C" {
    /// The SDK's own entry for a callback that Envoy makes for a root context.
    safe fn proxy_on_queue_ready(context_id: u32, queue_id: u32);
}

/// Has the SDK call `on_queue_ready` of the root context, as if Envoy had: what is dispatched in it is the root
/// context's, and its reply comes there. Not to be called from a callback of the root context itself, which the
/// SDK still holds then.
pub fn call_root(root: u32) {
    proxy_on_queue_ready(root, 0);
}

/// No gRPC status: the answer is plain HTTP.
const NO_GRPC_STATUS: i32 = -1;

/// Answers the request. `details` becomes `%RESPONSE_CODE_DETAILS%`.
pub(crate) fn send_local_response(
    status: u16,
    details: &str,
    headers: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
    body: &[u8],
) {
    let headers = serialize(headers);
    // SAFETY: each pointer is that of a slice that lives until the call returns, and each size is the
    // slice's own; the host copies what it reads and keeps no pointer.
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
    // Envoy refuses only what the core never makes; the stream is then ended by its timeouts.
}

/// A header map as the ABI has it; empty where there is none. The SDK's own getter makes text of the names, and panics
/// where that cannot be done.
pub(crate) fn header_map(map: MapType) -> Vec<u8> {
    let mut data: *mut u8 = ptr::null_mut();
    let mut size = 0;
    // SAFETY: the host writes to both, and nothing else.
    let status = unsafe { proxy_get_header_map_pairs(map as u32, &raw mut data, &raw mut size) };
    if status != 0 || data.is_null() {
        return Vec::new();
    }
    // SAFETY: the host has had `proxy_on_memory_allocate`, the SDK's own, make this for it: a vector of exactly this
    // capacity, which it has filled and left to us.
    unsafe { Vec::from_raw_parts(data, size, size) }
}

/// The opposite of [`serialize`].
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

/// So many bytes, and what comes after the zero behind them.
fn text(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(len)?;
    Some((text, rest.get(1..)?))
}

/// The header map of the ABI: how many, the sizes of each name and value, then each with a zero behind.
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
