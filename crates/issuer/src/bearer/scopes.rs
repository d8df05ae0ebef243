//! The scopes of an access token, in each form in which issuers write them.

use serde::Deserialize;

/// The value of `scope` or `scp`. RFC 9068 §2.2.3 and RFC 7662 §2.2 have one string. Spring
/// Authorization Server and others write a list. The two forms mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Scopes {
    /// Several scopes, with spaces between them.
    Words(String),
    /// One scope in each item.
    List(Vec<String>),
}

impl Scopes {
    /// Returns each scope.
    pub(super) fn into_list(self) -> Vec<String> {
        match self {
            Self::Words(words) => words.split(' ').map(str::to_owned).collect(),
            Self::List(list) => list,
        }
    }
}
