//! What the SDK does not pass on: the details of a local response, and a way to act as another context.
#![expect(unsafe_code, reason = "functions of the ABI that the SDK has no safe wrapper for")]

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
