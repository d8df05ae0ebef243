//! Texts, secrets among them, that the operator writes inline or in an environment variable.

use super::kinds::Text;
use super::node::Node;
use super::section::{Kind, section};

#[cfg(test)]
use super::describe::{Described, Descriptions};

section! {
    /// A text, given inline or in an environment variable.
    pub(super) struct SourceMembers {
        /// The text itself.
        inline_string: Text => "one of the two",
        /// The environment variable that holds the text.
        environment_variable: Variable => "one of the two",
    }
    exactly_one [inline_string, environment_variable]
}

/// The name of an environment variable. It is read as the variable's value.
pub(super) struct Variable;

impl Kind for Variable {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let name = node.clone().non_empty_string()?;
        match node.reading.environment.variable(&name).filter(|value| !value.is_empty()) {
            Some(value) => Some(value),
            None => {
                let named = if is_no_secret(&name) {
                    format!(", and {name} is unset or empty")
                } else {
                    String::new()
                };
                node.problem(format!(
                    "expected the name of an environment variable that is set{named}; in Envoy it \
                     must be listed in vm_config.environment_variables"
                ))
            }
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        Text::describe(descriptions)
    }
}

/// Returns true if a text can only be the name of a variable. The operator may have put the secret
/// itself there by mistake, and messages must not repeat secrets.
pub fn is_no_secret(name: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    // Base32 and hexadecimal digits are no words.
    let has_words = name.contains('_') || !name.contains(|c: char| c.is_ascii_digit());
    name.len() <= 64 && name.chars().all(is_of_names) && has_words
}

/// Envoy's `DataSource`: a text, given inline or in an environment variable.
pub(super) struct Source;

impl Source {
    /// Returns the text and the member that gave it, so that the caller can report a problem there.
    pub(super) fn read_with_place(node: Node<'_>) -> Option<(Node<'_>, String)> {
        let place = node.clone();
        let SourceMembers { inline_string, environment_variable } = SourceMembers::read(node)?;
        match (inline_string, environment_variable) {
            (Some(text), _) => Some((place.member("inline_string"), text)),
            (None, text) => Some((place.member("environment_variable"), text?)),
        }
    }
}

impl Kind for Source {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        Some(Self::read_with_place(node)?.1)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        SourceMembers::describe(descriptions).under(descriptions, "source", "sources")
    }
}
