//! Keeps the lists of members and the schemas in `docs/` equal to the declarations.

use std::fmt::Write as _;

use serde_json::Value;
use testkit::generated::{hold, wrapped};

use super::{Described, Descriptions, Member, Presence, one_line};
use crate::config::section::Kind;
use crate::config::{Config, GuardConfig};

/// The documentation of one plugin's configuration.
struct Plugin {
    page: &'static str,
    schema: &'static str,
    title: &'static str,
    describe: fn(&mut Descriptions) -> Described,
}

const PLUGINS: [Plugin; 2] = [
    Plugin {
        page: "docs/configuration.md",
        schema: "docs/configuration.schema.json",
        title: "impersonation-filter",
        describe: Config::describe,
    },
    Plugin {
        page: "docs/guard.md",
        schema: "docs/guard.schema.json",
        title: "impersonation-guard",
        describe: GuardConfig::describe,
    },
];

/// Writes one item for each member of a section, and the items of nested sections that have no
/// heading of their own.
fn items(members: &[Member], before: &str, list: &mut String) {
    for member in members {
        let name = format!("{before}{}", member.name);
        let own = &member.described.members;
        // A nested section that is present by default needs no item of its own beside those of its
        // members.
        let is_there = matches!(member.presence, Presence::Default(_));
        if own.is_empty() || !is_there {
            item(member, &name, list);
        }
        items(own, &format!("{name}."), list);
    }
}

fn item(member: &Member, name: &str, list: &mut String) {
    let words = member.described.type_words();
    let default = match &member.presence {
        Presence::Required => String::new(),
        Presence::Optional(words) => (*words).to_owned(),
        Presence::Default(Value::Object(_)) if words.starts_with('[') => "its defaults".into(),
        Presence::Default(Value::Array(_) | Value::Object(_)) => "none".into(),
        Presence::Default(Value::String(text)) if text.is_empty() => "`\"\"`".into(),
        Presence::Default(Value::String(text)) => format!("`{text}`"),
        Presence::Default(value) => format!("`{value}`"),
    };
    let and = if default.is_empty() { "" } else { "; " };
    let text = format!("- `{name}` ({words}{and}{default}): {}", one_line(member.meaning));
    list.push_str(&wrapped(&text));
}

fn list(members: &[Member]) -> String {
    let mut list = String::new();
    items(members, "", &mut list);
    list
}

/// Replaces each list of the page between the marks that name it.
fn with_lists(page: &str, lists: &[(&str, String)]) -> String {
    let mut made = String::new();
    let mut rest = page;
    let mut written = Vec::new();
    while let Some((before, behind)) = rest.split_once("<!-- members of ") {
        let (name, behind) = behind.split_once(" -->\n").unwrap();
        let (_, behind) = behind.split_once("<!-- end of members -->").unwrap();
        let (_, list) = lists.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
            panic!("no section {name:?}: there are {:?}", lists.iter().map(|(name, _)| name))
        });
        let _ = write!(made, "{before}<!-- members of {name} -->\n{list}<!-- end of members -->");
        written.push(name);
        rest = behind;
    }
    made.push_str(rest);
    for (name, _) in lists {
        assert!(written.contains(name), "the page has no list for {name}");
    }
    made
}

fn described(plugin: &Plugin) -> (Vec<(&'static str, String)>, Value) {
    let mut descriptions = Descriptions::default();
    let whole = (plugin.describe)(&mut descriptions);
    let mut lists = vec![("the top level", list(&whole.members))];
    for (heading, members) in &descriptions.headings {
        lists.push((heading, list(members)));
    }
    let mut schema = whole.schema;
    let object = schema.as_object_mut().unwrap();
    object.insert("definitions".into(), descriptions.definitions.into());
    let mut titled = serde_json::Map::new();
    titled.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    titled.insert("title".into(), plugin.title.into());
    titled.extend(object.clone());
    (lists, titled.into())
}

#[test]
fn the_documentation_matches_the_declarations() {
    for plugin in PLUGINS {
        let (lists, schema) = described(&plugin);
        hold(plugin.page, |page| with_lists(page, &lists));
        hold(plugin.schema, |_| format!("{}\n", serde_json::to_string_pretty(&schema).unwrap()));
    }
}
