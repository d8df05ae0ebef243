//! Sends the filter's answer, also to a caller that speaks gRPC.

use crate::host::Host;
use crate::http_stream::HttpStream;
use crate::issuer::Answer;
use crate::step::Response;

/// Sends an answer. The access log can print the reason of a refusal.
pub(super) fn answer(http: &dyn HttpStream, answer: &Answer) {
    let reason = answer.event.as_ref().and_then(|event| event.reason);
    let details = reason.map(|reason| format!("impersonation_{reason}"));
    respond(http, &answer.response, &details.unwrap_or_default());
}

/// Sends a response in place of the upstream.
pub(super) fn respond(http: &dyn HttpStream, response: &Response, details: &str) {
    let headers = response.headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    http.respond(response.status, &headers.collect::<Vec<_>>(), &response.body, details);
}

/// Restores the status of an answer to a gRPC request. Envoy turns every such answer into gRPC: it
/// sets the status to 200 and moves the body into a header field. The body cannot be restored here,
/// so a success becomes a refusal rather than half an answer.
pub(super) fn restore_status(http: &dyn HttpStream, status: u16) {
    if http.response_header("grpc-status").is_some() {
        for name in ["grpc-status", "grpc-message", "content-type"] {
            http.remove_response_header(name);
        }
        let status = if status < 400 { 415 } else { status };
        http.set_response_header(":status", &status.to_string());
    }
}

/// Tells the operator about an answer, beside its event.
pub(super) fn tell_operator(host: &dyn Host, answer: &Answer) {
    if let Some(alarm) = &answer.alarm {
        host.warn(&alarm.to_json());
    }
    if let Some(explanation) = &answer.explanation {
        host.debug(explanation);
    }
    if let Some(counter) = answer.counter {
        host.count(counter.into());
    }
}
