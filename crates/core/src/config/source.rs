//! Texts that the operator writes here or in an environment variable, secrets among them.

use super::kinds::Text;
use super::node::Node;
use super::section::{Kind, section};

#[cfg(test)]
use super::describe::{Described, Descriptions};

section! {
    /// A text, given here or in an environment variable.
    struct SourceMembers {
        /// The text itself.
        inline_string: Text => "one of the two",
        /// The environment variable that holds the text.
        environment_variable: Variable => "one of the two",
    }
    exactly_one [inline_string, environment_variable]
}

/// The name of an environment variable, of which the value is read.
pub(super) struct Variable;

impl Kind for Variable {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let name = node.clone().non_empty_string()?;
        match node.reading.surroundings.variable(&name).filter(|value| !value.is_empty()) {
            Some(value) => Some(value),
            // The name is not repeated: it may be the secret itself, put here by mistake.
            None => node.problem(
                "expected the name of an environment variable that is set; in Envoy it must be \
                 listed in vm_config.environment_variables",
            ),
        }
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        Text::describe(descriptions)
    }
}

/// Envoy's `DataSource`: the text, wherever it is given.
pub(super) struct Source;

impl Source {
    /// The text, and the place where it is given, to note a problem there.
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
