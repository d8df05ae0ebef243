//! `remote_jwks`: when key sets are fetched, which requests they serve, and the effect of a change
//! of keys.

use std::time::Instant;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::Configuration;
use testkit::keys::Key;
use testkit::server::{Fault, Reply};
use testkit::services::Issuer;
use testkit::wait_for;

/// The seconds after which a token can cause a fetch again.
const AN_INTERVAL: i64 = 6;
/// The seconds after which keys with a `cache_duration` of 300 s are fetched again.
const A_REFRESH: i64 = 290;

/// Starts a filter, and the issuer at its server of keys. The filter does not know it yet.
fn before_the_first_fetch() -> (World, Issuer) {
    let world = World::start(&Configuration::default());
    let issuer = Issuer::at(world.upstream("keys"));
    (world, issuer)
}

/// Starts a filter with the keys of an issuer.
fn start() -> (World, Issuer) {
    let (world, issuer) = before_the_first_fetch();
    world.update(&issuer.only_minters("300s")).unwrap();
    wait_until_known(&world, &issuer, &issuer.key);
    (world, issuer)
}

fn wait_until_known(world: &World, issuer: &Issuer, key: &Key) {
    wait_for("the key", || (world.send(&issuer.mint(key)).status == 201).then_some(()));
}

fn assert_mints(world: &World, issuer: &Issuer, key: &Key, case: &str) {
    let answer = world.send(&issuer.mint(key));
    assert_eq!(answer.status, 201, "{case}: {answer:?}");
}

fn assert_unknown(world: &World, issuer: &Issuer, key: &Key) {
    let answer = world.send(&issuer.mint(key));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{answer:?}");
    assert_eq!(world.last_event()["reason"], "no_key");
}

fn new_key(kid: &str) -> Key {
    Key::generate(Algorithm::EdDSA, kid)
}

/// Makes the service of an issuer answer in one way.
type Way = Box<dyn Fn(&Issuer)>;

/// The ways to answer that bring no key set.
fn useless_answers() -> Vec<(String, Way)> {
    let body = |body: &[u8]| Reply { body: body.to_vec(), ..Reply::json(&Value::Null) };
    let replies = [
        ("an error", Reply { status: 500, ..Reply::json(&json!({"keys": []})) }),
        ("a timeout", Reply { status: 504, ..Reply::json(&json!({"keys": []})) }),
        ("a redirect", Reply { status: 302, ..Reply::json(&json!({"keys": []})) }),
        ("no JSON", body(b"{")),
        ("not UTF-8 in a member that nobody reads", body(b"{\"keys\":[],\"x\":\"\xff\"}")),
        ("another JSON", Reply::json(&json!([]))),
    ];
    let faults = [
        Fault::Refused,
        Fault::ResetMidBody,
        Fault::ServerError,
        Fault::WrongContentType,
        Fault::Junk,
        Fault::Empty,
    ];
    let replies = replies.map(|(case, reply)| {
        let answer = move |issuer: &Issuer| issuer.service.answer_always(reply.clone());
        (case.to_owned(), Box::new(answer) as Way)
    });
    let faults = faults.map(|fault| {
        let fail = move |issuer: &Issuer| issuer.service.fail(fault);
        (format!("{fault:?}"), Box::new(fail) as Way)
    });
    replies.into_iter().chain(faults).collect()
}

#[test]
fn key_sets_are_fetched_at_the_start_and_again_before_they_expire() {
    let (world, issuer) = before_the_first_fetch();
    let before = issuer.service.calls();
    world.update(&issuer.only_minters("300s")).unwrap();
    // No request has arrived yet.
    wait_for("the first fetch", || (issuer.service.calls() > before).then_some(()));
    let asked = issuer.service.last();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/jwks"));
    wait_until_known(&world, &issuer, &issuer.key);
    world.advance(A_REFRESH / 2);
    assert_mints(&world, &issuer, &issuer.key, "after half of the time");
    assert_eq!(issuer.service.calls(), before + 1);
    world.advance(A_REFRESH / 2);
    wait_for("a refresh", || (issuer.service.calls() == before + 2).then_some(()));
    wait_for("the age of the new keys", || {
        assert_mints(&world, &issuer, &issuer.key, "after the refresh");
        world.gauge("impersonation_key_set_age_seconds").filter(|age| *age < 60)
    });
}

#[test]
fn before_there_are_keys_nothing_is_verified_and_nobody_is_refused_for_good() {
    let (world, issuer) = before_the_first_fetch();
    issuer.service.fail(Fault::ServerError);
    world.update(&issuer.only_minters("300s")).unwrap();
    for (case, answer) in useless_answers() {
        let failures = world.failures("jwks");
        answer(&issuer);
        world.advance(1);
        wait_for(&case, || (world.failures("jwks") > failures).then_some(()));
        let (began, asked) = (Instant::now(), issuer.service.calls());
        for _ in 0..3 {
            let answer = world.send(&issuer.mint(&issuer.key));
            assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{case}");
            assert_eq!(world.last_event()["reason"], "callout_failed", "{case}");
        }
        // A service that did not answer is not asked again for a second.
        let most = 1 + began.elapsed().as_secs() as usize;
        assert!(issuer.service.calls() - asked <= most, "{case}");
        issuer.service.heal();
    }
    issuer.publish(&[&issuer.key]);
    world.advance(1);
    wait_until_known(&world, &issuer, &issuer.key);
}

#[test]
fn an_unknown_kid_causes_a_fetch_at_once_but_at_most_every_five_seconds() {
    let (world, issuer) = start();
    let fetched = issuer.service.calls();
    world.advance(AN_INTERVAL);
    let began = Instant::now();
    assert_eq!(issuer.service.calls(), fetched, "no request has asked for keys");
    // The very request that brings the unknown key is answered.
    let rotated = new_key("rotated");
    issuer.publish(&[&issuer.key, &rotated]);
    assert_mints(&world, &issuer, &rotated, "a new key");
    assert_eq!(issuer.service.calls(), fetched + 1);
    for number in 0..3 {
        assert_unknown(&world, &issuer, &new_key(&format!("invented-{number}")));
        assert_mints(&world, &issuer, &issuer.key, "beside invented keys");
    }
    let most = 1 + began.elapsed().as_secs() as usize / 5;
    assert!(issuer.service.calls() - fetched <= most, "{most}");
    world.advance(AN_INTERVAL);
    let fetched = issuer.service.calls();
    assert_unknown(&world, &issuer, &new_key("invented"));
    assert!(issuer.service.calls() > fetched);
}

#[test]
fn a_refresh_that_fails_keeps_the_last_good_keys() {
    let (world, issuer) = start();
    issuer.service.fail(Fault::ServerError);
    world.advance(A_REFRESH);
    for (case, answer) in useless_answers() {
        let failures = world.failures("jwks");
        answer(&issuer);
        world.advance(AN_INTERVAL);
        wait_for(&case, || (world.failures("jwks") > failures).then_some(()));
        assert_mints(&world, &issuer, &issuer.key, &case);
        issuer.service.heal();
    }
}

/// An issuer whose keys were stolen withdraws them all.
#[test]
fn an_emptied_key_set_withdraws_all_keys() {
    let (world, issuer) = start();
    issuer.publish(&[]);
    world.advance(A_REFRESH);
    wait_for("the keys to be withdrawn", || {
        (world.send(&issuer.mint(&issuer.key)).status == 401).then_some(())
    });
    issuer.publish(&[&issuer.key]);
    world.advance(AN_INTERVAL);
    wait_until_known(&world, &issuer, &issuer.key);
}

#[test]
fn a_withdrawn_key_stops_working_even_for_remembered_tokens() {
    let (world, issuer) = start();
    let other = new_key("other");
    issuer.publish(&[&issuer.key, &other]);
    world.advance(AN_INTERVAL);
    assert_mints(&world, &issuer, &other, "a second key");
    let by_old = issuer.mint(&issuer.key);
    for _ in 0..2 {
        assert_eq!(world.send(&by_old).status, 201);
    }
    issuer.publish(&[&other]);
    world.advance(A_REFRESH);
    // Only this token is sent: no unknown kid causes a fetch.
    wait_for("a refresh", || (world.send(&by_old).status == 401).then_some(()));
    assert_eq!(world.last_event()["reason"], "no_key");
    assert_mints(&world, &issuer, &other, "the other key");
}

#[test]
fn one_bad_key_does_not_spoil_the_others() {
    let (world, issuer) = before_the_first_fetch();
    let good = issuer.key.public_jwk();
    let with = |name: &str, value: Value| {
        let mut jwk = new_key("bad").public_jwk();
        jwk[name] = value;
        jwk
    };
    let bad = json!([
        null, 7, "key", [], {}, {"kty": "unheard-of"}, {"kty": "oct", "k": "AAAA", "kid": "bad"},
        with("x", json!("AAAA")), with("x", json!("not base64!")), with("x", json!(7)),
        with("crv", json!("Ed448")), with("kty", json!("RSA")), with("alg", json!("none")),
        with("alg", json!(7)), with("kid", json!(7)), with("use", json!("enc")),
        with("key_ops", json!("verify")),
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "short"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "off the curve"},
    ]);
    let mut keys = bad.as_array().unwrap().clone();
    let middle = keys.len() / 2;
    keys.insert(middle, good);
    issuer.service.answer_always(Reply::json(&json!({"keys": keys, "more": {"a": 1}})));
    world.update(&issuer.only_minters("300s")).unwrap();
    wait_until_known(&world, &issuer, &issuer.key);
    assert_eq!(world.failures("jwks"), 0);
    // The log says which key is bad.
    let log = world.log();
    assert!(log.contains("key set: keys["), "{log}");
}

/// The age of an entry with a later time is unknown.
#[test]
fn key_sets_are_fetched_anew_when_the_clock_was_set() {
    for by in [-3600, 1800] {
        let (world, issuer) = start();
        let (fetched, rotated) = (issuer.service.calls(), new_key("rotated"));
        issuer.publish(&[&rotated]);
        world.advance(by);
        wait_for("the fetch", || (issuer.service.calls() > fetched).then_some(()));
        wait_until_known(&world, &issuer, &rotated);
        assert_eq!(issuer.service.calls(), fetched + 1, "{by}");
        wait_for("the age of the keys", || {
            assert_mints(&world, &issuer, &rotated, "after the fetch");
            world.gauge("impersonation_key_set_age_seconds").filter(|age| *age < 60)
        });
    }
}
