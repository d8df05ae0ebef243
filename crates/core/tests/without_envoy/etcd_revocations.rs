//! Revocations in etcd, between Envoys whose clocks differ, and under every failure of etcd.

use std::rc::Rc;
use std::time::Duration;

use impersonation_core::fakes::{Etcd, FakeHost, another_envoy, etcd_server, play_in_etcd};
use impersonation_core::host::{Host, UnixTime};
use impersonation_core::state::etcd::RecordKeys;
use impersonation_core::state::remote::Revision;
use impersonation_core::state::revocations::{
    CallerTag, Happened, Impersonation, IssuedAt, MAX_ENTRIES, NotRevoked, Owner, Revocation,
    SHARE, Told, Unknown,
};
use impersonation_core::state::storage::Revocations;
use impersonation_core::step::{Context, GrpcCall, Task};

const HOUR: Duration = Duration::from_secs(3600);
const STALE: Duration = Duration::from_secs(10);

/// One Envoy.
struct Envoy {
    world: Rc<FakeHost>,
    revocations: Rc<Revocations>,
}

impl Envoy {
    fn new() -> Self {
        Self { world: another_envoy(), revocations: another_worker() }
    }

    /// An Envoy whose clock is ahead of the others.
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
        answer: impl FnMut(&GrpcCall) -> Result<Vec<u8>, u32>,
        begin: impl FnOnce(Rc<Revocations>, Context) -> F,
    ) -> T
    where
        F: Future<Output = T> + 'static,
    {
        let (host, revocations) =
            (Rc::clone(&self.world) as Rc<dyn Host>, self.revocations.clone());
        play_in_etcd(Task::start(host, None, |context| begin(revocations, context)), answer)
    }

    fn revoke(&self, etcd: &mut Etcd, revocation: Revocation) {
        let revoked = self.run(etcd, |revocations, context| async move {
            revocations.revoke(&context, &revocation).await
        });
        assert_eq!(revoked.map(|revoked| revoked.overflow), Ok(None));
    }

    /// Tells this Envoy of an event about a user.
    fn tell(&self, etcd: &mut Etcd, user: &str, at: UnixTime) -> Told {
        let (user, happened) = (of_user(user), event_at(at));
        let told = self.run(etcd, |revocations, context| async move {
            revocations.keep_event(&context, &user, &happened).await
        });
        told.unwrap()
    }

    /// A caller ends an impersonation of its own.
    fn end(&self, etcd: &mut Etcd, caller: &str, id: &str) {
        let (owner, id) = (Owner::Caller(caller.to_owned()), id.to_owned());
        let revoked = self.run(etcd, |revocations, context| async move {
            revocations.end(&context, &id, &owner).await
        });
        assert!(revoked.is_ok(), "{revoked:?}");
    }

    /// The number of revocations that this Envoy tells apart.
    fn count(&self, etcd: &mut Etcd) -> usize {
        let count = |revocations: Rc<Revocations>, context: Context| async move {
            revocations.count(&context).await
        };
        self.run(etcd, count).unwrap()
    }

    /// The time and the revision with which an exchange would issue a token now.
    fn issue(&self, etcd: &mut Etcd) -> IssuedAt {
        let caught_up = self.run(etcd, |revocations, context| async move {
            revocations.catch_up(&context, None).await
        });
        IssuedAt::new(self.world.now.get(), caught_up.unwrap().revision())
    }

    /// Asks etcd as the guard's tick does.
    fn follow(&self, etcd: &mut Etcd) {
        assert!(self.revocations.follows(&*self.world), "it is this VM's turn");
        self.run(etcd, |revocations, context| async move { revocations.follow(&context).await });
    }

    /// Looks an impersonation up as the guard does for a request.
    fn has_ended(&self, of: &str, issued: IssuedAt) -> Result<bool, Unknown> {
        let known = self.revocations.recent_view(&*self.world)?;
        Ok(known.has_ended(&impersonation(of), issued))
    }

    /// Asks as an introspection does.
    fn finds_ended(&self, etcd: &mut Etcd, of: &str, issued: IssuedAt) -> bool {
        let known = self.run(etcd, |revocations, context| async move {
            revocations.current_view(&context).await
        });
        known.unwrap().has_ended(&impersonation(of), issued)
    }
}

fn another_worker() -> Rc<Revocations> {
    Rc::new(Revocations::etcd(&etcd_server(RecordKeys::default()), "tenant", STALE))
}

fn impersonation(user_id: &str) -> Impersonation<'_> {
    Impersonation {
        id: "id",
        user_id,
        actor_id: None,
        client_id: "client",
        caller: Some(CallerTag::of("backend")),
        resource: "resource",
        session: None,
        actor_since: None,
    }
}

fn of_user(user: &str) -> Revocation {
    Revocation { user_id: Some(user.to_owned()), ..Revocation::default() }
}

/// Two Envoys' clocks may differ, within reason: a revocation ends the tokens issued before it, and
/// none issued later.
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

/// A revocation also ends an exchange that found its subject token earlier, however late the
/// exchange finishes.
#[test]
fn a_revocation_that_an_exchange_could_not_see_ends_its_access_token() {
    let mut etcd = Etcd::default();
    let (one, other) = (Envoy::ahead(Duration::from_secs(5)), Envoy::new());
    let issued = one.issue(&mut etcd);
    other.revoke(&mut etcd, of_user("ana"));
    // The exchange continues with the revision that it read, and with its own clock.
    one.wait(Duration::from_secs(3));
    let IssuedAt::AtRevision(revision, _) = issued else { panic!("{issued:?}") };
    let late = IssuedAt::new(one.world.now.get(), revision);
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
    // Another worker, or another module of the same `vm_id`, need not ask etcd.
    let worker = Envoy { world: Rc::clone(&other.world), revocations: another_worker() };
    assert_eq!(worker.has_ended("ana", issued), Ok(true));
    assert!(!worker.revocations.follows(&*worker.world), "one asks for all");
}

#[test]
fn an_envoy_that_has_not_heard_from_etcd_for_too_long_knows_nothing() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let issued = envoy.issue(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::NotYet));
    envoy.follow(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    envoy.wait(STALE - Duration::from_millis(1));
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    envoy.wait(Duration::from_millis(1));
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
    // A question without an answer does not confirm the copy.
    envoy.run_with(
        |_| Err(14),
        |revocations, context| async move {
            revocations.follow(&context).await;
        },
    );
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
    envoy.follow(&mut etcd);
    assert_eq!(envoy.has_ended("ana", issued), Ok(false));
    // Nor does an answer whose time lies in the future because the clock was set back.
    envoy.world.now.set(envoy.world.now.get().before(HOUR));
    assert_eq!(envoy.has_ended("ana", issued), Err(Unknown::Stale));
}

/// The age of an answer is that of its question, because an answer can take long to arrive.
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
    assert_eq!(envoy.has_ended("ana", IssuedAt::At(UnixTime::default())), Err(Unknown::Stale));
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
        assert_eq!(revoked.is_ok(), lost < 4, "{lost}: {revoked:?}");
        envoy.revoke(&mut etcd, of_user("ana"));
        assert!(envoy.finds_ended(&mut etcd, "ana", issued), "{lost}");
    }
}

/// A client of etcd that may only read can still grant, list and revoke leases.
#[test]
fn shortened_leases_undo_no_revocation() {
    // The intruder acts at some of the calls, or at all of them. In the last case nothing is
    // revoked, and no caller is told that it was.
    for interferes in [0..1, 1..2, 2..3, 3..4, 0..2, 0..99] {
        let (mut etcd, envoy, issuer) = (Etcd::default(), Envoy::new(), Envoy::new());
        let issued = issuer.issue(&mut etcd);
        let mut calls = 0;
        let revoked =
            envoy.run_with(
                |call| {
                    if interferes.contains(&calls) {
                        etcd.shorten_leases();
                    }
                    calls += 1;
                    etcd.answer(call)
                },
                |revocations, context| async move {
                    revocations.revoke(&context, &of_user("ana")).await
                },
            );
        etcd.shorten_leases();
        etcd.let_go(12);
        let ended = Envoy::new().finds_ended(&mut etcd, "ana", issued);
        assert_eq!(ended, revoked.is_ok(), "{interferes:?}");
        assert_eq!(revoked.is_ok(), interferes.end < 99, "{interferes:?}");
    }
}

/// A lease without keys could be anybody's. This one lost its keys because they were written anew
/// on another lease.
#[test]
fn a_lease_stays_ours_when_all_that_hung_on_it_is_gone() {
    let (mut etcd, one, other) =
        (Etcd::default(), Envoy::new(), Envoy::ahead(Duration::from_secs(10)));
    let issued = one.issue(&mut etcd);
    one.revoke(&mut etcd, of_user("ana"));
    other.revoke(&mut etcd, of_user("ana"));
    assert_eq!((etcd.leases.len(), etcd.shorten_leases()), (2, 0));
    one.revoke(&mut etcd, of_user("bob"));
    etcd.let_go(12);
    assert!(Envoy::new().finds_ended(&mut etcd, "bob", issued));
}

#[test]
fn an_envoy_that_is_new_reads_them_all_in_pages() {
    const REVOKED: usize = 2500;
    let (mut etcd, one) = (Etcd::default(), Envoy::new());
    let issued = one.issue(&mut etcd);
    for user in 0..REVOKED {
        // Each revocation comes from an Envoy of its own, whose copy is small.
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
        |revocations, context| async move { revocations.current_view(&context).await },
    );
    assert_eq!(calls, 21, "the last revocation, and twenty pages");
    let known = known.unwrap();
    assert_eq!(known.len(), REVOKED);
    for user in (0..REVOKED).step_by(7) {
        let user = user.to_string();
        assert!(known.has_ended(&impersonation(&user), issued), "{user}");
        assert!(!known.has_ended(&impersonation(&user), after), "{user}");
    }
    // After the next revocation, only that one is read.
    one.revoke(&mut etcd, of_user("ana"));
    assert!(other.finds_ended(&mut etcd, "ana", after));
}

#[test]
fn more_than_there_is_room_for_ends_more_and_never_less() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let first = envoy.issue(&mut etcd);
    let all = MAX_ENTRIES + 5;
    for user in 0..all {
        // Each revocation comes from another Envoy, so that this one reads them at once.
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

/// An etcd that is restored from a backup, or empty, counts its revisions anew: earlier revisions
/// mean nothing.
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

/// If clocks differ by more than they may, the revisions are not of one history.
#[test]
fn a_token_of_another_history_ends_by_its_time() {
    let mut etcd = Etcd::default();
    let envoy = Envoy::new();
    let of_old = IssuedAt::new(envoy.world.now.get(), Revision::new(1_000_000));
    envoy.wait(Duration::from_secs(61));
    assert!(!envoy.finds_ended(&mut etcd, "ana", of_old));
    envoy.revoke(&mut etcd, of_user("ana"));
    assert!(envoy.finds_ended(&mut etcd, "ana", of_old));
}

#[test]
fn asking_reads_one_key_unless_there_is_a_new_revocation() {
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

/// The lease lasts as long as any configuration lets the ended tokens live.
const RETENTION: Duration = Duration::from_secs(2 * 24 * 3600 + 600);

/// A wrong clock of one Envoy makes neither that Envoy nor another forget a revocation.
#[test]
fn a_clock_that_is_wrong_makes_no_envoy_forget() {
    for ahead in [Duration::from_secs(5400), 3 * 24 * HOUR, 400 * 24 * HOUR] {
        let (mut etcd, one, other) = (Etcd::default(), Envoy::new(), Envoy::new());
        let issued = one.issue(&mut etcd);
        one.revoke(&mut etcd, of_user("ana"));
        other.follow(&mut etcd);
        let right = other.world.now.get();
        other.wait(ahead);
        other.revoke(&mut etcd, of_user("bob"));
        other.follow(&mut etcd);
        other.world.now.set(right);
        one.follow(&mut etcd);
        let later = Envoy::new();
        for envoy in [&one, &other, &later] {
            assert!(envoy.finds_ended(&mut etcd, "ana", issued), "{ahead:?}");
        }
    }
}

/// A copy loses a revocation only when etcd has it no more, because its lease removed it.
#[test]
fn a_copy_forgets_what_is_in_etcd_no_more_and_nothing_else() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let issued = envoy.issue(&mut etcd);
    envoy.revoke(&mut etcd, of_user("ana"));
    assert_eq!(envoy.count(&mut etcd), 1);
    envoy.wait(RETENTION + Duration::from_secs(1));
    // The revocation is past its time here, and still in etcd.
    assert_eq!(envoy.count(&mut etcd), 1);
    assert!(envoy.finds_ended(&mut etcd, "ana", issued));
    etcd.lose_leases();
    envoy.revoke(&mut etcd, of_user("bob"));
    assert_eq!(envoy.count(&mut etcd), 2, "looked at a moment ago");
    envoy.wait(Duration::from_secs(301));
    assert_eq!(envoy.count(&mut etcd), 1, "what is there");
    assert!(envoy.finds_ended(&mut etcd, "bob", issued));
    // With a correct clock no worker compares before the revocation's time is over.
    etcd.lose_leases();
    envoy.wait(RETENTION - HOUR);
    assert_eq!(envoy.count(&mut etcd), 1);
}

/// The unreadable value ended everyone when it was first read. Finding it again ends no later
/// impersonation.
#[test]
fn a_value_that_nobody_can_read_ends_everybody_once() {
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let before = envoy.issue(&mut etcd);
    envoy.revoke(&mut etcd, of_user("ana"));
    etcd.overwrite(b"x");
    assert!(envoy.finds_ended(&mut etcd, "bob", before));
    envoy.revoke(&mut etcd, of_user("ana"));
    envoy.wait(RETENTION);
    let after = envoy.issue(&mut etcd);
    envoy.wait(HOUR);
    // One revocation is past its time, so the worker reads all of them anew.
    envoy.count(&mut etcd);
    assert!(!envoy.finds_ended(&mut etcd, "bob", after));
    assert!(envoy.finds_ended(&mut etcd, "bob", before));
}

/// The revocations of one caller take no more room in etcd than its share, and end nothing of
/// another caller.
#[test]
fn a_caller_that_ends_more_than_its_share_keeps_no_more_keys() {
    let all = 2 * SHARE + SHARE / 2;
    let (mut etcd, one, other) = (Etcd::default(), Envoy::new(), Envoy::new());
    let issued = one.issue(&mut etcd);
    one.revoke(&mut etcd, of_user("bob"));
    for id in 0..all {
        // The caller revokes through one Envoy and the other, in turns of different lengths.
        let envoy = if id % 97 < 60 { &one } else { &other };
        one.wait(Duration::from_millis(1));
        other.wait(Duration::from_millis(1));
        if id.is_multiple_of(16) {
            envoy.follow(&mut etcd);
        }
        envoy.end(&mut etcd, "hostile", &id.to_string());
        assert!(etcd.count() <= SHARE + 20, "{id}: {} keys", etcd.count());
    }
    let hostile = |id: String| {
        let caller = Some(CallerTag::of("hostile"));
        move |known: &impersonation_core::state::revocations::View| {
            known.has_ended(&Impersonation { id: &id, caller, ..impersonation("user") }, issued)
        }
    };
    for envoy in [&one, &other, &Envoy::new()] {
        let fresh = |revocations: Rc<Revocations>, context| async move {
            revocations.current_view(&context).await
        };
        let known = envoy.run(&mut etcd, fresh).unwrap();
        for id in 0..all {
            assert!(hostile(id.to_string())(&known), "{id}");
        }
        assert!(known.has_ended(&impersonation("bob"), issued));
        assert!(!known.has_ended(&impersonation("ana"), issued), "another caller's");
        assert!(known.len() <= SHARE + 20, "{}", known.len());
    }
}

/// The filter asks in smaller parts for an answer that is too long to be received.
#[test]
fn pages_are_as_long_as_what_is_in_them_allows() {
    let mut etcd = Etcd::default();
    let one = Envoy::new();
    let issued = one.issue(&mut etcd);
    let long = |user: usize| format!("{user}-{}", "x".repeat(60_000));
    for user in 0..300 {
        Envoy::new().revoke(&mut etcd, of_user(&long(user)));
    }
    let mut too_long = 0;
    let known = Envoy::new().run_with(
        |call| {
            let answer = etcd.answer(call)?;
            if answer.len() <= 1024 * 1024 {
                return Ok(answer);
            }
            too_long += 1;
            // The plugin gives this answer for a reply that it did not read.
            Ok(Vec::new())
        },
        |revocations, context| async move { revocations.current_view(&context).await },
    );
    let known = known.unwrap();
    for user in 0..300 {
        assert!(known.has_ended(&impersonation(&long(user)), issued), "{user}");
    }
    assert!((1..=12).contains(&too_long), "it does not go on asking for too much: {too_long}");
}

/// A value that is too long to be received counts as unreadable.
#[test]
fn a_value_that_cannot_be_received_may_mean_anybody() {
    let (mut etcd, one) = (Etcd::default(), Envoy::new());
    let issued = one.issue(&mut etcd);
    one.revoke(&mut etcd, of_user("ana"));
    etcd.overwrite(&vec![1; 1_100_000]);
    let known = Envoy::new().run_with(
        |call| {
            let is_of_last = call.message.windows(5).any(|text| text == b".last");
            let answer = etcd.answer(call)?;
            Ok(if answer.len() > 1 << 20 && !is_of_last { vec![] } else { answer })
        },
        |revocations, context| async move { revocations.current_view(&context).await },
    );
    assert!(known.unwrap().has_ended(&impersonation("bob"), issued));
}

fn event_at(time: UnixTime) -> Happened {
    Happened::new("https://auth.example.com", time.millis(), Duration::from_secs(86_400))
}

/// An event ends everywhere what began before it, by clocks that differ by a minute, and a new
/// impersonation is good at once. The same event ends nothing again, whichever Envoy is told.
#[test]
fn an_event_ends_everywhere_what_began_before_it_and_once() {
    let ahead = [0, 1, 30, 59].map(Duration::from_secs);
    for (issuing, told) in ahead.iter().flat_map(|one| ahead.map(|other| (*one, other))) {
        let (mut etcd, case) = (Etcd::default(), format!("{issuing:?} {told:?}"));
        let (one, other) = (Envoy::ahead(issuing), Envoy::ahead(told));
        // The sender's clock is behind all others.
        let event = Envoy::new().world.now.get();
        let before = one.issue(&mut etcd);
        assert_eq!(other.tell(&mut etcd, "ana", event), Told::News(None), "{case}");
        let after = one.issue(&mut etcd);
        for envoy in [&one, &other, &Envoy::new()] {
            assert_eq!(envoy.tell(&mut etcd, "ana", event), Told::OldNews, "{case}");
            assert_eq!(envoy.tell(&mut etcd, "ana", event.before(HOUR)), Told::OldNews, "{case}");
            assert!(envoy.finds_ended(&mut etcd, "ana", before), "{case}");
            assert!(!envoy.finds_ended(&mut etcd, "ana", after), "{case}");
            assert!(!envoy.finds_ended(&mut etcd, "bob", before), "{case}");
        }
    }
}

/// An event that arrives late says nothing about a sign-in that came after it.
#[test]
fn a_late_event_spares_what_began_more_than_a_minute_after_it() {
    let mut etcd = Etcd::default();
    let (one, other) = (Envoy::new(), Envoy::new());
    let event = one.world.now.get();
    let before = one.issue(&mut etcd);
    one.wait(Duration::from_secs(61));
    let between = one.issue(&mut etcd);
    assert_eq!(other.tell(&mut etcd, "ana", event), Told::News(None));
    assert!(one.finds_ended(&mut etcd, "ana", before));
    assert!(!one.finds_ended(&mut etcd, "ana", between));
}

/// The event is not kept, and the sender tries again. An attempt whose answer was lost was kept.
#[test]
fn an_event_is_kept_or_fails_and_is_good_when_it_comes_again() {
    let user = || of_user("ana");
    let keep = |envoy: &Envoy, answer: &mut dyn FnMut(&GrpcCall) -> Result<Vec<u8>, u32>| {
        let happened = event_at(Envoy::new().world.now.get());
        envoy.run_with(answer, |revocations, context| async move {
            revocations.keep_event(&context, &user(), &happened).await
        })
    };
    let (mut etcd, envoy) = (Etcd::default(), Envoy::new());
    let before = envoy.issue(&mut etcd);
    let failed = keep(&envoy, &mut |_| Err(14));
    assert!(matches!(failed, Err(NotRevoked::Remote(_))), "{failed:?}");
    assert!(!envoy.finds_ended(&mut etcd, "ana", before));
    // Each answer of a write is lost once.
    let mut lost = false;
    let told = keep(&envoy, &mut |call| {
        let answer = etcd.answer(call);
        let is_event = call.method == "Txn" && call.message.len() > 200;
        if is_event && !std::mem::replace(&mut lost, true) { Err(14) } else { answer }
    });
    assert!(matches!(told, Ok(Told::News(None))), "{told:?}");
    let after = envoy.issue(&mut etcd);
    assert!(envoy.finds_ended(&mut etcd, "ana", before));
    assert!(!envoy.finds_ended(&mut etcd, "ana", after));
    assert_eq!(keep(&envoy, &mut |call| etcd.answer(call)), Ok(Told::OldNews));
}
