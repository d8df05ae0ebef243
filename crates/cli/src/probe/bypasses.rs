//! Checks of the guard: an impersonation reads what it may, and no spelling of a write gets to the API.

use ureq::http::{Method, Request};

use super::deployment::{Answer, At, Deployment, Impersonation, sent};
use super::report::{Outcome, Report};
use crate::Failure;

/// A request that must not get to the API.
struct Attempt {
    check: &'static str,
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
}

/// Runs the checks at every API. Returns how many APIs answered a read.
pub(super) fn check(
    deployment: &Deployment<'_>,
    impersonation: &Impersonation,
    report: &mut Report,
) -> usize {
    let token = impersonation.access_token.expose();
    let attempts = attempts(&deployment.settings.read, &deployment.settings.write, token);
    let mut reached: usize = 0;
    for at in &deployment.apis {
        let read = send(at, &reading(&deployment.settings.read, token));
        let marked = match read {
            Ok(answer) if (200..300).contains(&answer.status) => {
                report.add(&at.address, "an impersonation may read", Outcome::Holds);
                reached = reached.saturating_add(1);
                answer.from_upstream
            }
            Ok(answer) => {
                let told = format!("answered {}: is this path readable?", answer.in_short());
                report.add(&at.address, "an impersonation may read", Outcome::Fails(told));
                continue;
            }
            Err(Failure(message)) => {
                report.add(&at.address, "an impersonation may read", Outcome::Fails(message));
                continue;
            }
        };
        for attempt in &attempts {
            let outcome = match send(at, attempt) {
                Ok(answer) => judge(&answer, marked),
                Err(Failure(message)) => Outcome::Fails(message),
            };
            report.add(&at.address, attempt.check, outcome);
        }
    }
    reached
}

/// A read with an impersonation's access token.
fn reading(path: &str, token: &str) -> Attempt {
    Attempt {
        check: "an impersonation may read",
        method: Method::GET,
        target: path.to_owned(),
        headers: vec![("authorization", format!("Bearer {token}"))],
    }
}

/// Sends a request to an API.
fn send(at: &At, attempt: &Attempt) -> Result<Answer, Failure> {
    let address = format!("{}{}", at.address, attempt.target);
    let mut request = Request::builder().method(attempt.method.clone()).uri(address);
    for (name, value) in &attempt.headers {
        request = request.header(*name, value);
    }
    let request = request.body(()).map_err(|error| Failure::new(attempt.check, error))?;
    sent(at, at.agent.run(request))
}

/// Reads with the access token of an impersonation. Returns the answer of the API, or of what stands
/// before it.
pub(super) fn read(at: &At, path: &str, token: &str) -> Result<Answer, Failure> {
    send(at, &reading(path, token))
}

/// Decides whether a request was refused before it got to the API. `marked` says that Envoy marks the
/// answers of this API, so that an answer without the mark is Envoy's own.
fn judge(answer: &Answer, marked: bool) -> Outcome {
    let status = answer.status;
    if answer.from_upstream || (200..300).contains(&status) || status == 101 {
        return Outcome::Fails(format!("the API answered {}", answer.in_short()));
    }
    // Envoy itself refuses odd paths with 400, redirects them, or has no route for them.
    let by_envoy = marked && matches!(status, 301 | 302 | 307 | 308 | 400 | 404);
    let by_guard = matches!(status, 401 | 403) && answer.challenge.starts_with("Bearer");
    match by_envoy || by_guard {
        true => Outcome::Holds,
        false => Outcome::Fails(format!("answered {}, and not by the guard", answer.in_short())),
    }
}

/// Every way around the guard that is known, for these paths.
fn attempts(read: &str, write: &str, token: &str) -> Vec<Attempt> {
    let bearer = || ("authorization", format!("Bearer {token}"));
    let attempt = |check, method, target: String, mut headers: Vec<(&'static str, String)>| {
        headers.push(bearer());
        Attempt { check, method, target, headers }
    };
    let writing = |check, target| attempt(check, Method::POST, target, Vec::new());
    let overriding = |check, name| {
        attempt(check, Method::GET, read.to_owned(), vec![(name, "DELETE".to_owned())])
    };
    let rest = write.strip_prefix('/').unwrap_or(write);
    let (first, others) = rest.split_at(rest.len().min(1));
    let encoded: String = first.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let without_token = |check, method, target| Attempt { check, method, target, headers: vec![] };
    let two = |check, tokens: [&str; 2]| Attempt {
        check,
        method: Method::POST,
        target: write.to_owned(),
        headers: tokens.map(|it| ("authorization", format!("Bearer {it}"))).into(),
    };
    vec![
        without_token("a read without a token is refused", Method::GET, read.to_owned()),
        without_token(
            "a token in the query does not read",
            Method::GET,
            format!("{read}?access_token={token}"),
        ),
        without_token(
            "a token in the query does not write",
            Method::POST,
            format!("{write}?access_token={token}"),
        ),
        writing("a write is refused", write.to_owned()),
        two("a write with a second token is refused", [token, "x.y.z"]),
        two("a write with a first token is refused", ["x.y.z", token]),
        two("a write with the token twice is refused", [token, token]),
        writing("a write in capitals is refused", write.to_uppercase()),
        writing("a write with a slash at the end is refused", format!("{write}/")),
        writing("a write with a parameter is refused", format!("{write};a=b")),
        writing("a write with an encoded parameter is refused", format!("{write}%3ba=b")),
        writing("a write with two slashes is refused", format!("/{write}")),
        writing("a write with an encoded slash is refused", format!("/.%2f{rest}")),
        writing("a write with an encoded letter is refused", format!("/{encoded}{others}")),
        writing("a write with a dot segment is refused", format!("/.{write}")),
        writing("a write by way of another path is refused", format!("{read}/..{write}")),
        writing("a write behind an encoded slash is refused", format!("{read}/..%2f{rest}")),
        writing("a write with an encoded zero is refused", format!("{write}%00")),
        overriding("x-http-method-override is refused", "x-http-method-override"),
        overriding("x_http_method_override is refused", "x_http_method_override"),
        overriding("x-http-method is refused", "x-http-method"),
        overriding("x-method-override is refused", "x-method-override"),
        attempt(
            "a method in the query is refused",
            Method::GET,
            format!("{read}?_method=DELETE"),
            Vec::new(),
        ),
        attempt(
            "a method in the query, as PHP reads it, is refused",
            Method::GET,
            format!("{read}?.method=DELETE"),
            Vec::new(),
        ),
        attempt(
            "a path in x-original-url is refused",
            Method::POST,
            read.to_owned(),
            vec![("x-original-url", write.to_owned())],
        ),
        attempt(
            "an upgrade is refused",
            Method::GET,
            write.to_owned(),
            vec![
                ("connection", "Upgrade".to_owned()),
                ("upgrade", "websocket".to_owned()),
                ("sec-websocket-version", "13".to_owned()),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==".to_owned()),
            ],
        ),
    ]
}
