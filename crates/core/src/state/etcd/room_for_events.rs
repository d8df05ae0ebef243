//! Tests of the room for events in etcd: when it is used up, the older half of the events becomes
//! one key, in front of which everything ends.

use std::rc::Rc;
use std::time::Duration;

use super::RecordKeys;
use crate::fakes::{Etcd, FakeHost, START, etcd_server, play_in_etcd};
use crate::host::Host;
use crate::state::revocations::{
    Concerned, EVENTS, Happened, Impersonation, IssuedAt, Overflow, Revocation, Told, View,
};
use crate::state::storage::Revocations;
use crate::step::{Context, Task};

const STALE: Duration = Duration::from_secs(10);
const SENDER: &str = "https://auth.example.com";

struct Envoy {
    host: Rc<FakeHost>,
    revocations: Rc<Revocations>,
}

impl Envoy {
    fn new(seed: u64) -> Self {
        let server = etcd_server(RecordKeys::default());
        Self {
            host: Rc::new(FakeHost::with_seed(seed)),
            revocations: Rc::new(Revocations::etcd(&server, "tenant", STALE)),
        }
    }

    fn run<T: 'static, F>(
        &self,
        etcd: &mut Etcd,
        begin: impl FnOnce(Rc<Revocations>, Context) -> F,
    ) -> T
    where
        F: Future<Output = T> + 'static,
    {
        let (host, revocations) = (Rc::clone(&self.host) as Rc<dyn Host>, self.revocations.clone());
        let step = Task::start(host, None, |context| begin(revocations, context));
        play_in_etcd(step, |call| etcd.answer(call))
    }

    fn tell(&self, etcd: &mut Etcd, actor: usize, at_millis: u64) -> Told {
        let agent = Revocation { actor_id: Some(actor.to_string()), ..Revocation::default() };
        self.tell_of(etcd, agent, None, at_millis)
    }

    fn tell_of(
        &self,
        etcd: &mut Etcd,
        ended: Revocation,
        person: Option<String>,
        at_millis: u64,
    ) -> Told {
        let happened = Happened::new(SENDER, at_millis, Duration::from_secs(86_400));
        let happened = Happened { person, ..happened };
        let told = self.run(etcd, |revocations, context| async move {
            revocations.keep_event(&context, &ended, &happened).await
        });
        told.unwrap()
    }

    fn issue(&self, etcd: &mut Etcd) -> IssuedAt {
        let caught_up = self.run(etcd, |revocations, context| async move {
            revocations.catch_up(&context, None).await
        });
        IssuedAt::new(self.host.now.get(), caught_up.unwrap().revision())
    }

    fn view(&self, etcd: &mut Etcd) -> Rc<View> {
        let view = self.run(etcd, |revocations, context| async move {
            revocations.current_view(&context).await
        });
        view.unwrap()
    }
}

/// Two Envoys are told of events in turn. Every event holds in both and in a third, and the number
/// of keys stays small.
#[test]
fn the_older_half_of_all_events_becomes_one_key_and_nothing_lives_on() {
    let mut etcd = Etcd::default();
    let envoys = [Envoy::new(1), Envoy::new(2)];
    let all = EVENTS * 3;
    let began = START.millis();
    let before: Vec<_> = envoys.iter().map(|envoy| envoy.issue(&mut etcd)).collect();
    let mut overflows = 0;
    for (number, envoy) in (0..all).zip(envoys.iter().cycle()) {
        envoys.iter().for_each(|envoy| envoy.host.advance(Duration::from_millis(1)));
        let at = began + u64::try_from(number).unwrap();
        let told = envoy.tell(&mut etcd, number, at);
        assert_ne!(told, Told::OldNews, "{number}");
        overflows += usize::from(told == Told::News(Some(Overflow::Events)));
    }
    assert!(overflows >= 2, "{overflows}");
    envoys.iter().for_each(|envoy| envoy.host.advance(Duration::from_secs(61)));
    let after = envoys[0].issue(&mut etcd);
    let third = Envoy::new(3);
    third.host.now.set(envoys[0].host.now.get());
    for envoy in envoys.iter().chain([&third]) {
        let known = envoy.view(&mut etcd);
        assert!(known.len() <= EVENTS + 2, "{}", known.len());
        for number in 0..all {
            let name = number.to_string();
            let ended = |issued| known.has_ended(&Impersonation::by(&name, "session"), issued);
            assert!(before.iter().all(|issued| ended(*issued)), "{number}");
            assert!(!ended(after), "{number}: a new one");
            let concerned = Concerned { actor_id: Some(&name), session: None, user_id: None };
            let at = crate::host::UnixTime::from_millis(began + u64::try_from(number).unwrap());
            assert!(known.has_event_since(concerned, at), "{number}");
        }
    }
    // The memory of ids has turned over, and the sender repeats its oldest events.
    for number in [0, 1, EVENTS / 2, EVENTS, all - 1] {
        let at = began + u64::try_from(number).unwrap();
        for envoy in envoys.iter().chain([&third]) {
            assert_eq!(envoy.tell(&mut etcd, number, at), Told::OldNews, "{number}");
        }
    }
    let known = third.view(&mut etcd);
    assert!(
        !known.has_ended(&Impersonation::by("0", "session"), after),
        "a repetition ends nothing"
    );
}

/// Two Envoys are told of the logouts of one account in turn, each of a new session.
#[test]
fn a_persons_logouts_become_one_key_and_end_nothing_of_anybody_elses() {
    let mut etcd = Etcd::default();
    let envoys = [Envoy::new(1), Envoy::new(2)];
    let before = envoys[0].issue(&mut etcd);
    let log_out = |envoy: &Envoy, etcd: &mut Etcd, number: u64| {
        let session = Revocation { session: Some(number.to_string()), ..Revocation::default() };
        envoy.tell_of(
            etcd,
            session,
            Some("account".to_owned()),
            START.millis().saturating_add(number),
        )
    };
    for (number, envoy) in (1..200).zip(envoys.iter().cycle()) {
        envoys.iter().for_each(|envoy| envoy.host.advance(Duration::from_millis(1)));
        assert_eq!(log_out(envoy, &mut etcd, number), Told::News(None), "{number}");
    }
    let third = Envoy::new(3);
    third.host.now.set(envoys[0].host.now.get());
    for envoy in envoys.iter().chain([&third]) {
        let known = envoy.view(&mut etcd);
        assert!(known.len() < 40, "{}", known.len());
        for number in 1..200 {
            let sid = number.to_string();
            let of = |actor| Impersonation::by(actor, &sid);
            assert!(known.has_ended(&of("account"), before), "{number}");
        }
        assert!(!known.has_ended(&Impersonation::by("another", "session"), before));
        for number in [1, 100] {
            assert_eq!(log_out(envoy, &mut etcd, number), Told::OldNews, "{number}");
        }
    }
}
