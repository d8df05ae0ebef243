//! How subject tokens are minted, and which mints are refused whoever asks.

use std::time::Duration;

use super::http_uri::{HttpUri, Upstream};
use super::kinds::{Integer, Lifetime, List, OneOf, Text, Words};
use super::node::Node;
use super::rules::{MintRate, Rules, UserPattern};
use super::section::{Kind, section};
use super::verification::{Authentication, Callers, Verification};

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// How subject tokens are minted.
#[derive(Debug)]
pub struct SubjectTokens {
    /// How long a token can be exchanged.
    pub lifetime: Duration,
    /// The most bytes of a context as compact JSON.
    pub max_context_bytes: usize,
    /// How it is verified who mints: whose machine-to-machine tokens are good for it.
    pub authentication: Verification,
    /// How to ask whether a user exists; `None` to believe the caller.
    pub user_lookup: Option<UserLookup>,
    /// Which mints are refused, whoever asks.
    pub rules: Rules,
    /// What becomes of an impersonation whose subject token is presented once more.
    pub on_replay: OnReplay,
}

/// What becomes of an impersonation whose subject token is presented once more: somebody has what is not theirs, then
/// or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReplay {
    /// It ends (RFC 9700 §2.1.1, RFC 6749 §4.1.2).
    Revoke,
    /// It goes on; the alarm says so.
    Report,
}

impl Words for OnReplay {
    const WORDS: &'static [(&'static str, Self)] =
        &[("revoke", Self::Revoke), ("report", Self::Report)];
}

section! {
    /// How subject tokens are minted.
    struct SubjectTokensMembers {
        /// How long a subject token can be exchanged.
        lifetime: Lifetime = "600s",
        /// The most bytes that a context may have as compact JSON.
        max_context_bytes: Integer<2, 65_536> = 4096,
        /// Who may mint. A JWT of an issuer in the list is verified as such, every other token is
        /// introspected ([which is which](#presented-tokens)).
        authentication: Authentication<Callers>,
        /// How the gateway is asked whether the user exists.
        user_lookup: UserLookup => "nobody is asked",
        /// Members that the mint's `context` must have, as strings that are not empty. Names are
        /// printable ASCII without quotes and backslashes.
        required_context: List<ContextMember> = [],
        /// Who must not be impersonated: a user, or with `*` at its end all whose names begin so. Letter
        /// case counts. Compared with `userId`, and with what `user_id_member` finds.
        protected_users: List<ProtectedUser> = [],
        /// How often one caller may mint, so that none fills the store for all ([how it is
        /// counted](who-may-impersonate-whom.md#how-mints-are-counted)).
        max_mints_per_caller: MintRate => "no limit",
        /// What becomes of an impersonation whose subject token is presented once more: it ends, or it
        /// goes on. The alarm `subject_token.replayed` is raised either way, and says which.
        on_replay: OneOf<OnReplay> = "revoke",
    }
}

section! {
    /// How the gateway is asked about a user.
    #[derive(Debug)]
    pub struct UserLookup {
        /// Where the gateway is asked by `GET` whether the user exists, with the caller's own
        /// `Authorization`. The path holds `{userId}`, once. 404 is `user_not_found`, 401 and 403 are
        /// `insufficient_scope`.
        pub http_uri: Upstream<true> as HttpUri,
        /// The member of the answer that is the user's canonical identifier: it becomes `sub`, and rules
        /// and bounds hold for it, too. The answer must be 200 with a JSON object in which it is a
        /// string as `userId` may be; else the mint is answered with 503. Give it where the gateway
        /// finds one user by several names (`USER-42`, an e-mail address).
        pub user_id_member: Text as Option<String> => "the user is called as in `userId`",
    }
}

/// A member of the context, by its name. A refusal names it, in an `error_description`.
struct ContextMember;

impl Kind for ContextMember {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let told = |byte: u8| matches!(byte, 0x20..=0x7e) && !b"\"\\".contains(&byte);
        match node.clone().non_empty_string()? {
            name if name.bytes().all(told) => Some(name),
            _ => node.problem("expected printable ASCII without quotes and backslashes"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let pattern = r"^[ !#-\[\]-~]+$";
        Described::plain("string", json!({"type": "string", "minLength": 1, "pattern": pattern}))
    }
}

/// A user, or the beginning of a name.
struct ProtectedUser;

impl Kind for ProtectedUser {
    type Value = UserPattern;

    fn read(node: Node<'_>) -> Option<UserPattern> {
        match UserPattern::parse(node.clone().string()?) {
            Some(pattern) => Some(pattern),
            None => node.problem("expected a user, or the beginning of a name and * at the end"),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("string", json!({"type": "string", "pattern": r"^[^*]+\*?$"}))
    }
}

impl Kind for SubjectTokens {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let members = SubjectTokensMembers::read(node)?;
        Some(Self {
            lifetime: members.lifetime,
            max_context_bytes: usize::try_from(members.max_context_bytes).ok()?,
            authentication: members.authentication,
            user_lookup: members.user_lookup,
            rules: Rules {
                required_context: members.required_context,
                protected_users: members.protected_users,
                max_mints_per_caller: members.max_mints_per_caller,
            },
            on_replay: members.on_replay,
        })
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        SubjectTokensMembers::describe(descriptions).under(
            descriptions,
            "subject_tokens",
            "subject tokens",
        )
    }
}
