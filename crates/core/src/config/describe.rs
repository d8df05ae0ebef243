//! What documentation and schemas say about the members, made from their declarations.
//!
//! The tables of `docs/configuration.md` and `docs/guard.md` and both JSON Schemas are in the tree for
//! their readers. A test makes them anew and compares; `make docs` writes what the test expects.

mod pages;

use serde_json::{Map, Value, json};

use super::node::Choice;

/// A kind of value, described.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// For a table: `lifetime`, `list of strings`.
    words: String,
    /// For the schema.
    schema: Value,
    /// The members of a section that stands in the table of the section around it.
    members: Vec<Member>,
}

/// A member, described.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) presence: Presence,
    pub(super) described: Described,
}

/// Whether a member must be there.
#[derive(Debug, Clone)]
pub(super) enum Presence {
    Required,
    Default(Value),
    /// With what its absence means.
    Optional(&'static str),
}

/// What stands in a place of its own: sections with a heading on a page, and definitions in a schema.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    headings: Vec<(&'static str, Vec<Member>)>,
    definitions: Map<String, Value>,
}

impl Descriptions {
    /// Defines a schema, and refers to it.
    pub(super) fn define(&mut self, name: &str, schema: Value) -> Value {
        self.definitions.insert(name.to_owned(), schema);
        json!({"$ref": format!("#/definitions/{name}")})
    }
}

impl Described {
    /// A value without members.
    pub(super) fn plain(words: impl Into<String>, schema: Value) -> Self {
        Self { words: words.into(), schema, members: Vec::new() }
    }

    /// An object with these members.
    pub(super) fn section(
        about: &'static str,
        members: Vec<Member>,
        choice: Option<(Choice, Vec<&'static str>)>,
    ) -> Self {
        let mut schema = Map::new();
        schema.insert("description".into(), plain_text(about).into());
        schema.insert("type".into(), "object".into());
        schema.insert("additionalProperties".into(), false.into());
        let required: Vec<_> = members
            .iter()
            .filter(|member| matches!(member.presence, Presence::Required))
            .map(|member| member.name)
            .collect();
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        if let Some((choice, names)) = choice {
            let each: Vec<_> = names.iter().map(|name| json!({"required": [name]})).collect();
            match choice {
                Choice::exactly_one => schema.insert("oneOf".into(), each.into()),
                Choice::at_least_one => schema.insert("anyOf".into(), each.into()),
                Choice::at_most_one => schema.insert("not".into(), json!({"required": names})),
            };
        }
        let properties = members.iter().map(|member| (member.name.to_owned(), member.schema()));
        schema.insert("properties".into(), Value::Object(properties.collect()));
        Self { words: "object".into(), schema: schema.into(), members }
    }

    /// Says more about a member, in the schema.
    pub(super) fn with(mut self, member: &str, more: Value) -> Self {
        let place = self.schema.pointer_mut(&format!("/properties/{member}")).unwrap();
        place.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self
    }

    /// Leaves a member out.
    pub(super) fn without(mut self, member: &str) -> Self {
        self.members.retain(|one| one.name != member);
        let properties = self.schema.pointer_mut("/properties").unwrap();
        properties.as_object_mut().unwrap().remove(member);
        self
    }

    /// Adds a rule about several members, in the schema.
    pub(super) fn with_rule(mut self, rule: Value) -> Self {
        self.schema.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        self
    }

    /// Says that one of some members must be there if another is `true`.
    pub(super) fn required_with(self, name: &str, some: &[&str]) -> Self {
        let each: Vec<_> = some.iter().map(|name| json!({"required": [name]})).collect();
        self.with_rule(json!({
            "if": {"properties": {name: {"const": true}}, "required": [name]},
            "then": {"anyOf": each},
        }))
    }

    /// Gives a section a heading of its own, and a definition of the same name. `items` is what a list has
    /// of them.
    pub(super) fn under(
        self,
        descriptions: &mut Descriptions,
        heading: &'static str,
        items: &str,
    ) -> Self {
        self.defined_as(descriptions, heading, heading, items)
    }

    /// The same with a definition of another name: sections under one heading can differ in what exists.
    pub(super) fn defined_as(
        self,
        descriptions: &mut Descriptions,
        definition: &str,
        heading: &'static str,
        items: &str,
    ) -> Self {
        let Self { schema, members, .. } = self;
        let known = descriptions.headings.iter_mut().find(|(name, _)| *name == heading);
        match known {
            // The one with most members says what there is.
            Some((_, known)) if known.len() < members.len() => *known = members,
            Some(_) => {}
            None => descriptions.headings.push((heading, members)),
        }
        let schema = descriptions.define(definition, schema);
        let words = format!("[object](#{heading})\u{0}[{items}](#{heading})");
        Self { words, schema, members: Vec::new() }
    }

    /// A list of such values.
    pub(super) fn listed(self) -> Self {
        let items = match self.words.split_once('\u{0}') {
            Some((_, items)) => items.to_owned(),
            None => match self.words.split_once(" of ") {
                Some((noun, rest)) => format!("{noun}s of {rest}"),
                None => format!("{}s", self.words),
            },
        };
        let schema = json!({"type": "array", "items": self.schema});
        Self::plain(format!("list of {items}"), schema)
    }

    /// A list with something in it.
    pub(super) fn not_empty(mut self) -> Self {
        self.words.push_str(", not empty");
        self.schema.as_object_mut().unwrap().insert("minItems".into(), 1.into());
        self
    }

    /// For a table.
    fn type_words(&self) -> &str {
        self.words.split('\u{0}').next().unwrap()
    }
}

impl Member {
    fn schema(&self) -> Value {
        let mut schema = self.described.schema.clone();
        let object = schema.as_object_mut().unwrap();
        // Beside a reference nothing else counts, in the draft that editors know.
        if let Some(reference) = object.remove("$ref") {
            object.insert("allOf".into(), json!([{"$ref": reference}]));
        }
        object.insert("description".into(), plain_text(self.meaning).into());
        if let Presence::Default(value) = &self.presence {
            object.insert("default".into(), value.clone());
        }
        schema
    }
}

/// A doc comment as one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A doc comment without the marks of Markdown, for an editor.
fn plain_text(text: &str) -> String {
    let text = one_line(text);
    let mut plain = String::new();
    let mut rest = text.as_str();
    // [words](target) becomes its words.
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link.split_once(']') {
            Some((words, behind)) if behind.starts_with('(') => {
                plain.push_str(words);
                rest = behind.split_once(')').unwrap().1;
            }
            _ => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain.push_str(rest);
    plain.replace('`', "")
}
