//! `name_prefix`: keeps the names of several issuers apart where one list trusts more than one.
//!
//! The prefix is required there, because only the operator knows which issuer's names were used
//! until now. An issuer without a prefix must be given an empty one (`""`), so that a forgotten
//! prefix does not pass for an intended one.

use super::node::Node;
use super::section::Kind;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The most characters of a prefix. A name with its prefix has at most 255.
const LONGEST: usize = 128;

/// An issuer and its prefix.
pub(super) type Named<'n> = (&'n str, Option<&'n str>);

/// The prefix of one issuer.
pub(super) struct NamePrefix;

impl Kind for NamePrefix {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if text.chars().count() <= LONGEST && !text.contains(char::is_control) {
            Some(text.to_owned())
        } else {
            node.problem(format!("expected at most {LONGEST} characters, none of them a control"))
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("string", json!({"type": "string", "maxLength": LONGEST}))
    }
}

/// Refuses a list of issuers whose names could be mistaken for each other's. Entries of one issuer
/// may share a prefix.
pub(super) fn keep_apart(list: &Node<'_>, entries: &[(&str, Option<&str>)]) -> Option<()> {
    let is_alone =
        entries.iter().all(|(issuer, _)| entries.iter().all(|(other, _)| issuer == other));
    let mut apart = Some(());
    for (index, (issuer, prefix)) in entries.iter().enumerate().filter(|_| !is_alone) {
        let node = || list.clone().item(index).member("name_prefix");
        let Some(prefix) = prefix else {
            let others = "is required, as the list trusts more than one issuer: expected a prefix for the names \
                          of this issuer, or an empty string for at most one issuer";
            apart = node().problem(others);
            continue;
        };
        let mut before = entries.iter().take(index);
        if before.any(|(other, theirs)| other != issuer && *theirs == Some(*prefix)) {
            apart = node().problem("expected another prefix than that of an issuer before it");
        }
    }
    apart
}

/// Warns of `ways` without a prefix beside an issuer with an empty one: their names would count as
/// names of that issuer. `issuers` are the issuers of the list; `ways` are introspection and
/// userinfo.
pub(super) fn warn_of_the_unnamed(
    node: &Node<'_>,
    issuers: &[Named<'_>],
    ways: &[(&str, Option<&str>)],
) {
    let Some((unnamed, _)) = issuers.iter().find(|(_, prefix)| *prefix == Some("")) else { return };
    for (way, _) in ways.iter().filter(|(_, prefix)| prefix.is_none() && issuers.len() > 1) {
        node.clone().member(way).warn(format!(
            "no name_prefix: its names count as names of {unnamed:?}; give it that issuer's \
             prefix, an empty string, or one of its own"
        ));
    }
}

/// Warns of an issuer that has different prefixes in different lists: each of its people has two
/// names. A list is given by its path and its issuers.
pub(super) fn warn_of_two_names(root: &Node<'_>, lists: &[(&str, Vec<Named<'_>>)]) {
    let mut seen: Vec<(String, &str, &str)> = Vec::new();
    for (path, list) in lists {
        for (index, (issuer, prefix)) in list.iter().enumerate() {
            let (place, prefix) =
                (format!("{path}[{index}].name_prefix"), prefix.unwrap_or_default());
            let differs =
                |(_, other, theirs): &&(String, &str, &str)| other == issuer && *theirs != prefix;
            if let Some((elsewhere, ..)) = seen.iter().find(differs) {
                let warning =
                    format!("differs from {elsewhere}: each person of this issuer gets two names");
                Node { path: place.clone(), ..root.clone() }.warn(warning);
            }
            seen.push((place, issuer, prefix));
        }
    }
}
