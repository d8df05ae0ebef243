//! Reads YAML as Envoy does, which differs from YAML 1.2. `check` must judge the values that arrive
//! in the plugin.
//!
//! Envoy reads by `yaml-cpp` (YAML 1.1): `yes` and `y` are booleans, `010` is eight. It makes a
//! string of every number with a fraction, and of every integer beyond 32 bits. It knows anchors
//! and aliases, and no merge keys: `<<` is a member of that name. It silently drops the first of
//! two members of one name, and all documents but the first. All of this was tried with Envoy 1.40.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::tree::{item_path, member_path};

/// The deepest nesting. Protobuf allows less.
const MAX_DEPTH: usize = 200;

/// The most values of a document. Aliases of aliases could fill the memory; no configuration is
/// this large.
const MAX_VALUES: usize = 1_000_000;

/// A document as Envoy sees it.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) value: Value,
    /// The line of each value, by path.
    pub(super) lines: HashMap<String, usize>,
    /// The places that Envoy silently ignores or misunderstands.
    pub(super) surprises: Vec<Surprise>,
}

/// A place that Envoy reads differently than it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surprise {
    pub(super) path: String,
    pub(super) text: &'static str,
}

/// The reason why a text is no YAML document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Reads the first document of `text`, as Envoy does.
pub(super) fn read(text: &str) -> Result<Document, YamlError> {
    let mut composer = Composer::new(text);
    composer.document.value = composer.next_document("")?.unwrap_or_default();
    if composer.next_document("[1]")?.is_some() {
        composer.surprise("", "the file has several YAML documents: Envoy reads the first only");
    }
    Ok(composer.document)
}

/// Reads all documents of `text`, as a list if there are several.
pub(super) fn read_all(text: &str) -> Result<Document, YamlError> {
    let mut first = Composer::new(text);
    let value = first.next_document("")?.unwrap_or_default();
    if first.next_document("")?.is_none() {
        first.document.value = value;
        return Ok(first.document);
    }
    let mut composer = Composer::new(text);
    let mut documents = Vec::new();
    while let Some(document) = composer.next_document(&item_path("", documents.len()))? {
        documents.push(document);
    }
    composer.document.value = Value::Array(documents);
    Ok(composer.document)
}

struct Composer<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Value>,
    values: usize,
    document: Document,
}

impl<'t> Composer<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            anchors: HashMap::new(),
            values: 0,
            document: Document::default(),
        }
    }

    /// Reads the next document, if there is one, as the value at `path`.
    fn next_document(&mut self, path: &str) -> Result<Option<Value>, YamlError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(None),
                (
                    Event::StreamStart
                    | Event::DocumentStart(_)
                    | Event::DocumentEnd
                    | Event::Nothing,
                    _,
                ) => {}
                (event, span) => return self.value(event, span, path, 0).map(Some),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), YamlError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| scan_error(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn value(
        &mut self,
        event: Event<'t>,
        span: Span,
        path: &str,
        depth: usize,
    ) -> Result<Value, YamlError> {
        if depth > MAX_DEPTH {
            return Err(error(span, "nested too deeply"));
        }
        self.document.lines.insert(path.to_owned(), span.start.line());
        let (anchor, value) = match event {
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| error(span, "an alias that stands for itself"))?;
                self.count(size(&value), span)?;
                return Ok(value);
            }
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(text, style, tag)),
            Event::SequenceStart(anchor, _) => (anchor, self.list(path, depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.object(path, depth)?),
            _ => return Err(error(span, "a value is missing")),
        };
        self.count(1, span)?;
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn count(&mut self, values: usize, span: Span) -> Result<(), YamlError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES { Err(error(span, "too many values")) } else { Ok(()) }
    }

    fn list(&mut self, path: &str, depth: usize) -> Result<Value, YamlError> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(list)),
                (event, span) => {
                    let path = item_path(path, list.len());
                    list.push(self.value(event, span, &path, depth.saturating_add(1))?);
                }
            }
        }
    }

    fn object(&mut self, path: &str, depth: usize) -> Result<Value, YamlError> {
        let mut object = Map::new();
        loop {
            let (event, key) = self.next()?;
            let (name, ignored) = match event {
                Event::MappingEnd => return Ok(Value::Object(object)),
                Event::Scalar(text, style, anchor, tag) => {
                    // Envoy ignores a member with this tag: it only holds anchors.
                    let ignored = tag.as_deref().is_some_and(|tag| is(tag, "!", "ignore"));
                    let null = scalar(text.clone(), style, tag).is_null();
                    let name = if null { Cow::Borrowed("null") } else { text };
                    if anchor != 0 {
                        self.anchors.insert(anchor, Value::String(name.to_string()));
                    }
                    (name, ignored)
                }
                Event::Alias(anchor) => match self.anchors.get(&anchor) {
                    Some(Value::String(name)) => (Cow::Owned(name.clone()), false),
                    _ => return Err(error(key, "the name of a member must be a string")),
                },
                _ => return Err(error(key, "the name of a member must be a string")),
            };
            let path = member_path(path, &name);
            let (event, span) = self.next()?;
            let value = self.value(event, span, &path, depth.saturating_add(1))?;
            // The line of the member's name, not the line where a block below it begins.
            self.document.lines.insert(path.clone(), key.start.line());
            if ignored {
                continue;
            }
            if name == "<<" {
                self.surprise(&path, "Envoy has no merge keys: it takes << for a member's name");
            }
            if object.insert(name.into_owned(), value).is_some() {
                self.surprise(&path, "is given twice: Envoy drops the first without a word");
            }
        }
    }

    fn surprise(&mut self, path: &str, text: &'static str) {
        self.document.surprises.push(Surprise { path: path.to_owned(), text });
    }
}

fn error(span: Span, text: &str) -> YamlError {
    YamlError { line: span.start.line(), text: text.to_owned() }
}

fn scan_error(error: &ScanError) -> YamlError {
    YamlError { line: error.marker().line(), text: error.info().to_owned() }
}

fn is(tag: &Tag, handle: &str, suffix: &str) -> bool {
    tag.handle == handle && tag.suffix == suffix
}

fn size(value: &Value) -> usize {
    let of = |sizes: &mut dyn Iterator<Item = usize>| {
        sizes.fold(1_usize, |sum, size| sum.saturating_add(size))
    };
    match value {
        Value::Array(items) => of(&mut items.iter().map(size)),
        Value::Object(members) => of(&mut members.values().map(size)),
        _ => 1,
    }
}

/// Reads a scalar as Envoy does.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<Cow<'_, Tag>>) -> Value {
    let is_string = match &tag {
        None => style != ScalarStyle::Plain,
        Some(tag) => is(tag, "", "!"),
    };
    if is_string {
        return Value::String(text.into_owned());
    }
    if tag.is_none() && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    if let Some(value) = boolean(&text) {
        return Value::Bool(value);
    }
    match integer(&text) {
        Some(value) if i32::try_from(value).is_ok() => Value::Number(value.into()),
        Some(value) => Value::String(value.to_string()),
        None => Value::String(text.into_owned()),
    }
}

fn boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let mut rest = text.chars();
    let capitalised = rest.next().is_some_and(|first| first.is_ascii_uppercase())
        && rest.as_str().bytes().all(|byte| byte.is_ascii_lowercase());
    if text != lower && text != text.to_ascii_uppercase() && !capitalised {
        return None;
    }
    match &*lower {
        "y" | "yes" | "true" | "on" => Some(true),
        "n" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// Reads an integer as C++ streams do: the prefix gives the base.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // `from_str_radix` would also accept a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { value.checked_neg()? } else { value }).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        read(text).unwrap().value
    }

    /// Every pair was seen in a running Envoy: `node.metadata` in, `/server_info` out.
    #[test]
    fn scalars_are_read_as_envoy_reads_them() {
        #[rustfmt::skip]
        let cases = [
            ("[yes, No, on, OFF, y, N, true, TRUE, True, tRue]",
             json!([true, false, true, false, true, false, true, true, true, "tRue"])),
            ("[10, 010, 0x1F, 0o17, +5, -5, 1_000, 0b11, 08, 12:30:45]",
             json!([10, 8, 31, "0o17", 5, -5, "1_000", "0b11", "08", "12:30:45"])),
            ("[2147483647, 2147483648, -2147483649, 99999999999999999999]",
             json!([2_147_483_647, "2147483648", "-2147483649", "99999999999999999999"])),
            ("[1.5, 1e3, .5, .inf, .nan, 1., 10.0]",
             json!(["1.5", "1e3", ".5", ".inf", ".nan", "1.", "10.0"])),
            ("[~, null, Null, NULL, '', \"\", nUll, !!null foo]",
             json!([null, null, null, null, "", "", "nUll", "foo"])),
            ("[\"7\", '8', !!str 9, !!int \"5\", ! 6]",
             json!(["7", "8", 9, 5, "6"])),
            ("[=, a b, \"a\\tb\", !custom x, !!binary aGk=]",
             json!(["=", "a b", "a\tb", "x", "aGk="])),
            ("a: |\n  5\nb: >-\n  6\nc:\n- -0x10\n- 0X1f\n- +0x1f\n- 0x\n- -010\n- --5\n- 0\n- -0\n- 00\nd:",
             json!({"a": "5\n", "b": "6", "c": [-16, 31, 31, "0x", -8, "--5", 0, 0, 0], "d": null})),
            ("{5: a, yes: b, ~: c, 'q': d}",
             json!({"5": "a", "yes": "b", "null": "c", "q": "d"})),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).map(|document| document.value), Ok(expected), "{text}");
        }
    }

    #[test]
    fn aliases_are_followed_and_merge_keys_are_not() {
        let text = "\
a: &a {b: 1}
c: *a
d:
  <<: *a
  e: 2
!ignore f: &f [*a]
g: *f
";
        let expected = json!({
            "a": {"b": 1}, "c": {"b": 1}, "d": {"<<": {"b": 1}, "e": 2}, "g": [{"b": 1}],
        });
        let document = read(text).unwrap();
        assert_eq!(document.value, expected);
        let surprises: Vec<_> = document.surprises.iter().map(|surprise| &*surprise.path).collect();
        assert_eq!(surprises, ["d[\"<<\"]"]);
    }

    #[test]
    fn values_that_envoy_silently_drops_are_reported() {
        let document = read("a: 1\nb:\n  c: 1\n  c: 2\n---\nd: 1\n").unwrap();
        assert_eq!(document.value, json!({"a": 1, "b": {"c": 2}}));
        let paths: Vec<_> = document.surprises.iter().map(|surprise| &*surprise.path).collect();
        assert_eq!(paths, ["b.c", ""]);
    }

    #[test]
    fn read_all_reads_every_document() {
        assert_eq!(read_all("a: 1\n").unwrap().value, json!({"a": 1}));
        let documents = read_all("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n").unwrap();
        assert_eq!(documents.value, json!([{"a": 1}, null, {"b": 2}]));
        assert_eq!(documents.lines.get("[2].b"), Some(&6));
        assert_eq!(documents.surprises, []);
    }

    #[test]
    fn lines_are_known_by_path() {
        let document = read("a:\n- b: 1\n- c:\n    d.e: x\n").unwrap();
        let line = |path: &str| document.lines.get(path).copied();
        assert_eq!(line("a"), Some(1));
        assert_eq!(line("a[0].b"), Some(2));
        assert_eq!(line("a[1].c[\"d.e\"]"), Some(4));
        assert_eq!(line("a[2]"), None);
    }

    #[test]
    fn bad_yaml_is_refused_with_its_line() {
        #[rustfmt::skip]
        let cases = [
            ("a: [1",                2),
            ("a: 1\nb: *nobody",     2),
            ("a: &a [*a]",           1),
            ("a:\n  ? [b]\n  : 1",   2),
        ];
        for (text, line) in cases {
            assert_eq!(read(text).map(|document| document.value).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let below = level - 1;
            let aliases = vec![format!("*a{below}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert_eq!(read(&text).unwrap_err().text, "too many values");
    }

    #[test]
    fn nesting_cannot_fill_the_stack() {
        assert!(read(&"[".repeat(10_000)).is_err());
        assert!(read(&format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000))).is_err());
    }

    proptest! {
        #[test]
        fn the_reader_never_panics(text in "([ -~\n]|\\PC)*") {
            let _ = read(&text);
        }
    }

    #[test]
    fn an_empty_file_is_null() {
        assert_eq!(value(""), Value::Null);
        assert_eq!(value("# nothing\n"), Value::Null);
    }
}
