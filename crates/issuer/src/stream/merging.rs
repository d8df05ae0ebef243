//! Merges a document of the identity gateway with the filter's, on its way to the caller.

use std::rc::Rc;

use super::answering::respond;
use crate::host::Host;
use crate::http_stream::{Flow, HttpStream};
use crate::issuer::{
    Document, MAX_DOCUMENT, PARTIAL_HEADERS, STALE_HEADERS, Service, stays_beside,
};
use crate::media_type;
use crate::step::Response;

/// A request for a document that the filter merges with the gateway's.
pub(super) struct Merge {
    service: Rc<Service>,
    document: Document,
    if_none_match: Option<Vec<u8>>,
    /// The caller sent a `HEAD`.
    head_only: bool,
}

impl Merge {
    pub(super) const fn new(
        service: Rc<Service>,
        document: Document,
        if_none_match: Option<Vec<u8>>,
        head_only: bool,
    ) -> Self {
        Self { service, document, if_none_match, head_only }
    }

    /// Changes the request so that the gateway answers with its whole document, not encoded.
    pub(super) fn ask_for_whole_document(&self, http: &dyn HttpStream) {
        for name in PARTIAL_HEADERS {
            http.remove_request_header(name);
        }
        // RFC 9110 §12.5.3: without the field the gateway may use any coding.
        http.set_request_header("accept-encoding", "identity");
        if self.head_only {
            // Length and validator are those of the merged document, so the filter needs the body.
            // The filter cannot restore the method after Envoy has sent the request: the access log
            // says GET.
            http.set_request_header(":method", "GET");
        }
    }

    /// Replaces the gateway's document by the merged one. All `size` bytes of the gateway's have
    /// arrived. Returns `None` if the gateway sent no such document.
    pub(super) fn merge(
        &self,
        host: &dyn Host,
        http: &dyn HttpStream,
        size: usize,
    ) -> Option<Flow> {
        let body = http.response_body(size);
        let if_none_match = self.if_none_match.as_deref();
        let merged = self.service.documents.merged(host, self.document, &body, if_none_match)?;
        if self.head_only {
            return Some(respond_to_head(http, &merged));
        }
        replace_response(http, &merged, size);
        Some(Flow::Continue)
    }

    /// Answers with the document that stands in, because the gateway sent none. Returns `None` if
    /// none does, and the gateway's answer goes on as it is.
    pub(super) fn stand_in(&self, host: &dyn Host, http: &dyn HttpStream) -> Option<Flow> {
        let if_none_match = self.if_none_match.as_deref();
        let Some(stand_in) = self.service.documents.stand_in(host, self.document, if_none_match)
        else {
            host.warn("the identity gateway has no such document, and none stands in for it");
            return self.head_only.then(|| {
                // The filter asked by GET. The body must not go to a caller that sent a HEAD.
                let status = http.response_header(":status").as_deref().and_then(number);
                let status = status.unwrap_or(502);
                respond_to_head(http, &Response { status, headers: Vec::new(), body: Vec::new() })
            });
        };
        host.warn("the identity gateway has no such document: its last good one stands in");
        respond(http, &stand_in, "");
        Some(Flow::Pause)
    }
}

/// Replaces a gateway's response, of whose body Envoy holds `size` bytes. The header fields of
/// `response` replace those of the same name; the others stay.
fn replace_response(http: &dyn HttpStream, response: &Response, size: usize) {
    for name in STALE_HEADERS {
        http.remove_response_header(name);
    }
    http.set_response_header(":status", &response.status.to_string());
    for (name, value) in &response.headers {
        http.set_response_header(name, value);
    }
    if response.status != 304 {
        http.set_response_header("content-length", &response.body.len().to_string());
    }
    http.replace_response_body(&response.body, size);
}

/// Answers a `HEAD` in place of the gateway, with the header fields that [`replace_response`]
/// leaves.
///
/// The filter does not empty the gateway's body instead. A compressor on the way to the caller
/// would add bytes to an empty body, and the caller, who expects none, would take them for the next
/// answer. Envoy sends no body of a local answer to a `HEAD`.
fn respond_to_head(http: &dyn HttpStream, response: &Response) -> Flow {
    let theirs = http.response_headers();
    let theirs = theirs.iter().filter(|(name, _)| stays_beside(response, name));
    let mut headers: Vec<_> = theirs.map(|(name, value)| (&**name, &**value)).collect();
    headers.extend(response.headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    http.respond(response.status, &headers, &response.body, "");
    Flow::Pause
}

/// Returns true if the gateway answers with a document that can be merged: status 200, JSON, not
/// encoded, and not too long. Envoy would refuse to buffer a longer one.
pub(super) fn is_document(http: &dyn HttpStream) -> bool {
    let len: Option<usize> = http.response_header("content-length").as_deref().and_then(number);
    len.is_none_or(|len| len <= MAX_DOCUMENT)
        && http.response_header(":status").is_some_and(|status| status == b"200")
        && http.response_header("content-type").is_some_and(|value| media_type::is_json(&value))
        && http
            .response_header("content-encoding")
            .is_none_or(|value| value.eq_ignore_ascii_case(b"identity"))
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
