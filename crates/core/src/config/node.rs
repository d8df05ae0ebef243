//! Reads a tree of values member by member. The reader finds every problem in one pass, each with
//! its path, and reports every unknown member.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::ConfigEnvironment;

/// A problem with one member of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the member, such as `subject_tokens.authentication.jwt[0].issuer`.
    pub path: String,
    /// The values that were expected there.
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            formatter.write_str(&self.expected)
        } else {
            write!(formatter, "{}: {}", self.path, self.expected)
        }
    }
}

/// The state that all nodes of one configuration share.
pub(super) struct Reading<'r> {
    pub(super) environment: &'r dyn ConfigEnvironment,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) warnings: RefCell<Vec<Problem>>,
}

impl Reading<'_> {
    #[inline(never)]
    fn note(&self, path: String, expected: String) {
        self.problems.borrow_mut().push(Problem { path, expected });
    }
}

/// A value and its path.
#[derive(Clone)]
pub(super) struct Node<'r> {
    pub(super) reading: &'r Reading<'r>,
    pub(super) path: String,
    pub(super) value: &'r Value,
}

/// The members of an object. The reader asks for each by name.
pub(super) struct Members<'r> {
    node: Node<'r>,
    members: &'r Map<String, Value>,
    known: Vec<&'static str>,
    /// The members of a choice that broke its rule. They are not read.
    refused: &'static [&'static str],
}

/// How many members of a group may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "declared sections name them as they are written there")]
pub(super) enum HowMany {
    exactly_one,
    at_least_one,
    at_most_one,
}

impl<'r> Node<'r> {
    /// Notes a problem with this value, and returns `None`.
    pub(super) fn problem<T>(&self, expected: impl Into<Cow<'static, str>>) -> Option<T> {
        self.note(expected.into());
        None
    }

    #[inline(never)]
    fn note(&self, expected: Cow<'static, str>) {
        self.reading.note(self.path.clone(), expected.into_owned());
    }

    /// Returns the place of an item of this list, to note a problem there.
    pub(super) fn item(mut self, index: usize) -> Self {
        self.path = format!("{}[{index}]", self.path);
        self
    }

    /// Returns the place of a member of this object, to note a problem there.
    pub(super) fn member(mut self, name: &str) -> Self {
        self.path = join(&self.path, name);
        self
    }

    /// Warns of a setting that works but is probably not intended.
    pub(super) fn warn(&self, warning: impl Into<String>) {
        let warning = Problem { path: self.path.clone(), expected: warning.into() };
        self.reading.warnings.borrow_mut().push(warning);
    }

    fn mistyped<T>(&self, expected: &str) -> Option<T> {
        self.problem(self.mismatch(expected))
    }

    #[inline(never)]
    fn mismatch(&self, expected: &str) -> String {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        format!("expected {expected}, found {found}")
    }

    pub(super) fn object(self) -> Option<Members<'r>> {
        match self.value {
            Value::Object(members) => {
                Some(Members { node: self, members, known: Vec::new(), refused: &[] })
            }
            _ => self.mistyped("an object"),
        }
    }

    /// Returns the members of an object whose member names the operator chooses.
    pub(super) fn entries(self) -> Option<Vec<(String, Self)>> {
        let Value::Object(members) = self.value else { return self.mistyped("an object") };
        let entry = |(name, value): (&String, &'r Value)| {
            let path = format!("{}.{}", self.path, name.escape_debug());
            (name.clone(), Self { reading: self.reading, path, value })
        };
        Some(members.iter().map(entry).collect())
    }

    pub(super) fn string(self) -> Option<&'r str> {
        match self.value {
            Value::String(text) => Some(text),
            _ => self.mistyped("a string"),
        }
    }

    pub(super) fn non_empty_string(self) -> Option<String> {
        match self.clone().string()? {
            "" => self.problem("expected a string that is not empty"),
            text => Some(text.to_owned()),
        }
    }

    pub(super) fn boolean(self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(*value),
            _ => self.mistyped("true or false"),
        }
    }

    pub(super) fn integer(self, least: u64, most: u64) -> Option<u64> {
        let expected = || format!("an integer from {least} to {most}");
        match self.value {
            Value::Number(number) => match number.as_u64() {
                Some(value) if (least..=most).contains(&value) => Some(value),
                _ => self.problem(format!("expected {}", expected())),
            },
            _ => self.mistyped(&expected()),
        }
    }

    /// Reads a duration such as `600s`, `10m` or `250ms`.
    pub(super) fn duration(self, least: Duration, most: Duration) -> Option<Duration> {
        let Value::String(text) = self.value else {
            return self.mistyped("a duration such as 600s, 10m or 250ms");
        };
        match parse_duration(text) {
            Some(duration) if (least..=most).contains(&duration) => Some(duration),
            Some(_) => self.problem(format!("expected a duration from {least:?} to {most:?}")),
            None => self.problem("expected a duration such as 600s, 10m or 250ms"),
        }
    }

    /// Reads the lifetime of a token: OAuth states lifetimes in whole seconds.
    pub(super) fn lifetime(self, most: Duration) -> Option<Duration> {
        let duration = self.clone().duration(Duration::from_secs(1), most)?;
        if duration.subsec_nanos() == 0 {
            Some(duration)
        } else {
            self.problem("expected whole seconds")
        }
    }

    /// Returns the items of a list. The lists of all kinds share this code.
    #[inline(never)]
    fn items(self) -> Option<Vec<Self>> {
        let Value::Array(items) = self.value else { return self.mistyped("a list") };
        let item = |(index, value): (usize, &'r Value)| {
            let path = format!("{}[{index}]", self.path);
            Self { reading: self.reading, path, value }
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Reads a list, each item with `read`.
    pub(super) fn list<T>(self, read: impl Fn(Node<'r>) -> Option<T>) -> Option<Vec<T>> {
        let items = self.items()?;
        // After an item that cannot be read the others are read too, so that every problem is
        // found.
        let mut list = Some(Vec::with_capacity(items.len()));
        for item in items {
            match (read(item), &mut list) {
                (Some(item), Some(list)) => list.push(item),
                _ => list = None,
            }
        }
        list
    }

    #[inline(never)]
    fn is_none_of(&self, words: &mut dyn Iterator<Item = &str>) {
        let words: Vec<_> = words.collect();
        self.reading.note(self.path.clone(), format!("expected one of {}", words.join(", ")));
    }

    /// Reads one of a few words.
    pub(super) fn one_of<T: Copy>(self, words: &[(&str, T)]) -> Option<T> {
        let text = self.clone().string()?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            self.is_none_of(&mut words.iter().map(|(word, _)| *word));
        }
        found.map(|(_, meaning)| *meaning)
    }
}

impl<'r> Members<'r> {
    /// Notes a problem if the number of given members of a group breaks the rule of `choice`.
    pub(super) fn choose(&mut self, choice: HowMany, names: &'static [&'static str]) {
        let given = names.iter().filter(|name| self.members.contains_key(**name)).count();
        let (fits, words) = match choice {
            HowMany::exactly_one => (given == 1, "exactly one"),
            HowMany::at_least_one => (given >= 1, "at least one"),
            HowMany::at_most_one => (given <= 1, "at most one"),
        };
        if !fits {
            let _: Option<()> =
                self.node.problem(format!("expected {words} of {}", names.join(", ")));
            self.refused = names;
        }
    }

    /// Returns a member if it is given.
    #[inline(never)]
    pub(super) fn get(&mut self, name: &'static str) -> Option<Node<'r>> {
        self.known.push(name);
        let value = self.members.get(name).filter(|_| !self.refused.contains(&name))?;
        Some(self.at(name, value))
    }

    /// Places a default value at a member's path, as if the operator had written it there.
    #[inline(never)]
    pub(super) fn at<'v>(&self, name: &str, value: &'v Value) -> Node<'v>
    where
        'r: 'v,
    {
        Node { reading: self.node.reading, path: self.path_of(name), value }
    }

    /// Notes that a required member is missing.
    pub(super) fn lacks(&self, name: &str) {
        self.node.reading.note(self.path_of(name), "is required".to_owned());
    }

    /// Notes every unknown member. Returns `None` if a choice broke its rule.
    pub(super) fn finish(self) -> Option<()> {
        for name in self.members.keys().map(String::as_str) {
            if self.known.contains(&name) {
                continue;
            }
            let path = self.path_of(name);
            let expected = format!("unknown member; expected one of {}", self.known.join(", "));
            self.node.reading.note(path, expected);
        }
        self.refused.is_empty().then_some(())
    }

    fn path_of(&self, name: &str) -> String {
        // An unknown name may hold any character. It must not break a log line.
        join(&self.node.path, &name.escape_debug().to_string())
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        // Protobuf writes fractions of a second as `0.25s`.
        _ => {
            let fraction = unit.strip_prefix('.')?.strip_suffix('s')?;
            let valid = (1..=9).contains(&fraction.len())
                && fraction.bytes().all(|byte| byte.is_ascii_digit());
            let nanos = if valid { format!("{fraction:0<9}").parse().ok()? } else { return None };
            Some(Duration::new(number, nanos))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        #[rustfmt::skip]
        let cases = [
            ("600s",   Some(Duration::from_secs(600))),
            ("10m",    Some(Duration::from_secs(600))),
            ("1h",     Some(Duration::from_secs(3600))),
            ("250ms",  Some(Duration::from_millis(250))),
            ("0.25s",  Some(Duration::from_millis(250))),
            ("600",    None),
            ("",       None),
            ("s",      None),
            ("-1s",    None),
            ("1.s",    None),
            ("1.+5s",  None),
            ("1 s",    None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, duration) in cases {
            assert_eq!(parse_duration(text), duration, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_duration_parser_panic(text in "[0-9.]*\\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
