//! The page of live impersonations, and how people sign in to it.

use super::kinds::{NonEmpty, ScopeToken, Text};
use super::node::Node;
use super::resources::Indicator;
use super::section::{Raw, Refined, section};

/// How people sign in to the page of live impersonations.
#[derive(Debug)]
pub struct Console {
    /// The client as which they sign in.
    pub client_id: String,
    /// The scopes that the sign-in asks for.
    pub scopes: Vec<String>,
    /// The `resource` of the sign-in (RFC 8707), if the identity provider needs one.
    pub resource: Option<String>,
}

section! {
    /// The page where the person on call sees live impersonations, and ends them.
    pub(super) struct ConsoleMembers under "console", "page" {
        /// The public client, with PKCE, as which people sign in at the identity provider. Its
        /// redirect URI is the page's own address. `client_ids` of `impersonations.authentication`
        /// must have it.
        client_id: Text,
        /// The scopes that the sign-in asks for: `impersonations:read`, and others for what people
        /// may do. `openid` lets the page show who is signed in.
        scopes: NonEmpty<ScopeToken>,
        /// The `resource` of the sign-in (RFC 8707), if the identity gateway needs one.
        resource: Indicator => "the sign-in names no resource",
    }
}

impl Refined for Console {
    type From = ConsoleMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let ConsoleMembers { client_id, scopes, resource } = raw;
        Some(Self { client_id, scopes, resource })
    }
}
