//! Tests of `export --seal` and `verify`: nobody without the key changes, removes, adds or moves a
//! line unseen.

use std::path::{Path, PathBuf};
use std::process::Output;

use proptest::prelude::*;
use serde_json::json;

use crate::report::in_envoys_log;
use crate::{command, file, fresh, stdout, with_input};

/// The paths of a new key: its private and its public half.
fn key() -> [PathBuf; 2] {
    let paths = [fresh("seal.jwk"), fresh("seal.jwks.json")];
    let [private, public] = &paths;
    let mut keygen = command(&["keygen", "--alg", "EdDSA"]);
    keygen.arg("--out").arg(private).arg("--public-out").arg(public);
    assert!(keygen.output().unwrap().status.success());
    paths
}

/// A sealed log of so many events.
fn sealed(private: &Path, name: &str, events: usize) -> Vec<String> {
    let lines = (0..events).map(|number| {
        let request_id = format!("r-{number}");
        let event = json!({"event": "subject_token.created", "request_id": request_id});
        in_envoys_log(&event, "21:00:00.000") + "\n"
    });
    let log: String = lines.collect();
    let mut export = command(&["export", "--format", "ecs", "--log-name", name, "--seal"]);
    let output = export.arg(private).arg(file("envoy.log", &log)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output).lines().map(str::to_owned).collect()
}

fn verify(public: &Path, lines: &[String]) -> Output {
    let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut command = command(&["verify", "--key"]);
    command.arg(public).arg(file("events.ndjson", &log)).output().unwrap()
}

#[test]
fn what_was_sealed_is_whole() {
    let [private, public] = key();
    for (events, checkpoints) in [(0, 1), (1, 1), (999, 1), (1000, 2), (2500, 3)] {
        let lines = sealed(&private, "envoy-1", events);
        // An hour may have ended meanwhile, with a checkpoint of its own.
        let seals = lines.len().checked_sub(events).unwrap();
        assert!(seals >= checkpoints, "{events}: {seals}");
        let output = verify(&public, &lines);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let told = format!("the log \"envoy-1\" is whole until line {}, ", lines.len());
        assert!(stdout(&output).starts_with(&told), "{}", stdout(&output));
    }
}

#[test]
fn lines_after_the_last_checkpoint_prove_nothing() {
    let [private, public] = key();
    let mut lines = sealed(&private, "envoy-1", 1001);
    lines.pop();
    let output = verify(&public, &lines);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("1 lines come after the last checkpoint: they prove nothing"));
    lines.truncate(900);
    let output = verify(&public, &lines);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("there is no checkpoint"));
}

#[test]
fn each_change_is_found_and_named() {
    let [private, public] = key();
    let [another, _] = key();
    let whole = sealed(&private, "envoy-1", 2500);
    let seals: Vec<_> =
        (0..whole.len()).filter(|at| whole[*at].contains("impersonation_checkpoint")).collect();
    let (first, second) = (seals[0], seals[1]);
    let range = format!("lines {} to {second}: ", first + 2);
    let in_second = first + 5;
    type Change<'a> = &'a dyn Fn(&mut Vec<String>);
    #[rustfmt::skip]
    let changes: [(&str, Change<'_>, &str); 10] = [
        ("a line was changed",    &|lines| lines[in_second] = lines[in_second].replace("r-1", "r-2"), &range),
        ("a line was left out",   &|lines| drop(lines.remove(in_second)),                   "were written"),
        ("a line was put in",     &|lines| lines.insert(in_second, "{}".to_owned()),        "were written"),
        ("a line was moved",      &|lines| lines.swap(in_second, in_second + 1),            &range),
        ("a line went elsewhere", &|lines| { let line = lines.remove(0); lines.insert(in_second, line) }, "lines 1 to "),
        ("a checkpoint is gone",  &|lines| drop(lines.remove(first)),                       "is missing, or was moved"),
        ("the beginning is gone", &|lines| drop(lines.drain(..=first)),                     "is missing, or was moved"),
        ("a part is gone",        &|lines| drop(lines.drain(first + 1..=second)),           "is missing, or was moved"),
        ("another's checkpoint",  &|lines| lines[first] = sealed(&another, "envoy-1", 1000)[1000].clone(), "has not signed"),
        ("another log's end",     &|lines| { lines.truncate(first + 1); lines.extend(sealed(&private, "envoy-2", 1)) }, "of another log"),
    ];
    for (case, change, told) in changes {
        let mut lines = whole.clone();
        change(&mut lines);
        let output = verify(&public, &lines);
        assert_eq!(output.status.code(), Some(1), "{case}: {}", stdout(&output));
        assert!(stdout(&output).contains(told), "{case}: {}", stdout(&output));
    }
}

#[test]
fn a_file_or_a_key_that_cannot_be_read_is_no_verdict() {
    let [private, public] = key();
    let lines = sealed(&private, "envoy-1", 1);
    for key in [fresh("nothing"), file("text", "no key")] {
        assert_eq!(verify(&key, &lines).status.code(), Some(2));
    }
    let mut command = command(&["verify", "--key"]);
    let output = command.arg(&public).arg(fresh("nothing")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    // The public half cannot seal.
    let public = public.to_str().unwrap();
    let output = with_input(&["export", "--format", "ecs", "--seal", public], b"");
    assert_eq!(output.status.code(), Some(2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_of_what_is_sealed_can_change(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let [private, public] = key();
        let lines = sealed(&private, "envoy-1", 3);
        let mut bytes = lines.join("\n").into_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let path = fresh("events.ndjson");
        std::fs::write(&path, bytes).unwrap();
        let output = command(&["verify", "--key"]).arg(public).arg(path).output().unwrap();
        prop_assert_eq!(output.status.code(), Some(1));
    }
}
