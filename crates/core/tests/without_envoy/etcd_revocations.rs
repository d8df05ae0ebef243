//! Revocations in etcd, between Envoys whose clocks differ, and whatever becomes of etcd.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::config::EtcdSettings;
use impersonation_core::etcd::{Revision, Server};
use impersonation_core::host::{Host, UnixTime};
use impersonation_core::revocations::{
    CallerTag, Impersonation, Issued, MAX_ENTRIES, Revocation, Revocations, Unknown,
};
use impersonation_core::step::{Call, Context, GrpcCall, GrpcStatus, Reply, Step, Task};

use crate::etcd_store::fake::Etcd;
use crate::etcd_store::run::World;

const HOUR: Duration = Duration::from_secs(3600);
const STALE: Duration = Duration::from_secs(10);

/// One Envoy.
struct Envoy {
    world: Rc<World>,
    revocations: Rc<Revocations>,
}

impl Envoy {
    fn new() -> Self {
        Self { world: Rc::default(), revocations: another_worker() }
    }

    /// Whose clock is ahead of that of the others.
    fn ahead(by: Duration) -> Self {
        let envoy = Self::new();
        envoy.wait(by);
        envoy
    }

    fn wait(&self, time: Duration) {
        self.world.now.set(self.world.now.get().after(time));
    }

    fn run<T: 'static, F>(
        &self,
        etcd: &mut Etcd,
        begin: impl FnOnce(Rc<Revocations>, Context) -> F,
    ) -> T
    where
        F: Future<Output = T> + 'static,
    {
        self.run_with(|call| etcd.answer(call), begin)
    }

    fn run_with<T: 'static, F>(
        &self,
        mut answer: impl FnMut(&GrpcCall) -> Result<Vec<u8>, u32>,
        begin: impl FnOnce(Rc<Revocations>, Context) -> F,
    ) -> T
    where
        F: Future<Output = T> + 'static,
    {
        let (host, revocations) =
            (Rc::clone(&self.world) as Rc<dyn Host>, self.revocations.clone());
        let mut step = Task::start(host, None, |context| begin(revocations, context));
        loop {
            step = match step {
                Step::Call(Call::Grpc(call), task) => {
                    task.resume(Reply::Grpc(answer(&call).map_err(GrpcStatus)))
                }
                Step::Done(result) => return result,
                Step::Call(..) | Step::Stopped => panic!("nothing else is called"),
            };
        }
    }

    fn revoke(&self, etcd: &mut Etcd, revocation: Revocation) {
        let revoked = self.run(etcd, |revocations, context| async move {
            revocations.revoke(&context, &revocation).await
        });
        assert_eq!(revoked.map(|revoked| revoked.overflowed), Ok(false));
    }

    /// What something is issued by now, as an exchange does it.
    fn issue(&self, etcd: &mut Etcd) -> Issued {
        let caught_up = self.run(etcd, |revocations, context| async move {
            revocations.catch_up(&context, None).await
        });
        Issued::new(self.world.now.get(), caught_up.unwrap().revision())
    }

    /// Asks, as the guard does on its tick.
    fn follow(&self, etcd: &mut Etcd) {
        assert!(self.revocations.follows(&*self.world), "it is this VM's turn");
        self.run(etcd, |revocations, context| async move { revocations.follow(&context).await });
    }

    /// What the guard knows.
    fn has_ended(&self, of: &str, issued: Issued) -> Result<bool, Unknown> {
        let known = self.revocations.known(&*self.world)?;
        Ok(known.has_ended(&impersonation(of), issued))
    }

    /// What an introspection finds.
    fn finds_ended(&self, etcd: &mut Etcd, of: &str, issued: Issued) -> bool {
        let known =
            self.run(etcd, |revocations, context| async move { revocations.fresh(&context).await });
        known.unwrap().has_ended(&impersonation(of), issued)
    }
}

fn another_worker() -> Rc<Revocations> {
    let server = Server::new(&EtcdSettings {
        cluster: "etcd".into(),
        prefix: "/impersonation/".into(),
        timeout: Duration::from_millis(3500),
        authority: None,
    });
    Rc::new(Revocations::etcd(&Rc::new(server), "tenant", HOUR, STALE))
}

fn impersonation(user_id: &str) -> Impersonation<'_> {
    Impersonation {
        id: "id",
        user_id,
        actor_id: None,
        client_id: "client",
        caller: Some(CallerTag::of("backend")),
        resource: "resource",
    }
}

fn of_user(user: &str) -> Revocation {
    Revocation { user_id: Some(user.to_owned()), ..Revocation::default() }
}

/// However their clocks differ, within reason: what is issued before has ended, what is issued after has not.
#[test]
fn no_clock_decides_between_two_envoys() {
    let skews = [0, 1, 500, 30_000].map(Duration::from_millis);
    for (issuing, revoking) in skews.iter().flat_map(|one| skews.map(|other| (*one, other))) {
        let (mut etcd, case) = (Etcd::default(), format!("{issuing:?} {revoking:?}"));
        let (one, other) = (Envoy::ahead(issuing), Envoy::ahead(revoking));
        let before = one.issue(&mut etcd);
        other.revoke(&mut etcd, of_user("ana"));
        let after = one.issue(&mut etcd);
        for envoy in [&one, &other, &Envoy::new()] {
            assert!(envoy.finds_ended(&mut etcd, "ana", before), "{case}");
            assert!(!envoy.finds_ended(&mut etcd, "ana", after), "{case}");
            assert!(!envoy.finds_ended(&mut etcd, "bob", before), "{case}");
        }
    }
}

/// An exchange that found its subject token before a revocation ends with it, whenever it comes to its end.
#[test]
fn what_an_exchange_could_not_see_ends_what_comes_out_of_it() {
    let mut etcd = Etcd::default();
    let (one, other) = (Envoy::ahead(Duration::from_secs(5)), Envoy::new());
    let issued = one.issue(&mut etcd);
    other.revoke(&mut etcd, of_user("ana"));
    // It goes on with what it knew, and with its own clock.
    one.wait(Duration::from_secs(3));
    let Issued::AtRevision(revision, _) = issued else { panic!("{issued:?}") };
    let late = Issued::new(one.world.now.get(), revision);
    assert!(other.finds_ended(&mut etcd, "ana", late));
    assert!(one.finds_ended(&mut etcd, "ana", late));
}

#[test]
fn the_envoy_that_revokes_knows_at_once_and_the_others_when_they_ask() {
    let mut etcd = Etcd::default();
    let (one, other) = (Envoy::new(), Envoy::new());
    for envoy in [&one, &other] {
        envoy.follow(&mut etcd);
    }
    let issued = one.issue(&mut etcd);
    one.revoke(&mut etcd, of_user("ana"));
    assert_eq!(one.has_ended("ana", issued), Ok(true));
    assert_eq!(other.has_ended("ana", issued), Ok(false));
    other.follow(&mut etcd);
    assert_eq!(other.has_ended("ana", issued), Ok(true));
    // Another worker, and another module of the same VM: it asks nobody.
    let worker = Envoy { world: Rc::clone(&other.world), revocations: another_worker() };
    assert_eq!(worker.has_ended("ana", issued), Ok(true));
    assert!(!worker.revocations.follows(&*worker.world), "one asks for all");
}

#[test]
fn who_has_not_heard_from_etcd_for_too_long_knows_nothing() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let issued = envoy.issue(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::NotYet));
    envoy.follow(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    envoy.wait(STALE - Duration::from_millis(1));
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    envoy.wait(Duration::from_millis(1));
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
    // A question that is not answered is none.
    envoy.run_with(
        |_| Err(14),
        |revocations, context| async move {
            revocations.follow(&context).await;
        },
    );
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
    envoy.follow(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    // Nor is one of a time that is not yet, as the clock was set back.
    envoy.world.now.set(envoy.world.now.get().before(HOUR));
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
}

/// When the question was asked counts, not when it was answered: the answer may have been long under way.
#[test]
fn an_answer_is_as_old_as_its_question() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let world = Rc::clone(&envoy.world);
    envoy.run_with(
        |call| {
            world.now.set(world.now.get().after(STALE));
            etcd.answer(call)
        },
        |revocations, context| async move { revocations.follow(&context).await },
    );
    assert_eq!(envoy.has_ended("ana", Issued::At(UnixTime::default())), Err(Unknown::Stale));
}

#[test]
fn a_revocation_whose_answers_are_lost_is_not_answered_and_harms_nobody() {
    for lost in 0..6 {
        let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
        let issued = envoy.issue(&mut etcd);
        let mut calls = 0;
        let revoked =
            envoy.run_with(
                |call| {
                    let answer = etcd.answer(call);
                    calls += 1;
                    if calls <= lost { Err(14) } else { answer }
                },
                |revocations, context| async move {
                    revocations.revoke(&context, &of_user("ana")).await
                },
            );
        let ended = envoy.finds_ended(&mut etcd, "ana", issued);
        assert!(ended || revoked.is_err(), "{lost}: {revoked:?}");
        assert_eq!(revoked.is_ok(), lost < 3, "{lost}: {revoked:?}");
        envoy.revoke(&mut etcd, of_user("ana"));
        assert!(envoy.finds_ended(&mut etcd, "ana", issued), "{lost}");
    }
}

#[test]
fn an_envoy_that_is_new_reads_them_all_in_pages() {
    const REVOKED: usize = 2500;
    let (mut etcd, one) = (Etcd::default(), Envoy::new());
    let issued = one.issue(&mut etcd);
    for user in 0..REVOKED {
        // Each in an Envoy of its own, whose copy is small.
        Envoy::new().revoke(&mut etcd, of_user(&user.to_string()));
    }
    let after = one.issue(&mut etcd);
    let other = Envoy::new();
    let mut calls = 0;
    let known = other.run_with(
        |call| {
            calls += 1;
            etcd.answer(call)
        },
        |revocations, context| async move { revocations.fresh(&context).await },
    );
    assert_eq!(calls, 4, "the last revocation, and three pages");
    let known = known.unwrap();
    assert_eq!(known.len(), REVOKED);
    for user in (0..REVOKED).step_by(7) {
        let user = user.to_string();
        assert!(known.has_ended(&impersonation(&user), issued), "{user}");
        assert!(!known.has_ended(&impersonation(&user), after), "{user}");
    }
    // Of the next one only that is read.
    one.revoke(&mut etcd, of_user("ana"));
    assert!(other.finds_ended(&mut etcd, "ana", after));
}

#[test]
fn more_than_there_is_room_for_ends_more_and_never_less() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let first = envoy.issue(&mut etcd);
    let all = MAX_ENTRIES + 5;
    for user in 0..all {
        // Each in another Envoy, so that this one reads them at once.
        let other = Envoy::ahead(Duration::from_millis(user as u64 / 1000));
        other.revoke(&mut etcd, of_user(&user.to_string()));
    }
    let after = envoy.issue(&mut etcd);
    for user in (0..all).step_by(97).chain([all - 1]) {
        assert!(envoy.finds_ended(&mut etcd, &user.to_string(), first), "{user}");
        assert!(!envoy.finds_ended(&mut etcd, &user.to_string(), after), "{user}");
    }
}

#[test]
fn a_value_that_nobody_can_read_may_mean_anybody() {
    for value in [&b""[..], b"x", &[1], &[99; 40]] {
        let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
        let issued = envoy.issue(&mut etcd);
        envoy.revoke(&mut etcd, of_user("ana"));
        etcd.overwrite(value);
        let other = Envoy::new();
        assert!(other.finds_ended(&mut etcd, "bob", issued), "{value:?}");
        let after = other.issue(&mut etcd);
        assert!(!other.finds_ended(&mut etcd, "bob", after), "{value:?}");
    }
}

/// From a backup, or from nothing: revisions begin anew, and what they said is worth nothing.
#[test]
fn an_etcd_that_begins_anew_ends_what_was_before_and_nothing_after() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    for user in 0..20 {
        envoy.revoke(&mut etcd, of_user(&user.to_string()));
    }
    envoy.follow(&mut etcd);
    let before = envoy.issue(&mut etcd);
    assert_eq!(envoy.has_ended("ana", before), Ok(false));

    let mut etcd = Etcd::default();
    envoy.wait(Duration::from_millis(400));
    envoy.follow(&mut etcd);
    assert_eq!(envoy.has_ended("ana", before), Ok(true));
    assert!(envoy.world.warnings.borrow().iter().any(|line| line.contains("began anew")));
    envoy.wait(Duration::from_millis(1));
    let after = envoy.issue(&mut etcd);
    assert_eq!(envoy.has_ended("ana", after), Ok(false));
    assert_eq!(envoy.has_ended("3", after), Ok(false), "it may begin anew");
    envoy.revoke(&mut etcd, of_user("ana"));
    assert_eq!(envoy.has_ended("ana", after), Ok(true));
    let again = Envoy::new();
    again.follow(&mut etcd);
    assert_eq!(again.has_ended("ana", after), Ok(true));
}

/// Clocks that differ by more than they may say that the revisions are not of one history.
#[test]
fn a_token_of_another_history_ends_by_its_time() {
    let mut etcd = Etcd::default();
    let envoy = Envoy::new();
    let of_old = Issued::new(envoy.world.now.get(), Revision::new(1_000_000));
    envoy.wait(Duration::from_secs(61));
    assert!(!envoy.finds_ended(&mut etcd, "ana", of_old));
    envoy.revoke(&mut etcd, of_user("ana"));
    assert!(envoy.finds_ended(&mut etcd, "ana", of_old));
}

#[test]
fn to_ask_is_one_read_of_one_key_unless_there_is_something_new() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    envoy.revoke(&mut etcd, of_user("ana"));
    let ask = |etcd: &mut Etcd, envoy: &Envoy| {
        let mut calls = Vec::new();
        envoy.run_with(
            |call| {
                calls.push(call.method);
                etcd.answer(call)
            },
            |revocations, context| async move { revocations.follow(&context).await },
        );
        calls
    };
    assert_eq!(ask(&mut etcd, &envoy), ["Range", "Range"]);
    assert_eq!(ask(&mut etcd, &envoy), ["Range"]);
    etcd.compact();
    assert_eq!(ask(&mut etcd, &envoy), ["Range"]);
    Envoy::new().revoke(&mut etcd, of_user("bob"));
    assert_eq!(ask(&mut etcd, &envoy), ["Range", "Range"]);
}
