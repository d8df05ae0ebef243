//! The requests that went on, until they are over: what has to be known of them to end them, and to write that down.

use std::collections::HashMap;

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    /// The claims are in it, and read again when they are needed: hardly ever.
    pub(super) metadata: Vec<u8>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

impl Watched {
    pub(super) const fn new(metadata: Vec<u8>, headers: Vec<(String, Vec<u8>)>) -> Self {
        Self { metadata, headers }
    }

    /// Without what nobody needs any more, credentials above all.
    pub(super) fn kept(mut self) -> Self {
        self.headers.retain(|(name, _)| matches!(&**name, ":method" | ":path" | "x-request-id"));
        self
    }

    /// Path and query.
    pub(super) fn target(&self) -> &[u8] {
        self.header(":path").unwrap_or_default()
    }

    /// What is to be done. An upgrade is a way to send whatever comes later: in HTTP/2 it is called by that name,
    /// CONNECT (RFC 8441), and it is one thing in every version.
    pub(super) fn method(&self) -> &[u8] {
        if self.header("upgrade").is_some() {
            return b"CONNECT";
        }
        self.header(":method").unwrap_or_default()
    }

    /// The value of the first header field of that name.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_slice())
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
