//! Envoy's side of one HTTP stream, as the core sees it.

use crate::step::{Call, CallFailure, WhenCallerLeaves};

/// A request while it passes through Envoy, for filter and guard. A getter returns nothing for a
/// missing value.
pub trait HttpRequest {
    /// Returns the metadata that earlier filters have left, as an
    /// `envoy.config.core.v3.Metadata`. Empty if there is none.
    fn metadata(&self) -> Vec<u8>;

    /// Returns a header field, unchanged.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Calls `see` with the name and the value of each header field. Names are in lower case.
    fn visit_request_headers(&self, see: &mut dyn FnMut(&[u8], &[u8]));

    /// Returns the value of each header field with this name, unchanged.
    fn request_header_fields(&self, name: &str) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        self.visit_request_headers(&mut |known, value| {
            if known == name.as_bytes() {
                values.push(value.to_vec());
            }
        });
        values
    }

    /// Returns a property of the connection, such as `sha256_peer_certificate_digest`.
    fn connection_property(&self, name: &str) -> Option<Vec<u8>>;

    /// Replaces a header field before the request goes on.
    fn set_request_header(&self, name: &str, value: &str);

    /// Removes a header field before the request goes on.
    fn remove_request_header(&self, name: &str);

    /// Answers the caller in place of the upstream, and cuts off a response that has begun. The
    /// access log can print the reason `details`.
    fn respond(&self, status: u16, headers: &[(&str, &[u8])], body: &[u8], details: &str);

    /// Sets a value of the stream that an access log can print.
    fn set_filter_state(&self, name: &str, value: &str);
}

/// A request with its body, and its response, while they pass through Envoy. A getter returns
/// nothing for a missing header or body; a setter then does nothing.
pub trait HttpStream: HttpRequest {
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

    /// Sends a request on that was held back.
    fn resume_request(&self);

    /// Sends a call for the stream. The reply goes to `Stream::on_reply`.
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
