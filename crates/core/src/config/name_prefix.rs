//! `name_prefix`: what keeps the names of two issuers apart, wherever a list trusts more than one.
//!
//! It is required there, as nobody but the operator knows which issuer's names were used until now. An issuer without
//! a prefix has to be said to have none (`""`): what was forgotten would look the same.

use super::node::Node;
use super::section::Kind;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The longest. A name has 255 characters at the most, its prefix included.
const LONGEST: usize = 128;

/// An issuer, and its prefix.
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

/// Refuses a list of issuers whose names could be mistaken for each other's: each item is an issuer and its prefix.
/// Entries of one issuer may share a prefix.
pub(super) fn keep_apart(list: &Node<'_>, entries: &[(&str, Option<&str>)]) -> Option<()> {
    let is_alone =
        entries.iter().all(|(issuer, _)| entries.iter().all(|(other, _)| issuer == other));
    let mut apart = Some(());
    for (index, (issuer, prefix)) in entries.iter().enumerate().filter(|_| !is_alone) {
        let node = || list.clone().item(index).member("name_prefix");
        let Some(prefix) = prefix else {
            let others = "is required, as the list trusts more than one issuer: expected what stands before the names \
                          of this one, or an empty string for at most one issuer";
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

/// Warns where somebody is asked whose names would count as those of the issuer without a prefix.
/// `issuers` are those of the list, each with its prefix; `ways` are the others who are asked.
pub(super) fn warn_of_the_unnamed(
    node: &Node<'_>,
    issuers: &[Named<'_>],
    ways: &[(&str, Option<&str>)],
) {
    let Some((unnamed, _)) = issuers.iter().find(|(_, prefix)| *prefix == Some("")) else { return };
    for (way, _) in ways.iter().filter(|(_, prefix)| prefix.is_none() && issuers.len() > 1) {
        node.clone().member(way).warn(format!(
            "no name_prefix: whom it names counts as named by {unnamed:?}; give it that issuer's \
             prefix, an empty string, or one of its own"
        ));
    }
}

/// Warns of an issuer that has one prefix in one list and another in another: each of its people has two names.
/// A list is its path and its issuers, each with its prefix.
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
                    format!("not that of {elsewhere}: each name of this issuer becomes two");
                Node { path: place.clone(), ..root.clone() }.warn(warning);
            }
            seen.push((place, issuer, prefix));
        }
    }
}
