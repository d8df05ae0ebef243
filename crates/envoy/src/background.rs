//! Background work. Its calls are made on behalf of the root context, which receives their replies.

use std::cell::RefCell;
use std::collections::HashMap;

use impersonation_core::step::{Progress, Reply, Step, Task};

use crate::host::{self, CallId};

/// The background tasks of one VM, by the call that each waits for.
pub struct Background {
    /// The id of the root context.
    root: u32,
    waiting: RefCell<HashMap<CallId, Task<()>>>,
}

impl Background {
    /// Creates the background of the VM whose root context has this id.
    pub fn new(root: u32) -> Self {
        Self { root, waiting: RefCell::default() }
    }

    /// Runs a task until its next call. Must be called in a callback of the root context.
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

    /// Hands a reply of the root context to the task that waits for it. Ignores other replies.
    pub fn reply(&self, id: CallId, reply: Reply) {
        let task = self.waiting.borrow_mut().remove(&id);
        if let Some(task) = task {
            self.run(task.resume(reply));
        }
    }
}
