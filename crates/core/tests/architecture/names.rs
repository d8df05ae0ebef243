//! One name, one meaning: a reader who searches for a type finds one.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use super::source::{Crate, repository};

/// The crates that decide, and those that stand between them and Envoy.
const ROOTS: [&str; 5] = [
    "crates/core/src/lib.rs",
    "crates/issuer/src/lib.rs",
    "crates/envoy/src/lib.rs",
    "crates/guard/src/lib.rs",
    "src/lib.rs",
];

/// The name that stands for two types: a build without the engine has a type that cannot exist in
/// its place.
const EXCEPTION: &str = "Script";

const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// The types and traits with `pub` before them, in any form: other files can name them.
fn visible(tokens: TokenStream, names: &mut BTreeSet<String>) {
    // Without its groups, `pub(super) struct A { … }` reads as `pub struct A`.
    let mut words = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => words.push(ident.to_string()),
            TokenTree::Group(group) => visible(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => words.push(String::new()),
        }
    }
    for three in words.windows(3) {
        if three[0] == "pub" && KINDS.contains(&&*three[1]) {
            names.insert(three[2].clone());
        }
    }
}

#[test]
fn a_name_means_one_type_in_the_core_and_its_shells() {
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for root in ROOTS {
        for (module, code) in Crate::read(&repository().join(root)).modules() {
            let mut names = BTreeSet::new();
            visible(code, &mut names);
            for name in names {
                homes.entry(name).or_default().insert(format!("{root} {module}"));
            }
        }
    }
    assert!(homes.len() > 300, "types are missing: {homes:#?}");
    homes.retain(|_, homes| homes.len() > 1);
    assert!(homes.remove(EXCEPTION).is_some(), "{EXCEPTION} has one meaning: no exception is left");
    assert!(homes.is_empty(), "{homes:#?}");
}

#[test]
fn a_type_in_a_macro_and_one_of_a_room_are_visible() {
    let code = "section! { pub(super) struct A { pub b: C } } pub(in crate::d) enum E {} \
                pub trait F { type G; } pub type H<I> = J; struct K; fn l() { enum M {} }";
    let mut names = BTreeSet::new();
    visible(code.parse().unwrap(), &mut names);
    assert_eq!(names, ["A", "E", "F", "H"].map(str::to_owned).into());
}
