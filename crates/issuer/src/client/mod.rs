//! Client authentication at the token endpoint, and where tokens are revoked and introspected (RFC
//! 6749 §2.3).
//!
//! Only this module can create an [`AuthenticatedClient`], so no later step runs for a client that
//! was not authenticated. A client has one or several methods, and a request uses one. An unknown
//! client, a wrong secret, a bad assertion and another certificate get the same answer: a stranger
//! learns neither which clients exist nor how near a guess was.

mod assertion;
mod certificate;
mod error;
mod secret;

use std::rc::Rc;

pub(crate) use assertion::Assertions;
pub(crate) use error::ClientAuthError;

use self::assertion::Given;
use crate::certificate::ClientCertificate;
use crate::config::{Client, ClientAuthentication, Jwks};
use crate::oauth::form::Form;
use crate::statement::StatementError;
use crate::step::Context;
use crate::upstream::{KeySource, RemoteKeySet};

/// A client that was authenticated: by its credentials if it is confidential, by its name if it is
/// public.
#[derive(Debug, Clone)]
pub(crate) struct AuthenticatedClient(Rc<Client>);

impl std::ops::Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

/// The clients and the keys by which they are known.
pub(crate) struct Clients {
    assertions: Option<Assertions>,
    /// The certificates that clients have registered.
    certificates: Vec<(Rc<Client>, KeySource)>,
}

/// The credentials of a request.
#[derive(Clone, Copy)]
pub(crate) struct Credentials<'r, 'f> {
    /// The form.
    pub(crate) form: &'r Form<'f>,
    /// The header `Authorization`, as it arrived.
    pub(crate) authorization: Option<&'r [u8]>,
    /// The client's certificate.
    pub(crate) certificate: Option<&'r ClientCertificate>,
}

impl Clients {
    /// Knows `clients` by the keys and certificates that they are configured with. `assertions`
    /// makes the profile of assertions from the clients that use them.
    pub(crate) fn new<'c>(
        clients: impl Iterator<Item = &'c Rc<Client>>,
        assertions: impl FnOnce(Vec<(Rc<Client>, Jwks)>) -> Assertions,
    ) -> Self {
        let with_keys: Vec<_> =
            clients.filter_map(|client| Some((Rc::clone(client), client.keys.clone()?))).collect();
        let known_for = |method| {
            let uses = with_keys.iter().filter(move |(client, _)| client.authenticates_by(method));
            uses.cloned().collect::<Vec<_>>()
        };
        let signing = known_for(ClientAuthentication::PrivateKeyJwt);
        let connecting = known_for(ClientAuthentication::SelfSignedTlsClientAuth);
        let source = |(client, keys): (Rc<Client>, Jwks)| (client, KeySource::new(&keys));
        Self {
            assertions: (!signing.is_empty()).then(|| assertions(signing)),
            certificates: connecting.into_iter().map(source).collect(),
        }
    }

    /// The key sets that the background task keeps fresh.
    pub(crate) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        let of_certificates = self.certificates.iter().filter_map(|(_, keys)| keys.remote());
        self.assertions.iter().flat_map(Assertions::remote_key_sets).chain(of_certificates)
    }

    /// Authenticates the client of a request. `find` looks up a client.
    pub(crate) async fn authenticate(
        &self,
        context: &Context,
        credentials: Credentials<'_, '_>,
        find: impl Fn(&str) -> Option<Rc<Client>>,
    ) -> Result<AuthenticatedClient, ClientAuthError> {
        let Credentials { form, authorization, certificate } = credentials;
        let named = form.get("client_id");
        let secret = form.get("client_secret");
        let given = Given {
            assertion_type: form.get("client_assertion_type"),
            assertion: form.get("client_assertion"),
        };
        let methods = [authorization.is_some(), secret.is_some(), !given.is_empty()];
        if methods.into_iter().filter(|is_used| *is_used).count() > 1 {
            return Err(ClientAuthError::TwoMethods);
        }
        let client = match (authorization, secret, given.is_empty()) {
            (Some(header), ..) => secret::by_basic(header, named, find)?,
            (None, Some(secret), _) => {
                secret::by_post(named.ok_or(ClientAuthError::NoClientId)?, secret, find)?
            }
            (None, None, false) => {
                let assertions = self.assertions.as_ref().ok_or(ClientAuthError::Failed)?;
                assertions.authenticate(context, given, named).await?
            }
            (None, None, true) => {
                let client = find(named.ok_or(ClientAuthError::NoClientId)?);
                let client = client.ok_or(ClientAuthError::Failed)?;
                self.look_at_certificate(context, &client, certificate).await?;
                client
            }
        };
        Ok(AuthenticatedClient(client))
    }

    /// Checks the certificate of a client that sends no other credentials. A public client needs
    /// none.
    async fn look_at_certificate(
        &self,
        context: &Context,
        client: &Rc<Client>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<(), ClientAuthError> {
        if client.authenticates_by(ClientAuthentication::None) {
            return Ok(());
        }
        if !client.connects_by_certificate() {
            return Err(ClientAuthError::CredentialsMissing);
        }
        let certificate = certificate.ok_or(ClientAuthError::Certificate)?;
        // Only a client with `tls_client_auth` has a name.
        let name = client.certificate_name.as_ref();
        if name.is_some_and(|name| certificate::has_name(certificate, name)) {
            return Ok(());
        }
        if self.is_registered(context, client, certificate).await? {
            return Ok(());
        }
        Err(ClientAuthError::Certificate)
    }

    /// Returns true if a certificate is in the client's key set. If it is not, fetches the key set
    /// again, if that is allowed at this time.
    async fn is_registered(
        &self,
        context: &Context,
        client: &Rc<Client>,
        certificate: &ClientCertificate,
    ) -> Result<bool, ClientAuthError> {
        let known = self.certificates.iter().find(|(known, _)| Rc::ptr_eq(known, client));
        let Some((_, keys)) = known else { return Ok(false) };
        let is_there = || {
            let keys = keys.keys(context.host().now()).map_err(StatementError::from)?;
            Ok(certificate::is_registered(certificate, keys.certificates()))
        };
        let verdict = is_there();
        match keys.remote() {
            Some(remote) if !matches!(verdict, Ok(true)) => {
                remote.refresh(context).await.map_err(StatementError::from)?;
                is_there()
            }
            _ => verdict,
        }
    }
}

#[cfg(test)]
mod tests;
