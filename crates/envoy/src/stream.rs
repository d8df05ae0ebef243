//! The stream over gRPC that a VM may hold open. It belongs to the root context.

use std::cell::Cell;

use impersonation_core::step::{GrpcStatus, StreamAction, StreamEnd, StreamEvent};
use proxy_wasm::hostcalls;

use crate::host;

/// The stream of one VM.
pub struct HeldStream {
    /// The id of the root context.
    root: u32,
    id: Cell<Option<u32>>,
}

impl HeldStream {
    /// Holds no stream yet, for the VM whose root context has this id.
    pub fn new(root: u32) -> Self {
        Self { root, id: Cell::default() }
    }

    /// Performs an action of a tick. Returns what came of it at once. Must not be called while
    /// Envoy delivers a message: Envoy would still use the stream that it cancels.
    pub fn perform(&self, action: &StreamAction) -> Option<StreamEvent> {
        host::act_for(self.root);
        if let Some(id) = self.id.take() {
            // Envoy refuses this only if the stream has ended.
            let _ = hostcalls::cancel_grpc_stream(id);
        }
        let StreamAction::Open(stream) = action else { return None };
        match host::open(stream) {
            Ok(id) => {
                self.id.set(Some(id));
                None
            }
            Err(_) => Some(StreamEvent::Ended(StreamEnd::NotOpened)),
        }
    }

    /// Reads a message that a callback announced; `None` if it is not of this stream.
    pub fn message(&self, id: u32, size: usize) -> Option<StreamEvent> {
        (self.id.get() == Some(id)).then(|| StreamEvent::Message(host::stream_message(size)))
    }

    /// Takes note that a stream has ended; returns `None` if it is not this stream.
    pub fn closed(&self, id: u32, status: u32) -> Option<StreamEvent> {
        // Envoy keeps a stream until this side has ended it, too.
        let _ = hostcalls::close_grpc_stream(id);
        (self.id.get() == Some(id)).then(|| {
            self.id.set(None);
            StreamEvent::Ended(StreamEnd::Closed(GrpcStatus(status)))
        })
    }
}
