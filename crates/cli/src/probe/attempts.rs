//! Every way around the guard that its tests know, as requests.
//!
//! tests/envoy/probe.rs compares these requests with the tables of tests/envoy/guard/bypass.rs. A
//! way that is added there must be added here.
//!
//! Two of the tests' methods are missing, PROPFIND and TRACE. They write nothing, so a guard with
//! `default: allow` may let them pass. Headers with odd names are missing, too: Envoy may remove
//! them, and then the request is an ordinary one. Each method override and each upgrade is tried on
//! the path that may not be written, because a rule may allow all methods of the other path.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::secret::Secret;
use serde_json::{Value, json};
use ureq::http::{Method, Request};

use super::answer::{Answer, Reading};
use super::credential::{Credential, Key, Target};
use super::deployment::{At, Deployment, built};
use super::report::Group;
use super::settings::Settings;
use crate::Failure;

/// The headers in which some deployments expect an access token.
const TOKEN_HEADERS: [&str; 8] = [
    "x-token",
    "x-access-token",
    "x-auth-token",
    "x-jwt-token",
    "x-jwt-assertion",
    "x-forwarded-access-token",
    "access-token",
    "token",
];

/// The names under which some deployments expect an access token in a cookie.
const TOKEN_COOKIES: [&str; 5] = ["access_token", "token", "jwt", "bearer", "authorization"];

/// A request that must not get to the API.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) group: Group,
    pub(super) check: String,
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    /// The token that a new proof is made for, each time the request is sent. A thief has none.
    proving: Option<Credential>,
}

impl Attempt {
    /// Sends the request.
    pub(super) fn send(&self, deployment: &Deployment, at: &At) -> Result<Answer, Failure> {
        deployment.send(at, &self.request(at)?, Reading::IfShort)
    }

    /// Sends the request once, even if the address says that it is unavailable.
    pub(super) fn send_once(&self, at: &At) -> Result<Answer, Failure> {
        at.send(self.request(at)?, Reading::IfShort)
    }

    /// Sends the request without the access token. A preflight and a token elsewhere than in
    /// `Authorization` have no such control.
    pub(super) fn send_without_token(
        &self,
        deployment: &Deployment,
        at: &At,
    ) -> Option<Result<Answer, Failure>> {
        let mut control = self.clone();
        control.headers.retain(|(name, _)| *name != "authorization");
        control.proving = None;
        (control.headers.len() < self.headers.len()).then(|| control.send(deployment, at))
    }

    fn request(&self, at: &At) -> Result<Request<()>, Failure> {
        let uri = format!("{}{}", at.address, self.target);
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if let Some(credential) = &self.proving {
            let url = at.public(&self.target);
            let target = Target { method: self.method.as_str(), url: &url };
            request = credential.proving(request, target);
        }
        built(at, request, ())
    }

    /// Returns true for the preflight of a browser, which Envoy's cors filter may answer.
    pub(super) fn is_preflight(&self) -> bool {
        self.method == Method::OPTIONS
    }
}

/// A read with an access token.
pub(super) fn reading(path: &str, credential: &Credential) -> Attempt {
    Attempt {
        group: Group::Reads,
        check: "a read is answered".to_owned(),
        method: Method::GET,
        target: path.to_owned(),
        headers: vec![("authorization", credential.authorization())],
        proving: Some(credential.clone()),
    }
}

/// A read on a connection of its own, which another worker of Envoy may serve.
pub(super) fn reading_anew(path: &str, credential: &Credential) -> Attempt {
    let mut attempt = reading(path, credential);
    attempt.headers.push(("connection", "close".to_owned()));
    attempt
}

/// A write with an access token, on a connection of its own.
pub(super) fn writing(path: &str, credential: &Credential) -> Attempt {
    Attempt {
        group: Group::Writes,
        check: "a write is refused".to_owned(),
        method: Method::POST,
        target: path.to_owned(),
        headers: vec![
            ("authorization", credential.authorization()),
            ("connection", "close".to_owned()),
        ],
        proving: Some(credential.clone()),
    }
}

/// All attempts besides the plain write.
pub(super) fn all(
    settings: &Settings,
    credential: &Credential,
    refused: &[(String, Secret<String>)],
) -> Vec<Attempt> {
    let Settings { read, write, .. } = settings;
    let all = [
        of_tokens(read, write, credential),
        of_refused_tokens(read, refused),
        of_paths(read, write, credential),
        of_methods(write, credential),
    ];
    all.into_iter().flatten().collect()
}

fn of_tokens(read: &str, write: &str, credential: &Credential) -> Vec<Attempt> {
    let token = credential.token.expose();
    let scheme = credential.scheme();
    let attempt = |check: &str, method, target: &str, headers| Attempt {
        group: Group::Tokens,
        check: check.to_owned(),
        method,
        target: target.to_owned(),
        headers,
        proving: Some(credential.clone()),
    };
    let reading = |check, headers| attempt(check, Method::GET, read, headers);
    let writing = |check, headers| attempt(check, Method::POST, write, headers);
    let authorization = |value: String| vec![("authorization", value)];
    let bearer = |token: &str| format!("{scheme} {token}");
    let two = |check, [first, second]: [&str; 2]| {
        writing(check, vec![("authorization", bearer(first)), ("authorization", bearer(second))])
    };
    let in_query = |path: &str| format!("{path}?access_token={token}");
    let in_headers = |value: &str| TOKEN_HEADERS.map(|name| (name, value.to_owned())).to_vec();
    let cookies = TOKEN_COOKIES.map(|name| format!("{name}={token}")).join("; ");
    // With a token it counts as a read.
    let preflight = vec![
        ("origin", "https://probe.invalid".to_owned()),
        ("access-control-request-method", "POST".to_owned()),
    ];
    #[rustfmt::skip]
    let attempts = [
        reading("a read without a token is refused",                     Vec::new()),
        attempt("a token in the query does not read", Method::GET,       &in_query(read), Vec::new()),
        attempt("a token in the query does not write", Method::POST,     &in_query(write), Vec::new()),
        attempt("a token in the header and the query does not write", Method::POST, &in_query(write), authorization(bearer(token))),
        reading("a token in another header does not read",               in_headers(token)),
        reading("a token with a scheme in another header does not read", in_headers(&bearer(token))),
        reading("a token in a cookie does not read",                     vec![("cookie", cookies)]),
        two("a write with a second token is refused",                    [token, "x.y.z"]),
        two("a write with a first token is refused",                     ["x.y.z", token]),
        two("a write with the token twice is refused",                   [token, token]),
        writing("a write with the scheme in small letters is refused",   authorization(format!("{} {token}", scheme.to_lowercase()))),
        writing("a write with the scheme in capitals is refused",        authorization(format!("{} {token}", scheme.to_uppercase()))),
        writing("a write with a token without a scheme is refused",      authorization(token.clone())),
        reading("a token that is none does not read",                    authorization(bearer("x.y.z"))),
        reading("a token with a changed signature does not read",        authorization(bearer(&with_another_signature(token)))),
        reading("a token with changed claims does not read",             authorization(bearer(&without_txn(token)))),
        reading("a token without a signature does not read",             authorization(bearer(&unsigned(token)))),
        attempt("a preflight does not get to the API", Method::OPTIONS,  write, preflight),
    ];
    attempts.into()
}

/// The attempts of a thief who has an access token that is bound to a key. A thief may also have
/// seen a proof for another request.
pub(super) fn of_a_thief(at: &At, read: &str, credential: &Credential) -> Vec<Attempt> {
    let Some(key) = &credential.key else { return Vec::new() };
    let (own, thief) = (&**key, &Key::new());
    let token = credential.token.expose();
    let url = &at.public(read);
    let proof = |key: &Key, method, url: &str, token: &str| {
        key.prove(Target { method, url }, Some(token), None)
    };
    let attempt = |check: &str, scheme: &str, proofs: Vec<String>| {
        let authorization = ("authorization", format!("{scheme} {token}"));
        let proofs = proofs.into_iter().map(|proof| ("dpop", proof));
        Attempt {
            group: Group::Bound,
            check: format!("a bound token {check} does not read"),
            headers: [authorization].into_iter().chain(proofs).collect(),
            proving: None,
            ..reading(read, credential)
        }
    };
    let by = |key: &Key| vec![proof(key, "GET", url, token)];
    let elsewhere = |method, url: &str| vec![proof(own, method, url, token)];
    #[rustfmt::skip]
    let attempts = [
        attempt("without a proof",                        "DPoP",   Vec::new()),
        attempt("as a bearer token",                      "Bearer", Vec::new()),
        attempt("as a bearer token with a proof",         "Bearer", by(own)),
        attempt("with a proof by another key",            "DPoP",   by(thief)),
        attempt("as a bearer token with a proof by another key", "Bearer", by(thief)),
        attempt("with a proof for another method",        "DPoP",   elsewhere("POST", url)),
        attempt("with a proof for another path",          "DPoP",   elsewhere("GET", &format!("{url}/another"))),
        attempt("with a proof for another host",          "DPoP",   elsewhere("GET", "https://probe.invalid/")),
        attempt("with a proof for another token",         "DPoP",   vec![proof(own, "GET", url, "x.y.z")]),
        attempt("with a proof for no token",              "DPoP",   vec![own.prove(Target { method: "GET", url }, None, None)]),
        attempt("with two proofs",                        "DPoP",   [by(thief), by(own)].concat()),
        attempt("with a proof that is none",              "DPoP",   vec!["x.y.z".to_owned()]),
        attempt("behind another scheme",                  "Basic x,DPoP", by(own)),
    ];
    attempts.into()
}

/// A read with a proof that does not change when the request is sent again.
pub(super) fn with_one_proof(at: &At, read: &str, credential: &Credential) -> Option<Attempt> {
    let key = credential.key.as_ref()?;
    let target = Target { method: "GET", url: &at.public(read) };
    let proof = key.prove(target, Some(credential.token.expose()), None);
    let headers = vec![("authorization", credential.authorization()), ("dpop", proof)];
    let check = "a bound token with a used proof does not read".to_owned();
    let group = Group::Bound;
    Some(Attempt { group, check, headers, proving: None, ..reading_anew(read, credential) })
}

fn of_refused_tokens(read: &str, refused: &[(String, Secret<String>)]) -> Vec<Attempt> {
    let attempt = |(name, token): &(String, Secret<String>)| Attempt {
        group: Group::Tokens,
        check: format!("the token in {name} does not read"),
        ..reading(read, &Credential::bearer(token.clone()))
    };
    refused.iter().map(attempt).collect()
}

fn of_paths(read: &str, write: &str, credential: &Credential) -> Vec<Attempt> {
    let rest = write.strip_prefix('/').unwrap_or(write);
    let mut letters = rest.chars();
    let first = letters.next().map_or(0, u32::from);
    let others = letters.as_str();
    // From the path that may be read to the root.
    let up = |step: &str| step.repeat(read.matches('/').count());
    #[rustfmt::skip]
    let mut spellings = vec![
        ("a query",                    format!("{write}?a={read}")),
        ("an empty query",             format!("{write}?")),
        ("a slash at the end",         format!("{write}/")),
        ("an encoded slash at the end", format!("{write}%2F")),
        ("capitals",                   write.to_uppercase()),
        ("small letters",              write.to_lowercase()),
        ("an empty first segment",     format!("/{write}")),
        ("a dot segment before it",    format!("/.{write}")),
        ("a way up and down",          format!("{read}{}{write}", up("/.."))),
        ("an encoded way up",          format!("{read}{}{write}", up("/%2e%2e"))),
        ("a half encoded way up",      format!("{read}{}{write}", up("/.%2E"))),
        ("a way up behind a slash",    format!("{read}{}%2F{rest}", up("/.."))),
        ("a way up behind a small encoded slash", format!("{read}{}%2f{rest}", up("/.."))),
        ("a way up behind a backslash", format!("{read}{}%5c{rest}", up("/.."))),
        ("a way up with a parameter",  format!("{read}{}{write}", up("/..;"))),
        ("an encoded letter",          format!("/%{first:02x}{others}")),
        ("a parameter at the end",     format!("{write};a=b")),
        ("an encoded parameter at the end", format!("{write}%3ba=b")),
        ("a dot at the end",           format!("{write}.")),
        ("an encoded space",           format!("{write}%20")),
        ("an encoded tab",             format!("{write}%09")),
        ("an encoded zero",            format!("{write}%00")),
        ("an encoded query",           format!("{write}%3Fa")),
        ("an encoded fragment",        format!("{write}%23a")),
    ];
    if let Some((head, tail)) = write.rsplit_once('/').filter(|(head, _)| !head.is_empty()) {
        #[rustfmt::skip]
        spellings.extend([
            ("an empty segment",       format!("{head}//{tail}")),
            ("a dot segment",          format!("{head}/./{tail}")),
            ("an encoded slash",       format!("{head}%2F{tail}")),
            ("a small encoded slash",  format!("{head}%2f{tail}")),
            ("a slash encoded twice",  format!("{head}%252F{tail}")),
            ("a backslash",            format!("{head}\\{tail}")),
            ("an encoded backslash",   format!("{head}%5c{tail}")),
            ("a slash that is not UTF-8", format!("{head}%c0%af{tail}")),
            ("a parameter",            format!("{head};a=b/{tail}")),
            ("an encoded parameter",   format!("{head}%3ba=b/{tail}")),
            ("a dot behind a segment", format!("{head}./{tail}")),
        ]);
    }
    // A path without letters has no other letter case: the plain write is that attempt.
    spellings.retain(|(_, target)| target != write);
    let respelt = spellings.into_iter().map(|(spelling, target)| Attempt {
        group: Group::Paths,
        check: format!("a write with {spelling} is refused"),
        target,
        ..writing(write, credential)
    });
    let elsewhere = ["x-original-url", "x-rewrite-url"].map(|name| Attempt {
        group: Group::Paths,
        check: format!("a write with the path in {name} is refused"),
        headers: vec![("authorization", credential.authorization()), (name, write.to_owned())],
        ..writing(read, credential)
    });
    respelt.chain(elsewhere).map(on_a_kept_connection).collect()
}

fn of_methods(write: &str, credential: &Credential) -> Vec<Attempt> {
    let attempt = |check: String, method, target: String, headers: &[(&'static str, &str)]| {
        let mut all = vec![("authorization", credential.authorization())];
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let proving = Some(credential.clone());
        Attempt { group: Group::Methods, check, method, target, headers: all, proving }
    };
    let writes = [Method::PUT, Method::PATCH, Method::DELETE];
    let small = Method::from_bytes(b"post").ok();
    let writes = writes.into_iter().chain(small).map(|method| {
        attempt(format!("a write with {method} is refused"), method, write.to_owned(), &[])
    });
    #[rustfmt::skip]
    let headers = [
        ("x-http-method-override", "POST"),
        ("x-http-method-override", "GET"),
        ("x-http-method-override", ""),
        ("x-http-method",          "POST"),
        ("x-method-override",      "POST"),
        ("x-override-method",      "POST"),
        ("x-forwarded-method",     "POST"),
        ("x-tunneled-method",      "POST"),
    ];
    let in_headers = headers.map(|(name, value)| {
        let check = format!("a write in a read with {name}: {value} is refused");
        attempt(check, Method::GET, write.to_owned(), &[(name, value)])
    });
    let parameters = [
        "_method=POST",
        "a=b&%5fmethod=POST",
        ".method=POST",
        "+_method=POST",
        "%20_method=POST",
        "_method%00=POST",
        "_method[]=POST",
        "_method%5Bx%5D=POST",
        "[_method]=POST",
        "a=b;_Method=POST",
        "_HttpMethod=POST",
        "$httpMethod=POST",
        "method=POST",
    ];
    let in_the_query = parameters.map(|parameter| {
        let check = format!("a write in a read with ?{parameter} is refused");
        attempt(check, Method::GET, format!("{write}?{parameter}"), &[])
    });
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let upgrade =
        attempt("an upgrade is refused".to_owned(), Method::GET, write.to_owned(), &upgrade);
    writes.chain(in_headers).chain(in_the_query).chain([upgrade]).collect()
}

/// The plain write has a connection of its own. The others need none.
fn on_a_kept_connection(mut attempt: Attempt) -> Attempt {
    attempt.headers.retain(|(name, _)| *name != "connection");
    attempt
}

/// Replaces a character in the middle of the signature. The last character may have unused bits.
fn with_another_signature(token: &str) -> String {
    let Some((signed, signature)) = token.rsplit_once('.') else { return "x.y.z".to_owned() };
    let middle = signature.len() / 2;
    let changed = signature.chars().enumerate().map(|(index, character)| match character {
        'A' if index == middle => 'B',
        _ if index == middle => 'A',
        other => other,
    });
    format!("{signed}.{}", changed.collect::<String>())
}

/// Removes what makes the token an impersonation's, under the old signature.
fn without_txn(token: &str) -> String {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature)) = (parts.next(), parts.next(), parts.next())
    else {
        return "x.y.z".to_owned();
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
    let mut claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
    if let Some(members) = claims.as_object_mut() {
        members.retain(|name, _| !["txn", "act"].contains(&&**name));
    }
    format!("{header}.{}.{signature}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// The claims under the algorithm `none` (RFC 7519 §6).
fn unsigned(token: &str) -> String {
    let claims = without_txn(token);
    let claims = claims.split('.').nth(1).unwrap_or_default();
    let header = json!({"alg": "none", "typ": "at+jwt"}).to_string();
    format!("{}.{claims}.", BASE64_URL_SAFE_NO_PAD.encode(header))
}
