//! A stream that reads what a fake shows, as the plugin has it read what Envoy shows.

use super::{Flow, HttpStream as _, Stream};
use crate::fakes::{FakeStream, Headers};
use crate::step::{Call, Reply};

impl Stream {
    /// Reads the request, which has arrived whole.
    pub fn read_request(&mut self, shown: &FakeStream) -> Flow {
        let size = shown.request_body(usize::MAX).len();
        let flow = self.on_request_headers(shown, size == 0);
        if size > 0 && shown.answered.borrow().is_none() {
            return self.on_request_body(shown, size, true);
        }
        flow
    }

    /// Reads the gateway's answer, its body in two pieces.
    pub fn read_response(&mut self, shown: &FakeStream, headers: Headers, body: &[u8]) -> Flow {
        shown.response_headers.replace(headers);
        let mut flow = self.on_response_headers(shown, body.is_empty());
        if !body.is_empty() && shown.answered.borrow().is_none() {
            let (first, _) = body.split_at(body.len() / 2);
            for (piece, last) in [(first, false), (body, true)] {
                shown.response_body.replace(piece.to_vec());
                flow = self.on_response_body(shown, piece.len(), last);
            }
        }
        flow
    }

    /// Reads replies to the filter's calls, until it sends no more.
    pub fn read_replies(&mut self, shown: &FakeStream, mut reply: impl FnMut(&Call) -> Reply) {
        while let Some(call) = shown.take_call() {
            self.on_reply(shown, reply(&call));
        }
    }
}
