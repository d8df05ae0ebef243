//! `impersonation-filter check` reads a file by a table of Envoy's messages. The table is that of
//! the newest supported Envoy: its binary has the descriptors of all its messages inside.
//! `UPDATE_DOCS=1` writes the table anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

use crate::versions::newest;
use testkit::artifacts::{ENVOY, ENVOY_VERSION};
use testkit::repository;

const TABLE: &str = "crates/cli/src/check/protobuf/envoy.txt";

/// The packages of messages in which a file can begin, or that stand in an `Any`.
const PACKAGES: [&str; 7] = [
    "envoy.extensions.",
    "envoy.config.",
    "envoy.type.",
    "envoy.admin.v3.",
    "envoy.service.discovery.v3.",
    "udpa.type.",
    "xds.",
];

#[test]
fn check_reads_a_file_by_the_messages_of_the_newest_envoy() {
    if *ENVOY_VERSION != newest() {
        return;
    }
    let made = table(&descriptors(&fs::read(&*ENVOY).unwrap()));
    let path = repository().join(TABLE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{TABLE} differs from the messages of this Envoy: UPDATE_DOCS=1");
    let in_table: BTreeSet<_> = made.lines().filter_map(|line| line.split(' ').next()).collect();
    let named = messages_that_check_names();
    let missing: Vec<_> = named.iter().filter(|name| !in_table.contains(name.as_str())).collect();
    assert!(named.len() > 20 && missing.is_empty(), "{missing:?} of {named:?}");
}

/// The messages of Envoy that the code of `check` names.
fn messages_that_check_names() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let mut folders = vec![repository().join("crates/cli/src/check")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(path).unwrap();
                let texts = source.split('"').filter(|text| text.starts_with("envoy."));
                let is_type = |name: &&str| name.starts_with(|first: char| first.is_uppercase());
                let messages = texts.filter(|text| {
                    text.split_once(".v3.").is_some_and(|(_, name)| is_type(&name))
                        && !text.contains(char::is_whitespace)
                });
                named.extend(messages.map(str::to_owned));
            }
        }
    }
    named
}

/// Finds the descriptors in a binary. Each begins with the name of its file and ends with its
/// syntax; its fields stand in their order.
fn descriptors(binary: &[u8]) -> BTreeMap<String, FileDescriptorProto> {
    const END: &[u8] = b".proto";
    let mut found = BTreeMap::new();
    for end in memchr::memmem::find_iter(binary, END).map(|at| at + END.len()) {
        // Tag, length, name.
        let length = |start: usize| usize::from(binary[start]);
        let start = (3..128)
            .filter_map(|back| end.checked_sub(back))
            .find(|start| binary[*start] == 0x0a && *start + 2 + length(*start + 1) == end);
        let file = start.and_then(|start| one(&binary[start..]));
        if let Some(file) = file {
            found.insert(file.name().to_owned(), file);
        }
    }
    found
}

/// Reads the descriptor at the beginning of `bytes`.
fn one(bytes: &[u8]) -> Option<FileDescriptorProto> {
    const SYNTAX: u64 = 12;
    let mut rest = bytes;
    loop {
        let tag = prost::encoding::decode_varint(&mut rest).ok()?;
        match tag & 7 {
            0 => drop(prost::encoding::decode_varint(&mut rest).ok()?),
            2 => {
                let length = prost::encoding::decode_varint(&mut rest).ok()?;
                rest = rest.get(usize::try_from(length).ok()?..)?;
            }
            _ => return None,
        }
        match tag >> 3 {
            SYNTAX => break,
            1..=11 => {}
            _ => return None,
        }
    }
    FileDescriptorProto::decode(&bytes[..bytes.len() - rest.len()]).ok()
}

/// Writes one line for each message and each enum that a configuration can have.
fn table(files: &BTreeMap<String, FileDescriptorProto>) -> String {
    let mut all = All::default();
    for file in files.values() {
        for message in &file.message_type {
            all.add_message(file.package(), message);
        }
        for one in &file.enum_type {
            all.add_enum(file.package(), one);
        }
    }
    let is_wanted = |name: &&String| PACKAGES.iter().any(|package| name.starts_with(package));
    let mut wanted: Vec<_> = all.messages.keys().filter(is_wanted).cloned().collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if seen.insert(name.clone()) {
            wanted.extend(all.messages[&name].iter().filter_map(|field| field.refers_to.clone()));
        }
    }
    let mut text = format!(
        "# The messages of Envoy {} (Apache-2.0), from its binary: tests/envoy/descriptors.rs\n",
        newest()
    );
    for name in &seen {
        text.push_str(name);
        for field in &all.messages[name] {
            write!(text, " {}", field.text).unwrap();
        }
        text.push('\n');
    }
    let used: BTreeSet<_> = seen
        .iter()
        .flat_map(|name| &all.messages[name])
        .filter_map(|field| field.of_enum.as_ref())
        .collect();
    for name in used {
        write!(text, "{name}").unwrap();
        for (value, number) in &all.enums[name] {
            write!(text, " {value}={number}").unwrap();
        }
        text.push('\n');
    }
    text
}

/// All messages and enums by their full names.
#[derive(Default)]
struct All {
    messages: BTreeMap<String, Vec<Field>>,
    enums: BTreeMap<String, Vec<(String, i32)>>,
}

/// A field as the table has it: `name:kind`, before the kind `*` for a list and `%` for a map, and
/// behind it `|n` for the nth oneof.
struct Field {
    text: String,
    refers_to: Option<String>,
    of_enum: Option<String>,
}

impl All {
    fn add_enum(&mut self, around: &str, one: &EnumDescriptorProto) {
        let values = one.value.iter().map(|value| (value.name().to_owned(), value.number()));
        self.enums.insert(format!("{around}.{}", one.name()), values.collect());
    }

    fn add_message(&mut self, around: &str, message: &DescriptorProto) {
        let name = format!("{around}.{}", message.name());
        for one in &message.enum_type {
            self.add_enum(&name, one);
        }
        let is_entry = |nested: &&DescriptorProto| {
            nested.options.as_ref().is_some_and(|options| options.map_entry())
        };
        for nested in message.nested_type.iter().filter(|nested| !is_entry(nested)) {
            self.add_message(&name, nested);
        }
        let entries: BTreeMap<_, _> = message
            .nested_type
            .iter()
            .filter(is_entry)
            .map(|entry| (format!(".{name}.{}", entry.name()), &entry.field[1]))
            .collect();
        let fields = message.field.iter().map(|field| {
            // A descriptor has only an unusual JSON name.
            let is_usual = field.json_name.is_none() || !name.starts_with("envoy.");
            assert!(is_usual, "{name}: {:?}", field.json_name);
            let value = entries.get(field.type_name());
            let sign = match (value, field.label()) {
                (Some(_), _) => "%",
                (None, Label::Repeated) => "*",
                _ => "",
            };
            let kind = value.copied().unwrap_or(field);
            let (refers_to, of_enum) = match kind.r#type() {
                Type::Message => (Some(kind.type_name()[1..].to_owned()), None),
                Type::Enum => (None, Some(kind.type_name()[1..].to_owned())),
                _ => (None, None),
            };
            let oneof = match field.oneof_index {
                Some(index) if !field.proto3_optional() => format!("|{index}"),
                _ => String::new(),
            };
            let text = format!("{}:{sign}{}{oneof}", field.name(), kind_of(kind));
            Field { text, refers_to, of_enum }
        });
        let fields = fields.collect();
        self.messages.insert(name, fields);
    }
}

fn kind_of(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message => field.type_name().to_owned(),
        Type::Enum => format!("#{}", &field.type_name()[1..]),
        Type::Bool => "bool".into(),
        Type::String => "string".into(),
        Type::Bytes => "bytes".into(),
        Type::Double | Type::Float => "float".into(),
        Type::Uint32 | Type::Fixed32 | Type::Uint64 | Type::Fixed64 => "uint".into(),
        Type::Int32
        | Type::Int64
        | Type::Sint32
        | Type::Sint64
        | Type::Sfixed32
        | Type::Sfixed64 => "int".into(),
        Type::Group => panic!("a group"),
    }
}
