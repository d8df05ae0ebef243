//! The HTTP client of all subcommands: addresses, access tokens, certificates, and failures in
//! words.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use impersonation_core::secret::Secret;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use ureq::http::{HeaderMap, Method, Request, Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, AsSendBody, Body};

use super::display::{Keep, escaped, shortened};
use super::proxy::{is_loopback, on_the_way_to};
use super::{Failure, open, text_in};

const CONNECT: Duration = Duration::from_secs(5);

/// The timeout of one request, from the look-up of the host name to the end of the answer.
const WHOLE: Duration = Duration::from_secs(20);

/// How long a service that says it is unavailable is asked again.
const PATIENCE: Duration = Duration::from_secs(8);

/// The least pause before the next request.
const PAUSE: Duration = Duration::from_secs(1);

/// More than the longest page of a list, and than the metrics of an Envoy with thousands of
/// clusters.
const LONGEST_ANSWER: u64 = 64 << 20;

/// How much of an address a message shows.
const LONGEST_SHOWN: usize = 200;

/// More than any access token.
const LONGEST_TOKEN: usize = 64 << 10;

/// The HTTP client of one address. It follows no redirect, as a token is for that address alone.
#[derive(Debug, Clone)]
pub(super) struct Client(Agent);

/// A request for a service that speaks JSON.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    Get,
    Delete,
    Post(&'a Value),
    Patch(&'a Value),
}

impl Client {
    pub(super) fn new(address: &str, cacert: Option<&Path>) -> Result<Self, Failure> {
        // Without TLS no certificate is checked.
        let roots = match cacert {
            Some(file) => authorities(file)?,
            None if address.starts_with("https:") => own_authorities()?,
            None => RootCerts::Specific(Arc::default()),
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            // `post`, a method of no standard, is one of the probe's attempts.
            .allow_non_standard_methods(true)
            // The library would take a proxy for http from the environment.
            .proxy(on_the_way_to(address)?)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(WHOLE))
            .user_agent(concat!("impersonation-filter/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self(agent.into()))
    }

    /// Sends a request. The body of the response is read later.
    pub(super) fn send(
        &self,
        request: Request<impl AsSendBody>,
    ) -> Result<Response<Body>, ureq::Error> {
        self.0.run(request)
    }

    /// Sends a request whose response may take so long.
    pub(super) fn open(
        &self,
        request: Request<()>,
        longest: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        self.0.run(self.0.configure_request(request).timeout_global(Some(longest)).build())
    }

    /// Asks a service, with an access token or without one.
    pub(super) fn ask(
        &self,
        ask: Ask<'_>,
        address: &str,
        token: Option<&Secret<String>>,
    ) -> Result<Reply, ureq::Error> {
        let (method, body) = match ask {
            Ask::Get => (Method::GET, None),
            Ask::Delete => (Method::DELETE, None),
            Ask::Post(body) => (Method::POST, Some(body)),
            Ask::Patch(body) => (Method::PATCH, Some(body)),
        };
        let mut request = Request::builder().method(method).uri(address);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, bearer(token));
        }
        let answer = match body {
            Some(body) => {
                let request = request.header(CONTENT_TYPE, "application/json");
                self.send(request.body(body.to_string())?)
            }
            None => self.send(request.body(())?),
        };
        answer.map(Reply::read)
    }

    /// Asks a service. If it is unavailable, asks again for a few seconds.
    pub(super) fn ask_patiently(
        &self,
        ask: Ask<'_>,
        address: &str,
        token: &Secret<String>,
    ) -> Result<Reply, ureq::Error> {
        let began = Instant::now();
        loop {
            let answer = self.ask(ask, address, Some(token))?;
            let pause = answer.retry_after().unwrap_or_default().max(PAUSE);
            let is_unavailable = matches!(answer.status, 429 | 503);
            if !is_unavailable || began.elapsed().saturating_add(pause) > PATIENCE {
                return Ok(answer);
            }
            let (at, status) = (shown(address), answer.status);
            eprintln!("{at}: {status}, trying again in {} s", pause.as_secs());
            sleep(pause);
        }
    }
}

/// The answer of a service.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: HeaderMap,
    /// The body, or the reason why it could not be read.
    pub(super) body: Result<Vec<u8>, ureq::Error>,
}

impl Reply {
    fn read(mut answer: Response<Body>) -> Self {
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
        let (parts, _) = answer.into_parts();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }

    /// Returns the body if it is JSON, else null.
    pub(super) fn json(&self) -> Value {
        let body = self.body.as_deref().unwrap_or_default();
        serde_json::from_slice(body).unwrap_or_default()
    }
}

/// Reads `Retry-After` in seconds (RFC 9110 §10.2.3). The filter and Envoy never send a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Returns the value of an `Authorization` header.
pub(super) fn bearer(token: &Secret<String>) -> String {
    format!("Bearer {}", token.expose())
}

/// Reads an access token from a file, or else from an environment variable.
pub(super) fn token_from(file: Option<&Path>, variable: &str) -> Result<Secret<String>, Failure> {
    if let Some(file) = file {
        return token_in(file);
    }
    let text = std::env::var(variable)
        .map_err(|_| Failure(format!("no access token: give --token-file, or set {variable}")))?;
    token(variable, &text)
}

/// Reads a credential from a file: one line without spaces.
pub(super) fn token_in(file: &Path) -> Result<Secret<String>, Failure> {
    token(&file.display().to_string(), &text_in(file)?)
}

/// Reads an access token (RFC 6750 §2.1). The error names where it came from, and nothing of it.
fn token(name: &str, text: &str) -> Result<Secret<String>, Failure> {
    let token = text.trim();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    match !token.is_empty() && token.len() < LONGEST_TOKEN && token.bytes().all(fits) {
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

impl Base {
    /// Warns of an address on whose way others read the access token.
    pub(super) fn warn_if_in_clear(&self) {
        if self.in_clear {
            let address = &self.address;
            eprintln!(
                "impersonation-filter: {address} is not https: access tokens are sent in clear"
            );
        }
    }
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

/// Returns an address without its query, which names people, safe to print.
pub(super) fn shown(address: &str) -> String {
    let address = address.split('?').next().unwrap_or_default();
    shortened(&escaped(address), LONGEST_SHOWN, Keep::Beginning)
}

/// Percent-encodes text for a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
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
pub(super) fn never_arrived(error: &ureq::Error) -> bool {
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
