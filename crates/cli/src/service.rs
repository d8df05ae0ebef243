//! An HTTP client for the service: its address, the operator's access token, and its answers in
//! words.
//!
//! The operator's access token can end all impersonations. It comes from a file or the environment,
//! never from an argument, which all users of the machine can see. It is sent only to the given
//! address, because redirects are not followed, and it appears in no message.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use impersonation_core::secret::Secret;
use impersonation_core::time::UnixTime;
use impersonation_issuer::issuer::Paths;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::header::{DATE, LOCATION};

use super::Failure;
use super::display::escaped;
use super::http::{
    Ask, Base, Client, Reply, base_address, encoded, in_words, never_arrived, shown, token_from,
};
use super::speaks_tls::speaks_tls;

/// The environment variable with the access token, if no file is given.
const TOKEN: &str = "IMPERSONATION_TOKEN";

/// More pages than a list of the greatest capacity has. The bound stops at a service whose pages
/// never end.
const MOST_PAGES: usize = 20_000;

/// The form of dates in HTTP is one of those of RFC 5322 (RFC 9110 §5.6.7).
static HTTP_DATE: DateTimeParser = DateTimeParser::new();

/// The address of the service, and the access token.
#[derive(Debug, Args)]
pub(super) struct Access {
    /// The service's base address, such as https://auth.example.com.
    #[arg(long, env = "IMPERSONATION_URL", value_parser = base_address)]
    url: Base,
    /// The path of the list of impersonations, if it is not the default one: `impersonations` of
    /// `paths` in the filter's configuration. It follows the base address.
    #[arg(long, env = "IMPERSONATIONS_PATH", value_name = "PATH", value_parser = endpoint_path,
          default_value = Paths::DEFAULT_IMPERSONATIONS)]
    impersonations_path: String,
    /// A file with the access token, `-` for standard input. Without it the token is read from the
    /// variable IMPERSONATION_TOKEN. No argument takes the token: other users of the machine see
    /// arguments.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A PEM file with the certificate authorities to trust for this address, instead of the
    /// machine's own.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
}

impl Access {
    /// Prepares the requests. Nothing is sent yet.
    pub(super) fn open(&self) -> Result<Service, Failure> {
        let token = token_from(self.token_file.as_deref(), TOKEN)?;
        self.url.warn_if_in_clear();
        let address = self.url.address.clone();
        let client = Client::new(&address, self.cacert.as_deref())?;
        let list = self.impersonations_path.clone();
        Ok(Service { client, address, list, token })
    }

    /// Returns true if standard input holds the token, so that it cannot hold an answer to a
    /// question.
    pub(super) fn takes_standard_input(&self) -> bool {
        self.token_file.as_deref() == Some(Path::new("-"))
    }

    /// Returns the service's address.
    pub(super) fn address(&self) -> &str {
        &self.url.address
    }
}

/// Reads the path of an endpoint, as it is in `paths` of the filter's configuration.
pub(super) fn endpoint_path(text: &str) -> Result<String, String> {
    let wrong = || "expected a normal path such as /api/impersonations, without a query".to_owned();
    Paths::may_have(text).then(|| text.to_owned()).ok_or_else(wrong)
}

/// A success of the service.
#[derive(Debug)]
pub(super) struct Done {
    body: Vec<u8>,
    /// The time of the answer by the service's clock, or by the local clock if the answer has no
    /// date.
    pub(super) at: UnixTime,
    address: String,
}

impl Done {
    /// Parses the body.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, NotDone> {
        serde_json::from_slice(&self.body).map_err(|_| NotDone {
            message: format!(
                "{}: this is not an answer of the filter: is this the service's base address?",
                self.address
            ),
            perhaps: true,
        })
    }
}

/// The reason why a request failed, in words for the operator.
#[derive(Debug)]
pub(super) struct NotDone {
    /// The message names the address, and no secret.
    pub(super) message: String,
    /// True if the service may have done it all the same.
    pub(super) perhaps: bool,
}

/// A service with its access token.
pub(super) struct Service {
    client: Client,
    address: String,
    list: String,
    token: Secret<String>,
}

impl Service {
    /// Returns the path of the list of impersonations. Each has a path of its own below, and so
    /// have revocations.
    pub(super) fn list(&self) -> &str {
        &self.list
    }

    /// Sends a request. If the service is unavailable, tries again for a few seconds. `scope` is
    /// the scope that the token needs.
    pub(super) fn ask(&self, ask: Ask<'_>, path: &str, scope: &str) -> Result<Done, NotDone> {
        let address = format!("{}{path}", self.address);
        let shown = shown(&address);
        let answer =
            self.client.ask_patiently(ask, &address, &self.token).map_err(|error| NotDone {
                message: format!("{shown}: {}", self.in_words(&error)),
                perhaps: !never_arrived(&error),
            })?;
        match answer.status {
            200..=299 => done(answer, shown),
            _ => Err(refused(&answer, &shown, scope)),
        }
    }

    /// Reads all pages of the list at `path`, which has a query. `take` keeps a page, and returns
    /// the cursor of the next one. Stops at a cursor that comes again.
    pub(super) fn read_pages<P: DeserializeOwned>(
        &self,
        path: &str,
        scope: &str,
        mut take: impl FnMut(P, UnixTime) -> Option<String>,
    ) -> Result<(), NotDone> {
        let mut seen = BTreeSet::new();
        let mut target = path.to_owned();
        loop {
            let done = self.ask(Ask::Get, &target, scope)?;
            let Some(cursor) = take(done.read()?, done.at) else { return Ok(()) };
            target = format!("{path}&cursor={}", encoded(&cursor));
            if !seen.insert(cursor) || seen.len() > MOST_PAGES {
                let message = "the list does not end: is this the filter?".to_owned();
                return Err(NotDone { message, perhaps: false });
            }
        }
    }

    /// Describes why there is no answer. A TLS port closes or garbles a plain request: the message
    /// then says that the address must begin with https.
    fn in_words(&self, error: &ureq::Error) -> String {
        let garbled = match error {
            ureq::Error::Io(error) => error.kind() != io::ErrorKind::TimedOut,
            ureq::Error::Protocol(_) | ureq::Error::Http(_) => true,
            _ => false,
        };
        let plain = self.address.starts_with("http:");
        if plain && garbled && !never_arrived(error) && speaks_tls(&self.address) {
            return "this port speaks TLS: the address begins with https://".to_owned();
        }
        in_words(error)
    }
}

fn done(answer: Reply, address: String) -> Result<Done, NotDone> {
    let date = answer.header(DATE).and_then(|date| HTTP_DATE.parse_timestamp(date).ok());
    let at = UnixTime::from_secs(date.unwrap_or_else(Timestamp::now).as_second());
    match answer.body {
        Ok(body) => Ok(Done { body, at, address }),
        Err(error) => {
            let message = format!("{address}: {}", in_words(&error));
            Err(NotDone { message, perhaps: true })
        }
    }
}

/// Describes a refusal. The service's own description comes last, because it may be a proxy's.
fn refused(answer: &Reply, address: &str, scope: &str) -> NotDone {
    let status = answer.status;
    let location = answer.header(LOCATION).map(escaped);
    let body = answer.json();
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let error = text("error");
    let told = match text("error_description") {
        "" => escaped(error),
        description => escaped(description),
    };
    let meaning = match (status, error) {
        (300..=399, _) => format!(
            "a redirect to {}, which is not followed: the access token is for the address that was given",
            location.as_deref().unwrap_or("nowhere"),
        ),
        (401, _) => "the access token is not accepted. It may have expired, or be of another issuer or for another \
                     audience: get a new one"
            .into(),
        (403, "insufficient_scope") => format!("the access token lacks the scope {scope}"),
        (403, _) => "not allowed".into(),
        (404, "not_found") => "not found".into(),
        (404, _) => "nothing is there: is this the service's base address? If the filter has `paths.impersonations`, give \
                     --impersonations-path"
            .into(),
        (429 | 503, _) => "not available for some seconds now".into(),
        _ => "refused".into(),
    };
    let told = if told.is_empty() { told } else { format!(" ({told})") };
    let perhaps = status >= 500 && status != 503;
    NotDone { message: format!("{address}: {status}: {meaning}{told}"), perhaps }
}
