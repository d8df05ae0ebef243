//! Envoy's side of one HTTP stream, as the core sees it.

use crate::step::{Call, CallFailure, WhenCallerLeaves};

/// A request and its response while they pass through Envoy. A getter returns nothing for a missing
/// header or body; a setter then does nothing.
pub trait HttpStream {
    /// Returns a header field of the request, unchanged.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Returns each field of the request with this name, unchanged.
    fn request_header_fields(&self, name: &str) -> Vec<Vec<u8>>;

    /// Returns a property of the connection, such as `sha256_peer_certificate_digest`.
    fn connection_property(&self, name: &str) -> Option<Vec<u8>>;

    /// Replaces a header field of the request before the request goes on.
    fn set_request_header(&self, name: &str, value: &str);

    /// Removes a header field of the request before the request goes on.
    fn remove_request_header(&self, name: &str);

    /// Returns the first bytes of the request body, at most `len`.
    fn request_body(&self, len: usize) -> Vec<u8>;

    /// Returns a header field of the response, unchanged.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Returns all header fields of the response.
    fn response_headers(&self) -> Vec<(String, Vec<u8>)>;

    /// Replaces a header field of the response.
    fn set_response_header(&self, name: &str, value: &str);

    /// Removes a header field of the response.
    fn remove_response_header(&self, name: &str);

    /// Returns the first bytes of the response body, at most `len`.
    fn response_body(&self, len: usize) -> Vec<u8>;

    /// Replaces the `size` bytes of the response body that Envoy holds by `body`.
    fn replace_response_body(&self, body: &[u8], size: usize);

    /// Answers the caller in place of the upstream. The access log can print the reason `details`.
    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str);

    /// Sends a request on that was held back.
    fn resume_request(&self);

    /// Sets a value of the stream that an access log can print.
    fn set_filter_state(&self, name: &str, value: &str);

    /// Sends a call for the stream. The reply goes to [`Stream::on_reply`](crate::stream::Stream).
    fn send(&self, call: &Call, when_caller_leaves: WhenCallerLeaves) -> Result<(), CallFailure>;
}

/// The fate of the part of a stream that Envoy has just shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Envoy passes the part on.
    Continue,
    /// Envoy holds the part back.
    Pause,
}
