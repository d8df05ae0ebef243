//! Tells hooks what happens to impersonations: CloudEvents 1.0 over HTTP, signed as Standard
//! Webhooks.
//!
//! A required hook is told before a thing happens. If it cannot be told, the thing does not happen.
//! Every other hook is told afterwards, by the background work: no request waits for it. The queue
//! of a hook is bounded. If the hook is slow, the oldest notice is dropped, counted and written to
//! the operator's log. A queue is lost with its VM; the audit log has the same events.
//!
//! A notice never contains a token or a secret.

mod delivery;
mod notice;
mod signature;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

pub(crate) use notice::{Notice, taken_back_as};

use crate::config::{Happening, Hook};
use crate::host::{Host, UnixTime};
use crate::metrics;
use crate::step::{Context, Step, Task};

/// The most notices that wait for one hook, in each worker.
const MOST_WAITING: usize = 500;

/// The most notices that are under way to one hook at one time, in each worker.
const MOST_UNDER_WAY: usize = 64;

/// How often a notice is sent.
const TRIES: u32 = 3;

/// How long all tries of a notice may take together.
const PATIENCE: Duration = Duration::from_secs(10);

/// The hooks of a service, and what they have not been told yet.
pub(crate) struct Notifier {
    hooks: Vec<Rc<Line>>,
}

/// One hook, and the notices that wait for it.
struct Line {
    hook: Rc<Hook>,
    waiting: RefCell<VecDeque<Waiting>>,
    under_way: Cell<usize>,
}

/// A notice that waits for its next try.
struct Waiting {
    notice: Rc<Notice>,
    tries: u32,
    /// The time of the first try.
    since: Option<UnixTime>,
    /// The time of the next try.
    due: UnixTime,
}

/// A required hook could not be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a required hook could not be told")]
pub(crate) struct Untold;

/// The hooks that were told of something that has not happened yet. If it does not happen, they are
/// told so: call [`Announced::has_happened`] when it has.
pub(crate) struct Announced<'n> {
    lines: Vec<&'n Rc<Line>>,
    notice: Rc<Notice>,
    contradicts: bool,
}

impl Notifier {
    pub(crate) fn new(hooks: &[Rc<Hook>]) -> Self {
        let line = |hook: &Rc<Hook>| {
            let (waiting, under_way) = (RefCell::default(), Cell::default());
            Rc::new(Line { hook: Rc::clone(hook), waiting, under_way })
        };
        Self { hooks: hooks.iter().map(line).collect() }
    }

    /// Returns true if a hook is told of this.
    pub(crate) fn wants(&self, happening: Happening) -> bool {
        self.hooks.iter().any(|line| line.hook.wants(happening))
    }

    /// Returns true if a hook is told of this before it happens.
    pub(crate) fn tells_first(&self, happening: Happening) -> bool {
        self.hooks.iter().any(|line| line.hook.required && line.hook.wants(happening))
    }

    /// Tells the required hooks of something that is about to happen. Fails if one of them cannot
    /// be told; those that were told learn that it did not happen, if it is the begin of an
    /// impersonation or a decision.
    pub(crate) async fn announce(
        &self,
        context: &Context,
        notice: Notice,
    ) -> Result<Announced<'_>, Untold> {
        let mut announced =
            Announced { lines: Vec::new(), notice: Rc::new(notice), contradicts: true };
        let required = self.hooks.iter().filter(|line| line.hook.required);
        for line in required.filter(|line| line.hook.wants(announced.notice.happening)) {
            // The hook may have been told even if its answer got lost.
            announced.lines.push(line);
            line.tell(context, &announced.notice).await?;
        }
        Ok(announced)
    }

    /// Notes something that has happened, for the hooks that are not required.
    pub(crate) fn note(&self, host: &dyn Host, notice: Rc<Notice>) {
        let others = self.hooks.iter().filter(|line| !line.hook.required);
        for line in others.filter(|line| line.hook.wants(notice.happening)) {
            line.wait(Rc::clone(&notice));
            line.keep_within_bounds(host);
        }
    }

    /// Notes an ending, for all hooks: an ending waits for nobody.
    pub(crate) fn note_the_end(&self, host: &dyn Host, notice: Notice) {
        let notice = Rc::new(notice);
        for line in self.hooks.iter().filter(|line| line.hook.wants(notice.happening)) {
            line.wait(Rc::clone(&notice));
            line.keep_within_bounds(host);
        }
    }

    /// Begins the tries that are due.
    pub(crate) fn tick(&self, host: &Rc<dyn Host>) -> Vec<Step<()>> {
        let mut steps = Vec::new();
        for line in &self.hooks {
            // A contradiction was added without a host that could write down what it displaces.
            line.keep_within_bounds(&**host);
            while let Some(waiting) = line.next(host.now()) {
                let line = Rc::clone(line);
                steps.push(Task::start(Rc::clone(host), None, |context| async move {
                    line.deliver(&context, waiting).await;
                }));
            }
        }
        steps
    }
}

impl Announced<'_> {
    /// Returns true if a hook was told, so that the world may have changed meanwhile.
    pub(crate) const fn took_time(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Returns the notice: what was announced has happened.
    pub(crate) fn has_happened(mut self) -> Rc<Notice> {
        self.contradicts = false;
        Rc::clone(&self.notice)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let Some(notice) = self.notice.contradiction().filter(|_| self.contradicts) else { return };
        let notice = Rc::new(notice);
        self.lines.iter().for_each(|line| line.wait(Rc::clone(&notice)));
    }
}

impl Line {
    /// Adds a notice to the queue.
    fn wait(&self, notice: Rc<Notice>) {
        let waiting = Waiting { notice, tries: 0, since: None, due: UnixTime::default() };
        self.waiting.borrow_mut().push_back(waiting);
    }

    /// Drops the oldest notices of a queue that is too long, and writes each down.
    fn keep_within_bounds(&self, host: &dyn Host) {
        let mut queue = self.waiting.borrow_mut();
        while queue.len() > MOST_WAITING {
            let Some(oldest) = queue.pop_front() else { return };
            host.count(metrics::NOTIFICATIONS_DROPPED.into());
            host.warn(&format!("notification dropped, the hook is slow: {}", oldest.notice));
        }
    }

    /// Takes the next notice whose try is due.
    fn next(&self, now: UnixTime) -> Option<Waiting> {
        if self.under_way.get() >= MOST_UNDER_WAY {
            return None;
        }
        let mut queue = self.waiting.borrow_mut();
        let due = queue.iter().position(|waiting| {
            // A time that is far ahead was noted before the clock was set back.
            waiting.due <= now || waiting.due.is_ahead_of(now.after(PATIENCE))
        })?;
        let waiting = queue.remove(due)?;
        self.under_way.set(self.under_way.get().saturating_add(1));
        Some(waiting)
    }
}

#[cfg(test)]
mod tests;
