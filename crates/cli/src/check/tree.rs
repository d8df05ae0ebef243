//! A place in a document: a value and its path.
//!
//! Envoy's files are protobuf written as JSON or YAML. Their canonical form (`protobuf`) has one
//! spelling of each field. `null` means the same as absence, and a message of any type has its type
//! in `@type`.

use serde_json::Value;

/// A value and its path in the document.
#[derive(Debug, Clone)]
pub(super) struct Place<'d> {
    pub(super) value: &'d Value,
    pub(super) path: String,
}

/// A message with its type: `google.protobuf.Any`.
pub(super) struct Message<'d> {
    /// The type without the host: `envoy.extensions.filters.http.wasm.v3.Wasm`.
    pub(super) r#type: &'d str,
    /// The fields of the message.
    pub(super) fields: Place<'d>,
}

impl<'d> Place<'d> {
    pub(super) const fn root(value: &'d Value) -> Self {
        Self { value, path: String::new() }
    }

    /// Returns a member.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.as_object()?.get(name).filter(|value| !value.is_null())?;
        Some(Self { value, path: member_path(&self.path, name) })
    }

    /// Returns a field of a field, and so on.
    pub(super) fn at(&self, names: &[&str]) -> Option<Self> {
        names.iter().try_fold(self.clone(), |place, name| place.get(name))
    }

    /// Returns the items of a list; none if the value is no list.
    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'d> {
        let path = self.path.clone();
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items
            .iter()
            .enumerate()
            .map(move |(index, value)| Self { value, path: item_path(&path, index) })
    }

    /// Returns the items of a repeated field; none if the field is absent.
    pub(super) fn list(&self, name: &str) -> Vec<Self> {
        self.get(name).map_or_else(Vec::new, |list| list.items().collect())
    }

    /// Returns the members of an object with their names; none if the value is no object.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'d str, Self)> + use<'d> {
        let path = self.path.clone();
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(name, value)| (&**name, Self { value, path: member_path(&path, name) }))
    }

    /// Returns the items of a list or the members of an object.
    pub(super) fn children(&self) -> Vec<Self> {
        self.items().chain(self.members().map(|(_, member)| member)).collect()
    }

    /// Returns a member that is not among `known`. `check` cannot judge such a member.
    pub(super) fn other_than(&self, known: &[&str]) -> Option<Self> {
        let is_known = |name: &str| name == "@type" || known.contains(&name);
        let mut others =
            self.members().filter(|(name, member)| !is_known(name) && !member.value.is_null());
        others.next().map(|(_, member)| member)
    }

    pub(super) const fn text(&self) -> Option<&'d str> {
        match self.value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Returns the text of a field.
    pub(super) fn text_of(&self, name: &str) -> Option<&'d str> {
        self.get(name)?.text()
    }

    /// Returns true if a boolean field is true.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|place| *place.value == Value::Bool(true))
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.value.as_u64()
    }

    /// Reads the value as a message; `None` without `@type`.
    pub(super) fn message(&self) -> Option<Message<'d>> {
        Some(Message { r#type: type_of(self.text_of("@type")?), fields: self.clone() })
    }
}

/// Finds all messages of a type at or below a place.
pub(super) fn messages<'d>(place: &Place<'d>, r#type: &str) -> Vec<Place<'d>> {
    let message = place.message().filter(|message| message.r#type == r#type);
    let mut found: Vec<_> = message.map(|message| message.fields).into_iter().collect();
    found.extend(place.children().iter().flat_map(|child| messages(child, r#type)));
    found
}

/// Returns the name of the message in a type URL.
pub(super) fn type_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

/// Returns the path of a member: `a.b`, or `a["b.c"]` if the name has a dot.
pub(super) fn member_path(path: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-@".contains(&byte));
    match (plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{name:?}]"),
    }
}

/// Returns the path of an item: `a[0]`.
pub(super) fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_one_place() {
        let value = json!({"a": [{"b.c": {"@type": "d"}}]});
        let item = Place::root(&value).list("a").remove(0);
        assert_eq!(item.at(&["b.c", "@type"]).unwrap().path, "a[0][\"b.c\"].@type");
    }
}
