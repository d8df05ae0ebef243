//! `user_lookup`: the filter asks the gateway whether the user exists, with the caller's own token.
//! A `userId` cannot change the path of that request.

use serde_json::json;

use crate::world::World;
use testkit::Findings;
use testkit::configuration::Configuration;
use testkit::gateway::{BEARER, mint_by};
use testkit::server::Reply;
use testkit::services::http_uri_of;

fn start(path: &str) -> World {
    let lookup = json!({"http_uri": http_uri_of("users", path)});
    World::start(&Configuration::default().with("/subject_tokens/user_lookup", lookup))
}

#[test]
fn the_status_of_the_user_lookup_decides() {
    let world = start("/api/users/{userId}");
    let users = world.upstream("users");
    users.answer(|asked| {
        Reply::status(asked.target.strip_prefix("/api/users/s").unwrap().parse().unwrap())
    });
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        (200, 201, "-"), (204, 201, "-"),
        (404, 404, "user_not_found"),
        (401, 403, "insufficient_scope"), (403, 403, "insufficient_scope"),
        (301, 503, "temporarily_unavailable"), (400, 503, "temporarily_unavailable"),
        (410, 503, "temporarily_unavailable"), (429, 503, "temporarily_unavailable"),
        (500, 503, "temporarily_unavailable"), (502, 503, "temporarily_unavailable"),
        (504, 503, "temporarily_unavailable"),
    ];
    for (of_user, status, error) in cases {
        let failures = world.failures("user_lookup");
        let answer = world.send(&mint_by(&BEARER, &format!("s{of_user}")));
        findings.expect(of_user, &answer.refusal(), &(status, error.to_owned()));
        let counted = world.failures("user_lookup") - failures;
        findings.expect(format!("{of_user} counted"), &counted, &u64::from(status == 503));
        let retry = answer.header("retry-after").is_some();
        findings.expect(format!("{of_user}: Retry-After"), &retry, &(status == 503));
    }
}

/// An HTML page can have status 200 for a login or for a missing path.
#[test]
fn an_html_page_does_not_prove_that_a_user_exists() {
    let world = start("/api/users/{userId}");
    let users = world.upstream("users");
    for content_type in ["text/html", "text/plain", "application/problem"] {
        let page = Reply { body: b"<h1>Not found</h1>".to_vec(), ..Reply::status(200) };
        users.answer_always(page.header("content-type", content_type));
        let answer = world.send(&mint_by(&BEARER, "u-1"));
        assert_eq!(answer.refusal(), (503, "temporarily_unavailable".into()), "{content_type}");
    }
}

#[test]
fn a_user_is_one_percent_encoded_segment() {
    let world = start("/api/users/{userId}?fields=id");
    let users = world.upstream("users");
    users.answer_always(Reply::status(200));
    let long = "é".repeat(255);
    #[rustfmt::skip]
    let cases = [
        ("u-1", "u-1"), ("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("%2e%2e", "%252e%252e"),
        ("%2e%2e%2fadmin", "%252e%252e%252fadmin"), ("a b", "a%20b"), ("é", "%C3%A9"),
        ("../admin", "..%2Fadmin"), ("..\\admin", "..%5Cadmin"), ("a;b=c", "a%3Bb%3Dc"),
        ("a&b=c+d", "a%26b%3Dc%2Bd"), ("{userId}", "%7BuserId%7D"), ("@evil.example", "%40evil.example"),
        ("//evil.example/", "%2F%2Fevil.example%2F"), ("...", "..."), ("a:80", "a%3A80"),
        ("\u{202e}\u{1f600}", "%E2%80%AE%F0%9F%98%80"), (" ", "%20"), ("~-._", "~-._"),
        (&*long, &"%C3%A9".repeat(255)),
    ];
    let mut findings = Findings::default();
    for (user_id, segment) in cases {
        let answer = world.send(&mint_by(&BEARER, user_id));
        findings.expect(format!("{user_id:?}"), &answer.status, &201);
        let asked = users.last();
        findings.expect(
            format!("{user_id:?}: path"),
            &asked.target,
            &format!("/api/users/{segment}?fields=id"),
        );
        // The request has the caller's own token, and nothing else of the caller's.
        let authorization = format!("Bearer {}", *BEARER);
        findings.expect(user_id, &asked.header("authorization"), &Some(authorization.as_str()));
        findings.expect(user_id, &asked.header("host"), &Some("users.example.com"));
        findings.expect(user_id, &asked.method, &"GET".to_owned());
        findings.expect(user_id, &asked.body.len(), &0);
    }
    assert_eq!(users.calls(), cases.len(), "one question for each");
}

#[test]
fn a_user_id_that_cannot_be_a_path_segment_is_never_looked_up() {
    let world = start("/api/users/{userId}");
    let users = world.upstream("users");
    users.answer_always(Reply::status(200));
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        // Every path normaliser rewrites these segments, so no user has such a name.
        (".", (404, "user_not_found")), ("..", (404, "user_not_found")),
        ("a\r\nx-admin: yes", (400, "invalid_request")), ("a\nb", (400, "invalid_request")),
        ("a\0b", (400, "invalid_request")), ("\u{85}", (400, "invalid_request")),
        ("\u{7f}", (400, "invalid_request")), ("", (400, "invalid_request")),
        (&*"a".repeat(256), (400, "invalid_request")),
    ];
    for (user_id, (status, error)) in cases {
        let answer = world.send(&mint_by(&BEARER, user_id));
        findings.expect(format!("{user_id:?}"), &answer.refusal(), &(status, error.to_owned()));
    }
    assert_eq!(users.calls(), 0);
    // A caller who may not mint causes no lookup.
    assert_eq!(world.send(&mint_by("wrong", "u-1")).status, 401);
    assert_eq!(users.calls(), 0);
}
