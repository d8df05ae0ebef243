use super::*;
use crate::fakes::FakeHost;
use crate::step::{Call, Reply};

fn hooks(required: bool) -> Notifier {
    Notifier::new(&[Rc::new(Hook::for_tests(required))])
}

fn notice(host: &FakeHost, happening: Happening, id: &str) -> Notice {
    Notice::new(host, "https://auth.example.com", happening, id, "{}", "{}").unwrap()
}

fn waiting(notifier: &Notifier) -> Vec<String> {
    let queue = notifier.hooks[0].waiting.borrow();
    queue.iter().map(|waiting| waiting.notice.to_string()).collect()
}

/// Answers each call of a task with this status. Returns the number of calls.
fn answer<T>(mut step: Step<T>, host: &FakeHost, status: u16, takes: Duration) -> (Option<T>, u32) {
    let mut calls: u32 = 0;
    loop {
        match step {
            Step::Call(Call::Http(_), task) => {
                calls = calls.saturating_add(1);
                host.now.set(host.now.get().after(takes));
                step = task.resume(Reply::Http { status, json: false, body: Vec::new() });
            }
            Step::Done(result) => return (Some(result), calls),
            _ => return (None, calls),
        }
    }
}

#[test]
fn a_slow_hook_loses_the_oldest_notice() {
    let (host, notifier) = (FakeHost::default(), hooks(false));
    for number in 0..=MOST_WAITING {
        let notice = notice(&host, Happening::Ended, &number.to_string());
        notifier.note_the_end(&host, notice);
    }
    let waiting = waiting(&notifier);
    assert_eq!(waiting.len(), MOST_WAITING);
    assert!(waiting[0].starts_with("impersonation.ended of 1,"), "{}", waiting[0]);
}

#[test]
fn a_contradiction_displaces_the_oldest_notice_and_that_is_written_down() {
    let (host, notifier) = (Rc::new(FakeHost::default()), hooks(true));
    for number in 0..MOST_WAITING {
        let notice = notice(&host, Happening::Ended, &number.to_string());
        notifier.note_the_end(&*host, notice);
    }
    let seen = Rc::clone(&host);
    let dropped = || {
        let counted = seen.counted.borrow();
        counted.iter().filter(|name| **name == metrics::NOTIFICATIONS_DROPPED).count()
    };
    let notice = Rc::new(notice(&host, Happening::Began, "t"));
    let lines = notifier.hooks.iter().collect();
    drop(Announced { lines, notice, contradicts: true });
    assert_eq!(dropped(), 0);
    let host: Rc<dyn Host> = host;
    drop(notifier.tick(&host));
    assert_eq!(dropped(), 1);
}

#[test]
fn a_notice_is_tried_three_times_within_ten_seconds() {
    let host = Rc::new(FakeHost::default());
    let notifier = hooks(false);
    notifier.note_the_end(&*host, notice(&host, Happening::Ended, "t"));
    let began = host.now.get();
    let mut tries = Vec::new();
    for _ in 0..40 {
        let shared: Rc<dyn Host> = host.clone();
        for step in notifier.tick(&shared) {
            let at = host.now.get().since(began);
            let (_, calls) = answer(step, &host, 500, Duration::ZERO);
            tries.push((at.as_secs(), calls));
        }
        host.now.set(host.now.get().after(Duration::from_secs(1)));
    }
    assert_eq!(tries, [(0, 1), (1, 1), (3, 1)]);
    assert!(waiting(&notifier).is_empty());
}

#[test]
fn a_required_hook_is_told_first_and_learns_what_did_not_happen() {
    for (status, takes, calls) in [(200, 0, 1), (500, 0, 3), (500, 6, 2)] {
        let host = Rc::new(FakeHost::default());
        let notifier = Rc::new(hooks(true));
        let (told, began) = (Rc::clone(&notifier), notice(&host, Happening::Began, "t"));
        let shared: Rc<dyn Host> = host.clone();
        let step = Task::start(shared, None, |context| async move {
            told.announce(&context, began).await.map(Announced::has_happened).is_ok()
        });
        let answered = answer(step, &host, status, Duration::from_secs(takes));
        assert_eq!(answered, (Some(status == 200), calls));
        let taken_back = waiting(&notifier);
        assert_eq!(taken_back.len(), usize::from(status != 200), "{taken_back:?}");
        assert!(taken_back.iter().all(|notice| notice.starts_with("impersonation.not_begun of t")));
    }
}
