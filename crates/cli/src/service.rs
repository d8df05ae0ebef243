//! An HTTP client for the service: its address, the operator's access token, and its answers in
//! words.
//!
//! The operator's access token can end all impersonations. It comes from a file or the environment,
//! never from an argument, which all users of the machine can see. It is sent only to the given
//! address, because redirects are not followed, and it appears in no message.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use impersonation_core::issuer::Paths;
use impersonation_core::secret::Secret;
use impersonation_core::time::UnixTime;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::header::{DATE, HeaderName, LOCATION, RETRY_AFTER};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::display::escaped;
use super::proxy::{is_loopback, on_the_way_to};
use super::speaks_tls::speaks_tls;
use super::{Failure, open};

/// The environment variable with the access token, if no file is given.
const TOKEN: &str = "IMPERSONATION_TOKEN";

const CONNECT: Duration = Duration::from_secs(5);

/// The timeout of one request, from the look-up of the host name to the end of the answer.
const WHOLE: Duration = Duration::from_secs(20);

/// More pages than a list of the greatest capacity has. The bound stops at a service whose pages
/// never end.
const MOST_PAGES: usize = 20_000;

/// How long a service that says it is unavailable is asked again.
const PATIENCE: Duration = Duration::from_secs(8);

/// More than the longest page of a list.
const LONGEST_ANSWER: u64 = 16 << 20;

/// The form of dates in HTTP is one of those of RFC 5322 (RFC 9110 §5.6.7).
static HTTP_DATE: DateTimeParser = DateTimeParser::new();

/// More than any access token. It stops the reader of a file that is not a token.
const LONGEST_TOKEN: u64 = 64 << 10;

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
        let token = self.token()?;
        let Base { address, in_clear } = self.url.clone();
        if in_clear {
            eprintln!(
                "impersonation-filter: {address} is not https: the access token is sent in clear"
            );
        }
        let agent = agent(&address, self.cacert.as_deref())?;
        let list = self.impersonations_path.clone();
        Ok(Service { agent, address, list, token })
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

    fn token(&self) -> Result<Secret<String>, Failure> {
        if let Some(file) = &self.token_file {
            return token_in(file);
        }
        let text = std::env::var(TOKEN)
            .map_err(|_| Failure(format!("no access token: give --token-file, or set {TOKEN}")))?;
        token(TOKEN, &text)
    }
}

/// Returns a client for one address. It follows no redirect, as a token is for that address alone.
pub(super) fn agent(address: &str, cacert: Option<&Path>) -> Result<Agent, Failure> {
    // Without TLS no certificate is checked.
    let roots = match cacert {
        Some(file) => authorities(file)?,
        None if address.starts_with("https:") => own_authorities()?,
        None => RootCerts::Specific(Arc::default()),
    };
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build();
    let agent = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        // The library would take a proxy for http from the environment.
        .proxy(on_the_way_to(address)?)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(WHOLE))
        .user_agent(concat!("impersonation-filter/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    Ok(agent)
}

/// Reads a credential from a file: one line without spaces.
pub(super) fn token_in(file: &Path) -> Result<Secret<String>, Failure> {
    let mut text = String::new();
    open(file)
        .and_then(|file| file.take(LONGEST_TOKEN).read_to_string(&mut text))
        .map_err(|error| Failure::new(file.display(), error))?;
    token(&file.display().to_string(), &text)
}

/// Reads an access token (RFC 6750 §2.1). The error names where it came from, and nothing of it.
pub(super) fn token(name: &str, text: &str) -> Result<Secret<String>, Failure> {
    let token = text.trim();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    match !token.is_empty() && length < LONGEST_TOKEN && token.bytes().all(fits) {
        true => Ok(Secret::new(token.to_owned())),
        false => Err(Failure(format!("{name}: expected an access token and nothing else"))),
    }
}

/// A base address for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// The address without a slash at the end.
    pub(super) address: String,
    /// True if others on the network can read the requests.
    pub(super) in_clear: bool,
}

pub(super) fn base_address(text: &str) -> Result<Base, String> {
    let uri: Uri = text.parse().map_err(|_| "expected an http or https address")?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return Err("expected an http or https address, such as https://auth.example.com".into());
    };
    if authority.as_str().contains('@') || uri.query().is_some() || text.contains('#') {
        return Err("expected an address without a user, a query or a fragment".into());
    }
    Ok(Base {
        address: text.trim_end_matches('/').to_owned(),
        in_clear: scheme == "http" && !is_loopback(authority.host()),
    })
}

/// Reads the path of an endpoint, as it is in `paths` of the filter's configuration.
pub(super) fn endpoint_path(text: &str) -> Result<String, String> {
    let wrong = || "expected a normal path such as /api/impersonations, without a query".to_owned();
    Paths::may_have(text).then(|| text.to_owned()).ok_or_else(wrong)
}

fn authorities(file: &Path) -> Result<RootCerts, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(file.display(), error);
    let mut pem = Vec::new();
    open(file).and_then(|mut file| file.read_to_end(&mut pem)).map_err(|error| wrong(&error))?;
    let mut all = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(one) = item.map_err(|error| wrong(&error))? {
            all.push(one);
        }
    }
    if all.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(RootCerts::new_with_certs(&all))
}

fn own_authorities() -> Result<RootCerts, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let all: Vec<_> =
        found.certs.iter().map(|one| Certificate::from_der(one.as_ref()).to_owned()).collect();
    if all.is_empty() {
        let told = "this machine has no certificates of authorities: give --cacert";
        return Err(Failure(told.to_owned()));
    }
    Ok(RootCerts::new_with_certs(&all))
}

/// Percent-encodes text for a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The operator's request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    Get,
    Delete,
    Post(&'a Value),
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
    agent: Agent,
    address: String,
    list: String,
    token: Secret<String>,
}

impl Service {
    /// Returns the path of the list of impersonations. Each has a path of its own below, and so have
    /// revocations.
    pub(super) fn list(&self) -> &str {
        &self.list
    }

    /// Sends a request. If the service is unavailable, tries again for a few seconds. `scope` is
    /// the scope that the token needs.
    pub(super) fn ask(&self, ask: Ask<'_>, path: &str, scope: &str) -> Result<Done, NotDone> {
        let address = format!("{}{path}", self.address);
        // Do not print the query: it names people.
        let shown = address.split('?').next().unwrap_or_default().to_owned();
        let began = Instant::now();
        loop {
            let answer = self.send(ask, &address).map_err(|error| NotDone {
                message: format!("{shown}: {}", self.in_words(&error)),
                perhaps: !never_arrived(&error),
            })?;
            let status = answer.status().as_u16();
            let wait = retry_after(&answer);
            if matches!(status, 429 | 503) && began.elapsed().saturating_add(wait) <= PATIENCE {
                eprintln!("{shown}: {status}, trying again in {} s", wait.as_secs());
                sleep(wait);
                continue;
            }
            return match status {
                200..=299 => self.done(answer, shown),
                _ => Err(refused(answer, &shown, scope)),
            };
        }
    }

    /// Reads all pages of the list at `path`, which has a query. `take` keeps a page, and returns the
    /// cursor of the next one. Stops at a cursor that comes again.
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

    fn send(&self, ask: Ask<'_>, address: &str) -> Result<Response<Body>, ureq::Error> {
        let bearer = format!("Bearer {}", self.token.expose());
        match ask {
            Ask::Get => self.agent.get(address).header("authorization", bearer).call(),
            Ask::Delete => self.agent.delete(address).header("authorization", bearer).call(),
            Ask::Post(body) => self
                .agent
                .post(address)
                .header("authorization", bearer)
                .header("content-type", "application/json")
                .send(body.to_string()),
        }
    }

    fn done(&self, mut answer: Response<Body>, address: String) -> Result<Done, NotDone> {
        let date = header(&answer, DATE).and_then(|date| HTTP_DATE.parse_timestamp(date).ok());
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
        match body {
            Ok(body) => {
                let at = date.unwrap_or_else(Timestamp::now);
                Ok(Done { body, at: UnixTime::from_secs(at.as_second()), address })
            }
            Err(error) => {
                let message = format!("{address}: {}", in_words(&error));
                Err(NotDone { message, perhaps: true })
            }
        }
    }
}

fn header(answer: &Response<Body>, name: HeaderName) -> Option<&str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Reads `Retry-After` in seconds (RFC 9110 §10.2.3). The filter and Envoy never send a date.
fn retry_after(answer: &Response<Body>) -> Duration {
    let seconds = header(answer, RETRY_AFTER).and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(1).max(1))
}

/// Describes why there is no answer. The library's own message for an unknown host is hard to read.
pub(super) fn in_words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "there is no host of this name".into(),
        ureq::Error::Timeout(_) => "no answer in time".into(),
        ureq::Error::Io(error) => match error.get_ref().and_then(|it| it.downcast_ref()) {
            Some(error) => of_tls(error),
            None => escaped(&error.to_string()),
        },
        ureq::Error::Rustls(error) => of_tls(error),
        error => escaped(&error.to_string()),
    }
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => distrusted(why),
        rustls::Error::InvalidMessage(_) => {
            "this port does not speak TLS: if it is the right one, the address begins with http://"
                .to_owned()
        }
        error => escaped(&error.to_string()),
    }
}

fn distrusted(why: &rustls::CertificateError) -> String {
    format!(
        "its certificate is not trusted: {}. --cacert names an authority of your own",
        escaped(&why.to_string())
    )
}

/// Returns true if the request cannot have reached the service.
fn never_arrived(error: &ureq::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::ConnectProxyFailed(_)
        | ureq::Error::Rustls(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::Io(error) => {
            let from_tls = error.get_ref().is_some_and(|it| it.is::<rustls::Error>());
            // The standard library has no kind for it. If its message changes, more outcomes count
            // as unknown.
            let unknown_host = error.to_string().starts_with("failed to lookup");
            let unreachable = [ConnectionRefused, HostUnreachable, NetworkUnreachable];
            from_tls || unknown_host || unreachable.contains(&error.kind())
        }
        _ => false,
    }
}

/// Describes a refusal. The service's own description comes last, because it may be a proxy's.
fn refused(mut answer: Response<Body>, address: &str, scope: &str) -> NotDone {
    let status = answer.status().as_u16();
    let location = header(&answer, LOCATION).map(escaped);
    let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
    let body: Value = body.ok().and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_is_an_http_url_without_user_query_or_fragment() {
        #[rustfmt::skip]
        let cases = [
            ("https://auth.example.com",            Some(("https://auth.example.com", false))),
            ("https://auth.example.com/tenant-a/",  Some(("https://auth.example.com/tenant-a", false))),
            ("http://127.0.0.1:10000",              Some(("http://127.0.0.1:10000", false))),
            ("http://[::1]:10000/",                 Some(("http://[::1]:10000", false))),
            ("http://localhost",                    Some(("http://localhost", false))),
            ("http://auth.example.com",             Some(("http://auth.example.com", true))),
            ("http://127.0.0.1.example.com",        Some(("http://127.0.0.1.example.com", true))),
            ("auth.example.com",                    None),
            ("/api",                                None),
            ("ftp://auth.example.com",              None),
            ("https://me:secret@auth.example.com",  None),
            ("https://auth.example.com?x=1",        None),
            ("https://auth.example.com/#x",         None),
            ("",                                    None),
        ];
        for (text, expected) in cases {
            let expected =
                expected.map(|(address, in_clear)| Base { address: address.to_owned(), in_clear });
            assert_eq!(base_address(text).ok(), expected, "{text}");
        }
    }
}
