use super::*;

const DOMAIN: &str = "as-user.example";
const HOST: &str = "0a1b.as-user.example";

fn fields(fields: &[(&str, &str)]) -> SessionFields {
    let mut seen = SessionFields::default();
    for (name, value) in fields {
        seen.see(name.as_bytes(), value.as_bytes());
    }
    seen
}

#[test]
fn the_label_is_what_stands_before_the_domain() {
    #[rustfmt::skip]
    let cases = [
        ("0a1b.as-user.example",      Some("0a1b")),
        ("0a1b.as-user.example:8443", Some("0a1b")),
        ("0a1b.as-user.example:",     Some("0a1b")),
        ("a.0a1b.as-user.example",    Some("a.0a1b")),
        ("u@0a1b.as-user.example",    Some("u@0a1b")),
        ("as-user.example",           None),
        (".as-user.example",          None),
        ("0a1bas-user.example",       None),
        ("0a1b.AS-USER.example",      None),
        ("0a1b.as-user.example.",     None),
        ("0a1b.as-user.example:a",    None),
        ("0a1b.as-user.example.evil", None),
        ("8443",                      None),
        ("",                          None),
    ];
    for (authority, label) in cases {
        assert_eq!(fields(&[(":authority", authority)]).label(DOMAIN), label, "{authority}");
    }
    assert_eq!(SessionFields::default().label(DOMAIN), None);
    let twice = fields(&[(":authority", HOST), (":authority", HOST)]);
    assert_ne!(twice.label(DOMAIN), Some("0a1b"));
}

#[test]
fn a_request_comes_from_a_page_of_its_own_host() {
    type Case<'c> = (&'c str, &'c str, Option<&'c str>, Option<&'c str>, bool);
    let own = Some("https://0a1b.as-user.example");
    #[rustfmt::skip]
    let cases: [Case<'_>; 21] = [
        ("https", "POST",    Some("same-origin"), None,         true),
        ("https", "GET",     Some("none"),        None,         true),
        ("https", "GET",     Some("same-site"),   None,         false),
        ("https", "GET",     Some("cross-site"),  None,         false),
        ("https", "GET",     Some("Same-Origin"), None,         false),
        ("https", "GET",     Some(""),            None,         false),
        // Under `no-referrer` a form of the own host has `Origin: null`.
        ("https", "POST",    Some("same-origin"), Some("null"), true),
        ("https", "POST",    Some("cross-site"),  own,          false),
        ("https", "POST",    None,                own,          true),
        ("https", "CONNECT", None,                own,          true),
        ("https", "POST",    None,                Some("null"), false),
        ("https", "GET",     None,                Some("null"), false),
        ("https", "GET",     None,                Some("https://other.as-user.example"), false),
        ("https", "GET",     None,                Some("http://0a1b.as-user.example"),   false),
        ("https", "GET",     None,                Some("https://0a1b.as-user.example:8443"), false),
        ("http",  "GET",     None,                Some("http://0a1b.as-user.example"),   false),
        ("https", "GET",     None,                None,         true),
        ("https", "HEAD",    None,                None,         true),
        ("https", "POST",    None,                None,         false),
        ("https", "OPTIONS", None,                None,         false),
        ("https", "CONNECT", None,                None,         false),
    ];
    for (scheme, method, site, origin, same) in cases {
        let mut sent = vec![(":scheme", scheme), (":authority", HOST)];
        sent.extend(site.map(|site| ("sec-fetch-site", site)));
        sent.extend(origin.map(|origin| ("origin", origin)));
        let found = fields(&sent).is_same_origin(method.as_bytes());
        assert_eq!(found, same, "{scheme} {method} {site:?} {origin:?}");
    }
    let twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-origin")];
    assert!(!fields(&twice).is_same_origin(b"GET"));
}

#[test]
fn without_tls_only_localhost_has_an_origin_of_its_own() {
    #[rustfmt::skip]
    let cases = [
        ("0a1b.as-user.localhost:8443", true),
        ("localhost:8443",              true),
        ("localhost",                   true),
        ("0a1b.notlocalhost",           false),
        ("localhost.example",           false),
        ("127.0.0.1:8443",              false),
    ];
    for (authority, same) in cases {
        let origin = format!("http://{authority}");
        let sent = [(":scheme", "http"), (":authority", authority), ("origin", &*origin)];
        assert_eq!(fields(&sent).is_same_origin(b"POST"), same, "{authority}");
    }
}

#[test]
fn a_session_begins_by_a_navigation_from_one_of_the_origins() {
    let origins = ["https://support.example".to_owned(), "https://desk.example:8443".to_owned()];
    let good = ("origin", "https://support.example");
    let (mode, dest) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
    #[rustfmt::skip]
    let cases: [(&[(&str, &str)], bool); 13] = [
        (&[good],                                        true),
        (&[("origin", "https://desk.example:8443")],     true),
        (&[good, mode, dest],                            true),
        (&[good, mode],                                  true),
        (&[],                                            false),
        (&[mode, dest],                                  false),
        (&[("origin", "null"), mode, dest],              false),
        (&[("origin", "https://evil.example")],          false),
        (&[("origin", "https://support.example.evil")],  false),
        (&[("origin", "http://support.example")],        false),
        (&[good, good],                                  false),
        (&[good, ("sec-fetch-mode", "cors"), dest],      false),
        (&[good, mode, ("sec-fetch-dest", "iframe")],    false),
    ];
    for (sent, begins) in cases {
        assert_eq!(fields(sent).navigates_from(&origins), begins, "{sent:?}");
    }
}

#[test]
fn the_application_sees_all_cookies_but_that_of_the_session() {
    type Case<'c> = (&'c [&'c str], Option<&'c str>, Option<&'c str>);
    #[rustfmt::skip]
    let cases: [Case<'_>; 11] = [
        (&[],                                             None,         None),
        (&["a=b"],                                        None,         None),
        (&["__Host-impersonation=x.y.z"],                 Some("x.y.z"), Some("")),
        (&["a=b; __Host-impersonation=x.y.z; c=d"],       Some("x.y.z"), Some("a=b; c=d")),
        (&["a=b", "__Host-impersonation=x.y.z", "c=d;e"], Some("x.y.z"), Some("a=b; c=d; e")),
        (&[" __Host-impersonation = x ;a=b"],             Some(" x"),   Some("a=b")),
        (&["__Host-impersonation=x; __Host-impersonation=y"], None,     Some("")),
        (&["__Host-impersonation=x", "__Host-impersonation=y; a=b"], None, Some("a=b")),
        (&["__Host-impersonation"],                       Some(""),     Some("")),
        (&["__Host-impersonation2=x; a__Host-impersonation=y"], None,   None),
        (&["a=__Host-impersonation=x"],                   None,         None),
    ];
    for (sent, token, others) in cases {
        let seen = fields(&sent.iter().map(|value| ("cookie", *value)).collect::<Vec<_>>());
        assert_eq!(seen.token(), token, "{sent:?}");
        assert_eq!(seen.cookies_of_application().as_deref(), others, "{sent:?}");
    }
    let mut odd = SessionFields::default();
    odd.see(b"cookie", b"a=b; __Host-impersonation=x; c=\xff");
    assert_eq!(odd.cookies_of_application().as_deref(), Some("a=b"));
}

#[test]
fn a_session_lands_on_its_own_host() {
    #[rustfmt::skip]
    let cases = [
        ("/",                  true),
        ("/orders?a=b#c",      true),
        ("/a//b",              true),
        ("/%2f%2fevil.example", true),
        ("",                   false),
        ("orders",             false),
        ("//evil.example",     false),
        ("/\\evil.example",    false),
        ("\\\\evil.example",   false),
        ("https:",             false),
        ("https://evil.example", false),
        ("javascript:alert(1)", false),
        ("/\t/evil.example",   false),
        ("/\n/evil.example",   false),
        (" /",                 false),
        ("/a b",               false),
        ("/\u{e9}",            false),
        ("/\0",                false),
    ];
    for (address, lands) in cases {
        assert_eq!(is_landing(address), lands, "{address:?}");
    }
}

#[test]
fn the_longest_cookie_is_the_longest_that_browsers_keep() {
    assert_eq!(LONGEST_TOKEN, 4076);
    let token = "a".repeat(LONGEST_TOKEN);
    let cookie = holding(&token, 3600);
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(pair.len() - 1, 4096);
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=3600");
}
