use std::cell::LazyCell;

use proptest::prelude::*;

use super::*;
use crate::issuer::request::bearer_token;

const FORM: &[u8] = b"application/x-www-form-urlencoded";

fn head(content_type: Option<&[u8]>, authorization: Option<&[u8]>) -> Head {
    Head {
        content_type: content_type.map(<[u8]>::to_vec),
        authorization: authorization.map(<[u8]>::to_vec),
        ..Head::default()
    }
}

#[test]
fn a_request_is_ours_by_method_and_whole_path() {
    use Operation::*;
    use Route::*;
    #[rustfmt::skip]
    let cases: [(&[u8], &[u8], Option<Route>); 49] = [
        (b"POST",    b"/api/subject-tokens",                     Some(SubjectTokens)),
        (b"POST",    b"/api/subject-tokens?a=b",                 Some(SubjectTokens)),
        (b"POST",    b"/api/subject-tokens?",                    Some(SubjectTokens)),
        (b"GET",     b"/api/subject-tokens",                     Some(MethodNotAllowed(Mint, "POST"))),
        (b"post",    b"/api/subject-tokens",                     Some(MethodNotAllowed(Mint, "POST"))),
        (b"",        b"/api/subject-tokens",                     Some(MethodNotAllowed(Mint, "POST"))),
        (b"\xff",    b"/api/subject-tokens",                     Some(MethodNotAllowed(Mint, "POST"))),
        (b"OPTIONS", b"/api/subject-tokens",                     None),
        (b"POST",    b"/api/subject-tokens/",                    None),
        (b"DELETE",  b"/api/subject-tokens/",                    None),
        (b"DELETE",  b"/api/subject-tokens/1",                   Some(SubjectToken)),
        (b"DELETE",  b"/api/subject-tokens/1?a=/b",              Some(SubjectToken)),
        (b"DELETE",  b"/api/subject-tokens/1/2",                 None),
        (b"DELETE",  b"/api/subject-tokens/1/",                  None),
        (b"OPTIONS", b"/api/subject-tokens/1",                   None),
        (b"POST",    b"/api/subject-tokens/1",                   Some(MethodNotAllowed(Cancel, "DELETE"))),
        (b"GET",     b"/api/subject-tokens/1",                   Some(MethodNotAllowed(Cancel, "DELETE"))),
        (b"GET",     b"/api/impersonations",                     Some(Impersonations)),
        (b"GET",     b"/api/impersonations?userId=1",            Some(Impersonations)),
        (b"HEAD",    b"/api/impersonations",                     Some(MethodNotAllowed(List, "GET"))),
        (b"DELETE",  b"/api/impersonations",                     Some(MethodNotAllowed(List, "GET"))),
        (b"OPTIONS", b"/api/impersonations",                     None),
        (b"GET",     b"/api/impersonations/",                    None),
        (b"DELETE",  b"/api/impersonations/1",                   Some(Impersonation)),
        (b"GET",     b"/api/impersonations/1",                   Some(MethodNotAllowed(Revoke, "DELETE"))),
        (b"POST",    b"/api/impersonations/revocations",         Some(Revocations)),
        (b"DELETE",  b"/api/impersonations/revocations",         Some(MethodNotAllowed(Revoke, "POST"))),
        (b"POST",    b"/api/impersonations/Revocations",         Some(MethodNotAllowed(Revoke, "DELETE"))),
        (b"POST",    b"/api/impersonations/revocations/",        None),
        (b"POST",    b"/oidc/token/revocation",                  Some(TokenRevocation)),
        (b"GET",     b"/oidc/token/revocation",                  None),
        (b"POST",    b"/oidc/token/introspection/",              None),
        (b"POST",    b"/api/subject-token",                      None),
        (b"POST",    b"/API/subject-tokens",                     None),
        (b"POST",    b"//api/subject-tokens",                    None),
        (b"POST",    b"/api/subject%2Dtokens",                   None),
        (b"POST",    b"/oidc/token",                             Some(Token)),
        (b"GET",     b"/oidc/token",                             None),
        (b"OPTIONS", b"/oidc/token",                             None),
        (b"POST",    b"/oidc/token/introspection",               Some(TokenIntrospection)),
        (b"GET",     b"/oidc/jwks",                              Some(Jwks)),
        (b"GET",     b"/oidc/jwks?x",                            Some(Jwks)),
        (b"HEAD",    b"/oidc/jwks",                              Some(Jwks)),
        (b"POST",    b"/oidc/jwks",                              None),
        (b"head",    b"/oidc/jwks",                              None),
        (b"GET",     b"/oidc/.well-known/openid-configuration",  Some(Discovery)),
        (b"HEAD",    b"/oidc/.well-known/openid-configuration",  Some(Discovery)),
        (b"GET",     b"",                                        None),
        (b"GET",     b"/\xff",                                   None),
    ];
    let paths = Paths::new("");
    for (method, path, route) in cases {
        assert_eq!(paths.route(&method, path), route, "{}", path.escape_ascii());
    }
    const POST: &[u8] = b"POST";
    let below = Paths::new("/tenant-a");
    assert_eq!(below.route(&POST, b"/tenant-a/oidc/token"), Some(Token));
    assert_eq!(below.route(&POST, b"/oidc/token"), None);
    assert_eq!(below.route(&POST, b"/tenant-b/oidc/token"), None);
}

#[test]
fn of_what_passes_the_method_is_not_asked_for() {
    let method = LazyCell::new(|| -> Vec<u8> { panic!("the method was asked for") });
    for path in [&b"/orders"[..], b"/oidc/auth", b"/api/subject-tokens/", b"/"] {
        assert_eq!(Paths::new("").route(&method, path), None, "{}", path.escape_ascii());
    }
}

#[test]
fn only_a_form_is_held_back_on_the_token_endpoint() {
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
        assert_eq!(Route::Token.needs_body(&head), held, "{content_type:?}");
        assert!(Route::SubjectTokens.needs_body(&head));
        assert_eq!(Route::TokenRevocation.needs_body(&head), held, "{content_type:?}");
        assert_eq!(Route::TokenIntrospection.needs_body(&head), held, "{content_type:?}");
        assert!(Route::Revocations.needs_body(&head));
        assert!(!Route::MethodNotAllowed(Operation::Mint, "POST").needs_body(&head));
        assert!(!Route::Jwks.needs_body(&head));
    }
}

proptest! {
    #[test]
    fn no_head_makes_the_routes_panic(
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
                if let Some(route) = paths.route(&method, &path) {
                    let _ = route.needs_body(&head);
                }
            }
        }
        let _ = bearer_token(&head);
    }
}

/// The paths and methods of docs/openapi.yaml, by its indentation: a path has two spaces, a method four.
fn described() -> Vec<(&'static str, &'static str)> {
    let page = include_str!("../../../../../docs/openapi.yaml");
    let (_, paths) = page.split_once("\npaths:\n").unwrap();
    let (paths, _) = paths.split_once("\ncomponents:\n").unwrap();
    let mut path = "";
    let mut operations = Vec::new();
    for line in paths.lines() {
        let Some(name) = line.strip_suffix(':') else { continue };
        match line.bytes().take_while(|byte| *byte == b' ').count() {
            2 => path = name.trim_start(),
            4 if name.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()) => {
                operations.push((path, name.trim_start()));
            }
            _ => {}
        }
    }
    operations
}

#[test]
fn the_openapi_description_has_every_route_and_no_other() {
    use Route::*;
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    // The operation that describes a route. A new route does not compile without one.
    let operation = |route| match route {
        SubjectTokens => Some(("/api/subject-tokens", "post")),
        SubjectToken => Some(("/api/subject-tokens/{id}", "delete")),
        Impersonations => Some(("/api/impersonations", "get")),
        Impersonation => Some(("/api/impersonations/{id}", "delete")),
        Revocations => Some(("/api/impersonations/revocations", "post")),
        Token => Some(("/oidc/token", "post")),
        TokenRevocation => Some(("/oidc/token/revocation", "post")),
        TokenIntrospection => Some(("/oidc/token/introspection", "post")),
        Jwks => Some(("/oidc/jwks", "get")),
        Discovery => Some(("/oidc/.well-known/openid-configuration", "get")),
        MethodNotAllowed(..) => None,
    };
    let described = described();
    assert_eq!(described.len(), 12, "{described:?}");
    let paths = Paths::new("");
    let Paths {
        subject_tokens,
        impersonations,
        revocations,
        token,
        token_revocation,
        token_introspection,
        jwks,
        discovery,
    } = &paths;
    let below = |path: &str| format!("{path}/{{id}}");
    let known = [
        subject_tokens.clone(),
        below(subject_tokens),
        impersonations.clone(),
        below(impersonations),
        revocations.clone(),
        token.clone(),
        token_revocation.clone(),
        token_introspection.clone(),
        jwks.clone(),
        discovery.clone(),
    ];
    assert!(described.iter().all(|(path, _)| known.iter().any(|known| known == path)));
    for path in known {
        let requested = path.replace("{id}", "00");
        for method in METHODS {
            let allowed = described
                .iter()
                .filter(|(described, _)| *described == path)
                .map(|(_, method)| method.to_ascii_uppercase());
            let is_described = allowed.clone().any(|described| described == method);
            let case = format!("{method} {path}");
            match paths.route(&LazyCell::new(|| method), requested.as_bytes()) {
                Some(MethodNotAllowed(_, only)) => {
                    assert!(!is_described, "{case}");
                    assert_eq!(allowed.collect::<Vec<_>>(), [only], "{case}");
                }
                Some(route) => {
                    assert!(is_described, "{case}");
                    let (of_route, by) = operation(route).unwrap();
                    assert_eq!(of_route, path, "{case}");
                    assert!(by.eq_ignore_ascii_case(method) || (by, method) == ("get", "HEAD"));
                }
                None => assert!(!is_described, "{case}"),
            }
        }
    }
}
