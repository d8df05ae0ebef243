//! Client authentication at the token endpoint (RFC 6749 §2.3.1).
//!
//! Only this module can create an [`AuthenticatedClient`], so no later step runs for a client that
//! was not authenticated. An unknown client and a wrong secret take the same path and get the same
//! answer: a stranger learns neither which clients exist nor how near a guess was.
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

use crate::config::{Client, ClientAuthentication};
use crate::oauth::form::{self, Form};
use crate::secret::Digest;

/// A client that was authenticated: by its secret if it is confidential, by its name if it is
/// public.
#[derive(Debug, Clone)]
pub(crate) struct AuthenticatedClient(Rc<Client>);

impl std::ops::Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

/// Why a client was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientAuthError {
    /// Neither the form nor `Authorization` names a client.
    #[error("no client_id")]
    NoClientId,
    /// `client_id` has no value.
    #[error("empty client_id")]
    EmptyClientId,
    /// The form names one client, `Authorization` another.
    #[error("client_id in the form and in the authorization header differ")]
    TwoClients,
    /// The request uses two methods of authentication (RFC 6749 §2.3).
    #[error("client_secret in the form beside the authorization header")]
    TwoMethods,
    /// `Authorization` is not `Basic`, or not base64 of `id:secret`.
    #[error("the authorization header is not proper Basic")]
    Malformed,
    /// A confidential client sent no secret.
    #[error("a confidential client without its secret")]
    SecretMissing,
    /// The secret is right, but the client is configured to send it in the other place.
    #[error("the client is configured to authenticate by another method")]
    AnotherMethod,
    /// The client does not exist, or the secret is wrong.
    #[error("unknown client or wrong secret")]
    Failed,
}

/// Authenticates the client of a token request.
///
/// `authorization` is the header as it arrived, `find` looks up a client.
pub(crate) fn authenticate(
    form: &Form<'_>,
    authorization: Option<&[u8]>,
    find: impl Fn(&str) -> Option<Rc<Client>>,
) -> Result<AuthenticatedClient, ClientAuthError> {
    let basic =
        authorization.map(|header| basic(header).ok_or(ClientAuthError::Malformed)).transpose()?;
    let named = form.get("client_id");
    if named == Some("") {
        return Err(ClientAuthError::EmptyClientId);
    }
    match (basic, form.get("client_secret")) {
        (Some(_), Some(_)) => Err(ClientAuthError::TwoMethods),
        (Some(readings), None) => by_basic(&readings, named, find),
        (None, Some(client_secret)) => {
            let client_id = named.ok_or(ClientAuthError::NoClientId)?;
            let client = find(client_id);
            let (client_id, client_secret) = (client_id.into(), client_secret.into());
            let credentials = Credentials { client_id, client_secret };
            let method = ClientAuthentication::ClientSecretPost;
            credentials.prove(client.as_deref(), method)?;
            client.map(AuthenticatedClient).ok_or(ClientAuthError::Failed)
        }
        (None, None) => match find(named.ok_or(ClientAuthError::NoClientId)?) {
            Some(client) if client.is_confidential() => Err(ClientAuthError::SecretMissing),
            Some(client) => Ok(AuthenticatedClient(client)),
            None => Err(ClientAuthError::Failed),
        },
    }
}

fn by_basic(
    readings: &[Credentials],
    named: Option<&str>,
    find: impl Fn(&str) -> Option<Rc<Client>>,
) -> Result<AuthenticatedClient, ClientAuthError> {
    let agrees = |reading: &Credentials| named.is_none_or(|named| named == reading.client_id);
    if !readings.iter().any(agrees) {
        return Err(ClientAuthError::TwoClients);
    }
    // The readings may name two clients, `a+b` and `a b`. If both share the secret, the name as it
    // is decides. Both readings are always checked, so that the time does not reveal which one is
    // right.
    let mut proven = Err(ClientAuthError::Failed);
    for reading in readings {
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
    proven.map(AuthenticatedClient)
}

/// The name and the secret in one reading of a request.
struct Credentials {
    client_id: String,
    client_secret: String,
}

impl Credentials {
    /// Checks that the secret is this client's, and came by the client's configured method. The
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
            Some(client) if right && client.authentication == method => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientType;

    fn client(client_id: &str, r#type: ClientType, secrets: &[&str]) -> Rc<Client> {
        Rc::new(Client {
            client_id: client_id.into(),
            r#type,
            authentication: match r#type.is_confidential() {
                true if client_id.ends_with("-post") => ClientAuthentication::ClientSecretPost,
                true => ClientAuthentication::ClientSecretBasic,
                false => ClientAuthentication::None,
            },
            secret_digests: secrets.iter().map(|secret| Digest::of(secret.as_bytes())).collect(),
            resources: None,
            actor_token_required: false,
        })
    }

    fn run(form: &str, authorization: Option<&str>) -> Result<String, ClientAuthError> {
        let clients = [
            client("portal", ClientType::TraditionalWeb, &["old", "n:e w%"]),
            client("console", ClientType::SinglePage, &[]),
            client("raw", ClientType::TraditionalWeb, &["a+b%20=:&é c", "100%sure"]),
            client("a+b", ClientType::TraditionalWeb, &["shared", "plus"]),
            client("a b", ClientType::TraditionalWeb, &["shared", "space", "in sp"]),
            client("c%2Bd", ClientType::TraditionalWeb, &["s"]),
            client("e+f", ClientType::SinglePage, &[]),
            client("desk-post", ClientType::TraditionalWeb, &["old", "n:e w%"]),
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

    /// Name and secret must be right in one reading. Mixing the readings is refused.
    #[test]
    fn basic_is_read_as_it_is_and_form_decoded() {
        use ClientAuthError::*;
        #[rustfmt::skip]
        let cases = [
            ("as it is",                         "",                "raw:a+b%20=:&é c",                   Ok("raw")),
            ("encoded",                          "",                "raw:a%2Bb%2520%3D%3A%26%C3%A9+c",    Ok("raw")),
            ("encoded in part",                  "",                "raw:a%2Bb%2520=:&é c",               Ok("raw")),
            ("decoded once too often",           "",                "raw:a b =:&é c",                     Err(Failed)),
            ("encoded twice",                    "",                "raw:a%252Bb%252520=:&é c",           Err(Failed)),
            ("no valid encoding",                "",                "raw:100%sure",                       Ok("raw")),
            ("no valid encoding, and encoded",   "",                "raw:100%25sure",                     Ok("raw")),
            ("nothing but what is decodable",    "",                "raw:100%",                           Err(Failed)),
            ("the name as it is",                "",                "a+b:plus",                           Ok("a+b")),
            ("the name encoded",                 "",                "a%2Bb:plus",                         Ok("a+b")),
            ("the other name, encoded",          "",                "a+b:space",                          Ok("a b")),
            ("the other name as it is",          "",                "a b:space",                          Ok("a b")),
            ("both readings are right",          "",                "a+b:shared",                         Ok("a+b")),
            ("both, the form says which",        "client_id=a+b",   "a+b:shared",                         Ok("a b")),
            ("both, the form says the other",    "client_id=a%2Bb", "a+b:shared",                         Ok("a+b")),
            ("right, but the form says another", "client_id=a+b",   "a+b:plus",                           Err(Failed)),
            ("the form agrees with neither",     "client_id=a%2Bb", "a b:space",                          Err(TwoClients)),
            ("a name that is the same in both",  "",                "a b:in+sp",                          Ok("a b")),
            ("name as it is, secret encoded",    "",                "c%2Bd:%73",                          Err(Failed)),
            ("a name that looks encoded",        "",                "c%2Bd:s",                            Ok("c%2Bd")),
            ("a public client as it is",         "",                "e+f:",                               Ok("e+f")),
            ("a public client, encoded",         "",                "e%2Bf:",                             Ok("e+f")),
            ("a public client with a secret",    "",                "e+f:+",                              Err(Failed)),
            ("an unknown name, no valid encoding", "",              "100%:100%sure",                      Err(Failed)),
        ];
        for (case, form, credentials, expected) in cases {
            assert_eq!(run(form, Some(&basic(credentials))), expected.map(str::to_owned), "{case}");
        }
    }

    #[test]
    fn credentials_that_are_not_utf_8_are_refused() {
        for credentials in [&b"raw:\xe9"[..], b"r\xe9w:a", b"\xff:\xff"] {
            let header = format!("Basic {}", BASE64_STANDARD.encode(credentials));
            assert_eq!(run("", Some(&header)), Err(ClientAuthError::Malformed));
        }
    }

    #[test]
    fn a_client_authenticates_by_its_configured_method_only() {
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
            ("in the form instead",     "client_id=portal&client_secret=old", None,             Err(AnotherMethod)),
            ("wrong, in the form",      "client_id=portal&client_secret=new", None,             Err(Failed)),
            ("secret in both",          "client_secret=old", Some(basic("portal:old")),         Err(TwoMethods)),
            ("in both, for another",    "client_id=desk-post&client_secret=old", Some(basic("portal:old")), Err(TwoMethods)),
            ("empty, in both",          "client_secret=",    Some(basic("portal:old")),         Err(TwoMethods)),
            ("post",                    "client_id=desk-post&client_secret=old", None,          Ok("desk-post")),
            ("post, the other secret",  "client_id=desk-post&client_secret=n%3Ae+w%25", None,   Ok("desk-post")),
            ("post, wrong",             "client_id=desk-post&client_secret=new", None,          Err(Failed)),
            ("post, empty",             "client_id=desk-post&client_secret=", None,             Err(Failed)),
            ("post, none",              "client_id=desk-post", None,                            Err(SecretMissing)),
            ("post, by Basic",          "",                  Some(basic("desk-post:old")),      Err(AnotherMethod)),
            ("post, by Basic, wrong",   "",                  Some(basic("desk-post:new")),      Err(Failed)),
            ("post, both",              "client_id=desk-post&client_secret=old", Some(basic("desk-post:old")), Err(TwoMethods)),
            ("post, no name",           "client_secret=old", None,                              Err(NoClientId)),
            ("unknown, in the form",    "client_id=nobody&client_secret=old", None,             Err(Failed)),
            ("public, empty, in the form", "client_id=console&client_secret=", None,            Ok("console")),
            ("public, some, in the form", "client_id=console&client_secret=x", None,            Err(Failed)),
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
