//! How subject tokens are minted, and the rules that refuse a mint of any caller.

use std::time::Duration;

use super::http_uri::{HttpUri, UpstreamUri};
use super::kinds::{Integer, Lifetime, ListOf, NonEmpty, OneOf, Text, Words};
use super::node::Node;
use super::rules::{MintRate, Rules, UserPattern};
use super::section::{Kind, Raw, Refined, section};
use super::verification::{Authentication, Callers, Verification};
use crate::oauth::{ACCESS_TOKEN_TYPE, uri};

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
    /// How callers are verified: their access tokens (machine-to-machine) authorize the mint.
    pub authentication: Verification,
    /// How the filter asks if a user exists; `None` to believe the caller.
    pub user_lookup: Option<UserLookup>,
    /// The rules that refuse a mint of any caller.
    pub rules: Rules,
    /// The outcome for an impersonation whose subject token is presented again.
    pub on_replay: OnReplay,
    /// The values that `subject_token_type` may have at the exchange.
    pub token_types: Vec<String>,
}

/// The outcome for an impersonation whose subject token is presented again. A second presentation
/// means that one of the two presenters should not have the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReplay {
    /// The impersonation ends (RFC 9700 §2.1.1, RFC 6749 §4.1.2).
    Revoke,
    /// The impersonation goes on. The alarm is raised all the same.
    Report,
}

impl Words for OnReplay {
    const WORDS: &'static [(&'static str, Self)] =
        &[("revoke", Self::Revoke), ("report", Self::Report)];
}

section! {
    /// How subject tokens are minted.
    pub(super) struct SubjectTokensMembers under "subject_tokens", "subject tokens" {
        /// How long a subject token can be exchanged.
        lifetime: Lifetime = "600s",
        /// The most bytes that a context may have as compact JSON.
        max_context_bytes: Integer<2, 65_536> = 4096,
        /// How callers that mint are verified ([which method](verifying-tokens.md)).
        authentication: Authentication<Callers>,
        /// How the filter asks the identity provider if the user exists.
        user_lookup: UserLookup => "nobody is asked",
        /// Members that the `context` must have, as non-empty strings. Their names are printable
        /// ASCII without quotes and backslashes.
        required_context: ListOf<ContextMember> = [],
        /// Users who must not be impersonated: names, or beginnings of names with `*` at the end.
        /// Letter case counts. Both `userId` and the canonical identifier are compared.
        protected_users: ListOf<ProtectedUser> = [],
        /// How often one caller may mint ([how mints are
        /// counted](who-may-impersonate-whom.md#how-mints-are-counted)).
        max_mints_per_caller: MintRate => "no limit",
        /// The outcome for an impersonation whose subject token is presented again: `revoke` ends
        /// it, `report` lets it go on. Both raise the alarm `subject_token.replayed`.
        on_replay: OneOf<OnReplay> = "revoke",
        /// The accepted values of `subject_token_type`. Add one that your clients send already,
        /// such as `urn:logto:token-type:impersonation_token`.
        token_types: NonEmpty<TokenType> => "`urn:ietf:params:oauth:token-type:access_token`",
    }
}

section! {
    /// How the filter asks the gateway about a user.
    #[derive(Debug)]
    pub struct UserLookup {
        /// The address that the filter requests with `GET` and the caller's own `Authorization`.
        /// The path holds `{userId}`, once. A 404 becomes `user_not_found`; 401 and 403 become
        /// `insufficient_scope`.
        pub http_uri: UpstreamUri<true> as HttpUri,
        /// The member of the answer with the user's canonical identifier, which becomes `sub` and
        /// is checked against rules and bounds. Without a valid one the mint gets 503. Use it if
        /// the provider finds one user by several names.
        pub user_id_member: Text as Option<String> => "the user is called as in `userId`",
    }
}

/// The name of a member of the context. A refusal repeats the name in its `error_description`.
pub(super) struct ContextMember;

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

/// A type of token (RFC 8693 §3). A refusal repeats it in its `error_description`.
pub(super) struct TokenType;

impl Kind for TokenType {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if uri::is_absolute(text) {
            return Some(text.to_owned());
        }
        node.problem("expected an absolute URI such as urn:ietf:params:oauth:token-type:jwt")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:[^#]+$"});
        Described::plain("URI", schema)
    }
}

/// A user's name, or the beginning of one.
pub(super) struct ProtectedUser;

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

impl Refined for SubjectTokens {
    type From = SubjectTokensMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, _: Node<'_>) -> Option<Self> {
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
            token_types: members.token_types.unwrap_or_else(|| vec![ACCESS_TOKEN_TYPE.to_owned()]),
        })
    }
}
