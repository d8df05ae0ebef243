//! The operator's rules: they refuse mints of every caller.
//!
//! The rules apply to all backends alike, because a compromised backend enforces no rules of its
//! own. Each rule has its own reason in audit and metrics, so an auditor can ask how often it was
//! broken.

use std::time::Duration;

use serde_json::Value;

use super::kinds::{Lifetime, SmallInteger};
use super::section::section;

/// The rules by which the operator refuses mints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Members that the context must have, as non-empty strings.
    pub required_context: Vec<String>,
    /// Users who must not be impersonated.
    pub protected_users: Vec<UserPattern>,
    /// How often one caller may mint; `None` for no limit.
    pub max_mints_per_caller: Option<MintRate>,
}

section! {
    /// How often one caller may mint, in each Envoy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MintRate {
        /// How many subject tokens may be minted within `per`.
        pub count: SmallInteger<{ u32::MAX }> as u32,
        /// The length of the period, which begins with its first mint.
        pub per: Lifetime as Duration,
    }
}

/// A user, or all users whose names begin alike. Compared character by character: letter case
/// counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserPattern {
    /// The user with exactly this name.
    Exactly(String),
    /// All users whose names begin with this text.
    Prefix(String),
}

impl UserPattern {
    /// Reads a pattern. Returns `None` for a bare `*` and for a `*` that is not at the end.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, is_prefix) =
            text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
        if name.is_empty() || name.contains('*') {
            return None;
        }
        Some(if is_prefix { Self::Prefix(name.to_owned()) } else { Self::Exactly(name.to_owned()) })
    }

    /// Returns true if the pattern matches this user.
    pub fn matches(&self, user_id: &str) -> bool {
        match self {
            Self::Exactly(name) => user_id == name,
            Self::Prefix(prefix) => user_id.starts_with(prefix),
        }
    }
}

impl Rules {
    /// Returns the first required member that the context lacks.
    pub fn missing_context(&self, context: &Value) -> Option<&str> {
        let given = |name: &&String| {
            let text = context.get(name.as_str()).and_then(Value::as_str);
            text.is_none_or(str::is_empty)
        };
        self.required_context.iter().find(given).map(String::as_str)
    }

    /// Returns true if the operator's rules forbid impersonating this user.
    pub fn protects(&self, user_id: &str) -> bool {
        self.protected_users.iter().any(|pattern| pattern.matches(user_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_one() {
        #[rustfmt::skip]
        let cases = [
            ("root",    "root",     Some(true)),
            ("root",    "root2",    Some(false)),
            ("root",    "Root",     Some(false)),
            ("admin-*", "admin-",   Some(true)),
            ("admin-*", "admin-eu", Some(true)),
            ("admin-*", "admin",    Some(false)),
            ("ü*",      "über",     Some(true)),
            ("",        "",         None),
            ("*",       "",         None),
            ("**",      "",         None),
            ("*-admin", "",         None),
            ("a*b*",    "",         None),
        ];
        for (pattern, user_id, expected) in cases {
            let matches = UserPattern::parse(pattern).map(|pattern| pattern.matches(user_id));
            assert_eq!(matches, expected, "{pattern:?} {user_id:?}");
        }
    }

    #[test]
    fn a_required_member_is_a_string_with_something_in_it() {
        let rules = Rules {
            required_context: vec!["ticketId".into(), "reason".into()],
            ..Rules::default()
        };
        #[rustfmt::skip]
        let cases = [
            (r#"{"ticketId":"T-1","reason":"x"}"#,      None),
            (r#"{"ticketId":"T-1"}"#,                   Some("reason")),
            (r#"{"ticketId":"","reason":"x"}"#,         Some("ticketId")),
            (r#"{"ticketId":null,"reason":"x"}"#,       Some("ticketId")),
            (r#"{"ticketId":["T-1"],"reason":"x"}"#,    Some("ticketId")),
            (r#"{"ticketId":7,"reason":"x"}"#,          Some("ticketId")),
            (r#"{"a":{"ticketId":"T-1","reason":"x"}}"#, Some("ticketId")),
            ("{}",                                      Some("ticketId")),
        ];
        for (context, missing) in cases {
            let context = serde_json::from_str(context).unwrap();
            assert_eq!(rules.missing_context(&context), missing, "{context}");
        }
        assert_eq!(Rules::default().missing_context(&Value::Null), None);
    }
}
