//! Work that nobody waits for: its calls are made for the root context, to which their replies come.

use std::cell::RefCell;
use std::collections::HashMap;

use impersonation_core::step::{Progress, Reply, Step, Task};

use crate::host::{self, CallId};

/// What is under way in one VM, by the call that it waits for.
pub struct Background {
    /// The root context's number.
    root: u32,
    waiting: RefCell<HashMap<CallId, Task<()>>>,
}

impl Background {
    /// That of the VM whose root context has this number.
    pub fn new(root: u32) -> Self {
        Self { root, waiting: RefCell::default() }
    }

    /// Goes on with work. To be called in a callback of the root context.
    pub fn run(&self, step: Step<()>) {
        let mut sent = None;
        let progress = step.run(|call, _| {
            host::act_for(self.root);
            host::send(call).map(|id| sent = Some(id))
        });
        if let (Progress::Waiting(task), Some(id)) = (progress, sent) {
            self.waiting.borrow_mut().insert(id, task);
        }
    }

    /// Brings a reply that came to the root context to the work that it is for, if it is for any here.
    pub fn reply(&self, id: CallId, reply: Reply) {
        let task = self.waiting.borrow_mut().remove(&id);
        if let Some(task) = task {
            self.run(task.resume(reply));
        }
    }
}
