//! The order of the checks (contract, section 4): form, client, grant parameters, subject token,
//! resource and scope, actor, custom claims, sign, spend. If a request has two faults, the answer
//! names the earlier one, whatever the later one is. So a caller learns nothing about checks that
//! its request did not reach.

use std::rc::Rc;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::setting::{ExchangeForm, configuration};
use crate::driver::Gateway;
use testkit::keys::Key;

/// One fault of a request, or of the world when the request arrives.
struct Fault {
    /// The check that finds it.
    reason: &'static str,
    spoil: fn(ExchangeForm) -> ExchangeForm,
    world: fn(&Gateway, &ExchangeForm),
}

const fn in_form(reason: &'static str, spoil: fn(ExchangeForm) -> ExchangeForm) -> Fault {
    Fault { reason, spoil, world: |_, _| {} }
}

/// The faults, in the order in which they must be found.
const FAULTS: &[Fault] = &[
    in_form("parameter_repeated", |form| form.add("x", "1").add("x", "2")),
    in_form("client_authentication", |form| form.basic("portal", "guess")),
    in_form("parameter_missing", |form| form.without("scope")),
    in_form("subject_token_type", |form| form.set("subject_token_type", "urn:x")),
    in_form("requested_token_type", |form| form.set("requested_token_type", "urn:x")),
    in_form("subject_token_unknown", |form| form.set("subject_token", "sub_x")),
    in_form("resource_refused", |form| form.set("resource", "https://api.example.com/nothing")),
    in_form("scope_empty", |form| form.set("scope", "nothing")),
    in_form("actor_token", |form| form.actor("a.b.c")),
    // Every access token has a random `jti`, and the operator's function gets it.
    Fault {
        reason: "host_failed",
        spoil: |form| form,
        world: |gateway, _| gateway.world.fail_randomness(0),
    },
    #[cfg(feature = "custom-claims")]
    in_form("custom_claims_denied", |form| form.set("scope", "orders:write")),
    Fault {
        reason: "subject_token_spent",
        spoil: |form| form,
        world: |gateway, form| {
            // Another worker is faster when this one is about to spend the token.
            let other = Gateway::in_world(&gateway.world, &with_script());
            let form = form.clone();
            let world = Rc::clone(&gateway.world);
            gateway.world.before_next_write(move || {
                world.heal();
                assert_eq!(other.exchange(&form).status, 200);
            });
        },
    },
];

/// Custom claims with a script that denies one scope, in a build that runs scripts.
fn with_script() -> Value {
    let mut configuration = configuration();
    if cfg!(feature = "custom-claims") {
        configuration["custom_claims"] = json!({
            "timeout": "1s",
            "script": "const getCustomJwtClaims = ({ token, api }) => {
                if (token.scope === 'orders:write') api.denyAccess('not today');
                return {};
            };",
        });
    }
    configuration
}

#[test]
fn each_fault_is_told_where_it_is_the_only_one() {
    for fault in FAULTS {
        let gateway = Gateway::new(&with_script());
        let good = ExchangeForm::new(&gateway.mint()).portal();
        (fault.world)(&gateway, &good);
        let answer = gateway.exchange(&(fault.spoil)(good));
        assert_eq!(answer.reason(), fault.reason, "{answer:?}");
    }
}

#[test]
fn the_earlier_of_any_two_faults_is_told_and_the_token_stays() {
    for (position, first) in FAULTS.iter().enumerate() {
        for second in &FAULTS[position + 1..] {
            let case = format!("{} and {}", first.reason, second.reason);
            let gateway = Gateway::new(&with_script());
            let subject_token = gateway.mint();
            let good = ExchangeForm::new(&subject_token).portal();
            (second.world)(&gateway, &good);
            (first.world)(&gateway, &good);
            let answer = gateway.exchange(&(first.spoil)((second.spoil)(good)));
            assert_eq!(answer.reason(), first.reason, "{case}: {answer:?}");

            gateway.world.heal();
            gateway.world.before_next_write(|| ());
            gateway.assert_spendable(&subject_token, &case);
        }
    }
}

/// Signing is the last step before the token is spent. RSA fails if its randomness fails.
#[test]
fn a_token_is_signed_after_the_function_and_before_it_is_spent() {
    let mut configuration = with_script();
    configuration["signing_keys"] = json!([
        {"jwk": Key::generate(Algorithm::RS256, "rsa").private_jwk()},
    ]);
    let gateway = Gateway::new(&configuration);
    let subject_token = gateway.mint();
    let form = ExchangeForm::new(&subject_token);
    gateway.world.before_next_write(|| panic!("a token is spent for an exchange that failed"));
    // The `jti` of the access token is drawn first.
    gateway.world.fail_randomness(1);
    assert_eq!(gateway.exchange(&form).reason(), "signing_failed");
    if cfg!(feature = "custom-claims") {
        gateway.world.fail_randomness(1);
        let denied = gateway.exchange(&form.set("scope", "orders:write"));
        assert_eq!(denied.reason(), "custom_claims_denied");
        assert!(!gateway.world.heal(), "something was signed for an exchange that was denied");
    }
    gateway.world.before_next_write(|| ());
    gateway.assert_spendable(&subject_token, "after the signature failed");
}

/// The line of a refusal has exactly the facts that were known when the check failed.
#[test]
fn a_refusal_is_written_down_with_what_was_known_by_then() {
    #[rustfmt::skip]
    let known: &[(&str, &[&str])] = &[
        ("parameter_repeated",    &[]),
        ("client_authentication", &[]),
        ("parameter_missing",     &["client_id"]),
        ("subject_token_type",    &["client_id"]),
        ("requested_token_type",  &["client_id"]),
        ("subject_token_unknown", &["client_id"]),
        ("resource_refused",      &["client_id", "subject_token_id", "user_id", "caller", "context"]),
        ("scope_empty",           &["client_id", "subject_token_id", "user_id", "caller", "context", "resource"]),
        ("actor_token",           &["client_id", "subject_token_id", "user_id", "caller", "context", "resource", "scope"]),
        ("host_failed",           &["client_id", "subject_token_id", "user_id", "caller", "context", "resource", "scope"]),
        #[cfg(feature = "custom-claims")]
        ("custom_claims_denied",  &["client_id", "subject_token_id", "user_id", "caller", "context", "resource", "scope"]),
        ("subject_token_spent",   &["client_id", "subject_token_id", "user_id", "caller", "context", "resource", "scope"]),
    ];
    for (fault, (reason, facts)) in FAULTS.iter().zip(known) {
        assert_eq!(fault.reason, *reason);
        let gateway = Gateway::new(&with_script());
        let good = ExchangeForm::new(&gateway.mint()).portal();
        (fault.world)(&gateway, &good);
        let answer = gateway.exchange(&(fault.spoil)(good));
        let mut members: Vec<_> = answer.event.as_object().unwrap().keys().collect();
        members.sort_unstable();
        let mut expected = [&["event", "request_id", "error", "reason"], *facts].concat();
        expected.sort_unstable();
        assert_eq!(members, expected, "{reason}");
        assert_eq!(answer.event["event"], "token_exchange.refused");
        assert_eq!(answer.event["request_id"], "exchange-1");
        assert_eq!(answer.event["error"], answer.text("error"));
    }
}
