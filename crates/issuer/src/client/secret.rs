//! Secrets: `client_secret_basic` and `client_secret_post` (RFC 6749 §2.3.1).
//!
//! Basic credentials have two readings. Many services put name and secret into the header as they
//! are (RFC 7617 §2); RFC 6749 form-urlencodes them first. A client is authenticated if its name
//! and secret are right in one reading. An attacker who knows neither gains nothing from the second
//! reading, and a secret may contain any characters.
//!
//! A secret counts only where its client is configured to send it: in `Authorization`, or in the
//! form. A right secret in the wrong place gets the same answer as a wrong secret. Otherwise a
//! stranger could find out how a client authenticates.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::error::ClientAuthError;
use crate::config::{Client, ClientAuthentication};
use crate::oauth::form;
use crate::secret::Digest;

/// Authenticates a client by its secret in the `Authorization` header. `named` is the client that
/// the form names.
pub(super) fn by_basic(
    header: &[u8],
    named: Option<&str>,
    find: impl Fn(&str) -> Option<Rc<Client>>,
) -> Result<Rc<Client>, ClientAuthError> {
    let readings = basic(header).ok_or(ClientAuthError::Malformed)?;
    let agrees = |reading: &Credentials| named.is_none_or(|named| named == reading.client_id);
    if !readings.iter().any(agrees) {
        return Err(ClientAuthError::TwoClients);
    }
    // The readings may name two clients, `a+b` and `a b`. If both share the secret, the name as it
    // is decides. Both readings are always checked, so that the time does not reveal which one is
    // right.
    let mut proven = Err(ClientAuthError::Failed);
    for reading in &readings {
        let client = find(&reading.client_id);
        let right = reading.prove(client.as_deref(), ClientAuthentication::ClientSecretBasic);
        let next =
            right.and_then(|()| client.filter(|_| agrees(reading)).ok_or(ClientAuthError::Failed));
        proven = match proven {
            Err(ClientAuthError::Failed) => next,
            Err(earlier) => next.or(Err(earlier)),
            Ok(client) => Ok(client),
        };
    }
    proven
}

/// Authenticates a client by its secret in the form.
pub(super) fn by_post(
    client_id: &str,
    client_secret: &str,
    find: impl Fn(&str) -> Option<Rc<Client>>,
) -> Result<Rc<Client>, ClientAuthError> {
    let client = find(client_id);
    let credentials =
        Credentials { client_id: client_id.into(), client_secret: client_secret.into() };
    credentials.prove(client.as_deref(), ClientAuthentication::ClientSecretPost)?;
    client.ok_or(ClientAuthError::Failed)
}

/// The name and the secret in one reading of a request.
struct Credentials {
    client_id: String,
    client_secret: String,
}

impl Credentials {
    /// Checks that the secret is this client's, and came by a configured method of the client. The
    /// secret is hashed and compared at least once, even if the client does not exist.
    fn prove(
        &self,
        client: Option<&Client>,
        method: ClientAuthentication,
    ) -> Result<(), ClientAuthError> {
        let presented = Digest::of(self.client_secret.as_bytes());
        let known = match client {
            // A public client has no secret. Some libraries send an empty one.
            Some(client) if !client.is_confidential() => {
                let is_empty = self.client_secret.is_empty();
                return if is_empty { Ok(()) } else { Err(ClientAuthError::Failed) };
            }
            Some(client) => &*client.secret_digests,
            None => &[Digest::from_bytes([0; 32])],
        };
        // All digests are compared, so that the time does not reveal which one matches.
        let right = known.iter().fold(false, |right, digest| right | digest.matches(&presented));
        match client {
            Some(client) if right && client.authenticates_by(method) => Ok(()),
            Some(_) if right => Err(ClientAuthError::AnotherMethod),
            _ => Err(ClientAuthError::Failed),
        }
    }
}

/// Reads the credentials of an `Authorization: Basic` header: as they are, and form-decoded if that
/// is possible and differs.
fn basic(header: &[u8]) -> Option<Vec<Credentials>> {
    let header = std::str::from_utf8(header).ok()?;
    let (scheme, credentials) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let pair =
        String::from_utf8(BASE64_STANDARD.decode(credentials.trim_matches(' ')).ok()?).ok()?;
    // The first colon ends the name (RFC 7617 §2). Further colons belong to the secret.
    let (client_id, client_secret) = pair.split_once(':')?;
    let decoded = form::decode(client_id.as_bytes()).zip(form::decode(client_secret.as_bytes()));
    let as_it_is = Credentials { client_id: client_id.into(), client_secret: client_secret.into() };
    let mut readings = vec![as_it_is];
    if let Some(decoded) = decoded.filter(|(id, secret)| id != client_id || secret != client_secret)
    {
        let (client_id, client_secret) = decoded;
        readings.push(Credentials {
            client_id: client_id.into_owned(),
            client_secret: client_secret.into_owned(),
        });
    }
    Some(readings)
}
