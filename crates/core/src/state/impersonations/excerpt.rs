//! The members of a mint's context that the list keeps, as text of bounded length.
//!
//! A context is free-form, has up to some kilobytes, and may hold personal data. The operator names
//! the members that people on call need to see. The number of names and the length of each text
//! bound the memory of the list.

use serde_json::{Map, Value};

/// The number of characters of a member that are kept.
const LONGEST_TEXT: usize = 128;

/// The members of `context` with these names, in this order. A string is kept as it is, any other
/// value as JSON. A member that is missing is left out.
pub fn excerpt(names: &[String], context: &str) -> Vec<(String, String)> {
    if names.is_empty() {
        return Vec::new();
    }
    let members: Map<String, Value> = serde_json::from_str(context).unwrap_or_default();
    let kept = |name: &String| {
        let text = match members.get(name)? {
            Value::String(text) => cut(text).to_owned(),
            other => cut(&other.to_string()).to_owned(),
        };
        Some((name.clone(), text))
    };
    names.iter().filter_map(kept).collect()
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST_TEXT).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(names: &[&str], context: &Value) -> Vec<(String, String)> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        excerpt(&names, &context.to_string())
    }

    #[test]
    fn an_excerpt_has_the_named_members_in_the_order_of_the_names() {
        let context = serde_json::json!({
            "reason": "a call", "ticketId": "T-1", "secret": "x", "count": 7, "tags": ["a", "b"], "none": null,
        });
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(kept(&[], &context), []);
        assert_eq!(kept(&["missing"], &context), []);
        assert_eq!(
            kept(&["ticketId", "missing", "reason", "count", "tags", "none"], &context),
            [
                pair("ticketId", "T-1"),
                pair("reason", "a call"),
                pair("count", "7"),
                pair("tags", "[\"a\",\"b\"]"),
                pair("none", "null"),
            ]
        );
    }

    #[test]
    fn a_long_text_is_cut_at_128_characters_not_bytes() {
        for text in ["é".repeat(500), "a".repeat(129), "😀".repeat(128), "田".repeat(127)] {
            let [(_, cut)] = &kept(&["reason"], &serde_json::json!({"reason": text}))[..] else {
                panic!("not one")
            };
            assert_eq!(cut.chars().count(), text.chars().count().min(128));
            assert!(text.starts_with(cut.as_str()));
        }
        let list = serde_json::json!({"reason": ["é".repeat(500)]});
        assert_eq!(kept(&["reason"], &list)[0].1.chars().count(), 128);
    }
}
