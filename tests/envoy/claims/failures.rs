//! A script can only harm its own exchange. A trap would end the worker's VM and every request in
//! it, so every way to fail is tested in Envoy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::{FAILURES, call, custom, events, function, mint, misbehaving, script};
use testkit::gateway::{Gateway, Options, exchange_form};
use testkit::{Findings, wait_for};

/// A script with every way to fail, by name.
const HOSTILE: &str = include_str!("../../fixtures/claims/hostile.js");

/// The failures run on either of two workers, and other requests are served all the while.
#[test]
fn a_failing_script_fails_only_its_own_exchange() {
    for on_error in ["refuse", "issue_without"] {
        // The timeout is ten times the time of a good script: a busy machine must not end good
        // scripts.
        let configuration = script(HOSTILE)
            .with("/custom_claims/on_error", on_error)
            .with("/custom_claims/timeout", "100ms");
        let options = Options { concurrency: 2, ..Options::default() };
        let gateway = Gateway::try_start(&configuration, &options).unwrap();
        let names = custom(&gateway.send(&misbehaving(&mint(&gateway, &json!({"case": "names"})))));
        let names = names["names"].as_str().unwrap().split(' ').map(str::to_owned);
        let names: Vec<_> = names.collect();
        let done = AtomicBool::new(false);
        let mut findings = Findings::default();
        thread::scope(|scope| {
            // Stops the other thread even if this one panics.
            let _done = SetWhenDropped(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    gateway.assert_serves("beside scripts that fail");
                }
            });
            for name in &names {
                let token = mint(&gateway, &json!({"case": name}));
                let answer = gateway.send(&misbehaving(&token));
                if on_error == "refuse" {
                    let refused = (500, "server_error".into());
                    findings.expect(name, &answer.refusal(), &refused);
                    let answer = gateway.exchange(&exchange_form(&token));
                    findings.expect(format!("{name}: its token"), &answer.status, &200);
                    if answer.status == 200 {
                        findings.expect(name, &custom(&answer), &json!({"works": true}));
                    }
                } else if answer.status == 200 {
                    findings.expect(name, &custom(&answer), &json!({}));
                } else {
                    findings.add(format!("{name}: {answer:?}"));
                }
                let after = call(&gateway, &json!({}));
                findings.expect(format!("after {name}"), &after.status, &200);
            }
        });
        gateway.assert_every_worker_serves("after every failure");
        findings.expect("counted", &gateway.envoy.stat(FAILURES), &(names.len() as u64));
        let log = gateway.envoy.log();
        let warnings = log.lines().filter(|line| {
            line.contains("[warning][wasm]") && line.contains("custom claims: the script")
                || line.contains("custom claims: the claims are too long")
                || line.contains("custom claims: what the script returned")
        });
        findings.expect("warnings", &warnings.count(), &names.len());
        let events = events(&log);
        let failed = events.iter().filter(|event| event["reason"] == "custom_claims_failed");
        let expected = if on_error == "refuse" { names.len() } else { 0 };
        findings.expect("audited", &failed.count(), &expected);
    }
}

/// A map whose table cannot grow goes on with the old one. QuickJS makes an error of it before the
/// new entry has a value, and may then collect garbage: the entry must not show what an earlier
/// call left in that memory. Each call is ended at another moment. Of those that end while the map
/// grows, some collect garbage.
#[test]
fn a_map_that_cannot_grow_fails_only_its_own_exchange() {
    let configuration = script(
        "const getCustomJwtClaims = ({ context }) => {
           const { call } = context.grant.subjectTokenContext;
           if (call === undefined) return { works: true };
           // As a value, eight of these bytes point to an object beyond all memory.
           if (call % 2) for (const all = []; ; ) all.push(String.fromCharCode(255).repeat(900) + all.length);
           for (const map = new Map(), end = Date.now() + call / 5; ; ) {
             if (Date.now() < end) map.clear();
             for (let i = 0; i < 100; i++) map.set(map.size, {});
           }
         };",
    )
    .with("/custom_claims/timeout", "20ms");
    let gateway = Gateway::start(&configuration);
    let mut findings = Findings::default();
    for number in 0..200 {
        let answer = call(&gateway, &json!({ "call": number }));
        findings.expect(number, &answer.refusal(), &(500, "server_error".into()));
    }
    findings.expect("afterwards", &call(&gateway, &json!({})).status, &200);
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes each script fail a thousand times in one VM, which must not grow by 130 bytes for each
/// failure.
fn repeat(source: &str, names: &[&str], timeout: &str) {
    const REPETITIONS: u32 = 1000;
    const ROOM: u64 = 128 << 10;
    let configuration = script(source)
        .with("/custom_claims/timeout", timeout)
        // Twelve thousand exchanges can take longer than ten minutes on a busy machine.
        .with("/subject_tokens/lifetime", "24h");
    let gateway = Gateway::start(&configuration);
    // Each failure leaves a warning, which the log need not have.
    gateway.envoy.set_log_level("wasm", "error");
    let tokens: Vec<_> = names.iter().map(|name| mint(&gateway, &json!({"case": name}))).collect();
    let repeat = |count: u32| {
        for (name, token) in names.iter().zip(&tokens) {
            let request = misbehaving(token);
            let mut connection = gateway.connect();
            for _ in 0..count {
                let answer = connection.send(&request);
                assert_eq!(answer.refusal(), (500, "server_error".into()), "{name}: {answer:?}");
            }
        }
    };
    repeat(REPETITIONS / 20);
    let before = gateway.envoy.resident_bytes();
    repeat(REPETITIONS);
    let after = gateway.envoy.resident_bytes();
    println!("{names:?}: {before} bytes, then {after}");
    assert!(after < before + ROOM, "{before} bytes before 1000 of {names:?}, {after} after");
    assert_eq!(gateway.envoy.stat(FAILURES), names.len() as u64 * u64::from(REPETITIONS / 20 * 21));
    for token in &tokens {
        // On a busy machine the timeout is short for a good script, too. A refusal leaves the token
        // spendable, so the test retries.
        wait_for("a token to be good after a thousand refusals", || {
            (gateway.exchange(&exchange_form(token)).status == 200).then_some(())
        });
    }
}

#[test]
fn memory_does_not_grow_with_scripts_that_loop() {
    repeat(HOSTILE, &["loop"], "1ms");
}

#[test]
fn memory_does_not_grow_with_expressions_that_explode() {
    repeat(HOSTILE, &["expressionNested"], "1ms");
}

#[test]
fn memory_does_not_grow_with_objects_that_are_deep() {
    // The object is made once, because making it would take half of the time.
    let source = "
        let deep = {};
        for (let i = 0; i < 10_000; i++) deep = { deep };
        const getCustomJwtClaims = ({ token }) => token.scope === 'orders:read' ? {} : deep;";
    repeat(source, &["a deep object"], "10ms");
}

#[test]
fn memory_does_not_grow_with_scripts_that_fail_in_other_ways() {
    #[rustfmt::skip]
    let names = [
        "recursion", "stringTooLong", "memoryAtOnce", "pending", "text", "getter", "cycle", "bigint", "long",
        "proxyThatThrows", "toPrimitive", "toJson",
    ];
    repeat(HOSTILE, &names, "10ms");
}

/// A VM has a gigabyte of address space, which is fifteen scripts of this size. Envoy keeps a
/// replaced listener until it has drained it.
#[test]
fn a_replaced_script_gives_its_memory_back() {
    let options = Options { drain_seconds: 1, ..Options::default() };
    let configuration = |round: u32| {
        function(&format!("return {{ round: {round} }};"))
            .with("/custom_claims/memory_limit_bytes", 64 << 20)
    };
    let gateway = Gateway::try_start(&configuration(0), &options).unwrap();
    for round in 1..=30 {
        gateway.update(&configuration(round)).unwrap();
        assert_eq!(custom(&call(&gateway, &json!({}))), json!({ "round": round }));
        if round % 6 == 0 {
            wait_for("the replaced listeners to go", || {
                let draining = gateway.envoy.stat("listener_manager.total_listeners_draining");
                (draining == 0).then_some(())
            });
        }
    }
}
