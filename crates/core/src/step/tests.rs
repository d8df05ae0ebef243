use std::cell::Cell;
use std::future::pending;

use super::*;
use crate::fakes::FakeHost;

fn start<T, F>(traceparent: Option<&str>, begin: impl FnOnce(Context) -> F) -> Step<T>
where
    F: Future<Output = T> + 'static,
{
    Task::start(Rc::new(FakeHost::default()), traceparent.map(str::to_owned), begin)
}

fn call(path: &str) -> Call {
    Call::Http(HttpCall {
        cluster: "c".into(),
        method: "GET",
        scheme: "https".into(),
        authority: "a".into(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(1),
    })
}

fn reply(status: u16) -> Reply {
    Reply::Http { status, json: false, body: Vec::new() }
}

fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(result) => result,
        Step::Call(call, _) => panic!("calls {call:?}"),
        Step::Stopped => panic!("stopped"),
    }
}

fn called<T>(step: Step<T>) -> (HttpCall, Task<T>) {
    match step {
        Step::Call(Call::Http(call), task) => (call, task),
        _ => panic!("does not call over HTTP"),
    }
}

#[test]
fn each_reply_goes_to_the_call_that_it_was_for() {
    let step = start(None, |context| async move {
        let mut statuses = Vec::new();
        for path in ["/1", "/2"] {
            if let Reply::Http { status, .. } = context.call(call(path)).await {
                statuses.push(status);
            }
        }
        statuses
    });
    let (first, task) = called(step);
    assert_eq!((first.path.as_str(), first.headers.len()), ("/1", 0));
    let (second, task) = called(task.resume(reply(200)));
    assert_eq!(second.path, "/2");
    assert_eq!(done(task.resume(reply(404))), [200, 404]);
}

#[test]
fn every_call_carries_the_trace_on() {
    let step = start(Some("00-1-2-01"), |context| async move {
        context.call(call("/1")).await;
        context.call(call("/2")).await;
    });
    let (first, task) = called(step);
    let (second, _) = called(task.resume(Reply::Failed(CallFailure::NotSent)));
    for call in [first, second] {
        assert_eq!(call.headers, [("traceparent", "00-1-2-01".to_owned())]);
    }
}

#[test]
fn a_call_that_cannot_be_sent_has_failed_at_once() {
    let step = start(None, |context| async move {
        [context.call(call("/1")).await, context.call(call("/2")).await]
    });
    let mut sent = 0;
    let progress = step.run(|_, _| {
        sent += 1;
        Err(CallFailure::NotSent)
    });
    let Progress::Done(replies) = progress else { panic!("it waits") };
    assert_eq!(
        (sent, replies),
        (2, [CallFailure::NotSent, CallFailure::NotSent].map(Reply::Failed))
    );
}

#[test]
fn a_task_that_waits_without_a_call_stops() {
    assert!(matches!(start(None, |_| pending::<()>()), Step::Stopped));
}

/// A task's resources are released as soon as it ends or its caller leaves.
#[test]
fn a_task_that_only_asks_ends_when_its_caller_leaves() {
    struct Held(Rc<Cell<bool>>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let held = Held(Rc::clone(&dropped));
    let step = start(None, |context| async move {
        context.call(call("/")).await;
        drop(held);
    });
    let (_, task) = called(step);
    assert!(!dropped.get());
    assert!(task.caller_left().is_none());
    assert!(dropped.get());
}

#[test]
fn a_task_that_may_have_changed_something_goes_on_without_its_caller() {
    let step = start(None, |context| async move {
        context.call_to_the_end(call("/change")).await;
        context.call_to_the_end(call("/change-again")).await;
        "changed"
    });
    let (_, task) = called(step);
    let task = task.caller_left().expect("it goes on");
    let (again, task) = called(task.resume(reply(503)));
    assert_eq!(again.path, "/change-again");
    assert_eq!(done(task.resume(reply(200))), "changed");
}

#[test]
fn a_task_begins_nothing_for_a_caller_who_has_left() {
    let step = start(None, |context| async move {
        context.call_to_the_end(call("/change")).await;
        context.call(call("/ask")).await;
    });
    let task = called(step).1.caller_left().expect("it goes on");
    assert!(matches!(task.resume(reply(200)), Step::Stopped), "it asks nobody");

    let changed = Rc::new(Cell::new(false));
    let change = Rc::clone(&changed);
    let step = start(None, |context| async move {
        context.call_to_the_end(call("/fetch")).await;
        context.still_wanted().await;
        change.set(true);
    });
    let task = called(step).1.caller_left().expect("it goes on");
    assert!(matches!(task.resume(reply(200)), Step::Stopped));
    assert!(!changed.get());
}
