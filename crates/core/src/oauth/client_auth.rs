//! Client authentication at the token endpoint (RFC 6749 §2.3.1).
//!
//! Only this module can make an [`AuthenticatedClient`], so that no later step runs for a client that
//! was not authenticated. An unknown client and a wrong secret take the same path and get the same
//! answer: a stranger learns neither which clients exist nor how near a guess was.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::form::{self, Form};
use crate::config::Client;
use crate::secret::Digest;

/// A client whose right to its `client_id` was checked: by its secret if it is confidential.
#[derive(Debug, Clone)]
pub struct AuthenticatedClient(Rc<Client>);

impl std::ops::Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

/// Why a client was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientAuthError {
    /// Neither in the form nor in `Authorization`.
    #[error("no client_id")]
    NoClientId,
    /// `client_id` is there without a value.
    #[error("empty client_id")]
    EmptyClientId,
    /// The form names one client, `Authorization` another.
    #[error("client_id in the form and in the authorization header differ")]
    TwoClients,
    /// RFC 6749 §2.3: one method per request.
    #[error("client_secret in the form beside the authorization header")]
    TwoMethods,
    /// Not `Basic`, or not base64 of `id:secret`.
    #[error("the authorization header is not proper Basic")]
    Malformed,
    /// A confidential client without `Basic`.
    #[error("a confidential client without Basic authentication")]
    SecretMissing,
    /// No such client, or not its secret.
    #[error("unknown client or wrong secret")]
    Failed,
}

/// Authenticates the client of a token request.
///
/// `authorization` is the header as it came, `find` looks a client up.
pub fn authenticate(
    form: &Form<'_>,
    authorization: Option<&[u8]>,
    find: impl FnOnce(&str) -> Option<Rc<Client>>,
) -> Result<AuthenticatedClient, ClientAuthError> {
    let basic = authorization
        .map(|header| Basic::parse(header).ok_or(ClientAuthError::Malformed))
        .transpose()?;
    let named = form.get("client_id");
    if named == Some("") {
        return Err(ClientAuthError::EmptyClientId);
    }
    let client_id = match (&basic, named) {
        (Some(basic), Some(named)) if basic.client_id != named => {
            return Err(ClientAuthError::TwoClients);
        }
        (Some(basic), _) => &*basic.client_id,
        (None, Some(named)) => named,
        (None, None) => return Err(ClientAuthError::NoClientId),
    };
    if basic.is_some() && form.get("client_secret").is_some() {
        return Err(ClientAuthError::TwoMethods);
    }
    let client = find(client_id);
    let confidential = client.as_ref().is_none_or(|client| client.is_confidential());
    let secret_is_right = match &basic {
        Some(basic) if confidential => {
            let presented = Digest::of(basic.client_secret.as_bytes());
            let known = client.as_ref().map_or(&[][..], |client| &client.secret_digests);
            // All are compared, whichever matches.
            known.iter().fold(false, |right, digest| right | digest.matches(&presented))
        }
        // A public client has no secret to be right about; libraries send an empty one.
        Some(basic) => basic.client_secret.is_empty(),
        None if confidential && client.is_some() => return Err(ClientAuthError::SecretMissing),
        None => true,
    };
    match client {
        Some(client) if secret_is_right => Ok(AuthenticatedClient(client)),
        _ => Err(ClientAuthError::Failed),
    }
}

/// The credentials of an `Authorization: Basic` header, form-decoded.
struct Basic {
    client_id: String,
    client_secret: String,
}

impl Basic {
    fn parse(header: &[u8]) -> Option<Self> {
        let header = std::str::from_utf8(header).ok()?;
        let (scheme, credentials) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("Basic") {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(credentials.trim_matches(' ')).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let (client_id, client_secret) = decoded.split_at_checked(colon)?;
        let (_, client_secret) = client_secret.split_first()?;
        Some(Self {
            client_id: form::decode(client_id)?.into_owned(),
            client_secret: form::decode(client_secret)?.into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientType;

    fn client(client_id: &str, r#type: ClientType, secrets: &[&str]) -> Rc<Client> {
        Rc::new(Client {
            client_id: client_id.into(),
            r#type,
            secret_digests: secrets.iter().map(|secret| Digest::of(secret.as_bytes())).collect(),
            resources: None,
            actor_token_required: false,
        })
    }

    fn run(form: &str, authorization: Option<&str>) -> Result<String, ClientAuthError> {
        let clients = [
            client("portal", ClientType::TraditionalWeb, &["old", "n:e w%"]),
            client("console", ClientType::SinglePage, &[]),
        ];
        authenticate(
            &Form::parse(form.as_bytes()).unwrap(),
            authorization.map(str::as_bytes),
            |id| clients.iter().find(|client| client.client_id == id).cloned(),
        )
        .map(|client| client.client_id.clone())
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(credentials))
    }

    #[test]
    fn authenticates_by_the_means_that_fit_the_client() {
        use ClientAuthError::*;
        #[rustfmt::skip]
        let cases = [
            ("secret",                  "client_id=portal", Some(basic("portal:old")),          Ok("portal")),
            ("the other secret",        "",                 Some(basic("portal:n%3Ae+w%25")),   Ok("portal")),
            ("scheme in lower case",    "",                 Some(basic("portal:old").replace("Basic", "basic")), Ok("portal")),
            ("public",                  "client_id=console", None,                              Ok("console")),
            ("public, empty secret",    "client_id=console", Some(basic("console:")),           Ok("console")),
            ("public, some secret",     "client_id=console", Some(basic("console:x")),          Err(Failed)),
            ("wrong secret",            "client_id=portal", Some(basic("portal:new")),          Err(Failed)),
            ("empty secret",            "client_id=portal", Some(basic("portal:")),             Err(Failed)),
            ("no secret",               "client_id=portal", None,                               Err(SecretMissing)),
            ("secret in the form",      "client_id=portal&client_secret=old", None,             Err(SecretMissing)),
            ("secret in both",          "client_secret=old", Some(basic("portal:old")),         Err(TwoMethods)),
            ("unknown client",          "client_id=nobody", None,                               Err(Failed)),
            ("unknown, with a secret",  "",                 Some(basic("nobody:old")),          Err(Failed)),
            ("two clients",             "client_id=console", Some(basic("portal:old")),         Err(TwoClients)),
            ("nobody",                  "",                 None,                               Err(NoClientId)),
            ("empty",                   "client_id=",       None,                               Err(EmptyClientId)),
            ("another scheme",          "client_id=portal", Some("Bearer x".into()),            Err(Malformed)),
            ("no colon",                "",                 Some(basic("portal")),              Err(Malformed)),
            ("no base64",               "",                 Some("Basic ###".into()),           Err(Malformed)),
        ];
        for (case, form, authorization, expected) in cases {
            assert_eq!(run(form, authorization.as_deref()), expected.map(str::to_owned), "{case}");
        }
    }
}
