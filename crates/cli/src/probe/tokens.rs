//! Checks of the filters: only the right parties mint, exchange and end, and each subject token is
//! exchanged once.

use std::thread;

use impersonation_core::secret::Secret;

use super::answer::Answer;
use super::credential::{Key, Target};
use super::deployment::{At, Deployment, Impersonation, Proof, SubjectToken};
use super::report::{Group, Outcome, Report};
use crate::Failure;

/// How often each filter gets one subject token at the same moment.
const AT_ONCE: usize = 2;

/// Runs the checks at every filter.
pub(super) fn check(
    deployment: &Deployment,
    impersonation: &Impersonation,
    report: &mut Report,
) -> Result<(), Failure> {
    let token = &impersonation.credential.token;
    for (index, at) in deployment.filters.iter().enumerate() {
        let mut add = |check: &str, answer, statuses: &[u16]| {
            answered(report, Group::Parties, at, check, answer, statuses);
        };
        let mint = |token| deployment.mint_with(index, token, None).map(|(answer, _)| answer);
        add("a mint without an access token is refused", mint(None), &[401]);
        add(
            "a mint with an impersonation's access token is refused",
            mint(Some(token)),
            &[401, 403],
        );
        let ended = deployment.end_with(at, &impersonation.id, token);
        add("an impersonation's access token ends nothing", ended, &[401, 403]);

        let minted = deployment.mint(index)?;
        let wrong = Secret::new("not-the-secret".to_owned());
        let next = index.saturating_add(1).checked_rem(deployment.filters.len());
        let next = next.and_then(|next| deployment.filters.get(next)).unwrap_or(at);
        let answer = deployment.exchange_as(next, &minted, Some(&wrong), Proof::Usual);
        let check = "an exchange with a wrong secret is refused";
        answered(report, Group::Parties, next, check, answer, &[400, 401]);
        if impersonation.credential.key.is_some() {
            bad_proofs(deployment, next, &minted, report);
        }
        once(deployment, at, next, &minted, report);
        if deployment.settings.no_replays {
            let why = Outcome::NotTried("--no-replays".to_owned());
            report.add(Group::Once, &at.address, "a spent token is refused", why);
        } else {
            again(deployment, next, &minted, report);
            at_once(deployment, at, &deployment.mint(index)?, report);
        }
    }
    Ok(())
}

/// Tries to exchange a token with proofs that are worth nothing. The token stays unspent.
fn bad_proofs(deployment: &Deployment, at: &At, token: &SubjectToken, report: &mut Report) {
    let mut refused = |check: &str, proof: Option<&str>| {
        let answer = deployment.exchange_with(at, token, Proof::Given(proof));
        answered(report, Group::Bound, at, check, answer, &[400]);
    };
    let key = Key::new();
    let elsewhere = Target { method: "POST", url: "https://probe.invalid/oidc/token" };
    refused(
        "an exchange with a proof for another address is refused",
        Some(&key.prove(elsewhere, None, None)),
    );
    refused("an exchange with a proof that is none is refused", Some("x.y.z"));
    // The first exchange uses up the proof.
    let Some(used) = deployment.proof_of_exchange(at) else { return };
    let mint = |proof| {
        let token = deployment.mint(0)?;
        deployment.exchange_with(at, &token, Proof::Given(Some(proof)))
    };
    let check = "an exchange with a proof is answered";
    answered(report, Group::Bound, at, check, mint(&used), &[200]);
    let check = "an exchange with a used proof is refused";
    let answer = deployment.exchange_with(at, token, Proof::Given(Some(&used)));
    answered(report, Group::Bound, at, check, answer, &[400]);
}

/// Exchanges a token that one filter minted at another one.
fn once(deployment: &Deployment, minter: &At, at: &At, token: &SubjectToken, report: &mut Report) {
    let check = format!("a token of {} is exchanged after a refusal", minter.address);
    answered(report, Group::Once, at, &check, deployment.exchange(at, token), &[200]);
}

/// Exchanges a token again, at each filter.
fn again(deployment: &Deployment, at: &At, token: &SubjectToken, report: &mut Report) {
    for again in &deployment.filters {
        let check = format!("a token that was exchanged at {} is refused", at.address);
        let answer = deployment.exchange(again, token);
        answered(report, Group::Once, again, &check, answer, &[400]);
    }
}

/// Exchanges a token at every filter at the same moment.
fn at_once(deployment: &Deployment, minter: &At, token: &SubjectToken, report: &mut Report) {
    let answers: Vec<_> = thread::scope(|scope| {
        let filters = deployment.filters.iter().flat_map(|at| std::iter::repeat_n(at, AT_ONCE));
        let threads: Vec<_> =
            filters.map(|at| scope.spawn(move || deployment.exchange(at, token))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let succeeded =
        answers.iter().filter(|it| matches!(it, Ok(Ok(answer)) if answer.status == 200));
    let (succeeded, all) = (succeeded.count(), answers.len());
    let outcome = match succeeded {
        1 => Outcome::Holds,
        _ => Outcome::Fails(format!("{succeeded} of {all} were answered 200")),
    };
    let check = format!("of {all} simultaneous exchanges one succeeds");
    report.add(Group::Once, &minter.address, check, outcome);
}

/// Adds the outcome of a request that must be answered with one of these statuses.
fn answered(
    report: &mut Report,
    group: Group,
    at: &At,
    check: &str,
    answer: Result<Answer, Failure>,
    statuses: &[u16],
) {
    match answer {
        Ok(answer) => {
            let outcome = match statuses.contains(&answer.status) {
                true => Outcome::Holds,
                false => Outcome::Fails(format!("it was answered {}", answer.in_short())),
            };
            report.add_timed(group, &at.address, check, outcome, answer.took);
        }
        Err(Failure(told)) => report.add(group, &at.address, check, Outcome::Fails(told)),
    }
}
