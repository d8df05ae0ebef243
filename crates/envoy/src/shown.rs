//! The stream that Envoy's current callback is about, as the core sees it.

use impersonation_core::http_stream::{Flow, HttpRequest, HttpStream};
use impersonation_core::step::{Call, CallFailure, WhenCallerLeaves};
use proxy_wasm::types::{Action, MapType};

use crate::host;

/// The stream that Envoy shows at this moment. Only the calls of a stream need more than Envoy:
/// `S` sends them.
pub struct Shown<S>(pub S);

/// Sends the calls of a stream.
pub trait SendsCalls {
    /// Sends a call.
    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure>;
}

impl<S> HttpRequest for Shown<S> {
    fn metadata(&self) -> Vec<u8> {
        host::metadata()
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        host::header(MapType::HttpRequestHeaders, name)
    }

    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8])) {
        host::visit_headers(MapType::HttpRequestHeaders, see);
    }

    fn connection_property(&self, name: &str) -> Option<Vec<u8>> {
        host::connection_property(name)
    }

    fn set_request_header(&self, name: &str, value: &str) {
        host::set_header(MapType::HttpRequestHeaders, name, value);
    }

    fn remove_request_header(&self, name: &str) {
        host::remove_header(MapType::HttpRequestHeaders, name);
    }

    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str) {
        host::respond(status, headers, body, details);
    }

    fn set_filter_state(&self, name: &str, value: &str) {
        host::set_filter_state(name, value);
    }
}

impl<S: SendsCalls> HttpStream for Shown<S> {
    fn request_body(&self, len: usize) -> Vec<u8> {
        host::request_body(len)
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        host::header(MapType::HttpResponseHeaders, name)
    }

    fn response_headers(&self) -> Vec<(String, Vec<u8>)> {
        host::headers(MapType::HttpResponseHeaders)
    }

    fn set_response_header(&self, name: &str, value: &str) {
        host::set_header(MapType::HttpResponseHeaders, name, value);
    }

    fn remove_response_header(&self, name: &str) {
        host::remove_header(MapType::HttpResponseHeaders, name);
    }

    fn response_body(&self, len: usize) -> Vec<u8> {
        host::response_body(len)
    }

    fn replace_response_body(&self, body: &[u8], size: usize) {
        host::replace_response_body(body, size);
    }

    fn resume_request(&self) {
        host::resume_request();
    }

    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure> {
        self.0.send(call, when_caller_leaves)
    }
}

/// Returns the action that a callback answers Envoy.
pub const fn action(flow: Flow) -> Action {
    match flow {
        Flow::Continue => Action::Continue,
        Flow::Pause => Action::Pause,
    }
}
