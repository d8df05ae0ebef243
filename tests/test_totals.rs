//! Checks that the last line of `make test` adds up the results of all parts.
#![cfg(test)]

use std::process::Command;

use testkit::{repository, scratch};

const RUST: &str = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.01s";
const EMPTY: &str = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s";
const FAILED: &str = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
const NODE: &str = "# tests 8\n# suites 0\n# pass 5\n# fail 0\n# cancelled 1\n# skipped 1\n# todo 1\n# duration_ms 61";

fn totals(name: &str, log: &str, parts: &[&str]) -> (Option<i32>, String) {
    let file = scratch().join(format!("totals-{name}.log"));
    std::fs::write(&file, log).unwrap();
    let output =
        Command::new(repository().join("scripts/test-totals")).arg(&file).args(parts).output();
    let output = output.unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_last_line_adds_up_the_totals_of_all_parts() {
    let people = NODE.replace("# ", "\u{2139} ");
    let log = format!(
        "== test-core\n{RUST}\n{EMPTY}\n   Compiling x\n== test-envoy\n{FAILED}\n== test-demo\n{NODE}\n== test-clients\n{people}\n"
    );
    let parts = ["test-core", "test-envoy", "test-demo", "test-clients"];
    let expected = (Some(0), "25 passed, 3 failed, 6 skipped\n".to_owned());
    assert_eq!(totals("all", &log, &parts), expected);
}

#[test]
fn the_end_lists_what_each_part_has_cost_and_the_slowest_tests() {
    let log = format!(
        "== test-core\ntest a::slow ... ok <2.500s>\ntest quick ... ok <0.010s>\n{RUST}\n\
         == cost test-core 3.000 2.000 0.500\n== cost build 60.0 50.0 10.0\n\
         == test-demo\nok 1 - it \u{2019}s shown\n  ---\n  duration_ms: 1500.5\n  ...\n{NODE}\n\
         == cost test-demo 1.000 0.100 0.100\n== cost test-demo 1.000 0.100 0.100\n"
    );
    let (status, told) = totals("costs", &log, &["test-core", "test-demo"]);
    assert_eq!(status, Some(0));
    let expected = [
        "seconds, and seconds of CPU time, of each part:",
        "    60.0     60.0  build",
        "     3.0      2.5  test-core",
        "     2.0      0.4  test-demo",
        "seconds of the slowest tests:",
        "     2.5  test-core: a::slow",
        "     1.5  test-demo: it \u{2019}s shown",
        "     0.0  test-core: quick",
        "17 passed, 1 failed, 4 skipped\n",
    ];
    assert_eq!(told, expected.join("\n"));
}

#[test]
fn a_part_that_ran_no_tests_is_an_error() {
    let log = format!("== test-core\n{RUST}\n== test-envoy\n{EMPTY}\n");
    let told = "test-envoy ran no tests\ntest-chaos ran no tests\n12 passed, 0 failed, 2 skipped\n";
    let found = totals("empty", &log, &["test-core", "test-envoy", "test-chaos"]);
    assert_eq!(found, (Some(1), told.to_owned()));
    assert_eq!(totals("right", &log, &["test-core"]).0, Some(0));
}
