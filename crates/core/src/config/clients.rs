//! The clients that may exchange subject tokens.

use std::collections::HashMap;
use std::rc::Rc;

use super::kinds::{Boolean, List, OneOf, Text, Words};
use super::node::Node;
use super::resources::Resource;
use super::section::{Kind, section};
use crate::secret::Digest;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The kind of application that a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientType {
    /// Confidential: runs on a server.
    TraditionalWeb,
    /// Confidential: runs without a user.
    MachineToMachine,
    /// Public: runs in a browser.
    SinglePage,
    /// Public: runs on a device.
    Native,
}

impl Words for ClientType {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("traditional_web", Self::TraditionalWeb),
        ("machine_to_machine", Self::MachineToMachine),
        ("single_page", Self::SinglePage),
        ("native", Self::Native),
    ];
}

impl ClientType {
    /// Returns true if a client of this type can keep a secret (RFC 6749 §2.1).
    pub const fn is_confidential(self) -> bool {
        matches!(self, Self::TraditionalWeb | Self::MachineToMachine)
    }
}

/// How a client authenticates (RFC 6749 §2.3). The variants are ordered as their names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientAuthentication {
    /// A secret in the `Authorization` header.
    ClientSecretBasic,
    /// A secret in the form.
    ClientSecretPost,
    /// A public client does not authenticate.
    None,
}

impl ClientAuthentication {
    /// Returns the method's registered name (RFC 7591 §4.2.2).
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::None => "none",
        }
    }
}

impl Words for ClientAuthentication {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("client_secret_basic", Self::ClientSecretBasic),
        ("client_secret_post", Self::ClientSecretPost),
    ];
}

/// A client that may exchange subject tokens, or introspect the tokens that were issued for them.
#[derive(Debug)]
pub struct Client {
    /// The client's name.
    pub client_id: String,
    /// The kind of application. It decides if the client has secrets.
    pub r#type: ClientType,
    /// The only method with which the client authenticates.
    pub authentication: ClientAuthentication,
    /// The SHA-256 of each valid secret; several during rotation.
    pub secret_digests: Vec<Digest>,
    /// The resources that the client may ask for; `None` for all.
    pub resources: Option<Vec<String>>,
    /// If true, its exchanges without an actor token are refused.
    pub actor_token_required: bool,
}

impl Client {
    /// Returns true if the client can keep a secret (RFC 6749 §2.1).
    pub const fn is_confidential(&self) -> bool {
        self.r#type.is_confidential()
    }

    /// Returns true if there is a resource that the client may ask for. A client without one can
    /// only introspect.
    pub fn may_exchange(&self) -> bool {
        self.resources.as_ref().is_none_or(|resources| !resources.is_empty())
    }
}

section! {
    /// A client that may exchange subject tokens.
    struct ClientMembers {
        /// The client's name.
        client_id: Text,
        /// The kind of application. The first two are confidential: they authenticate with a
        /// secret. The others are public: they send `client_id` in the form.
        r#type: OneOf<ClientType>,
        /// Where a confidential client sends its secret: `client_secret_basic` is the
        /// `Authorization` header, `client_secret_post` is the form. The filter refuses the other
        /// one.
        authentication: OneOf<ClientAuthentication> => "`client_secret_basic` of a confidential client",
        /// The SHA-256 of each valid secret, in hexadecimal; several during rotation.
        /// `impersonation-filter hash-secret` prints it. Confidential clients need it, public
        /// clients must not have it.
        client_secret_sha256: List<SecretDigest> => "none",
        /// Indicators of the resources that the client may ask for. A client with an empty list can
        /// only [introspect](endpoints.md#introspection).
        resources: List<Text> => "all",
        /// Refuse the client's exchanges without an actor token. The filter warns if another client
        /// that may ask for the same resources needs no actor token: it can exchange the same
        /// subject tokens, so the requirement has no effect.
        actor_token_required: Boolean = false,
    }
}

/// The digest of a client's secret.
pub(super) struct SecretDigest;

impl Kind for SecretDigest {
    type Value = Digest;

    fn read(node: Node<'_>) -> Option<Digest> {
        match Digest::from_hex(node.clone().string()?) {
            Some(digest) => Some(digest),
            None => node.problem(
                "expected a SHA-256 in 64 hex digits (see `impersonation-filter hash-secret`)",
            ),
        }
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"});
        Described::plain("string of 64 hex digits", schema)
    }
}

impl Kind for Client {
    type Value = Self;

    fn read(node: Node<'_>) -> Option<Self> {
        let place = node.clone();
        let members = ClientMembers::read(node)?;
        let is_confidential = members.r#type.is_confidential();
        if !is_confidential && members.authentication.is_some() {
            return place.problem(
                "a public client (single_page, native) does not authenticate: leave authentication out",
            );
        }
        let authentication = match members.authentication {
            Some(given) => given,
            None if is_confidential => ClientAuthentication::ClientSecretBasic,
            None => ClientAuthentication::None,
        };
        let has_secrets = members.client_secret_sha256.is_some();
        let client = Self {
            client_id: members.client_id,
            r#type: members.r#type,
            authentication,
            secret_digests: members.client_secret_sha256.unwrap_or_default(),
            resources: members.resources,
            actor_token_required: members.actor_token_required,
        };
        if client.is_confidential() && client.secret_digests.is_empty() {
            return place.problem(
                "a confidential client needs client_secret_sha256 \
                 (see `impersonation-filter hash-secret`)",
            );
        }
        if !client.is_confidential() && has_secrets {
            return place.problem(
                "a public client (single_page, native) cannot keep a secret: \
                 leave client_secret_sha256 out",
            );
        }
        Some(client)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        ClientMembers::describe(descriptions)
            .with_rule(json!({
                "if": {"properties": {"type": {"enum": ["traditional_web", "machine_to_machine"]}}},
                "then": {
                    "required": ["client_secret_sha256"],
                    "properties": {"client_secret_sha256": {"minItems": 1}},
                },
                "else": {"properties": {"client_secret_sha256": false, "authentication": false}},
            }))
            .under(descriptions, "clients", "clients")
    }
}

/// All clients, each name once.
pub(super) struct Clients;

impl Kind for Clients {
    type Value = Vec<Rc<Client>>;

    fn read(node: Node<'_>) -> Option<Self::Value> {
        let list = node.clone();
        let clients = List::<Client>::read(node)?;
        for (index, client) in clients.iter().enumerate() {
            let client_id = &client.client_id;
            if clients.iter().take(index).any(|earlier| earlier.client_id == *client_id) {
                let problem = format!("{client_id:?} is given twice");
                return list.item(index).member("client_id").problem(problem);
            }
        }
        Some(clients.into_iter().map(Rc::new).collect())
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        List::<Client>::describe(descriptions)
    }
}

/// Reports each client's resource that is not among the configured resources.
pub(super) fn check_resources(
    list: &Node<'_>,
    clients: &[Rc<Client>],
    resources: &HashMap<String, Resource>,
) {
    for (index, client) in clients.iter().enumerate() {
        let wanted = client.resources.iter().flatten().enumerate();
        for (position, _) in wanted.filter(|(_, wanted)| !resources.contains_key(*wanted)) {
            let place = list.clone().item(index).member("resources").item(position);
            let _: Option<()> = place.problem("expected the indicator of one of the resources");
        }
    }
}

/// Reports clients that need an actor token while no actor token can be verified.
pub(super) fn check_actors(list: &Node<'_>, clients: &[Rc<Client>]) {
    for (index, _) in clients.iter().enumerate().filter(|(_, client)| client.actor_token_required) {
        let place = list.clone().item(index).member("actor_token_required");
        let _: Option<()> = place.problem("no way to verify actor tokens is given in actor_tokens");
    }
}

/// Warns of clients that weaken `actor_token_required` of another client.
///
/// A subject token is not bound to one client. If one client is refused because it names no actor,
/// another client that needs no actor can exchange the same token. So the requirement holds for a
/// resource only if every client that may ask for the resource has it.
pub(super) fn warn_of_weaker_clients(list: &Node<'_>, clients: &[Rc<Client>]) {
    let share_a_resource = |one: &Client, other: &Client| match (&one.resources, &other.resources) {
        (Some(one), Some(other)) => one.iter().any(|resource| other.contains(resource)),
        (Some(some), None) | (None, Some(some)) => !some.is_empty(),
        (None, None) => true,
    };
    for (index, client) in clients.iter().enumerate() {
        let stricter = clients
            .iter()
            .find(|other| other.actor_token_required && share_a_resource(client, other))
            .filter(|_| !client.actor_token_required);
        if let Some(stricter) = stricter {
            list.clone().item(index).warn(format!(
                "needs no actor token for resources for which {:?} needs one: \
                 set actor_token_required here too, or actor_tokens.required",
                stricter.client_id
            ));
        }
    }
}
