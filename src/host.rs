//! Envoy, as the core's [`Host`].

use std::time::{Duration, SystemTime};

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, LogLevel, MapType, Status};

use crate::abi;
use crate::metrics::Metrics;
use impersonation_core::host::{
    Counter, Expected, Host, HostFailure, SharedData, Swap, UnixTime, Version,
};
use impersonation_core::issuer::{STALE_HEADERS, stays_beside};
use impersonation_core::jose::TestedCrypto;
use impersonation_core::step::{Call, CallFailure, Reply, Response};
use impersonation_core::{media_type, metrics};

/// The world, seen from inside the sandbox.
#[derive(Default)]
pub(crate) struct Envoy {
    pub(crate) metrics: Metrics,
    /// Filled in by the configuration that was tested with.
    pub(crate) crypto: Option<TestedCrypto>,
}

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
        let since_epoch = time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixTime::default().after(since_epoch)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        getrandom::fill(buffer).map_err(|_| HostFailure("randomness"))
    }

    fn native_crypto(&self) -> Option<&TestedCrypto> {
        self.crypto.as_ref()
    }

    fn count(&self, counter: Counter) {
        self.metrics.count(metrics::counter(counter));
    }

    fn debug(&self, message: &str) {
        log(LogLevel::Debug, message);
    }

    fn warn(&self, message: &str) {
        log(LogLevel::Warn, message);
    }
}

/// The wall clock, to the microsecond.
pub(crate) fn time() -> SystemTime {
    hostcalls::get_current_time().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A header of the request, as it came. `None` if it is not there.
pub(crate) fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
}

/// The first bytes of the request body, at most `len`.
pub(crate) fn request_body(len: usize) -> Vec<u8> {
    buffer(BufferType::HttpRequestBody, len)
}

/// The configuration of the plugin.
pub(crate) fn plugin_configuration(len: usize) -> Vec<u8> {
    buffer(BufferType::PluginConfiguration, len)
}

fn buffer(buffer: BufferType, len: usize) -> Vec<u8> {
    hostcalls::get_buffer(buffer, 0, len).ok().flatten().unwrap_or_default()
}

/// Takes a header from the request before it goes on.
pub(crate) fn remove_request_header(name: &str) {
    // Envoy refuses this only outside of a request.
    let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
}

/// Gives the request a header of its own before it goes on.
pub(crate) fn set_request_header(name: &str, value: &str) {
    let value = Some(value.as_bytes());
    let _ = hostcalls::set_map_value_bytes(MapType::HttpRequestHeaders, name, value);
}

/// Whether the gateway answered with a document: 200, JSON, as it is.
pub(crate) fn is_document() -> bool {
    let header =
        |name| hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten();
    header(":status").is_some_and(|status| status == b"200")
        && header("content-type").is_some_and(|value| media_type::is_json(&value))
        && header("content-encoding").is_none_or(|value| value.eq_ignore_ascii_case(b"identity"))
}

/// How long the gateway says its answer is.
pub(crate) fn response_len() -> Option<usize> {
    let len = hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, "content-length");
    std::str::from_utf8(&len.ok()??).ok()?.parse().ok()
}

/// The first bytes of the response body, at most `len`.
pub(crate) fn response_body(len: usize) -> Vec<u8> {
    buffer(BufferType::HttpResponseBody, len)
}

/// Puts an answer in the place of a gateway's, of whose body `size` bytes are here. Its header fields
/// replace those of the same name; the others stay.
pub(crate) fn replace_response(response: &Response, size: usize) {
    for name in STALE_HEADERS {
        let _ = hostcalls::remove_map_value(MapType::HttpResponseHeaders, name);
    }
    let set = |name: &str, value: &str| {
        let _ = hostcalls::set_map_value_bytes(
            MapType::HttpResponseHeaders,
            name,
            Some(value.as_bytes()),
        );
    };
    set(":status", &response.status.to_string());
    for (name, value) in &response.headers {
        set(name, value);
    }
    if response.status != 304 {
        set("content-length", &response.body.len().to_string());
    }
    replace_response_body(&response.body, size);
}

/// Answers a `HEAD` in the place of a gateway: with the header fields that [`replace_response`] leaves.
/// Not by a body that is emptied: a compressor on its way to the caller would fill it again, and the
/// caller, who expects none, would take that for the next answer. Envoy sends none of an answer of ours.
pub(crate) fn respond_without_body(response: &Response) {
    let mut headers = hostcalls::get_map_bytes(MapType::HttpResponseHeaders).unwrap_or_default();
    headers.retain(|(name, _)| stays_beside(response, name));
    let ours = response.headers.iter();
    headers.extend(ours.map(|(name, value)| ((*name).to_owned(), value.clone().into_bytes())));
    abi::send_local_response(response.status, "", &headers, &response.body);
}

/// Puts `body` in the place of the `size` bytes that are here.
pub(crate) fn replace_response_body(body: &[u8], size: usize) {
    let _ = hostcalls::set_buffer(BufferType::HttpResponseBody, 0, size, body);
}

/// Sends a call; the reply will come with the returned number.
pub(crate) fn send(call: &Call) -> Result<u32, CallFailure> {
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
pub(crate) fn reply(num_headers: usize, body_size: usize) -> Reply {
    // Without headers there was no reply, and to ask for one would panic in the SDK.
    if num_headers == 0 || body_size > MAX_REPLY {
        return Reply::Failed(CallFailure::CutOff);
    }
    let header = |name| {
        hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, name).ok().flatten()
    };
    let status =
        header(":status").and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok());
    match status {
        Some(status) => Reply::Http {
            status,
            json: header("content-type").is_some_and(|media_type| media_type::is_json(&media_type)),
            body: buffer(BufferType::HttpCallResponseBody, body_size),
        },
        None => Reply::Failed(CallFailure::CutOff),
    }
}

/// Answers the caller. The reason of a refusal becomes `%RESPONSE_CODE_DETAILS%`.
pub(crate) fn respond(response: &Response, reason: Option<&str>) {
    let details = reason.map(|reason| format!("impersonation_{reason}")).unwrap_or_default();
    abi::send_local_response(response.status, &details, &response.headers, &response.body);
}

/// Sets filter state that an access log prints as `%FILTER_STATE(wasm.impersonation.<name>:PLAIN)%`.
pub(crate) fn set_filter_state(name: &str, value: &str) {
    let _ = hostcalls::set_property(vec![&format!("impersonation.{name}")], Some(value.as_bytes()));
}

/// Asks for a tick from now on.
pub(crate) fn tick_every(period: Duration) {
    let _ = hostcalls::set_tick_period(period);
}

/// Writes to Envoy's log.
pub(crate) fn log(level: LogLevel, message: &str) {
    let _ = hostcalls::log(level, message);
}
