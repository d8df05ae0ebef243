use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::issuer::request::access_token;

const FORM: &[u8] = b"application/x-www-form-urlencoded";

fn head(content_type: Option<&[u8]>, authorization: Option<&[u8]>) -> Head {
    Head {
        content_type: content_type.map(<[u8]>::to_vec),
        authorization: authorization.map(<[u8]>::to_vec),
        ..Head::default()
    }
}

#[test]
fn a_request_finds_its_endpoint_by_whole_path_and_method() {
    use Endpoint::*;
    use Route::{MethodNotAllowed, To};
    #[rustfmt::skip]
    let cases: [(&[u8], &[u8], Option<Route>); 72] = [
        (b"POST",    b"/api/subject-tokens",                     Some(To(SubjectTokens))),
        (b"POST",    b"/api/subject-tokens?a=b",                 Some(To(SubjectTokens))),
        (b"POST",    b"/api/subject-tokens?",                    Some(To(SubjectTokens))),
        (b"GET",     b"/api/subject-tokens",                     Some(MethodNotAllowed(SubjectTokens))),
        (b"post",    b"/api/subject-tokens",                     Some(MethodNotAllowed(SubjectTokens))),
        (b"",        b"/api/subject-tokens",                     Some(MethodNotAllowed(SubjectTokens))),
        (b"\xff",    b"/api/subject-tokens",                     Some(MethodNotAllowed(SubjectTokens))),
        (b"OPTIONS", b"/api/subject-tokens",                     None),
        (b"POST",    b"/api/subject-tokens/",                    None),
        (b"DELETE",  b"/api/subject-tokens/",                    None),
        (b"DELETE",  b"/api/subject-tokens/1",                   Some(To(SubjectToken))),
        (b"DELETE",  b"/api/subject-tokens/1?a=/b",              Some(To(SubjectToken))),
        (b"DELETE",  b"/api/subject-tokens/1/2",                 None),
        (b"DELETE",  b"/api/subject-tokens/1/",                  None),
        (b"OPTIONS", b"/api/subject-tokens/1",                   None),
        (b"POST",    b"/api/subject-tokens/1",                   Some(MethodNotAllowed(SubjectTokenState))),
        (b"GET",     b"/api/subject-tokens/1",                   Some(To(SubjectTokenState))),
        (b"PUT",     b"/api/subject-tokens/1",                   Some(MethodNotAllowed(SubjectTokenState))),
        (b"GET",     b"/api/approvals",                          Some(To(Approvals))),
        (b"POST",    b"/api/approvals",                          Some(MethodNotAllowed(Approvals))),
        (b"POST",    b"/api/approvals/1",                        Some(To(Approval))),
        (b"GET",     b"/api/approvals/1",                        Some(MethodNotAllowed(Approval))),
        (b"GET",     b"/api/impersonations",                     Some(To(Impersonations))),
        (b"GET",     b"/api/impersonations?userId=1",            Some(To(Impersonations))),
        (b"HEAD",    b"/api/impersonations",                     Some(MethodNotAllowed(Impersonations))),
        (b"DELETE",  b"/api/impersonations",                     Some(MethodNotAllowed(Impersonations))),
        (b"OPTIONS", b"/api/impersonations",                     None),
        (b"GET",     b"/api/impersonations/",                    None),
        (b"DELETE",  b"/api/impersonations/1",                   Some(To(Impersonation))),
        (b"GET",     b"/api/impersonations/1",                   Some(MethodNotAllowed(Impersonation))),
        (b"POST",    b"/api/impersonations/revocations",         Some(To(Revocations))),
        (b"DELETE",  b"/api/impersonations/revocations",         Some(MethodNotAllowed(Revocations))),
        (b"POST",    b"/api/impersonations/Revocations",         Some(MethodNotAllowed(Impersonation))),
        (b"POST",    b"/api/impersonations/revocations/",        None),
        (b"POST",    b"/oidc/token/revocation",                  Some(To(TokenRevocation))),
        (b"GET",     b"/oidc/token/revocation",                  None),
        (b"POST",    b"/oidc/token/introspection/",              None),
        (b"POST",    b"/api/subject-token",                      None),
        (b"POST",    b"/API/subject-tokens",                     None),
        (b"POST",    b"//api/subject-tokens",                    None),
        (b"POST",    b"/api/subject%2Dtokens",                   None),
        (b"POST",    b"/oidc/token",                             Some(To(Token))),
        (b"GET",     b"/oidc/token",                             None),
        (b"OPTIONS", b"/oidc/token",                             None),
        (b"POST",    b"/oidc/token/introspection",               Some(To(TokenIntrospection))),
        (b"GET",     b"/oidc/jwks",                              Some(To(Jwks))),
        (b"GET",     b"/oidc/jwks?x",                            Some(To(Jwks))),
        (b"HEAD",    b"/oidc/jwks",                              Some(To(Jwks))),
        (b"POST",    b"/oidc/jwks",                              None),
        (b"head",    b"/oidc/jwks",                              None),
        (b"GET",     b"/oidc/.well-known/openid-configuration",  Some(To(Discovery))),
        (b"HEAD",    b"/oidc/.well-known/openid-configuration",  Some(To(Discovery))),
        (b"GET",     b"/impersonations/",                        Some(To(Console))),
        (b"HEAD",    b"/impersonations/?code=a/b",               Some(To(Console))),
        (b"POST",    b"/impersonations/",                        Some(MethodNotAllowed(Console))),
        (b"OPTIONS", b"/impersonations/",                        Some(MethodNotAllowed(Console))),
        (b"GET",     b"/impersonations",                         None),
        (b"GET",     b"/impersonations//",                       None),
        (b"GET",     b"/impersonations/index.html",              None),
        (b"GET",     b"/Impersonations/",                        None),
        (b"GET",     b"/api/impersonations/?",                   None),
        (b"POST",    b"/.impersonation/begin",                   Some(To(SessionBegin))),
        (b"GET",     b"/.impersonation/begin?a=b",               Some(MethodNotAllowed(SessionBegin))),
        (b"OPTIONS", b"/.impersonation/begin",                   Some(MethodNotAllowed(SessionBegin))),
        (b"GET",     b"/.impersonation/me",                      Some(To(SessionMe))),
        (b"POST",    b"/.impersonation/end",                     Some(To(SessionEnd))),
        (b"HEAD",    b"/.impersonation/banner.js",               Some(To(SessionBanner))),
        (b"GET",     b"/.impersonation/",                        None),
        (b"GET",     b"/.impersonation/me/",                     None),
        (b"GET",     b"/.Impersonation/me",                      None),
        (b"GET",     b"",                                        None),
        (b"GET",     b"/\xff",                                   None),
    ];
    let paths = with_all(&json!({}));
    let without = |path| Route::find(&Paths::new(""), &&b"GET"[..], path);
    assert_eq!(without(b"/impersonations/"), None);
    assert_eq!(without(b"/.impersonation/me"), None);
    assert_eq!(without(b"/api/approvals"), None);
    assert_eq!(without(b"/api/subject-tokens/1"), Some(MethodNotAllowed(SubjectToken)));
    for (method, path, route) in cases {
        assert_eq!(Route::find(&paths, &method, path), route, "{}", path.escape_ascii());
    }
    const POST: &[u8] = b"POST";
    let below = Paths::new("/tenant-a");
    assert_eq!(Route::find(&below, &POST, b"/tenant-a/oidc/token"), Some(To(Token)));
    assert_eq!(Route::find(&below, &POST, b"/oidc/token"), None);
    assert_eq!(Route::find(&below, &POST, b"/tenant-b/oidc/token"), None);
}

#[test]
fn a_configured_path_takes_the_place_of_the_default() {
    use Endpoint::*;
    use Route::To;
    let paths = Paths::of_unchecked(&json!({"base_path": "/auth", "paths": {
        "token": "/realms/acme/token",
        "oauth_discovery": "/.well-known/oauth-authorization-server/realms/acme",
        "impersonations": "/support/impersonations",
    }}));
    #[rustfmt::skip]
    let cases: [(&[u8], &[u8], Option<Route>); 8] = [
        (b"POST",   b"/auth/realms/acme/token",                     Some(To(Token))),
        (b"POST",   b"/auth/oidc/token",                            None),
        (b"POST",   b"/realms/acme/token",                          None),
        (b"GET",    b"/auth/oidc/jwks",                             Some(To(Jwks))),
        (b"GET",    b"/auth/.well-known/oauth-authorization-server/realms/acme", Some(To(OauthDiscovery))),
        (b"POST",   b"/auth/support/impersonations/revocations",    Some(To(Revocations))),
        (b"DELETE", b"/auth/support/impersonations/1",              Some(To(Impersonation))),
        (b"GET",    b"/auth/api/impersonations",                    None),
    ];
    for (method, path, route) in cases {
        assert_eq!(Route::find(&paths, &method, path), route, "{}", path.escape_ascii());
    }
}

#[test]
fn the_method_is_not_read_on_other_paths() {
    let method = LazyCell::new(|| -> Vec<u8> { panic!("the method was read") });
    for path in [&b"/orders"[..], b"/oidc/auth", b"/api/subject-tokens/", b"/"] {
        assert_eq!(Route::find(&Paths::new(""), &method, path), None, "{}", path.escape_ascii());
    }
}

#[test]
fn an_endpoint_of_the_gateway_holds_back_forms_only() {
    #[rustfmt::skip]
    let cases: [(Option<&[u8]>, bool); 7] = [
        (Some(FORM),                                                    true),
        (Some(b"application/x-www-form-urlencoded; charset=UTF-8"),     true),
        (Some(b" Application/X-WWW-Form-URLencoded ;"),                 true),
        (Some(b"application/json"),                                     false),
        (Some(b"application/x-www-form-urlencoded2"),                   false),
        (Some(b"\xff"),                                                 false),
        (None,                                                          false),
    ];
    for (content_type, held) in cases {
        let head = head(content_type, None);
        assert_eq!(Route::To(Endpoint::Token).needs_body(&head), held, "{content_type:?}");
        assert!(Route::To(Endpoint::SubjectTokens).needs_body(&head));
        assert_eq!(
            Route::To(Endpoint::TokenRevocation).needs_body(&head),
            held,
            "{content_type:?}"
        );
        assert_eq!(
            Route::To(Endpoint::TokenIntrospection).needs_body(&head),
            held,
            "{content_type:?}"
        );
        assert!(Route::To(Endpoint::Revocations).needs_body(&head));
        assert!(!Route::MethodNotAllowed(Endpoint::SubjectTokens).needs_body(&head));
        assert!(!Route::To(Endpoint::Jwks).needs_body(&head));
    }
}

proptest! {
    #[test]
    fn routing_never_panics(
        base in "(/[a-z]{0,3})?",
        method: Vec<u8>,
        path: Vec<u8>,
        content_type in proptest::option::of(any::<Vec<u8>>()),
        authorization in proptest::option::of(any::<Vec<u8>>()),
    ) {
        let paths = Paths::new(&base);
        let head = head(content_type.as_deref(), authorization.as_deref());
        for path in [path, [paths.token.as_bytes(), b"?", &method].concat()] {
            for method in [&method[..], b"POST", b"GET"] {
                if let Some(route) = Route::find(&paths, &method, &path) {
                    let _ = route.needs_body(&head);
                }
            }
        }
        let _ = access_token(&head, true);
    }
}

/// Reads the operations of docs/openapi.yaml by its indentation: a path has two spaces, a method
/// four.
fn described() -> BTreeSet<(String, String)> {
    let page = include_str!("../../../../../docs/openapi.yaml");
    let (_, paths) = page.split_once("\npaths:\n").unwrap();
    let (paths, _) = paths.split_once("\ncomponents:\n").unwrap();
    let mut path = "";
    let mut operations = BTreeSet::new();
    for line in paths.lines() {
        let Some(name) = line.strip_suffix(':') else { continue };
        match line.bytes().take_while(|byte| *byte == b' ').count() {
            2 => path = name.trim_start(),
            4 if name.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()) => {
                operations.insert((path.to_owned(), name.trim_start().to_ascii_uppercase()));
            }
            _ => {}
        }
    }
    operations
}

/// The default paths of a configuration that has every endpoint. `paths` are moved.
fn with_all(paths: &serde_json::Value) -> Paths {
    let senders = json!({"back_channel_logout": [], "security_events": []});
    Paths::of_unchecked(&json!({
        "impersonations": senders,
        "approvals": {},
        "console": {},
        "browser_sessions": {},
        "paths": paths,
    }))
}

#[test]
fn the_openapi_description_has_the_path_and_methods_of_every_row_and_no_other() {
    let paths = with_all(&json!({}));
    let operations = Endpoint::ALL.iter().flat_map(|endpoint| {
        let methods = endpoint.row().methods.iter();
        let path = endpoint.path(&paths);
        methods.filter_map(move |method| Some((path.clone()?, (*method).to_owned())))
    });
    assert_eq!(operations.collect::<BTreeSet<_>>(), described());
}

/// Reads the members of `paths` that docs/openapi.yaml names, by path.
fn described_members() -> BTreeMap<&'static str, &'static str> {
    let page = include_str!("../../../../../docs/openapi.yaml");
    let lines = page.lines().zip(page.lines().skip(1));
    let member = |(path, next): (&'static str, &'static str)| {
        let path = path.strip_prefix("  /")?.strip_suffix(':')?;
        let member = next.strip_prefix("    x-paths-member: ")?;
        Some((path, member))
    };
    lines.filter_map(member).collect()
}

#[test]
fn the_openapi_description_names_the_member_that_moves_a_path_and_no_other() {
    let (default, members) = (with_all(&json!({})), described_members());
    for endpoint in Endpoint::ALL {
        // RFC 8414's document has no default path, and the paths on the hosts of sessions never
        // move.
        let path = endpoint.path(&default).filter(|_| !endpoint.is_of_session());
        let Some(path) = path else { continue };
        let member = members[path.strip_prefix('/').unwrap()];
        for other in members.values() {
            let moved = with_all(&json!({*other: "/moved"}));
            let is_moved = endpoint.path(&moved).unwrap().starts_with("/moved");
            assert_eq!(is_moved, *other == member, "{path} by {other}");
        }
    }
}

#[test]
fn a_request_reaches_every_row_by_each_of_its_methods() {
    let paths = Paths::of_unchecked(&json!({
        "base_path": "/tenant-a",
        "paths": {"oauth_discovery": "/.well-known/oauth-authorization-server"},
        "impersonations": {"back_channel_logout": [], "security_events": []},
        "approvals": {},
        "console": {},
        "browser_sessions": {},
    }));
    for endpoint in Endpoint::ALL {
        let path = endpoint.path(&paths).unwrap().replace("{id}", "0");
        for method in endpoint.row().methods {
            let found = Route::find(&paths, &method.as_bytes(), path.as_bytes());
            assert_eq!(found, Some(Route::To(*endpoint)), "{method} {path}");
        }
    }
}
