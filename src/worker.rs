//! The state that the contexts of one VM share: the service, and the calls whose replies Envoy
//! brings to the root context.
//!
//! Envoy ends a stream's calls with the stream. A call that must outlive the stream is therefore
//! sent for the root context, and this file brings the reply to the stream.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use impersonation_core::step::{Call, CallFailure, Reply, Step, WhenCallerLeaves};
use impersonation_envoy::host::{self, CallId, Envoy};
use impersonation_envoy::{Background, abi};
use impersonation_issuer::issuer::Service;

/// A stream that awaits a reply which Envoy brings to the root context.
pub(crate) trait AwaitsReply {
    /// Handles the reply.
    fn on_reply(self: Rc<Self>, worker: &Rc<Worker>, reply: Reply);
}

/// The context to which Envoy brings the reply to a stream's call.
pub(crate) enum ReplyTo {
    /// The stream's own context.
    Stream,
    /// The root context.
    Root(CallId),
}

/// The shared state of one VM.
pub(crate) struct Worker {
    /// The number of the root context.
    root: u32,
    pub(crate) host: Rc<Envoy>,
    pub(crate) service: Rc<Service>,
    /// Envoy is calling the root context at this moment.
    in_root: Cell<bool>,
    /// A call that the root context is to send.
    handed_over: RefCell<Option<Call>>,
    /// The result of sending the call that was handed over.
    sent: Cell<Option<Result<CallId, CallFailure>>>,
    /// Streams whose reply comes to the root context.
    waiting: RefCell<HashMap<CallId, Rc<dyn AwaitsReply>>>,
    background: Background,
}

impl Worker {
    pub(crate) fn new(root: u32, host: Rc<Envoy>, service: Rc<Service>) -> Self {
        Self {
            root,
            host,
            service,
            in_root: Cell::new(false),
            handed_over: RefCell::default(),
            sent: Cell::default(),
            waiting: RefCell::default(),
            background: Background::new(root),
        }
    }

    /// Runs a callback of the root context.
    pub(crate) fn as_root<T>(&self, callback: impl FnOnce() -> T) -> T {
        self.in_root.set(true);
        let result = callback();
        self.in_root.set(false);
        result
    }

    /// Sends a call for the stream with this context. The caller must [await](Self::await_reply) a
    /// reply that comes to the root context.
    pub(crate) fn send(
        &self,
        call: &Call,
        when_caller_leaves: WhenCallerLeaves,
        context: u32,
    ) -> Result<ReplyTo, CallFailure> {
        match (when_caller_leaves, self.in_root.get()) {
            (WhenCallerLeaves::Cancel, false) => host::send(call).map(|_| ReplyTo::Stream),
            (WhenCallerLeaves::Cancel, true) => host::send(call).map(ReplyTo::Root),
            (WhenCallerLeaves::GoOn, _) => {
                let sent = self.send_for_root(call);
                host::act_for(context);
                sent.map(ReplyTo::Root)
            }
        }
    }

    /// Remembers the stream that awaits the reply to a call of the root context.
    pub(crate) fn await_reply(&self, id: CallId, stream: Rc<dyn AwaitsReply>) {
        self.waiting.borrow_mut().insert(id, stream);
    }

    /// Continues work of the tick. Only a callback of the root context may call this.
    pub(crate) fn run(&self, step: Step<()>) {
        self.background.run(step);
    }

    /// Brings a reply from the root context to the stream or the background work that awaits it.
    pub(crate) fn reply(self: &Rc<Self>, id: CallId, reply: Reply) {
        let waiting = self.waiting.borrow_mut().remove(&id);
        match waiting {
            Some(stream) => stream.on_reply(self, reply),
            None => self.background.reply(id, reply),
        }
    }

    /// Forgets the stream that awaited a reply, because the stream has ended.
    pub(crate) fn forget(&self, id: CallId) {
        self.waiting.borrow_mut().remove(&id);
    }

    /// Sends the call that was handed over. Only the root context may call this.
    pub(crate) fn send_handed_over(&self) {
        let call = self.handed_over.take();
        self.sent.set(call.map(|call| {
            host::act_for(self.root);
            host::send(&call)
        }));
    }

    fn send_for_root(&self, call: &Call) -> Result<CallId, CallFailure> {
        if self.in_root.get() {
            host::act_for(self.root);
            return host::send(call);
        }
        // The SDK brings a reply to the context that sent the call last, so the root context must
        // send the call itself.
        self.handed_over.replace(Some(call.clone()));
        abi::call_root(self.root);
        self.sent.take().unwrap_or(Err(CallFailure::NotSent))
    }
}
