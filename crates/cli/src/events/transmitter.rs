//! The transmitter: its configuration, and the management of its streams (SSF 1.0 §7 and §8.1).
//!
//! The access token goes to the addresses that the transmitter's own configuration names, and to no
//! weaker scheme than that of the issuer. No message shows the token, or the `Authorization` header
//! that the transmitter is to send, even if an answer repeats them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use impersonation_core::secret::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::Uri;

use crate::Failure;
use crate::display::{Keep, escaped, shortened};
use crate::http::{Ask, Client, Reply, base_address, encoded, in_words, shown, token_from};

/// The environment variable with the access token, if no file is given.
const TOKEN: &str = "TRANSMITTER_TOKEN";

const WELL_KNOWN: &str = "/.well-known/ssf-configuration";

/// Push (RFC 8935), as SSF 1.0 §6.1.1 names it.
pub(super) const PUSH: &str = "urn:ietf:rfc:8935";

/// How much of a transmitter's own words a message repeats.
const LONGEST_WORDS: usize = 200;

/// The least pause before the next verification.
const PAUSE: Duration = Duration::from_secs(1);

/// The transmitter's configuration (SSF 1.0 §7.1).
#[derive(Debug, Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: Option<String>,
    delivery_methods_supported: Option<Vec<String>>,
    configuration_endpoint: Option<String>,
    status_endpoint: Option<String>,
    verification_endpoint: Option<String>,
    default_subjects: Option<String>,
}

/// A stream (SSF 1.0 §8.1.1). The `authorization_header` of its delivery is a secret, and not read.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Stream {
    pub(super) stream_id: String,
    pub(super) iss: Option<String>,
    #[serde(default)]
    pub(super) aud: Audience,
    delivery: Option<Delivery>,
    pub(super) events_delivered: Option<Vec<String>>,
    pub(super) min_verification_interval: Option<f64>,
    /// The stream's own rule, which some transmitters add: see [`Transmitter::needs_subjects`].
    default_subjects: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Delivery {
    method: String,
    endpoint_url: Option<String>,
}

/// One audience or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Audience {
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl Stream {
    /// Returns true if the stream pushes its events to this address.
    pub(super) fn pushes_to(&self, endpoint: &str) -> bool {
        self.endpoint() == Some(endpoint)
    }

    /// The address to which the stream pushes its events; `None` if they are fetched.
    pub(super) fn endpoint(&self) -> Option<&str> {
        let delivery = self.delivery.as_ref().filter(|delivery| delivery.method == PUSH)?;
        delivery.endpoint_url.as_deref()
    }

    /// The id, safe to print.
    pub(super) fn shown_id(&self) -> String {
        shortened(&escaped(&self.stream_id), LONGEST_WORDS, Keep::Beginning)
    }
}

/// The status of a stream (SSF 1.0 §8.1.2).
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) status: String,
    pub(super) reason: Option<String>,
}

impl Status {
    /// Returns true if the transmitter sends events.
    pub(super) fn is_enabled(&self) -> bool {
        self.status == "enabled"
    }
}

/// The settings that a stream is asked to have.
pub(super) struct Wanted<'w> {
    pub(super) endpoint: &'w str,
    pub(super) authorization: Option<&'w Secret<String>>,
    pub(super) events: &'w [&'w str],
}

impl Wanted<'_> {
    fn to_json(&self, stream_id: Option<&str>) -> Value {
        let members = [
            ("stream_id", stream_id.map(Value::from)),
            ("delivery", Some(self.delivery())),
            ("events_requested", Some(self.events.into())),
            ("description", Some("impersonation-filter".into())),
        ];
        let given = members.into_iter();
        given.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn delivery(&self) -> Value {
        match self.authorization {
            None => json!({"method": PUSH, "endpoint_url": self.endpoint}),
            Some(header) => json!({
                "method": PUSH,
                "endpoint_url": self.endpoint,
                "authorization_header": header.expose(),
            }),
        }
    }
}

/// A transmitter whose configuration was read.
pub(super) struct Transmitter {
    configuration: Configuration,
    clients: Clients,
}

/// The HTTP clients: one for each origin, because a proxy belongs to an origin.
struct Clients {
    of_origins: RefCell<Vec<(String, Client)>>,
    cacert: Option<PathBuf>,
    token: Secret<String>,
    /// The scheme of the issuer. No request uses a weaker one.
    is_https: bool,
    /// Other secrets that an answer may repeat.
    secret: RefCell<Option<Secret<String>>>,
}

impl Transmitter {
    /// Reads the configuration of the transmitter with this issuer.
    pub(super) fn discover(
        issuer: &str,
        token_file: Option<&Path>,
        cacert: Option<&Path>,
    ) -> Result<Self, Failure> {
        let token = token_from(token_file, TOKEN)?;
        if let Ok(base) = base_address(issuer) {
            base.warn_if_in_clear();
        }
        let clients = Clients {
            of_origins: RefCell::default(),
            cacert: cacert.map(Path::to_path_buf),
            token,
            is_https: issuer.starts_with("https:"),
            secret: RefCell::default(),
        };
        let [address, appended] = well_known(issuer);
        let found = match clients.fetch(&address)? {
            // Some transmitters have their configuration where OpenID Connect Discovery would have
            // it: behind the issuer's path. The issuer in it must be the same in any case.
            Reply { status: 404, .. } if appended != address => clients.fetch(&appended)?,
            found => found,
        };
        if found.status != 200 {
            let status = found.status;
            return Err(Failure(format!("{address}: {status}: no configuration of a transmitter")));
        }
        let configuration: Configuration =
            serde_json::from_slice(&found.body.map_err(failed(&address))?)
                .map_err(|_| Failure(format!("{address}: no configuration of a transmitter")))?;
        if configuration.issuer != issuer {
            let theirs = shortened(&escaped(&configuration.issuer), LONGEST_WORDS, Keep::Beginning);
            return Err(Failure(format!("{address}: the issuer is {theirs}, not {issuer}")));
        }
        Ok(Self { configuration, clients })
    }

    /// The address of the transmitter's keys.
    pub(super) fn jwks_uri(&self) -> Option<&str> {
        self.configuration.jwks_uri.as_deref()
    }

    /// Returns true if the transmitter can push events, as far as it says.
    pub(super) fn can_push(&self) -> bool {
        let methods = self.configuration.delivery_methods_supported.as_ref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == PUSH))
    }

    /// Returns true if the transmitter sends events only about subjects that were added.
    pub(super) fn needs_subjects(&self, stream: &Stream) -> bool {
        let rule =
            stream.default_subjects.as_ref().or(self.configuration.default_subjects.as_ref());
        rule.is_some_and(|rule| rule == "NONE")
    }

    /// Returns the streams of this receiver.
    pub(super) fn streams(&self) -> Result<Vec<Stream>, Failure> {
        let endpoint = self.endpoint("configuration_endpoint")?;
        let all = match self.read(Ask::Get, &endpoint)? {
            Value::Array(all) => all,
            // Without a stream, some transmitters answer 404 or 204.
            Value::Null => Vec::new(),
            one => vec![one],
        };
        all.into_iter()
            .map(|one| serde_json::from_value(one).map_err(|_| not_as_specified(&endpoint)))
            .collect()
    }

    /// Creates a stream, and returns it.
    pub(super) fn create(&self, wanted: &Wanted<'_>) -> Result<Stream, Failure> {
        self.change(wanted, None)
    }

    /// Changes a stream, and returns it.
    pub(super) fn update(&self, stream: &Stream, wanted: &Wanted<'_>) -> Result<Stream, Failure> {
        self.change(wanted, Some(&stream.stream_id))
    }

    fn change(&self, wanted: &Wanted<'_>, id: Option<&str>) -> Result<Stream, Failure> {
        self.clients
            .secret
            .replace(wanted.authorization.map(|it| Secret::new(it.expose().clone())));
        let endpoint = self.endpoint("configuration_endpoint")?;
        let body = wanted.to_json(id);
        let ask = if id.is_some() { Ask::Patch(&body) } else { Ask::Post(&body) };
        let answer: Value = self.read(ask, &endpoint)?;
        // A transmitter that accepts an update for later need not answer with the stream.
        match (serde_json::from_value(answer), id) {
            (Ok(stream), _) => Ok(stream),
            (Err(_), Some(id)) => self.read(Ask::Get, &of_stream(&endpoint, id)),
            (Err(_), None) => Err(not_as_specified(&endpoint)),
        }
    }

    /// Returns the status of a stream; `None` if the transmitter does not tell it.
    pub(super) fn status(&self, stream: &Stream) -> Result<Option<Status>, Failure> {
        if self.configuration.status_endpoint.is_none() {
            return Ok(None);
        }
        let endpoint = self.endpoint("status_endpoint")?;
        self.read(Ask::Get, &of_stream(&endpoint, &stream.stream_id)).map(Some)
    }

    /// Asks the transmitter to send events on this stream.
    pub(super) fn enable(&self, stream: &Stream) -> Result<(), Failure> {
        let endpoint = self.endpoint("status_endpoint")?;
        let body = json!({"stream_id": stream.stream_id, "status": "enabled"});
        self.read::<Value>(Ask::Post(&body), &endpoint).map(|_| ())
    }

    /// Asks for a verification event. A transmitter may refuse to send them in quick succession:
    /// returns the time after which it can be asked again, or nothing if it has agreed.
    pub(super) fn verify(&self, stream: &Stream, state: &str) -> Result<Option<Duration>, Failure> {
        let endpoint = self.endpoint("verification_endpoint")?;
        let body = json!({"stream_id": stream.stream_id, "state": state});
        let answer = self.clients.send(Ask::Post(&body), &endpoint)?;
        let interval = stream.min_verification_interval.unwrap_or_default().clamp(1.0, 600.0);
        let interval = Duration::from_secs_f64(interval);
        match answer.status {
            200..=299 => Ok(None),
            429 | 503 => Ok(Some(answer.retry_after().unwrap_or(interval).max(PAUSE))),
            _ => Err(self.clients.refused(&endpoint, &answer)),
        }
    }

    /// Fails if the transmitter cannot send a verification event.
    pub(super) fn can_verify(&self) -> Result<(), Failure> {
        self.endpoint("verification_endpoint").map(|_| ())
    }

    /// Returns an endpoint of the configuration.
    fn endpoint(&self, name: &'static str) -> Result<String, Failure> {
        let Configuration {
            configuration_endpoint, status_endpoint, verification_endpoint, ..
        } = &self.configuration;
        let endpoint = match name {
            "configuration_endpoint" => configuration_endpoint,
            "status_endpoint" => status_endpoint,
            _ => verification_endpoint,
        };
        let endpoint = endpoint.as_deref().ok_or_else(|| {
            Failure(format!("the transmitter has no {name}: its streams are set up in another way"))
        })?;
        self.clients.check(endpoint).map(|()| endpoint.to_owned())
    }

    fn read<T: DeserializeOwned>(&self, ask: Ask<'_>, endpoint: &str) -> Result<T, Failure> {
        let body = self.clients.ask(ask, endpoint)?;
        let body = if body.is_empty() { b"null" } else { &*body };
        serde_json::from_slice(body).map_err(|_| not_as_specified(endpoint))
    }
}

/// The addresses at which a transmitter may have its configuration: the one of SSF 1.0 §7.2, and
/// the one behind the issuer's path.
fn well_known(issuer: &str) -> [String; 2] {
    let issuer = issuer.trim_end_matches('/');
    let host = issuer.find("://").map_or(0, |at| at.saturating_add(3));
    let path = issuer.get(host..).and_then(|rest| rest.find('/'));
    let (origin, path) = match path {
        Some(at) => issuer.split_at_checked(host.saturating_add(at)).unwrap_or((issuer, "")),
        None => (issuer, ""),
    };
    [format!("{origin}{WELL_KNOWN}{path}"), format!("{issuer}{WELL_KNOWN}")]
}

/// Adds the id of a stream to an address.
fn of_stream(endpoint: &str, id: &str) -> String {
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{separator}stream_id={}", encoded(id))
}

fn not_as_specified(address: &str) -> Failure {
    let address = shown(address);
    Failure(format!("{address}: the answer is not one of the Shared Signals Framework 1.0"))
}

fn failed(address: &str) -> impl Fn(ureq::Error) -> Failure {
    move |error| Failure(format!("{}: {}", shown(address), in_words(&error)))
}

impl Clients {
    /// Refuses an address to which the access token must not go.
    fn check(&self, address: &str) -> Result<(), Failure> {
        let wrong = |told: &str| Failure(format!("{}: {told}", shown(address)));
        let uri: Uri = address.parse().map_err(|_| wrong("this is no address"))?;
        let (scheme, authority) = (uri.scheme_str(), uri.authority());
        if authority.is_none_or(|it| it.as_str().contains('@')) || address.contains('#') {
            return Err(wrong("this is no address of an endpoint"));
        }
        match scheme {
            Some("https") => Ok(()),
            Some("http") if !self.is_https => Ok(()),
            _ => Err(wrong("the issuer is https, and this is not")),
        }
    }

    /// Sends a request with the access token, and returns the body of a success: nothing, if what
    /// was asked for is not there.
    fn ask(&self, ask: Ask<'_>, address: &str) -> Result<Vec<u8>, Failure> {
        let answer = self.client(address)?.ask_patiently(ask, address, &self.token);
        let answer = answer.map_err(failed(address))?;
        match (answer.status, ask) {
            (200..=299, _) => answer.body.map_err(failed(address)),
            (404, Ask::Get) => Ok(Vec::new()),
            _ => Err(self.refused(address, &answer)),
        }
    }

    /// Sends a request without the access token.
    fn fetch(&self, address: &str) -> Result<Reply, Failure> {
        self.client(address)?.ask(Ask::Get, address, None).map_err(failed(address))
    }

    /// Sends a request with the access token once.
    fn send(&self, ask: Ask<'_>, address: &str) -> Result<Reply, Failure> {
        self.client(address)?.ask(ask, address, Some(&self.token)).map_err(failed(address))
    }

    /// Returns the client for the origin of this address.
    fn client(&self, address: &str) -> Result<Client, Failure> {
        let uri: Uri = address.parse().map_err(|error| Failure::new(shown(address), error))?;
        let origin = format!("{:?}{:?}", uri.scheme_str(), uri.authority());
        let mut clients = self.of_origins.borrow_mut();
        if let Some((_, client)) = clients.iter().find(|(of, _)| *of == origin) {
            return Ok(client.clone());
        }
        let made = Client::new(address, self.cacert.as_deref())?;
        clients.push((origin, made.clone()));
        Ok(made)
    }

    /// Describes a refusal, with the transmitter's own words last.
    fn refused(&self, address: &str, answer: &Reply) -> Failure {
        let (status, body) = (answer.status, answer.json());
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let words = ["error", "err", "error_description", "description"].map(text);
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let words = self.without_secrets(&words.join(": "));
        let meaning = match status {
            300..=399 => "a redirect, which is not followed",
            401 => "the access token is not accepted",
            403 => "the access token does not suffice: it lacks a scope or a role",
            404 => "there is no such stream",
            409 => "the transmitter has a stream for this receiver already: name it by --stream",
            429 | 503 => "not available now",
            _ => "refused",
        };
        let words = if words.is_empty() { words } else { format!(" ({words})") };
        Failure(format!("{}: {status}: {meaning}{words}", shown(address)))
    }

    /// Returns a transmitter's words as they can be printed.
    fn without_secrets(&self, words: &str) -> String {
        let mut words = words.to_owned();
        let secret = self.secret.borrow();
        for secret in [Some(&self.token), secret.as_ref()].into_iter().flatten() {
            words = words.replace(secret.expose().as_str(), "[redacted]");
        }
        shortened(&escaped(&words), LONGEST_WORDS, Keep::Beginning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SSF 1.0 §7.2.1: the well-known path stands between the host and the path of the issuer.
    #[test]
    fn the_configuration_is_at_the_well_known_address_of_the_issuer() {
        #[rustfmt::skip]
        let cases = [
            ("https://tr.example.com",            "https://tr.example.com/.well-known/ssf-configuration"),
            ("https://tr.example.com/",           "https://tr.example.com/.well-known/ssf-configuration"),
            ("https://tr.example.com:8443",       "https://tr.example.com:8443/.well-known/ssf-configuration"),
            ("https://tr.example.com/issuer1",    "https://tr.example.com/.well-known/ssf-configuration/issuer1"),
            ("https://tr.example.com/realms/a/",  "https://tr.example.com/.well-known/ssf-configuration/realms/a"),
            ("http://[::1]:9000/a",               "http://[::1]:9000/.well-known/ssf-configuration/a"),
        ];
        for (issuer, address) in cases {
            let [specified, _] = well_known(issuer);
            assert_eq!(specified, address, "{issuer}");
        }
    }

    #[test]
    fn the_access_token_goes_to_no_weaker_scheme_than_the_issuers() {
        #[rustfmt::skip]
        let cases = [
            ("https://tr.example.com/streams",     true,  true),
            ("https://other.example.com/streams",  true,  true),
            ("http://tr.example.com/streams",      true,  false),
            ("http://tr.example.com/streams",      false, true),
            ("https://tr.example.com/streams",     false, true),
            ("https://me@tr.example.com/streams",  true,  false),
            ("https://tr.example.com/#streams",    true,  false),
            ("file:///etc/passwd",                 false, false),
            ("/streams",                           false, false),
            ("",                                   false, false),
        ];
        for (address, is_https, accepted) in cases {
            let clients = Clients {
                of_origins: RefCell::default(),
                cacert: None,
                token: Secret::new(String::new()),
                is_https,
                secret: RefCell::default(),
            };
            assert_eq!(clients.check(address).is_ok(), accepted, "{address}");
        }
    }
}
