//! Texts, secrets among them, that the operator writes inline or in an environment variable.

use super::kinds::Text;
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};

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
pub(super) struct DataSource;

/// A text, and the member that gave it: problems with the text are reported there.
pub(super) struct Sourced {
    pub(super) text: String,
    pub(super) member: &'static str,
}

impl SourceMembers {
    pub(super) fn given(self) -> Option<Sourced> {
        match self.inline_string {
            Some(text) => Some(Sourced { text, member: "inline_string" }),
            None => {
                Some(Sourced { text: self.environment_variable?, member: "environment_variable" })
            }
        }
    }
}

impl Refined for DataSource {
    type From = SourceMembers;
    type Value = Sourced;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Sourced> {
        members.given()
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        described.under(descriptions, "source", "sources")
    }
}
