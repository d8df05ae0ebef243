//! The clients that may exchange subject tokens.

use std::collections::HashMap;
use std::rc::Rc;

use super::binding::TokenBinding;
use super::kinds::{Boolean, ListOf, OneOf, OneOrMore, Text, Words};
use super::node::Node;
use super::resources::Resource;
use super::section::{Kind, Raw, Refined, section};
use super::verification::{Jwks, LocalJwks, RemoteJwks, jwks};
use crate::secret::Digest;

#[cfg(test)]
use serde_json::{Value, json};

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
    /// A JWT in the form, which the client signs with its private key (RFC 7523).
    PrivateKeyJwt,
    /// A TLS certificate that the client has registered (RFC 8705 §2.2).
    SelfSignedTlsClientAuth,
    /// A TLS certificate that an authority vouches for (RFC 8705 §2.1).
    TlsClientAuth,
}

impl ClientAuthentication {
    /// Returns the method's registered name (RFC 7591 §4.2.2).
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::None => "none",
            Self::PrivateKeyJwt => "private_key_jwt",
            Self::SelfSignedTlsClientAuth => "self_signed_tls_client_auth",
            Self::TlsClientAuth => "tls_client_auth",
        }
    }
}

impl Words for ClientAuthentication {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("client_secret_basic", Self::ClientSecretBasic),
        ("client_secret_post", Self::ClientSecretPost),
        ("private_key_jwt", Self::PrivateKeyJwt),
        ("self_signed_tls_client_auth", Self::SelfSignedTlsClientAuth),
        ("tls_client_auth", Self::TlsClientAuth),
    ];
}

impl ClientAuthentication {
    /// Returns true if the client sends a secret.
    const fn needs_secret(self) -> bool {
        matches!(self, Self::ClientSecretBasic | Self::ClientSecretPost)
    }

    /// Returns true if the client's keys must be known.
    const fn needs_keys(self) -> bool {
        matches!(self, Self::PrivateKeyJwt | Self::SelfSignedTlsClientAuth)
    }

    /// Returns true if the client authenticates by its TLS certificate.
    const fn needs_certificate(self) -> bool {
        matches!(self, Self::TlsClientAuth | Self::SelfSignedTlsClientAuth)
    }
}

/// The name in the certificate of a client (RFC 8705 §2.1.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// A DNS name among the alternative names of the subject.
    Dns(String),
    /// A URI among the alternative names of the subject.
    Uri(String),
    /// The whole subject.
    Subject(String),
}

section! {
    /// The name in a client's certificate. An authority that the listener trusts must vouch for it:
    /// `tls_client_auth` needs a listener with a `validation_context`, and without
    /// `ACCEPT_UNTRUSTED`.
    pub(super) struct CertificateNameMembers {
        /// A DNS name among the subject's alternative names. Envoy reports the first one only.
        san_dns: Text => "one of the three",
        /// A URI among the subject's alternative names. Envoy reports the first one only.
        san_uri: Text => "one of the three",
        /// The whole subject, as Envoy writes it (RFC 2253), such as `CN=portal,O=Example`.
        subject: Text => "one of the three",
    }
    exactly_one [san_dns, san_uri, subject]
}

impl Refined for CertificateName {
    type From = CertificateNameMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, _: Node<'_>) -> Option<Self> {
        let CertificateNameMembers { san_dns, san_uri, subject } = raw;
        let name = san_dns.map(Self::Dns).or(san_uri.map(Self::Uri));
        name.or(subject.map(Self::Subject))
    }
}

/// A client that may exchange subject tokens, or introspect the tokens that were issued for them.
#[derive(Debug)]
pub struct Client {
    /// The client's name.
    pub client_id: String,
    /// The kind of application. It decides if the client has secrets.
    pub r#type: ClientType,
    /// The methods with which the client may authenticate, at least one. Each request uses one.
    pub authentication: Vec<ClientAuthentication>,
    /// The SHA-256 of each valid secret; several during rotation.
    pub secret_digests: Vec<Digest>,
    /// The keys with which the client signs assertions, or its certificates.
    pub keys: Option<Jwks>,
    /// The name in the client's certificate.
    pub certificate_name: Option<CertificateName>,
    /// The kind of key that its access tokens must be bound to; `None` if they need not be bound.
    pub token_binding: Option<TokenBinding>,
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

    /// Returns true if the client may authenticate by this method.
    pub fn authenticates_by(&self, method: ClientAuthentication) -> bool {
        self.authentication.contains(&method)
    }

    /// Returns true if the client may authenticate by a secret.
    pub(super) fn has_secrets(&self) -> bool {
        self.authentication.iter().any(|method| method.needs_secret())
    }

    /// Returns true if the client may authenticate by its TLS certificate.
    pub fn connects_by_certificate(&self) -> bool {
        self.authentication.iter().any(|method| method.needs_certificate())
    }

    /// Returns true if there is a resource that the client may ask for. A client without one can
    /// only introspect.
    pub fn may_exchange(&self) -> bool {
        self.resources.as_ref().is_none_or(|resources| !resources.is_empty())
    }
}

section! {
    /// A client that may exchange subject tokens.
    pub(super) struct ClientMembers {
        /// The client's name.
        client_id: Text,
        /// The kind of application. The first two are confidential, and authenticate. The others
        /// are public, and send `client_id` in the form.
        r#type: OneOf<ClientType>,
        /// How a confidential client authenticates, by one method for each request: a secret in the
        /// `Authorization` header or in the form, a JWT signed with its
        /// [key](binding.md#client-authentication-by-keys), or a certificate.
        authentication: OneOrMore<ClientAuthentication> => "`client_secret_basic` of a confidential client",
        /// The SHA-256 of each valid secret, in hexadecimal; several during rotation.
        /// `impersonation-filter hash-secret` prints it.
        client_secret_sha256: ListOf<SecretDigest> => "none",
        /// The client's key set, fetched from an address, for `private_key_jwt` and
        /// `self_signed_tls_client_auth`.
        remote_jwks: RemoteJwks => "one of the two, for these methods",
        /// The client's key set, `{"keys": [...]}`.
        local_jwks: LocalJwks => "one of the two, for these methods",
        /// The name in the client's certificate, for `tls_client_auth`.
        tls_client_auth: CertificateName => "required for this method",
        /// The key that the client's access tokens must be [bound to](binding.md). `dpop`: the key
        /// of a proof (RFC 9449). `mtls`: the certificate of the connection (RFC 8705). `any`:
        /// either.
        token_binding: OneOf<TokenBinding> => "no binding is needed",
        /// Indicators of the resources that the client may ask for. With an empty list it can only
        /// [introspect](endpoints.md#introspection).
        resources: ListOf<Text> => "all",
        /// Refuse the client's exchanges without an actor token. The filter warns if another client
        /// of the same resources needs none: that one can exchange the same subject tokens.
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

impl Refined for Client {
    type From = ClientMembers;
    type Value = Self;

    fn refine(members: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let is_confidential = members.r#type.is_confidential();
        if !is_confidential && members.authentication.is_some() {
            return place.problem(
                "a public client (single_page, native) does not authenticate: leave authentication out",
            );
        }
        let authentication = members.authentication.unwrap_or_else(|| {
            vec![match is_confidential {
                true => ClientAuthentication::ClientSecretBasic,
                false => ClientAuthentication::None,
            }]
        });
        let names: Vec<_> = authentication.iter().map(|method| method.name()).collect();
        let methods = names.join(" and ");
        let needs =
            |what: fn(ClientAuthentication) -> bool| authentication.iter().copied().any(what);
        let needs_secret = needs(ClientAuthentication::needs_secret);
        let needs_keys = needs(ClientAuthentication::needs_keys);
        let is_named = authentication.contains(&ClientAuthentication::TlsClientAuth);
        let is_registered = authentication.contains(&ClientAuthentication::SelfSignedTlsClientAuth);
        let has_secrets = members.client_secret_sha256.is_some();
        let has_keys = members.remote_jwks.is_some() || members.local_jwks.is_some();
        let client = Self {
            client_id: members.client_id,
            r#type: members.r#type,
            authentication,
            secret_digests: members.client_secret_sha256.unwrap_or_default(),
            keys: match has_keys {
                true => Some(jwks(place.clone(), members.remote_jwks, members.local_jwks)?),
                false => None,
            },
            certificate_name: members.tls_client_auth,
            token_binding: members.token_binding,
            resources: members.resources,
            actor_token_required: members.actor_token_required,
        };
        if needs_secret && client.secret_digests.is_empty() {
            return place.problem(
                "a confidential client needs client_secret_sha256 \
                 (see `impersonation-filter hash-secret`)",
            );
        }
        if !is_confidential && has_secrets {
            return place.problem(
                "a public client (single_page, native) cannot keep a secret: \
                 leave client_secret_sha256 out",
            );
        }
        if !needs_secret && has_secrets {
            return place.problem(format!(
                "a client with {methods} has no secret: leave client_secret_sha256 out"
            ));
        }
        if needs_keys != has_keys {
            return place.problem(match has_keys {
                true => format!("a client with {methods} has no keys: leave its key set out"),
                false => format!("a client with {methods} needs remote_jwks or local_jwks"),
            });
        }
        if is_registered
            && let Some(Jwks::Local(keys)) = &client.keys
            && keys.certificates().is_empty()
        {
            return place.member("local_jwks").problem("expected a key with x5c or x5t#S256");
        }
        if is_named != client.certificate_name.is_some() {
            return place.member("tls_client_auth").problem(match is_named {
                true => "is required: it names the client's certificate",
                false => "is only for the authentication tls_client_auth",
            });
        }
        Some(client)
    }

    #[cfg(test)]
    fn refine_description(described: Described, descriptions: &mut Descriptions) -> Described {
        // An absent `authentication` is `client_secret_basic`.
        let uses = |methods: &[&str]| {
            json!({"properties": {"authentication": {"anyOf": [
                {"enum": methods}, {"type": "array", "contains": {"enum": methods}},
            ]}}})
        };
        let given_and = |rule: Value| json!({"required": ["authentication"], "allOf": [rule]});
        described
            .with_rule(json!({
                "if": {"properties": {"type": {"enum": ["traditional_web", "machine_to_machine"]}}},
                "then": {"allOf": [
                    {
                        "if": uses(&["client_secret_basic", "client_secret_post"]),
                        "then": {
                            "required": ["client_secret_sha256"],
                            "properties": {"client_secret_sha256": {"minItems": 1}},
                        },
                        "else": {"properties": {"client_secret_sha256": false}},
                    },
                    {
                        "if": given_and(uses(&["tls_client_auth"])),
                        "then": {"required": ["tls_client_auth"]},
                        "else": {"properties": {"tls_client_auth": false}},
                    },
                    {
                        "if": given_and(uses(&["private_key_jwt", "self_signed_tls_client_auth"])),
                        "then": {
                            "oneOf": [{"required": ["remote_jwks"]}, {"required": ["local_jwks"]}],
                        },
                        "else": {"properties": {"remote_jwks": false, "local_jwks": false}},
                    },
                ]},
                "else": {"properties": {
                    "client_secret_sha256": false, "authentication": false,
                    "remote_jwks": false, "local_jwks": false, "tls_client_auth": false,
                }},
            }))
            .under(descriptions, "clients", "clients")
    }
}

/// All clients, each name once.
pub(super) struct ClientList;

impl Refined for ClientList {
    type From = ListOf<Client>;
    type Value = Vec<Rc<Client>>;

    fn refine(clients: Raw<Self>, list: Node<'_>) -> Option<Self::Value> {
        for (index, client) in clients.iter().enumerate() {
            let client_id = &client.client_id;
            if clients.iter().take(index).any(|earlier| earlier.client_id == *client_id) {
                let problem = format!("{client_id:?} is given twice");
                return list.item(index).member("client_id").problem(problem);
            }
        }
        Some(clients.into_iter().map(Rc::new).collect())
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
