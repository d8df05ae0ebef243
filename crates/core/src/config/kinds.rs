//! The kinds of values that many members share: texts, numbers, durations, words and lists.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use super::limits::LONGEST_LIFETIME;
use super::node::Node;
use super::section::Kind;
use crate::jose::AccessTokenType;
use crate::oauth::scope;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A string that is not empty.
pub(super) struct Text;

impl Kind for Text {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        node.non_empty_string()
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("string", json!({"type": "string", "minLength": 1}))
    }
}

/// `true` or `false`.
pub(super) struct Boolean;

impl Kind for Boolean {
    type Value = bool;

    fn read(node: Node<'_>) -> Option<bool> {
        node.boolean()
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("boolean", json!({"type": "boolean"}))
    }
}

/// A whole number within bounds.
pub(super) struct Integer<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Kind for Integer<LEAST, MOST> {
    type Value = u64;

    fn read(node: Node<'_>) -> Option<u64> {
        node.integer(LEAST, MOST)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "integer", "minimum": LEAST, "maximum": MOST});
        Described::plain(format!("{LEAST} to {MOST}"), schema)
    }
}

/// A whole number from 1 to `MOST` that fits into 32 bits.
pub(super) struct SmallInteger<const MOST: u32>;

impl<const MOST: u32> Kind for SmallInteger<MOST> {
    type Value = u32;

    fn read(node: Node<'_>) -> Option<u32> {
        u32::try_from(node.integer(1, u64::from(MOST))?).ok()
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "integer", "minimum": 1, "maximum": MOST});
        Described::plain(format!("1 to {MOST}"), schema)
    }
}

/// A duration from `LEAST` to `MOST` milliseconds.
pub(super) struct Span<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Kind for Span<LEAST, MOST> {
    type Value = Duration;

    fn read(node: Node<'_>) -> Option<Duration> {
        node.duration(Duration::from_millis(LEAST), Duration::from_millis(MOST))
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        let schema = descriptions.define(
            "duration",
            json!({
                "description": "A duration such as 600s, 10m, 1h, 250ms or 0.25s.",
                "type": "string",
                "pattern": r"^([0-9]+(ms|s|m|h)|[0-9]+\.[0-9]{1,9}s)$",
            }),
        );
        let text = |millis: u64| match millis {
            millis if millis >= MINUTE && millis.is_multiple_of(HOUR) => {
                format!("{}h", millis / HOUR)
            }
            millis if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
            millis => format!("{millis}ms"),
        };
        Described::plain(format!("duration, `{}` to `{}`", text(LEAST), text(MOST)), schema)
    }
}

/// One second in milliseconds, for the bounds of a [`Span`].
pub(super) const SECOND: u64 = 1000;
/// One minute in milliseconds.
pub(super) const MINUTE: u64 = 60 * SECOND;
/// One hour in milliseconds.
pub(super) const HOUR: u64 = 60 * MINUTE;
/// One day in milliseconds.
pub(super) const DAY: u64 = 24 * HOUR;

/// The lifetime of a token: whole seconds, at most one day.
pub(super) struct Lifetime;

impl Kind for Lifetime {
    type Value = Duration;

    fn read(node: Node<'_>) -> Option<Duration> {
        node.lifetime(LONGEST_LIFETIME)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        let schema = descriptions.define(
            "lifetime",
            json!({
                "description": "Whole seconds, from 1s to 24h.",
                "type": "string",
                "pattern": r"^([0-9]+(ms|s|m|h)|[0-9]+\.0{1,9}s)$",
            }),
        );
        Described::plain("lifetime", schema)
    }
}

/// A type whose values the operator writes as one of a few words.
pub(super) trait Words: Copy + 'static {
    /// Each word with its value.
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for AccessTokenType {
    const WORDS: &'static [(&'static str, Self)] =
        &[(Self::AtJwt.name(), Self::AtJwt), (Self::Jwt.name(), Self::Jwt)];
}

/// A value of `W`, written as one of its words.
pub(super) struct OneOf<W>(PhantomData<W>);

impl<W: Words> Kind for OneOf<W> {
    type Value = W;

    fn read(node: Node<'_>) -> Option<W> {
        node.one_of(W::WORDS)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let words: Vec<_> = W::WORDS.iter().map(|(word, _)| *word).collect();
        Described::plain(format!("`{}`", words.join("`, `")), json!({"enum": words}))
    }
}

/// A list, which may be empty.
pub(super) struct ListOf<K>(PhantomData<K>);

impl<K: Kind> Kind for ListOf<K> {
    type Value = Vec<K::Value>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        node.list(K::read)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        K::describe(descriptions).listed()
    }
}

/// A list with at least one item. An empty list would mean the opposite of what it looks like: it
/// would match nothing, while an absent list matches everything.
pub(super) struct NonEmpty<K>(PhantomData<K>);

impl<K: Kind> Kind for NonEmpty<K> {
    type Value = Vec<K::Value>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        let list = node.clone();
        match node.list(K::read)? {
            items if items.is_empty() => list.problem("expected a list that is not empty"),
            items => Some(items),
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        K::describe(descriptions).listed().not_empty()
    }
}

/// One word, or a list of different words with at least one item.
pub(super) struct OneOrMore<W>(PhantomData<W>);

impl<W: Words + PartialEq> Kind for OneOrMore<W> {
    type Value = Vec<W>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        if !node.value.is_array() {
            return Some(vec![OneOf::read(node)?]);
        }
        let list = node.clone();
        let words = NonEmpty::<OneOf<W>>::read(node)?;
        for (index, word) in words.iter().enumerate() {
            if words.iter().take(index).any(|earlier| earlier == word) {
                return list.item(index).problem("is given twice");
            }
        }
        Some(words)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        OneOf::<W>::describe(descriptions).or_listed()
    }
}

/// An object of strings whose member names the operator chooses.
pub(super) struct Variables;

impl Kind for Variables {
    type Value = BTreeMap<String, String>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        let mut variables = BTreeMap::new();
        for (name, node) in node.entries()? {
            variables.insert(name, node.string()?.to_owned());
        }
        Some(variables)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
        Described::plain("object of strings", schema)
    }
}

/// One scope (RFC 6749 §3.3).
pub(super) struct ScopeToken;

impl Kind for ScopeToken {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if scope::is_scope_token(text) {
            return Some(text.to_owned());
        }
        node.problem("expected one scope: printable ASCII without spaces, quotes or backslashes")
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        let schema = descriptions.define(
            "scope",
            json!({
                "description": "One scope: printable ASCII without spaces, quotes or backslashes.",
                "type": "string",
                "pattern": r"^[!#-\[\]-~]+$",
            }),
        );
        Described::plain("scope", schema)
    }
}
