//! Generates the documentation and the schemas of the configuration from the declared sections.
//!
//! The lists of `docs/configuration.md` and `docs/guard.md` and both JSON Schemas are checked in,
//! where readers find them. A test generates them again and compares; `make docs` writes them.

mod pages;

use serde_json::{Map, Value, json};

use super::node::HowMany;

/// The description of a kind of value.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// The type in words, for a table: `lifetime`, `list of strings`.
    words: String,
    /// The JSON Schema.
    schema: Value,
    /// The members of a section without a heading of its own: they become rows in the table of the
    /// section around it.
    members: Vec<Member>,
}

/// The description of a member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) presence: Presence,
    pub(super) described: Described,
}

/// Tells if a member is required, and otherwise its default or the meaning of its absence.
#[derive(Debug, Clone)]
pub(super) enum Presence {
    Required,
    Default(Value),
    /// The text says what the absence means.
    Optional(&'static str),
}

/// Everything that the members refer to by name: sections with a heading on a page, and definitions
/// in a schema.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    headings: Vec<(&'static str, Vec<Member>)>,
    definitions: Map<String, Value>,
}

impl Descriptions {
    /// Adds a definition to the schema and returns a reference to it.
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

    /// Describes an object with these members.
    pub(super) fn section(
        about: &'static str,
        members: Vec<Member>,
        choice: Option<(HowMany, Vec<&'static str>)>,
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
                HowMany::exactly_one => schema.insert("oneOf".into(), each.into()),
                HowMany::at_least_one => schema.insert("anyOf".into(), each.into()),
                HowMany::at_most_one => schema.insert("not".into(), json!({"required": names})),
            };
        }
        let properties = members.iter().map(|member| (member.name.to_owned(), member.schema()));
        schema.insert("properties".into(), Value::Object(properties.collect()));
        Self { words: "object".into(), schema: schema.into(), members }
    }

    /// Adds keywords to the schema of one member.
    pub(super) fn with(mut self, member: &str, more: Value) -> Self {
        let place = self.schema.pointer_mut(&format!("/properties/{member}")).unwrap();
        place.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self
    }

    /// Removes a member.
    pub(super) fn without(mut self, member: &str) -> Self {
        self.members.retain(|one| one.name != member);
        let properties = self.schema.pointer_mut("/properties").unwrap();
        properties.as_object_mut().unwrap().remove(member);
        self
    }

    /// Adds a rule about several members to the schema.
    pub(super) fn with_rule(mut self, rule: Value) -> Self {
        self.schema.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        self
    }

    /// Adds a schema rule: if the member `name` is `true`, one of `some` must be given.
    pub(super) fn required_with(self, name: &str, some: &[&str]) -> Self {
        let each: Vec<_> = some.iter().map(|name| json!({"required": [name]})).collect();
        self.with_rule(json!({
            "if": {"properties": {name: {"const": true}}, "required": [name]},
            "then": {"anyOf": each},
        }))
    }

    /// Gives a section a heading on the page and a definition of the same name. `items` is the
    /// plural that a list of them uses.
    pub(super) fn under(
        self,
        descriptions: &mut Descriptions,
        heading: &'static str,
        items: &str,
    ) -> Self {
        self.defined_as(descriptions, heading, heading, items)
    }

    /// Gives a section a heading on the page and a definition of another name. Two sections under
    /// one heading can differ in their members.
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
            // The table shows the variant with the most members.
            Some((_, known)) if known.len() < members.len() => *known = members,
            Some(_) => {}
            None => descriptions.headings.push((heading, members)),
        }
        let schema = descriptions.define(definition, schema);
        let words = format!("[object](#{heading})\u{0}[{items}](#{heading})");
        Self { words, schema, members: Vec::new() }
    }

    /// Describes a list of these values.
    pub(super) fn listed(self) -> Self {
        let items = match self.words.split_once('\u{0}') {
            Some((_, items)) => items.to_owned(),
            None if self.words.starts_with('`') => self.words,
            None => match self.words.split_once(" of ") {
                Some((noun, rest)) => format!("{noun}s of {rest}"),
                None => format!("{}s", self.words),
            },
        };
        let schema = json!({"type": "array", "items": self.schema});
        Self::plain(format!("list of {items}"), schema)
    }

    /// Describes one such value, or a list of different ones that is not empty.
    pub(super) fn or_listed(self) -> Self {
        let (one, words) = (self.schema.clone(), format!("{}, or a list of them", self.words));
        let list =
            json!({"type": "array", "items": self.schema, "minItems": 1, "uniqueItems": true});
        Self::plain(words, json!({"anyOf": [one, list]}))
    }

    /// Requires the list to have at least one item.
    pub(super) fn not_empty(mut self) -> Self {
        self.words.push_str(", not empty");
        self.schema.as_object_mut().unwrap().insert("minItems".into(), 1.into());
        self
    }

    /// Returns the type in words, for a table.
    fn type_words(&self) -> &str {
        self.words.split('\u{0}').next().unwrap()
    }
}

impl Member {
    fn schema(&self) -> Value {
        let mut schema = self.described.schema.clone();
        let object = schema.as_object_mut().unwrap();
        // In draft 7, which editors support, `$ref` hides all keywords beside it.
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

/// Joins the lines of a doc comment.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes the Markdown markup from a doc comment, for display in an editor.
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
