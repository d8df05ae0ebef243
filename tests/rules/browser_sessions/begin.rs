//! `POST /.impersonation/begin`.

use serde_json::json;

use super::*;
use testkit::Findings;
use testkit::configuration::ORDERS;
use testkit::gateway::{exchange_request, raw_part};

/// Returns what is wrong with a page.
fn faults(answer: &Answer) -> Vec<String> {
    let page = answer.text();
    let mut faults = Vec::new();
    let mut expect = |what: &str, holds: bool| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    expect("type", answer.header("content-type") == Some("text/html; charset=utf-8"));
    expect("no-store", answer.header("cache-control") == Some("no-store"));
    expect("nosniff", answer.header("x-content-type-options") == Some("nosniff"));
    expect("no challenge", answer.header("www-authenticate").is_none());
    let policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    expect("policy", answer.header("content-security-policy") == Some(policy));
    expect("doctype", page.starts_with("<!doctype html>\n<html lang=\"en\">"));
    expect("title", page.contains("<title>The session "));
    expect("main, h1", page.contains("<main>\n<h1>The session "));
    expect("role", page.contains("role=\""));
    expect("no script", !page.contains("<script") && !page.contains("javascript:"));
    expect("small", page.len() < 1000);
    faults
}

#[test]
fn a_session_begins_by_the_exchange_and_its_token_is_in_the_cookie_alone() {
    let world = start();
    let minted = mint(&world);
    let answer = world.send(&minted.begin_request());
    let token = token_in(&answer);
    assert_eq!(faults(&answer), [""; 0], "{answer:?}");
    let lifetime = "Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=3600";
    assert_eq!(answer.header("set-cookie").unwrap(), format!("{COOKIE}={token}; {lifetime}"));
    let page = answer.text();
    assert!(page.contains("<meta http-equiv=\"refresh\" content=\"0; url=/\">"), "{page}");
    assert!(page.contains("<a href=\"/\">"), "{page}");
    assert!(!page.contains(&token) && !page.contains(&minted.subject_token), "{page}");

    let claims = verify(&token, &key_set(&SIGNING_KEY)).1;
    assert_eq!((&claims["txn"], &claims["aud"]), (&json!(minted.id), &json!(SHOP)));
    assert_eq!(claims["act"]["sub"], json!(minted.parties.actor));
    let event = world.last_event();
    assert_eq!(event["event"], "token_exchange.succeeded", "{event}");
    assert_eq!((&event["resource"], &event["subject_token_id"]), (&json!(SHOP), &json!(minted.id)));
    let log = world.log();
    assert!(!log.contains(&token) && !log.contains(&minted.subject_token));
}

#[test]
fn the_page_goes_on_to_a_path_of_the_same_host() {
    let world = start();
    #[rustfmt::skip]
    let cases = [
        ("/orders/7?a=b#c",    "/orders/7?a=b#c"),
        ("/a?b=c&d='e'",       "/a?b=c&#38;d=&#39;e&#39;"),
        ("/\"><script>",       "/&#34;&#62;&#60;script&#62;"),
        ("",                   "/"),
    ];
    for (landing, shown) in cases {
        let minted = mint(&world);
        let form = minted.form().set("landing", landing);
        let answer = world.send(&begin_request(&minted.host, &form));
        assert_eq!((answer.status, faults(&answer)), (200, vec![]), "{answer:?}");
        let refresh = format!("<meta http-equiv=\"refresh\" content=\"0; url={shown}\">");
        assert!(answer.text().contains(&refresh), "{landing}: {answer:?}");
    }
}

/// The filter checks origin, host and landing before all else: a stranger's page spends no token.
#[test]
fn a_request_that_may_not_begin_a_session_gets_a_page_and_spends_no_token() {
    let world = start();
    let (minted, other) = (mint(&world), mint(&world));
    let (form, host) = (minted.form(), &*minted.host);
    let from = |origin: &str| bare_begin_request(host, &form).header("origin", origin);
    let with = |name: &str, value: &str| begin_request(host, &form.clone().set(name, value));
    let without = |name: &str| begin_request(host, &form.clone().without(name));
    let by_browser = |mode: &str, dest: &str| {
        from(SUPPORT_DESK).header("sec-fetch-mode", mode).header("sec-fetch-dest", dest)
    };
    let at = |host: &str| begin_request(host, &form);
    let typed = |content_type: &str| {
        let mut request = minted.begin_request();
        request.headers.retain(|(name, _)| name != "content-type");
        request.header("content-type", content_type)
    };
    let id = &minted.id;
    #[rustfmt::skip]
    let cases = [
        ("no origin",           bare_begin_request(host, &form),            403, "access_denied"),
        ("null",                from("null"),                               403, "access_denied"),
        ("a stranger",          from("https://evil.example"),               403, "access_denied"),
        ("a longer name",       from("https://support.example.evil"),       403, "access_denied"),
        ("without TLS",         from("http://support.example"),             403, "access_denied"),
        ("a session's host",    from(&format!("http://{host}")),            403, "access_denied"),
        ("two origins",         from(SUPPORT_DESK).header("origin", SUPPORT_DESK), 403, "access_denied"),
        ("fetch",               by_browser("cors", "empty"),                403, "access_denied"),
        ("a frame",             by_browser("navigate", "iframe"),           403, "access_denied"),
        ("an object",           by_browser("navigate", "object"),           403, "access_denied"),
        ("another host",        at(&other.host),                            400, "invalid_request"),
        ("two labels",          at(&format!("a.{id}.{DOMAIN}")),            400, "invalid_request"),
        ("a longer label",      at(&format!("{id}0.{DOMAIN}")),             400, "invalid_request"),
        ("another letter case", at(&format!("{}.{DOMAIN}", id.to_uppercase() + "A")), 400, "invalid_request"),
        ("another token",       with("subject_token", &other.subject_token), 400, "invalid_request"),
        ("no token",            without("subject_token"),                   400, "invalid_request"),
        ("an odd token",        with("subject_token", "sub_x"),             400, "invalid_request"),
        ("landing elsewhere",   with("landing", "//evil.example"),          400, "invalid_request"),
        ("landing by scheme",   with("landing", "https://evil.example"),    400, "invalid_request"),
        ("landing by a script", with("landing", "javascript:alert(1)"),     400, "invalid_request"),
        ("landing, backslash",  with("landing", "/\\evil.example"),         400, "invalid_request"),
        ("landing, tab",        with("landing", "/\t/evil.example"),        400, "invalid_request"),
        ("no grant",            without("grant_type"),                      400, "invalid_request"),
        ("another grant",       with("grant_type", "password"),             400, "invalid_request"),
        ("a parameter twice",   begin_request(host, &form.clone().add("scope", "shop")), 400, "invalid_request"),
        ("another resource",    with("resource", ORDERS),                   400, "invalid_target"),
        ("no resource",         without("resource"),                        400, "invalid_target"),
        ("another scope",       with("scope", "orders:read"),               400, "invalid_scope"),
        ("a bad actor token",   with("actor_token", "x"),                   400, "invalid_request"),
        ("an unknown client",   with("client_id", "unknown"),               401, "invalid_client"),
        ("no secret",           with("client_id", "support-portal"),        401, "invalid_client"),
        ("too long",            with("x", &"x".repeat(70_000)),             413, "invalid_request"),
        ("multipart",           typed("multipart/form-data; boundary=x"),   415, "invalid_request"),
        ("text",                typed("text/plain"),                        415, "invalid_request"),
    ];
    let mut findings = Findings::default();
    for (case, request, status, error) in cases {
        let answer = world.send(&request);
        findings.expect(case, &answer.status, &status);
        findings.expect(case, &faults(&answer), &vec![]);
        findings.expect(case, &answer.header("set-cookie"), &None);
        let alert = answer.text().contains("<p role=\"alert\">");
        let code = answer.text().contains(&format!("(<code>{error}</code>)"));
        findings.expect(case, &(alert, code), &(true, true));
    }
    drop(findings);
    assert_eq!(world.counted("impersonation_subject_tokens_replayed_total"), 0);
    begun(&world, minted);
    begun(&world, other);
}

/// Browsers that send no Fetch Metadata can begin a session, too.
#[test]
fn the_origin_alone_is_enough() {
    let world = start();
    let minted = mint(&world);
    let request = bare_begin_request(&minted.host, &minted.form());
    token_in(&world.send(&request.header("origin", "https://other.example")));
}

#[test]
fn another_method_gets_a_page_with_the_method_that_begins() {
    let world = start();
    for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
        let request = Request::new(method, "/.impersonation/begin");
        let answer = world.send(&request.header("host", format!("0a.{DOMAIN}")));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{answer:?}");
        if method != "HEAD" {
            assert_eq!(faults(&answer), [""; 0], "{answer:?}");
        }
    }
}

#[test]
fn nothing_but_a_session_gets_a_token_for_the_resource_of_sessions() {
    let world = start();
    let minted = mint(&world);
    for host in ["gateway.test", SUPPORT_DESK.trim_start_matches("https://")] {
        let answer = world.send(&exchange_request(&minted.form()).header("host", host));
        assert_eq!(answer.refusal(), (400, "invalid_target".into()), "{answer:?}");
    }
    begun(&world, minted);
}

/// A person who has copied the form ends the session by it.
#[test]
fn a_token_begins_one_session_and_ends_it_when_it_comes_again() {
    let world = start();
    let session = begin(&world);
    assert_live(&world, &session);
    world.advance(1);
    let answer = world.send(&session.minted.begin_request());
    assert_eq!((answer.status, faults(&answer)), (400, vec![]), "{answer:?}");
    assert!(answer.text().contains("the subject token was already used"), "{answer:?}");
    assert_eq!(answer.header("set-cookie"), None);
    assert_over(&world, &session, "a replay");
}

/// A browser drops a cookie that is too long, and tells nobody.
#[test]
fn a_token_that_does_not_fit_into_the_cookie_is_not_spent() {
    let scopes: Vec<_> = (0..600).map(|number| format!("s{number:03}")).collect();
    let configuration =
        configuration().with("/resources/3", json!({"indicator": SHOP, "scopes": scopes}));
    let world = World::start(&configuration);
    let minted = mint(&world);
    let asking = |count: usize| {
        let form = minted.form().set("scope", &scopes[..count].join(" "));
        begin_request(&minted.host, &form)
    };
    let answer = world.send(&asking(600));
    assert_eq!((answer.status, faults(&answer)), (400, vec![]), "{answer:?}");
    assert!(answer.text().contains("too long for a cookie"), "{answer:?}");
    assert_eq!(answer.header("set-cookie"), None);
    let mut count = 600;
    let token = loop {
        count -= 10;
        let answer = world.send(&asking(count));
        if answer.status == 200 {
            break token_in(&answer);
        }
    };
    // Ten scopes have 67 bytes.
    assert!((4000..=4076).contains(&token.len()), "{}", token.len());
    assert_eq!(raw_part(&token, 1)["scope"], scopes[..count].join(" "));
}

#[cfg(feature = "custom-claims")]
#[test]
fn the_words_of_the_operators_function_are_no_markup() {
    let script = "const getCustomJwtClaims = ({ api }) => api.denyAccess('<img src=x onerror=alert(1)> & so');";
    let world = World::start(&configuration().with("/custom_claims", json!({"script": script})));
    let minted = mint(&world);
    let answer = world.send(&minted.begin_request());
    assert_eq!((answer.status, faults(&answer)), (400, vec![]), "{answer:?}");
    assert!(!answer.text().contains("<img"), "{answer:?}");
}
