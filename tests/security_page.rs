//! Checks that the tests exist that docs/security.md names.
#![cfg(test)]

use std::fs;

use testkit::{Findings, repository};

#[test]
fn every_test_that_the_page_names_exists() {
    let page = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let mut findings = Findings::default();
    let mut named = 0;
    for (file, test) in page.split('`').filter_map(|piece| piece.split_once("::")) {
        named += 1;
        let Ok(source) = fs::read_to_string(repository().join(file)) else {
            findings.add(format!("there is no {file}"));
            continue;
        };
        let there = if file.ends_with(".rs") {
            source.contains(&format!("fn {test}("))
        } else {
            source.contains(&format!("test('{test}'")) || source.contains(&format!("test(`{test}`"))
        };
        if !there {
            findings.add(format!("{file} has no test {test:?}"));
        }
    }
    assert!(named > 50, "the page names {named} tests");
}
