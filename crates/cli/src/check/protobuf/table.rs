//! The messages of Envoy, by name: their fields, and the values of their enums.
//!
//! The table comes from the descriptors in Envoy's own binary, so it knows every extension and no
//! field is forgotten. `tests/envoy/descriptors.rs` writes it, and fails while it differs. It is
//! text, which a review can read, and nothing reads it unless `check` runs.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A line has the name of a message and its fields, or of an enum and its values.
static LINES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = include_str!("envoy.txt").lines().skip(1);
    lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()
});

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) number: Number,
    pub(super) kind: Kind,
    /// The oneof of the field: of its fields one at most is given.
    pub(super) oneof: Option<&'static str>,
}

/// The number of values that a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    One,
    List,
    Map,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    /// Text, or bytes as base64.
    Text,
    /// An enum, by its name.
    Enum(&'static str),
    /// A message, by its name.
    Message(&'static str),
}

/// Returns the name of a message, if Envoy has it.
pub(super) fn message(name: &str) -> Option<&'static str> {
    LINES.get_key_value(name).map(|(name, _)| *name)
}

/// Returns the field to which a name in a file refers: the field's own name, or that in camel case.
pub(super) fn field(message: &str, name: &str) -> Option<Field> {
    let is_it = |own: &str| own == name || camel_case(own) == name;
    let mut tokens = LINES.get(message)?.split(' ');
    let token = tokens.find(|token| token.split_once(':').is_some_and(|(own, _)| is_it(own)))?;
    let (name, rest) = token.split_once(':')?;
    let (kind, oneof) = match rest.split_once('|') {
        Some((kind, oneof)) => (kind, Some(oneof)),
        None => (rest, None),
    };
    let (number, kind) = match (kind.strip_prefix('*'), kind.strip_prefix('%')) {
        (Some(kind), _) => (Number::List, kind),
        (_, Some(kind)) => (Number::Map, kind),
        _ => (Number::One, kind),
    };
    Some(Field { name, number, kind: Kind::read(kind), oneof })
}

/// Returns the values of an enum with their numbers.
pub(super) fn values(name: &str) -> impl Iterator<Item = (&'static str, i64)> {
    let line = LINES.get(name).copied().unwrap_or_default();
    line.split(' ').filter_map(|token| {
        let (name, number) = token.split_once('=')?;
        Some((name, number.parse().ok()?))
    })
}

impl Kind {
    fn read(text: &'static str) -> Self {
        match text {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "float" => Self::Float,
            _ => match (text.strip_prefix('.'), text.strip_prefix('#')) {
                (Some(message), _) => Self::Message(message),
                (_, Some(name)) => Self::Enum(name),
                _ => Self::Text,
            },
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}
