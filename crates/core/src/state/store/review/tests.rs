use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const ABOUT: About<'static> =
    About { caller: "backend", user_id: "user-42", actor_id: Some("agent-7") };

fn person(name: &str) -> Person<'_> {
    Person { name, client_id: Some("console"), may_approve: name != "user-42" }
}

fn review(approvals: u8, consent: bool) -> Review {
    Review { approvals, consent, minted_by: Some("batch".into()), ..Review::default() }
}

fn decide(review: &Review, name: &str, choice: Choice) -> Result<Option<Review>, ChoiceRefused> {
    review.with(ABOUT, &person(name), choice, UnixTime::from_millis(5))
}

#[test]
fn different_people_must_approve() {
    let one = decide(&review(2, false), "dana", Choice::Approve).unwrap().unwrap();
    assert_eq!((one.verdict(), one.missing()), (Verdict::Pending, 1));
    assert_eq!(decide(&one, "dana", Choice::Approve), Ok(None), "the same person counts once");
    let two = decide(&one, "eli", Choice::Approve).unwrap().unwrap();
    assert_eq!((two.verdict(), two.missing()), (Verdict::Approved, 0));
    assert_eq!(decide(&two, "eli", Choice::Approve), Ok(None), "a repetition is told the state");
    assert_eq!(decide(&two, "fay", Choice::Approve), Err(ChoiceRefused::Decided));
    assert_eq!(decide(&two, "fay", Choice::Deny), Err(ChoiceRefused::Decided));
}

#[test]
fn nobody_approves_for_themselves() {
    for name in ["backend", "batch", "agent-7", "user-42"] {
        let may_approve = true;
        let alone = Person { may_approve, ..person(name) };
        let now = UnixTime::from_millis(5);
        let approved = review(1, false).with(ABOUT, &alone, Choice::Approve, now);
        assert_eq!(approved, Err(ChoiceRefused::OwnRequest), "{name}");
    }
    let in_the_callers_hands = Person { client_id: Some("backend"), ..person("dana") };
    let now = UnixTime::from_millis(5);
    let approved = review(1, false).with(ABOUT, &in_the_callers_hands, Choice::Approve, now);
    assert_eq!(approved, Err(ChoiceRefused::OwnRequest));
}

#[test]
fn consent_is_the_users_alone_and_no_approval() {
    let both = review(1, true);
    let approved = decide(&both, "dana", Choice::Approve).unwrap().unwrap();
    assert_eq!(approved.verdict(), Verdict::Pending);
    assert_eq!(decide(&approved, "eli", Choice::Approve), Err(ChoiceRefused::NotNeeded));
    let consented = decide(&approved, "user-42", Choice::Approve).unwrap().unwrap();
    assert_eq!(consented.verdict(), Verdict::Approved);
    assert_eq!(consented.approved.len(), 1);

    let stranger = Person { may_approve: false, ..person("user-43") };
    let now = UnixTime::from_millis(5);
    for choice in [Choice::Approve, Choice::Deny] {
        let refused = both.with(ABOUT, &stranger, choice, now);
        assert_eq!(refused, Err(ChoiceRefused::NotAllowed));
        assert_eq!(decide(&review(1, false), "user-42", choice), Err(ChoiceRefused::NotAllowed));
    }
}

#[test]
fn one_denial_ends_it() {
    for name in ["dana", "user-42"] {
        let denied = decide(&review(2, true), name, Choice::Deny).unwrap().unwrap();
        assert_eq!(denied.verdict(), Verdict::Denied);
        assert_eq!(decide(&denied, name, Choice::Deny), Ok(None));
        for later in ["eli", "user-42"] {
            let late = decide(&denied, later, Choice::Approve);
            assert_eq!(late, Err(ChoiceRefused::Decided), "{name}, {later}");
        }
    }
    let approved = decide(&review(2, false), "dana", Choice::Approve).unwrap().unwrap();
    let denied = decide(&approved, "dana", Choice::Deny).unwrap().unwrap();
    assert_eq!(denied.verdict(), Verdict::Denied, "a person may change their mind while it waits");
    assert_eq!(decide(&denied, "dana", Choice::Approve), Err(ChoiceRefused::Decided));
}

proptest! {
    #[test]
    fn a_review_only_moves_forward(
        approvals in 0_u8..4,
        consent: bool,
        choices in prop::collection::vec(
            (select(vec!["dana", "eli", "fay", "user-42", "agent-7"]), any::<bool>()), 0..12,
        ),
    ) {
        let mut current = review(approvals, consent);
        for (name, approves) in choices {
            let choice = if approves { Choice::Approve } else { Choice::Deny };
            let before = current.clone();
            if let Ok(Some(next)) = decide(&current, name, choice) {
                prop_assert_eq!(before.verdict(), Verdict::Pending);
                current = next;
            }
            prop_assert!(before.verdict() == Verdict::Pending || before == current);
            prop_assert!(current.missing() <= before.missing());
            let mut names: Vec<_> = current.approved.iter().map(|one| &one.by).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), current.approved.len());
            prop_assert!(current.approved.len() <= usize::from(approvals));
        }
    }
}
