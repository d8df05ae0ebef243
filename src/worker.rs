//! What the contexts of one VM share: the service, and the calls whose replies Envoy brings to the root context.
//!
//! A call that Envoy makes for a stream ends with that stream. One that has to go on is therefore made for the
//! root context, whoever it is for: here it says where its reply belongs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use impersonation_core::issuer::Service;
use impersonation_core::step::{Call, CallFailure, Reply, Step, WhenCallerLeaves};
use impersonation_envoy::host::{self, CallId, Envoy};
use impersonation_envoy::{Background, abi};

use crate::http::{Held, Live};

/// One VM.
pub(crate) struct Worker {
    /// The root context's number.
    root: u32,
    pub(crate) host: Rc<Envoy>,
    pub(crate) service: Option<Rc<Service>>,
    /// Whether Envoy is calling the root context right now.
    in_root: Cell<bool>,
    /// A call on its way to the root context, and what became of it.
    handed_over: RefCell<Option<Call>>,
    sent: Cell<Option<Result<CallId, CallFailure>>>,
    /// Streams whose reply comes to the root context.
    waiting: RefCell<HashMap<CallId, Rc<Held>>>,
    background: Background,
}

impl Worker {
    pub(crate) fn new(root: u32, host: Rc<Envoy>, service: Option<Rc<Service>>) -> Self {
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

    /// Sends a call for a stream.
    pub(crate) fn send(
        &self,
        call: &Call,
        when_caller_leaves: WhenCallerLeaves,
        stream: &Rc<Held>,
    ) -> Result<(), CallFailure> {
        let id = match (when_caller_leaves, self.in_root.get()) {
            (WhenCallerLeaves::Cancel, false) => {
                // Its reply comes to the stream itself.
                stream.elsewhere.set(None);
                return host::send(call).map(|_| ());
            }
            (WhenCallerLeaves::Cancel, true) => host::send(call)?,
            (WhenCallerLeaves::GoOn, _) => {
                let sent = self.send_for_root(call);
                host::act_for(stream.context);
                sent?
            }
        };
        stream.elsewhere.set(Some(id));
        self.waiting.borrow_mut().insert(id, Rc::clone(stream));
        Ok(())
    }

    /// Goes on with work that nobody waits for. To be called in a callback of the root context.
    pub(crate) fn run(&self, step: Step<()>) {
        self.background.run(step);
    }

    /// Brings a reply that came to the root context to whom it is for.
    pub(crate) fn reply(self: &Rc<Self>, id: CallId, reply: Reply) {
        let waiting = self.waiting.borrow_mut().remove(&id);
        match waiting {
            Some(held) => {
                host::act_for(held.context);
                let live = Live { worker: self, held: &held };
                held.stream.borrow_mut().on_reply(&live, reply);
            }
            None => self.background.reply(id, reply),
        }
    }

    /// Nobody waits for this reply any more.
    pub(crate) fn forget(&self, id: CallId) {
        self.waiting.borrow_mut().remove(&id);
    }

    /// Sends the call that was handed over, as the root context.
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
        // The SDK brings a reply to the context that it was called for last, so it has to be called.
        self.handed_over.replace(Some(call.clone()));
        abi::call_root(self.root);
        self.sent.take().unwrap_or(Err(CallFailure::NotSent))
    }
}
