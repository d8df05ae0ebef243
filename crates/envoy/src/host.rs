//! Envoy, as the core's [`Host`].

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use impersonation_core::host::{
    Expected, Host, HostFailure, Level, SharedData, Swap, UnixTime, Version,
};
use impersonation_core::media_type;
use impersonation_core::step::{
    Call, CallFailure, GrpcCall, GrpcStatus, GrpcStream, HttpCall, Reply,
};
use prost::Message;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, LogLevel, MapType, Status};

use crate::abi;
use crate::metrics::Metrics;

/// The host functions that Envoy offers to a VM.
#[derive(Default)]
pub struct Envoy {
    metrics: Metrics,
}

/// A version that no value ever has, because Envoy counts up from one. A write that expects it
/// creates an absent key, and is refused if the key exists.
const NEVER_CURRENT: u32 = u32::MAX;

/// The most bytes of an upstream's reply that are read.
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
        #[expect(clippy::disallowed_methods, reason = "the only call, and it names a version")]
        match hostcalls::set_shared_data(key, Some(value), Some(version)) {
            Ok(()) => Ok(Swap::Done),
            Err(Status::CasMismatch) => Ok(Swap::Lost),
            Err(_) => Err(HostFailure("shared data")),
        }
    }
}

impl Host for Envoy {
    fn now(&self) -> UnixTime {
        UnixTime::default().after(since_epoch())
    }

    fn uptime(&self) -> Duration {
        abi::uptime()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        getrandom::fill(buffer).map_err(|_| HostFailure("randomness"))
    }

    fn micros(&self) -> u64 {
        u64::try_from(since_epoch().as_micros()).unwrap_or(u64::MAX)
    }

    fn define(&self, counter: Cow<'static, str>) {
        self.metrics.define(counter);
    }

    fn count(&self, counter: Cow<'static, str>) {
        self.metrics.count(counter);
    }

    fn add(&self, counter: &'static str, count: u64) {
        self.metrics.add(counter.into(), count);
    }

    fn record(&self, histogram: &'static str, value: u64) {
        self.metrics.record(histogram, value);
    }

    fn set(&self, gauge: &'static str, value: u64) {
        self.metrics.set(gauge, value);
    }

    fn log(&self, level: Level, line: &str) {
        log(level, line);
    }
}

/// Returns the wall clock's time since the epoch, to the microsecond.
fn since_epoch() -> Duration {
    let now = hostcalls::get_current_time().unwrap_or(SystemTime::UNIX_EPOCH);
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the raw value of a header field, or `None` if it is absent.
pub fn header(map: MapType, name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(map, name).ok().flatten()
}

/// Returns a property of the connection to the client.
pub fn connection_property(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_property(vec!["connection", name]).ok().flatten()
}

/// Returns all header fields.
pub fn headers(map: MapType) -> Vec<(String, Vec<u8>)> {
    hostcalls::get_map_bytes(map).unwrap_or_default()
}

/// Calls `see` with the name and the value of each header field, without copying them. Use it if
/// most fields are not needed.
pub fn visit_headers(map: MapType, see: &mut dyn FnMut(&[u8], &[u8])) {
    let fields = abi::header_map(map);
    abi::deserialize(&fields, see);
}

/// Replaces a header field.
pub fn set_header(map: MapType, name: &str, value: &str) {
    // Envoy refuses this call only outside a stream.
    let _ = hostcalls::set_map_value_bytes(map, name, Some(value.as_bytes()));
}

/// Removes a header field.
pub fn remove_header(map: MapType, name: &str) {
    let _ = hostcalls::remove_map_value(map, name);
}

/// Returns the metadata that the filters before this one have left, as an
/// `envoy.config.core.v3.Metadata`. Empty if there is none.
pub fn metadata() -> Vec<u8> {
    hostcalls::get_property(vec!["metadata"]).ok().flatten().unwrap_or_default()
}

/// Returns the first bytes of the request body, at most `len`.
pub fn request_body(len: usize) -> Vec<u8> {
    buffer(BufferType::HttpRequestBody, len)
}

/// Returns the configuration of the plugin.
pub fn plugin_configuration(len: usize) -> Vec<u8> {
    buffer(BufferType::PluginConfiguration, len)
}

fn buffer(buffer: BufferType, len: usize) -> Vec<u8> {
    hostcalls::get_buffer(buffer, 0, len).ok().flatten().unwrap_or_default()
}

/// Returns the first bytes of the response body, at most `len`.
pub fn response_body(len: usize) -> Vec<u8> {
    buffer(BufferType::HttpResponseBody, len)
}

/// Replaces the `size` bytes of the response body that have arrived with `body`.
pub fn replace_response_body(body: &[u8], size: usize) {
    let _ = hostcalls::set_buffer(BufferType::HttpResponseBody, 0, size, body);
}

/// Identifies a call until its reply arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallId {
    Http(u32),
    Grpc(u32),
}

/// Makes host calls apply to another context until the callback returns. It has no effect if that
/// context is gone.
pub fn act_for(context: u32) {
    let _ = hostcalls::set_effective_context(context);
}

/// Sends a call on behalf of the effective context.
pub fn send(call: &Call) -> Result<CallId, CallFailure> {
    match call {
        Call::Http(call) => send_http(call),
        Call::Grpc(call) => send_grpc(call),
    }
}

fn send_http(call: &HttpCall) -> Result<CallId, CallFailure> {
    let mut headers = vec![
        (":method", call.method),
        (":scheme", &*call.scheme),
        (":authority", &*call.authority),
        (":path", &*call.path),
    ];
    headers.extend(call.headers.iter().map(|(name, value)| (*name, value.as_str())));
    let body = Some(&*call.body).filter(|body| !body.is_empty());
    hostcalls::dispatch_http_call(&call.cluster, headers, body, Vec::new(), call.timeout)
        .map(CallId::Http)
        .map_err(|_| CallFailure::NotSent)
}

/// `envoy.config.core.v3.GrpcService`, with the fields that are needed. Envoy also accepts a bare
/// cluster name, but it first tries to parse the name as this message, and some names crash the
/// process.
#[derive(Message)]
struct GrpcService {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
}

#[derive(Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

/// The service in this cluster, as the SDK takes it.
fn grpc_service(cluster: &str, authority: Option<&str>) -> Result<String, CallFailure> {
    let service = GrpcService {
        envoy_grpc: Some(EnvoyGrpc {
            cluster_name: cluster.to_owned(),
            authority: authority.unwrap_or_default().to_owned(),
        }),
    };
    // The SDK takes a `str`. A protobuf length below 128 is one ASCII byte, and the configuration
    // bounds the names so that all lengths are.
    String::from_utf8(service.encode_to_vec()).map_err(|_| CallFailure::NotSent)
}

/// Opens a stream on behalf of the effective context, and sends its first message.
pub(crate) fn open(stream: &GrpcStream) -> Result<u32, CallFailure> {
    let service = grpc_service(&stream.cluster, stream.authority.as_deref())?;
    let metadata = stream.metadata.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let id = hostcalls::open_grpc_stream(&service, stream.service, stream.method, metadata)
        .map_err(|_| CallFailure::NotSent)?;
    match hostcalls::send_grpc_stream_message(id, Some(&stream.message), false) {
        Ok(()) => Ok(id),
        Err(_) => {
            let _ = hostcalls::cancel_grpc_stream(id);
            Err(CallFailure::NotSent)
        }
    }
}

fn send_grpc(call: &GrpcCall) -> Result<CallId, CallFailure> {
    let service = grpc_service(&call.cluster, call.authority.as_deref())?;
    let metadata = call.metadata.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let message = Some(&*call.message);
    hostcalls::dispatch_grpc_call(
        &service,
        call.service,
        call.method,
        metadata,
        message,
        call.timeout,
    )
    .map(CallId::Grpc)
    .map_err(|_| CallFailure::NotSent)
}

/// Reads the HTTP reply that a callback announced.
pub fn http_reply(num_headers: usize, body_size: usize) -> Reply {
    // Without headers there was no reply, and the SDK would panic if asked for one.
    if num_headers == 0 || body_size > MAX_REPLY {
        return Reply::Failed(CallFailure::CutOff);
    }
    let header = |name| header(MapType::HttpCallResponseHeaders, name);
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

/// Reads the gRPC reply that a callback announced.
pub fn grpc_reply(status: u32, size: usize) -> Reply {
    if status != 0 {
        return Reply::Grpc(Err(GrpcStatus(status)));
    }
    if size > MAX_REPLY {
        return Reply::Failed(CallFailure::CutOff);
    }
    Reply::Grpc(Ok(buffer(BufferType::GrpcReceiveBuffer, size)))
}

/// Reads the message of a stream that a callback announced; empty if it is too long.
pub(crate) fn stream_message(size: usize) -> Vec<u8> {
    if size > MAX_REPLY { Vec::new() } else { buffer(BufferType::GrpcReceiveBuffer, size) }
}

/// Answers the caller. `details` becomes `%RESPONSE_CODE_DETAILS%`.
pub fn respond(status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
    abi::send_local_response(status, details, headers, body);
}

/// Sends a request on that was held back.
pub fn resume_request() {
    let _ = hostcalls::resume_http_request();
}

/// Sets filter state that an access log prints as
/// `%FILTER_STATE(wasm.impersonation.<name>:PLAIN)%`.
pub fn set_filter_state(name: &str, value: &str) {
    let _ = hostcalls::set_property(vec![&format!("impersonation.{name}")], Some(value.as_bytes()));
}

/// Asks Envoy to call `on_tick` with this period.
pub fn tick_every(period: Duration) {
    let _ = hostcalls::set_tick_period(period);
}

/// Writes to Envoy's log.
pub fn log(level: Level, line: &str) {
    let level = match level {
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
    };
    let _ = hostcalls::log(level, line);
}
