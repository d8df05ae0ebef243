use std::cell::Cell;
use std::future::pending;

use super::*;
use crate::jose::tests::host::TestHost;

fn start<F>(origin: Origin, endpoint: impl FnOnce(Context) -> F) -> Step
where
    F: Future<Output = Outcome> + 'static,
{
    Task::start(Rc::new(TestHost::default()), Operation::Exchange, origin, endpoint)
}

fn origin(traceparent: Option<&str>) -> Origin {
    Origin { request_id: "r-1".to_owned(), traceparent: traceparent.map(str::to_owned) }
}

fn call(path: &str) -> Call {
    Call {
        cluster: "c".into(),
        method: "GET",
        scheme: "https".into(),
        authority: "a".into(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(1),
    }
}

fn reply(status: u16) -> Reply {
    Reply::Http { status, json: false, body: Vec::new() }
}

fn done(step: Step) -> Finished {
    match step {
        Step::Done(finished) => finished,
        Step::Call(call, _) => panic!("calls {call:?}"),
    }
}

fn called(step: Step) -> (Call, Task) {
    match step {
        Step::Call(call, task) => (call, task),
        Step::Done(finished) => panic!("ends {finished:?}"),
    }
}

fn no_content(status: u16) -> Outcome {
    Ok(Response { status, headers: Vec::new(), body: Vec::new() })
}

#[test]
fn each_reply_goes_to_the_call_that_it_was_for() {
    let step = start(origin(None), |context| async move {
        let mut sum = 0;
        for path in ["/1", "/2"] {
            if let Reply::Http { status, .. } = context.call(call(path)).await {
                sum = status.saturating_sub(sum);
            }
        }
        no_content(sum)
    });
    let (first, task) = called(step);
    assert_eq!((first.path.as_str(), first.headers.len()), ("/1", 0));
    let (second, task) = called(task.resume(reply(200)));
    assert_eq!(second.path, "/2");
    assert_eq!(done(task.resume(reply(404))).response.status, 204);
}

#[test]
fn every_call_carries_the_trace_on() {
    let step = start(origin(Some("00-1-2-01")), |context| async move {
        context.call(call("/1")).await;
        context.call(call("/2")).await;
        no_content(204)
    });
    let (first, task) = called(step);
    let (second, _) = called(task.resume(Reply::Failed(CallFailure::NotSent)));
    for call in [first, second] {
        assert_eq!(call.headers, [("traceparent", "00-1-2-01".to_owned())]);
    }
}

#[test]
fn a_fact_is_written_down_however_the_request_ends() {
    let noting = || {
        start(origin(None), |context| async move {
            context.note(|facts| facts.user_id = Some("user-42".to_owned()));
            context.call(call("/")).await;
            context.note(|facts| facts.actor_id = Some("agent-7".to_owned()));
            no_content(200)
        })
    };
    let finished = done(called(noting()).1.resume(reply(200)));
    let event = finished.event.unwrap();
    assert_eq!(event.event.name(), "token_exchange.succeeded");
    assert_eq!(event.facts.request_id, "r-1");
    assert_eq!(event.facts.user_id.as_deref(), Some("user-42"));
    assert_eq!(event.facts.actor_id.as_deref(), Some("agent-7"));

    let event = called(noting()).1.abandon();
    assert_eq!(event.event.name(), "token_exchange.refused");
    assert_eq!((event.error, event.reason), (Some("abandoned"), Some("caller_gone")));
    assert_eq!(event.facts.user_id.as_deref(), Some("user-42"));
    assert_eq!(event.facts.actor_id, None);
}

#[test]
fn an_endpoint_that_waits_for_nothing_is_answered_for() {
    let finished = done(start(origin(None), |_| pending()));
    assert_eq!(finished.response.status, 500);
    let event = finished.event.unwrap();
    assert_eq!((event.error, event.reason), (Some("server_error"), Some("stalled")));
}

/// What an endpoint holds is let go of as soon as it ends, or is given up.
#[test]
fn an_abandoned_endpoint_is_dropped() {
    struct Held(Rc<Cell<bool>>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let held = Held(Rc::clone(&dropped));
    let step = start(origin(None), |context| async move {
        context.call(call("/")).await;
        drop(held);
        no_content(204)
    });
    let (_, task) = called(step);
    assert!(!dropped.get());
    let _ = task.abandon();
    assert!(dropped.get());
}
