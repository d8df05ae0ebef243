//! The requests that went on, until they are over: what has to be known of them to end them, and to write that down.

use std::collections::HashMap;

use super::{ApiRequest, elsewhere};

/// One of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// The claims are in it, and read again when they are needed: hardly ever.
    pub(super) metadata: Vec<u8>,
    /// Path and query.
    pub(super) target: Vec<u8>,
    pub(super) request_id: Vec<u8>,
    /// What the request says is to be done.
    pub(super) own_method: Vec<u8>,
    is_upgrade: bool,
    /// Whether it says elsewhere that something else is to be done.
    pub(super) names_a_method: bool,
    /// Whether it says elsewhere that it is about something else.
    pub(super) names_a_path: bool,
}

impl Watched {
    /// Reads a request, and shows the names of its header fields. What stands in the others, credentials above all, is
    /// nobody's business here.
    pub(super) fn read(request: &dyn ApiRequest, see: &mut dyn FnMut(&[u8])) -> Self {
        let mut watched = Self { metadata: request.metadata(), ..Self::default() };
        request.visit_headers(&mut |name, value| match name {
            b":method" => watched.own_method = value.to_vec(),
            b":path" => watched.target = value.to_vec(),
            b"x-request-id" => watched.request_id = value.to_vec(),
            b"upgrade" => watched.is_upgrade = true,
            name => {
                watched.names_a_method |= elsewhere::is_method(name);
                watched.names_a_path |= elsewhere::is_path(name);
                see(name);
            }
        });
        watched.names_a_method |= elsewhere::query_has_method(&watched.target);
        watched
    }

    /// What is to be done. An upgrade is a way to send whatever comes later: in HTTP/2 it is called by that name,
    /// CONNECT (RFC 8441), and it is one thing in every version.
    pub(super) fn method(&self) -> &[u8] {
        if self.is_upgrade { b"CONNECT" } else { &self.own_method }
    }
}

/// All of them in one worker, by the number that Envoy gave each.
#[derive(Debug, Default)]
pub(super) struct Streams(HashMap<u32, Watched>);

impl Streams {
    pub(super) fn begin(&mut self, stream: u32, watched: Watched) {
        self.0.insert(stream, watched);
    }

    pub(super) fn end(&mut self, stream: u32) {
        self.0.remove(&stream);
    }

    /// Those of which this holds; they are watched no longer.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Watched) -> bool) -> Vec<(u32, Watched)> {
        self.0.extract_if(|_, watched| is_meant(watched)).collect()
    }
}
