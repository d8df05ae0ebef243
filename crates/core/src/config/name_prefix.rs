//! `name_prefix`: keeps the names of several issuers apart where one list trusts more than one, and
//! gives each issuer one prefix in all lists.
//!
//! All lists name people who are compared with each other: the one who approves must not be the one
//! who acts. The prefix is required where a list has several issuers, because only the operator
//! knows which issuer's names were used until now. An issuer without a prefix must be given an
//! empty one (`""`), so that a forgotten prefix does not pass for an intended one.

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

/// A list of issuers by its path.
pub(super) struct NamedList<'n> {
    /// The path of the list.
    pub(super) path: &'static str,
    /// Each issuer of the list with its prefix.
    pub(super) issuers: Vec<Named<'n>>,
}

/// Refuses an issuer with different prefixes in different lists: each of its people would have two
/// names, and could be two of the people whom an impersonation needs.
pub(super) fn refuse_two_names(root: &Node<'_>, lists: &[NamedList<'_>]) {
    let mut seen: Vec<(String, &str, &str)> = Vec::new();
    for NamedList { path, issuers } in lists {
        for (index, (issuer, prefix)) in issuers.iter().enumerate() {
            let (place, prefix) =
                (format!("{path}[{index}].name_prefix"), prefix.unwrap_or_default());
            let differs =
                |(_, other, theirs): &&(String, &str, &str)| other == issuer && *theirs != prefix;
            if let Some((elsewhere, _, theirs)) = seen.iter().find(differs) {
                let problem = format!(
                    "expected {theirs:?} as in {elsewhere}: an issuer has one prefix in all lists"
                );
                refuse(root, place.clone(), problem);
            }
            seen.push((place, issuer, prefix));
        }
    }
}

/// Refuses an endpoint without a prefix where any other issuer or endpoint has one: its people
/// could have another name there. `endpoints` has the path of each, and its prefix.
pub(super) fn refuse_unnamed(
    root: &Node<'_>,
    lists: &[NamedList<'_>],
    endpoints: &[(&'static str, Option<&str>)],
) {
    let of_lists =
        lists.iter().flat_map(|list| list.issuers.iter().map(|named| (list.path, named.1)));
    let mut all = of_lists.chain(endpoints.iter().copied());
    let is_given = |(_, prefix): &(_, Option<&str>)| prefix.is_some_and(|one| !one.is_empty());
    let Some((elsewhere, _)) = all.find(is_given) else { return };
    for (path, _) in endpoints.iter().filter(|(_, prefix)| prefix.is_none()) {
        let problem = format!(
            "is required, as {elsewhere} has a name_prefix: expected that of the issuer whose \
             tokens the endpoint knows, an empty string if that has none, or one of its own"
        );
        refuse(root, format!("{path}.name_prefix"), problem);
    }
}

fn refuse(root: &Node<'_>, path: String, problem: String) {
    let _: Option<()> = Node { path, ..root.clone() }.problem(problem);
}
