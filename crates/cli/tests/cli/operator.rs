//! Tests of the rules that `list` and `revoke` share: the source and the destination of the access
//! token, and the messages about a service that refuses or fails. The service is a fake; a real one
//! is in `tests/envoy/operator.rs`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::Findings;
use testkit::server::{Fault, Reply, Server};
use testkit::tls::Authority;

use crate::{command, file, fresh, stdout};

pub(crate) const TOKEN: &str = "the-operators.token_~+/==";

/// Starts a service that gives this answer to every request.
pub(crate) fn service(reply: Reply) -> Server {
    let server = Server::start("service");
    server.answer_always(reply);
    server
}

/// Returns a command for this service, with the access token in the environment.
pub(crate) fn asking(server: &Server, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command
        .env("IMPERSONATION_URL", format!("http://{}", server.address))
        .env("IMPERSONATION_TOKEN", TOKEN);
    command
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn refusal(status: u16, error: &str, description: &str) -> Reply {
    let body = json!({"error": error, "error_description": description});
    Reply { status, ..Reply::json(&body) }
}

fn empty() -> Reply {
    Reply::json(&json!({"impersonations": [], "cursor": null, "complete": true}))
}

/// One command for each kind of request.
const ASKED: [&[&str]; 3] =
    [&["list"], &["revoke", "--actor", "agent-1"], &["revoke", "--id", "x"]];

#[test]
fn the_access_token_comes_from_a_file_standard_input_or_the_environment_and_is_no_argument() {
    let server = service(empty());
    let url = format!("http://{}/tenant-a/", server.address);
    let token = file("token", &format!("{TOKEN}\n"));
    let given = ["list", "--url", &url, "--token-file"];

    let from_file = [&given[..], &[token.to_str().unwrap()]].concat();
    assert_eq!(command(&from_file).output().unwrap().status.code(), Some(0));

    let mut child = command(&[&given[..], &["-"]].concat())
        .env("IMPERSONATION_TOKEN", "another")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(TOKEN.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let output = command(&given[..3]).env("IMPERSONATION_TOKEN", TOKEN).output().unwrap();
    assert_eq!(output.status.code(), Some(0));

    let received = server.received();
    assert_eq!(received.len(), 3);
    for received in received {
        assert_eq!(received.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
        assert!(received.target.starts_with("/tenant-a/api/impersonations?"), "{received:?}");
    }
    for argument in ["--token", "--bearer"] {
        let output = command(&["list", "--url", &url, argument, TOKEN]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{argument}");
    }
    assert_eq!(server.calls(), 3);
}

#[test]
fn without_an_address_or_a_token_nothing_is_asked() {
    let server = service(empty());
    let url = format!("http://{}", server.address);
    let several = file("several", "one two");
    let blank = file("blank", "\n");
    let long = file("long", &"a".repeat(1 << 20));
    let missing = fresh("missing");
    let mut findings = Findings::default();
    let mut refused = |case: &str, command: &mut Command| {
        let output = command.output().unwrap();
        findings.expect(case, &output.status.code(), &Some(2));
        findings.expect(format!("{case}: told"), &output.stderr.is_empty(), &false);
        findings.expect(format!("{case}: the token"), &errors(&output).contains("secret"), &false);
    };
    for asked in ASKED {
        let with = |more: &[&str]| command(&[asked, more].concat());
        refused("no token", &mut with(&["--url", &url]));
        refused("no address", with(&[]).env("IMPERSONATION_TOKEN", TOKEN));
        refused("no http", with(&["--url", "auth.example.com"]).env("IMPERSONATION_TOKEN", TOKEN));
        for token in ["", "a secret", "secret\nmore", "sécret"] {
            refused(token, with(&["--url", &url]).env("IMPERSONATION_TOKEN", token));
        }
        for path in [&several, &blank, &long, &missing] {
            let path = path.to_str().unwrap();
            refused(path, &mut with(&["--url", &url, "--token-file", path]));
        }
        let no_authority = ["--url", &url, "--cacert", blank.to_str().unwrap()];
        refused("no authority", with(&no_authority).env("IMPERSONATION_TOKEN", TOKEN));
    }
    drop(findings);
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_refusal_is_told_in_words_that_name_the_address_and_never_the_token() {
    let escape = "\u{1b}[2J\u{9b}31m";
    #[rustfmt::skip]
    let cases = [
        ("a token that is not good",    refusal(401, "invalid_token", "expired"),               "401: the access token is not accepted"),
        ("a token without the scope",   refusal(403, "insufficient_scope", "scope"),            "403: the access token lacks the scope impersonations:"),
        ("nobody is configured",        refusal(403, "access_denied", "nobody may"),            "403: not allowed (nobody may)"),
        ("an error of the filter",      refusal(500, "server_error", "it failed"),              "500: refused (it failed)"),
        ("another page",                Reply::status(404),                                     "is this the service's base address?"),
        ("a redirect",                  Reply::status(302).header("location", "http://evil/"),  "302: a redirect to http://evil/, which is not followed"),
        ("a redirect of the method",    Reply::status(307).header("location", "/elsewhere"),    "307: a redirect to /elsewhere, which is not followed"),
        ("a terminal's commands",       refusal(403, "access_denied", escape),                  "403: not allowed (\\u{1b}[2J\\u{9b}31m)"),
    ];
    let mut findings = Findings::default();
    for (case, reply, told) in cases {
        let server = service(reply);
        for asked in ASKED {
            let output = asking(&server, asked).output().unwrap();
            let errors = errors(&output);
            findings.expect(case, &output.status.code(), &Some(1));
            findings.expect(format!("{case}: stdout"), &stdout(&output), &"");
            findings.expect(format!("{case}: the token"), &errors.contains(TOKEN), &false);
            let address = format!("http://{}/api/impersonations", server.address);
            for part in [told, &address] {
                if !errors.contains(part) {
                    findings.add(format!("{case}: no {part:?} in {errors:?}"));
                }
            }
            findings.expect(
                format!("{case}: a control"),
                &errors.contains(['\u{1b}', '\u{9b}']),
                &false,
            );
        }
        findings.expect(format!("{case}: requests"), &server.calls(), &ASKED.len());
    }
}

#[test]
fn an_unavailable_service_is_asked_again_for_a_few_seconds() {
    for status in [503, 429] {
        let server = Server::start("service");
        server.answer(move |received| match received.index {
            0 => refusal(status, "temporarily_unavailable", "later").header("retry-after", "1"),
            _ => empty(),
        });
        let output = asking(&server, &["list"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(errors(&output).contains("trying again in 1 s"));
        assert_eq!(server.calls(), 2);
    }
    // An operator who ends impersonations cannot wait for a minute.
    let server =
        service(refusal(503, "temporarily_unavailable", "later").header("retry-after", "60"));
    let began = Instant::now();
    let output = asking(&server, &["revoke", "--all", "--yes"]).output().unwrap();
    assert_eq!((output.status.code(), server.calls()), (Some(1), 1));
    assert!(began.elapsed().as_secs() < 60);
    assert!(errors(&output).contains("503: not available"), "{}", errors(&output));
    assert!(errors(&output).contains("nothing has ended"), "{}", errors(&output));
}

/// A proxy would read the access token, and could answer "has ended" about an impersonation that
/// goes on.
#[test]
fn an_http_address_is_reached_without_any_proxy() {
    const PROXIES: [&str; 6] =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let (server, proxy) = (service(empty()), service(empty()));
    for name in PROXIES {
        let mut asking = asking(&server, &["list"]);
        let output = asking.env(name, format!("http://{}", proxy.address)).output().unwrap();
        assert_eq!((output.status.code(), &*errors(&output)), (Some(0), ""), "{name}");
    }
    assert_eq!((server.calls(), proxy.calls()), (PROXIES.len(), 0));
}

#[test]
fn an_https_address_is_reached_by_way_of_the_proxy_that_is_named() {
    let authority = Authority::new(&fresh("authority"));
    let authority = authority.certificate.to_str().unwrap();
    let proxy = service(Reply::status(403));
    let at = proxy.address.to_string();
    let mut findings = Findings::default();
    let mut by = |case: &str, url: &str, variables: &[(&str, &str)], through: bool| {
        let before = proxy.calls();
        let output = command(&["list", "--url", url, "--cacert", authority])
            .env("IMPERSONATION_TOKEN", TOKEN)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let errors = errors(&output);
        findings.expect(case, &output.status.code(), &Some(1));
        findings.expect(format!("{case}: used"), &(proxy.calls() > before), &through);
        let named = errors.contains(&format!("by way of the proxy {at} ({}", variables[0].0));
        findings.expect(format!("{case}: named in {errors:?}"), &named, &through);
        findings.expect(format!("{case}: its password"), &errors.contains("hush"), &false);
    };
    let elsewhere = "https://auth.impersonation.invalid";
    let with_password = format!("http://me:hush@{at}");
    let plain = format!("http://{at}");
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        by(name, elsewhere, &[(name, &with_password)], true);
    }
    by("HTTP_PROXY", elsewhere, &[("HTTP_PROXY", &plain)], false);
    by("loopback", "https://127.0.0.1:1", &[("HTTPS_PROXY", &plain)], false);
    for excepted in ["impersonation.invalid", "x, auth.impersonation.invalid", "*"] {
        by(excepted, elsewhere, &[("HTTPS_PROXY", &plain), ("NO_PROXY", excepted)], false);
    }
    drop(findings);

    for address in ["socks5://me:hush@127.0.0.1:1", "http://", "me:hush@[x"] {
        let output = command(&["list", "--url", elsewhere, "--cacert", authority])
            .env("IMPERSONATION_TOKEN", TOKEN)
            .env("HTTPS_PROXY", address)
            .output()
            .unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{address}: {errors}");
        assert!(errors.contains("HTTPS_PROXY: expected") && !errors.contains("hush"), "{errors}");
    }
}

#[test]
fn an_answer_of_another_service_is_not_believed() {
    let html = Reply::status(200).header("content-type", "text/html");
    let html = Reply { body: b"<html>welcome</html>".to_vec(), ..html };
    for (case, reply) in [
        ("a page", html),
        ("nothing", Reply::status(200)),
        ("another object", Reply::json(&json!({"users": []}))),
        ("a list", Reply::json(&json!([]))),
        ("no end in it", Reply::json(&json!({"impersonations": [], "cursor": null}))),
    ] {
        let server = service(reply);
        for asked in [&["list"][..], &["list", "--json"], &["revoke", "--user", "u"]] {
            let output = asking(&server, asked).output().unwrap();
            assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""), "{case}");
            assert!(errors(&output).contains("is this the service's base address?"), "{case}");
        }
    }
}

#[test]
fn an_unknown_outcome_is_reported_as_unknown() {
    #[rustfmt::skip]
    let cases = [
        (Fault::Refused,        "nothing has ended"),
        (Fault::ResetMidBody,   "it is not known whether anything has ended"),
        (Fault::ServerError,    "it is not known whether anything has ended"),
    ];
    for (fault, told) in cases {
        let server =
            service(Reply::json(&json!({"revokedBefore": "2026-11-22T03:28:00.123Z", "ended": 1})));
        server.fail(fault);
        let output = asking(&server, &["revoke", "--user", "user-42"]).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""), "{fault:?}");
        assert!(errors(&output).contains(told), "{fault:?}: {}", errors(&output));
    }
}

/// Returns the requests that a service received: methods, paths and JSON.
pub(crate) fn asked_for(server: &Server) -> Vec<(String, String, Value)> {
    let all = server.received().into_iter();
    all.map(|one| {
        let body = serde_json::from_slice(&one.body).unwrap_or_default();
        (one.method, one.target, body)
    })
    .collect()
}
