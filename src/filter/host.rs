//! Envoy, as the core's [`Host`].

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, LogLevel, MapType, Status};

use crate::host::{Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version};
use crate::step::{Call, CallFailure, Reply, Response};

/// The world, seen from inside the sandbox.
pub(super) struct Envoy;

/// A version that no value has: Envoy counts up from one. A write that expects it is refused where the
/// key exists, and creates it where it does not.
const NEVER_CURRENT: u32 = u32::MAX;

/// The longest reply of an upstream that is read.
const MAX_REPLY: usize = 1024 * 1024;

impl SharedData for Envoy {
    fn get(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        let (value, version) =
            hostcalls::get_shared_data(key).map_err(|_| HostFailure("shared data"))?;
        let version = version.and_then(Version::new);
        Ok(version.map(|version| (value.unwrap_or_default(), version)))
    }

    fn compare_and_set(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<Swap, HostFailure> {
        let version = match expected {
            Expected::Absent => NEVER_CURRENT,
            Expected::Version(version) => version.get(),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place, and it names a version"
        )]
        match hostcalls::set_shared_data(key, Some(value), Some(version)) {
            Ok(()) => Ok(Swap::Done),
            Err(Status::CasMismatch) => Ok(Swap::Lost),
            Err(_) => Err(HostFailure("shared data")),
        }
    }
}

impl Host for Envoy {
    fn now(&self) -> UnixTime {
        let now = hostcalls::get_current_time().unwrap_or(std::time::UNIX_EPOCH);
        let since_epoch = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        UnixTime::default().after(since_epoch)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        getrandom::fill(buffer).map_err(|_| HostFailure("randomness"))
    }
}

/// A header of the request, as it came. `None` if it is not there.
pub(super) fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
}

/// The first bytes of the request body, at most `len`.
pub(super) fn request_body(len: usize) -> Vec<u8> {
    buffer(BufferType::HttpRequestBody, len)
}

/// The configuration of the plugin.
pub(super) fn plugin_configuration(len: usize) -> Vec<u8> {
    buffer(BufferType::PluginConfiguration, len)
}

fn buffer(buffer: BufferType, len: usize) -> Vec<u8> {
    hostcalls::get_buffer(buffer, 0, len).ok().flatten().unwrap_or_default()
}

/// Sends a call; the reply will come with the returned number.
pub(super) fn send(call: &Call) -> Result<u32, CallFailure> {
    let mut headers = vec![
        (":method", call.method),
        (":scheme", &*call.scheme),
        (":authority", &*call.authority),
        (":path", &*call.path),
    ];
    headers.extend(call.headers.iter().map(|(name, value)| (*name, value.as_str())));
    let body = Some(&*call.body).filter(|body| !body.is_empty());
    hostcalls::dispatch_http_call(&call.cluster, headers, body, Vec::new(), call.timeout)
        .map_err(|_| CallFailure::NotSent)
}

/// The reply that a callback announced.
pub(super) fn reply(num_headers: usize, body_size: usize) -> Reply {
    // Without headers there was no reply, and to ask for one would panic in the SDK.
    if num_headers == 0 || body_size > MAX_REPLY {
        return Reply::Failed(CallFailure::CutOff);
    }
    let status =
        hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status").ok().flatten();
    let status = status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok());
    match status {
        Some(status) => {
            Reply::Http { status, body: buffer(BufferType::HttpCallResponseBody, body_size) }
        }
        None => Reply::Failed(CallFailure::CutOff),
    }
}

/// Answers the caller.
pub(super) fn respond(response: &Response) {
    let headers = response.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = Some(&*response.body).filter(|body| !body.is_empty());
    // Envoy refuses only what the core never makes; the stream is then ended by its timeouts.
    let _ = hostcalls::send_http_response(u32::from(response.status), headers, body);
}

/// Writes to Envoy's log.
pub(super) fn log(level: LogLevel, message: &str) {
    let _ = hostcalls::log(level, message);
}
