//! The resources that access tokens can be issued for.

use std::collections::HashMap;
use std::time::Duration;

use super::binding::TokenBinding;
use super::kinds::{DAY, Lifetime, ListOf, NonEmpty, OneOf, SECOND, ScopeToken, Span, Text};
use super::node::Node;
use super::section::{Kind, Raw, Refined, section};
use super::verification::SignInRules;
use crate::jose::AccessTokenType;
use crate::oauth::uri;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A resource that access tokens are issued for.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The scopes that can be granted.
    pub scopes: Vec<String>,
    /// The lifetime of its access tokens; `None` for the default of all resources.
    pub access_token_lifetime: Option<Duration>,
    /// `typ` of its access tokens; `None` for the default of all resources.
    pub access_token_type: Option<AccessTokenType>,
    /// How an actor must have signed in, in addition to the rules for all resources.
    pub actor_sign_in: SignInRules,
    /// The kind of key that its access tokens must be bound to; `None` if they need not be bound.
    pub token_binding: Option<TokenBinding>,
}

section! {
    /// A resource that access tokens may be for.
    pub(super) struct ResourceMembers under "resources", "resources" {
        /// The value of `resource` in a client's request, compared exactly, and `aud` of the access
        /// token. An absolute URI without a fragment (RFC 8707).
        indicator: Indicator,
        /// The scopes that can be granted. A resource without scopes grants the empty scope.
        scopes: ListOf<ScopeToken> = [],
        /// How long access tokens for this resource are good for.
        access_token_lifetime: Lifetime => "`access_tokens.lifetime`",
        /// `typ` of access tokens for this resource.
        access_token_typ: OneOf<AccessTokenType> => "`access_tokens.typ`",
        /// The accepted `acr` of actors at this resource, in addition to `actor_tokens.acr_values`.
        /// An exchange for this resource then needs an actor token.
        actor_acr_values: NonEmpty<Text> => "any",
        /// How long ago an actor at this resource may have signed in, in addition to
        /// `actor_tokens.max_age`. An exchange for this resource then needs an actor token.
        actor_max_age: Span<SECOND, { 365 * DAY }> => "any time ago",
        /// The key that access tokens for this resource must be bound to, as in
        /// `clients[].token_binding`.
        token_binding: OneOf<TokenBinding> => "no binding is needed",
    }
}

/// The indicator of a resource (RFC 8707 §2).
pub(super) struct Indicator;

impl Kind for Indicator {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if uri::is_absolute(text) {
            return Some(text.to_owned());
        }
        node.problem("expected an absolute URI without a fragment (RFC 8707)")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain(
            "URI",
            json!({"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:[^#]+$"}),
        )
    }
}

/// All resources, by their indicators.
pub(super) struct Resources;

impl Refined for Resources {
    type From = ListOf<ResourceMembers>;
    type Value = HashMap<String, Resource>;

    fn refine(all: Raw<Self>, list: Node<'_>) -> Option<Self::Value> {
        let mut resources = HashMap::new();
        for (index, members) in all.into_iter().enumerate() {
            let ResourceMembers { indicator, scopes, access_token_lifetime, token_binding, .. } =
                members;
            let actor_sign_in = SignInRules {
                acr_values: members.actor_acr_values,
                max_age: members.actor_max_age,
            };
            if resources.contains_key(&indicator) {
                let problem = format!("{indicator:?} is given twice");
                return list.item(index).member("indicator").problem(problem);
            }
            let resource = Resource {
                scopes,
                access_token_lifetime,
                access_token_type: members.access_token_typ,
                actor_sign_in,
                token_binding,
            };
            resources.insert(indicator, resource);
        }
        Some(resources)
    }
}
