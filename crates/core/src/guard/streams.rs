//! The streams that were allowed and are still open, with the facts to end and to log each of them.

use std::collections::HashMap;

use super::elsewhere;
use crate::certificate::FORWARDED_CERTIFICATE;
use crate::host::UnixTime;
use crate::http_stream::HttpRequest;

const FORWARDED: &[u8] = FORWARDED_CERTIFICATE.as_bytes();

/// The facts about one request, kept until its stream ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// The metadata that holds the claims. They are decoded again in the rare case that they are
    /// needed.
    pub(super) metadata: Vec<u8>,
    /// Path and query.
    pub(super) target: Vec<u8>,
    pub(super) request_id: Vec<u8>,
    /// The method in the request line.
    pub(super) own_method: Vec<u8>,
    is_upgrade: bool,
    /// True if a header or the query overrides the method.
    pub(super) names_a_method: bool,
    /// True if a header overrides the path.
    pub(super) names_a_path: bool,
    /// The header fields with proofs of possession.
    pub(super) proofs: Vec<Vec<u8>>,
    /// The header fields in which a proxy forwards the client's certificate.
    pub(super) certificates: Vec<Vec<u8>>,
    /// The time at which the stream ends by itself.
    pub(super) expires_at: Option<UnixTime>,
}

impl Watched {
    /// Reads a request, and calls `see` with the names of its other header fields. Their values,
    /// secrets above all, are not read.
    pub(super) fn read(request: &dyn HttpRequest, see: &mut dyn FnMut(&[u8])) -> Self {
        let mut watched = Self { metadata: request.metadata(), ..Self::default() };
        request.visit_request_headers(&mut |name, value| match name {
            b":method" => watched.own_method = value.to_vec(),
            b":path" => watched.target = value.to_vec(),
            b"x-request-id" => watched.request_id = value.to_vec(),
            b"upgrade" => watched.is_upgrade = true,
            b"dpop" => watched.proofs.push(value.to_vec()),
            FORWARDED => watched.certificates.push(value.to_vec()),
            name => {
                watched.names_a_method |= elsewhere::is_method(name);
                watched.names_a_path |= elsewhere::is_path(name);
                see(name);
            }
        });
        watched.names_a_method |= elsewhere::query_has_method(&watched.target);
        watched
    }

    /// Returns the method for the rules. An upgrade counts as CONNECT in every version of HTTP, as
    /// it is called in HTTP/2 (RFC 8441): it opens a tunnel for anything that follows.
    pub(super) fn method(&self) -> &[u8] {
        if self.is_upgrade { b"CONNECT" } else { &self.own_method }
    }
}

/// The open streams of one worker, by Envoy's context id.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: HashMap<u32, Watched>,
    /// No stream expires before this time.
    next_expiry: Option<UnixTime>,
}

impl Streams {
    pub(super) fn watch(&mut self, stream: u32, watched: Watched) {
        self.next_expiry = self.next_expiry.into_iter().chain(watched.expires_at).min();
        self.open.insert(stream, watched);
    }

    pub(super) fn forget(&mut self, stream: u32) {
        self.open.remove(&stream);
    }

    /// Removes and returns the streams that have expired.
    pub(super) fn take_expired(&mut self, now: UnixTime) -> Vec<(u32, Watched)> {
        let is_due = |time: Option<UnixTime>| time.is_some_and(|time| time <= now);
        if !is_due(self.next_expiry) {
            return Vec::new();
        }
        let expired = self.take(|watched| is_due(watched.expires_at));
        self.next_expiry = self.open.values().filter_map(|watched| watched.expires_at).min();
        expired
    }

    /// Removes and returns the streams for which `is_meant` is true.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Watched) -> bool) -> Vec<(u32, Watched)> {
        self.open.extract_if(|_, watched| is_meant(watched)).collect()
    }
}
