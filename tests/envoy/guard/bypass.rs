//! Ways to bypass a rule, each over HTTP/1.1 and HTTP/2. No impersonated request reaches an API
//! that the rules deny, however it is spelt.

use std::net::SocketAddr;

use serde_json::{Value, json};

use testkit::bootstrap::Listener;
use testkit::configuration::{PROVIDER_KEY, SIGNING_KEY};
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, OTHER_ISSUER, api_listener, claims, claims_with,
    filter_configuration, for_impersonations, guard, guard_configuration, jwt_authn,
    ordinary_token, token,
};
use testkit::http::{Answer, Connection, Request};
use testkit::lent::Lent;
use testkit::{Findings, http2};

const DENIED: u16 = 403;

/// Sends a request over HTTP/1.1 or HTTP/2.
type Send = fn(SocketAddr, &Request) -> Answer;

const PROTOCOLS: [(&str, Send); 2] = [
    ("HTTP/1.1", |address, request| Connection::open(address).send(request)),
    ("HTTP/2", http2::send),
];

// tests/envoy/probe.rs compares these tables with the requests of `impersonation-filter probe`.

/// Spellings of a path that a rule denies, and their status.
#[rustfmt::skip]
pub(crate) const OF_A_DENIED_PATH: [(&str, &str, u16); 38] = [
    ("as it is",               "/account/password",            DENIED),
    ("with a query",           "/account/password?a=/orders",  DENIED),
    ("with an empty query",    "/account/password?",           DENIED),
    ("below",                  "/account/password/reset",      DENIED),
    ("beside",                 "/account/passwords",           DENIED),
    ("a slash at the end",     "/account/password/",           DENIED),
    ("letter case",            "/Account/PASSWORD",            DENIED),
    ("an empty segment",       "/account//password",           DENIED),
    ("an empty first segment", "//account/password",           DENIED),
    ("a dot segment",          "/account/./password",          DENIED),
    ("a dot segment before",   "/./account/password",          DENIED),
    ("up and down",            "/orders/../account/password",  DENIED),
    ("up, encoded",            "/orders/%2e%2e/account/password", DENIED),
    ("up, half encoded",       "/orders/.%2E/account/password", DENIED),
    ("up, behind a slash",     "/orders/..%2Faccount/password", DENIED),
    ("an encoded slash",       "/account%2Fpassword",          DENIED),
    ("in small letters",       "/account%2fpassword",          DENIED),
    ("encoded twice",          "/account%252Fpassword",        DENIED),
    ("an encoded letter",      "/%61ccount/password",          DENIED),
    ("a backslash",            "/account\\password",           DENIED),
    ("an encoded backslash",   "/account%5cpassword",          DENIED),
    ("a parameter",            "/account;a=b/password",        DENIED),
    ("a parameter at the end", "/account/password;a=b",        DENIED),
    ("an encoded parameter",   "/account%3ba=b/password",      DENIED),
    ("a dot at the end",       "/account./password",           DENIED),
    ("an encoded space",       "/account/password%20",         DENIED),
    ("a tab",                  "/account/password%09",         DENIED),
    ("an encoded zero",        "/account/password%00",         DENIED),
    ("an encoded query",       "/payments%3Fa",                DENIED),
    ("an encoded fragment",    "/payments%23a",                DENIED),
    ("a slash no UTF-8 has",   "/account%c0%afpassword",       DENIED),
    ("the exact one",          "/payments",                    DENIED),
    ("a slash behind it",      "/payments/",                   DENIED),
    ("another case of it",     "/PAYMENTS",                    DENIED),
    ("below the exact one",    "/payments/7",                  200),
    ("something else",         "/orders/7",                    200),
    ("something like it",      "/accounts/password",           200),
    ("what needs encoding",    "/orders/a%40b%20c%C3%A9",      200),
];

/// Methods and spellings of a path that a rule allows, and their status.
#[rustfmt::skip]
pub(crate) const OF_AN_ALLOWED_PATH: [(&str, &str, &str, u16); 19] = [
    ("as it is",              "POST", "/orders/search",          200),
    ("with a query",          "POST", "/orders/search?a=b",      200),
    ("a slash at the end",    "POST", "/orders/search/",         DENIED),
    ("letter case",           "POST", "/orders/Search",          DENIED),
    ("an empty segment",      "POST", "/orders//search",         DENIED),
    ("an encoded slash",      "POST", "/orders%2Fsearch",        DENIED),
    ("an encoded letter",     "POST", "/orders/%73earch",        DENIED),
    ("a parameter",           "POST", "/orders/search;a=b",      DENIED),
    ("another method",        "GET",  "/orders/search",          DENIED),
    ("below",                 "GET",  "/public/a",               200),
    ("the prefix",            "GET",  "/public",                 200),
    ("another word",          "GET",  "/publication",            DENIED),
    ("up and out",            "GET",  "/public/../account",      DENIED),
    ("up and out, encoded",   "GET",  "/public/%2e%2e/account",  DENIED),
    ("up, behind a slash",    "GET",  "/public/..%2faccount",    DENIED),
    ("up, behind a backslash", "GET", "/public/..%5caccount",    DENIED),
    ("up, with a parameter",  "GET",  "/public/..;/account",     DENIED),
    ("no path of its own",    "HEAD", "/anything",               200),
    ("and a path that is not normal", "HEAD", "/any//thing",     DENIED),
];

/// A header's name and value.
type Header = (&'static str, &'static str);

/// Requests that may name another method: method, target, header and status.
#[rustfmt::skip]
pub(crate) const OVERRIDES: [(&str, &str, &str, Option<Header>, u16); 31] = [
    ("no override",                "POST", "/orders/7",                                         None, 200),
    ("an override",                "POST", "/orders/7",                                         Some(("x-http-method-override", "DELETE")), DENIED),
    ("one to the same",            "POST", "/orders/7",                                         Some(("x-http-method-override", "POST")), DENIED),
    ("an empty one",               "POST", "/orders/7",                                         Some(("x-http-method-override", "")), DENIED),
    ("in capitals",                "POST", "/orders/7",                                         Some(("X-HTTP-Method-Override", "DELETE")), DENIED),
    ("with underscores",           "POST", "/orders/7",                                         Some(("x_http_method_override", "DELETE")), DENIED),
    ("Microsoft's",                "POST", "/orders/7",                                         Some(("x-http-method", "DELETE")), DENIED),
    ("IBM's",                      "POST", "/orders/7",                                         Some(("x-method-override", "DELETE")), DENIED),
    ("in the query",               "POST", "/orders/7?_method=DELETE",                          None, DENIED),
    ("in the query, encoded",      "POST", "/orders/7?a=b&%5fmethod=DELETE",                    None, DENIED),
    ("with a dot, to PHP",         "POST", "/orders/7?.method=DELETE",                          None, DENIED),
    ("with a space, to PHP",       "POST", "/orders/7?+_method=DELETE",                         None, DENIED),
    ("the same, encoded",          "POST", "/orders/7?%20_method=DELETE",                       None, DENIED),
    ("with a NUL, to PHP",         "POST", "/orders/7?_method%00=DELETE",                       None, DENIED),
    ("as a list",                  "POST", "/orders/7?_method[]=DELETE",                        None, DENIED),
    ("as a hash",                  "POST", "/orders/7?_method%5Bx%5D=DELETE",                   None, DENIED),
    ("in brackets, to Rails",      "POST", "/orders/7?[_method]=DELETE",                        None, DENIED),
    ("behind a semicolon",         "POST", "/orders/7?a=b;_Method=DELETE",                      None, DENIED),
    ("Google's, in the query",     "POST", "/orders/7?$httpMethod=DELETE",                      None, DENIED),
    ("with an underscore",         "POST", "/orders/7?_HttpMethod=DELETE",                      None, DENIED),
    ("Restlet's",                  "POST", "/orders/7?method=DELETE",                           None, DENIED),
    ("a read, in the query",       "GET",  "/orders/7?method=DELETE",                           None, DENIED),
    ("LinkedIn's",                 "POST", "/orders/7",                                         Some(("x-tunneled-method", "DELETE")), DENIED),
    ("in another order",           "POST", "/orders/7",                                         Some(("x-override-method", "DELETE")), DENIED),
    ("a proxy's",                  "POST", "/orders/7",                                         Some(("x-forwarded-method", "DELETE")), DENIED),
    ("like one, and none",         "POST", "/orders/7?__method=DELETE&a[_method]=x&methods=y",  None, 200),
    ("with dots, as a variable",   "POST", "/orders/7",                                         Some(("x.http.method.override", "DELETE")), DENIED),
    ("a read, with a dot",         "GET",  "/orders/7?.method=DELETE",                          None, DENIED),
    ("a read that is none",        "GET",  "/orders/7",                                         Some(("x-http-method-override", "DELETE")), DENIED),
    ("a read of something else",   "GET",  "/invoices",                                         Some(("x-http-method-override", "DELETE")), DENIED),
    ("where methods do not count", "POST", "/any/7",                                            Some(("x-http-method-override", "DELETE")), 200),
];

/// Headers in which some servers read a path: IIS's, Zend's, and one as a variable.
pub(crate) const PATH_HEADERS: [&str; 3] = ["x-original-url", "x-rewrite-url", "x_original_url"];

/// Spellings of the guard's headers that a server may take for them.
pub(crate) const HEADER_SPELLINGS: [&str; 8] = [
    "x!impersonator",
    "x~impersonation~id",
    "x_impersonator",
    "X_Impersonator",
    "x.impersonator",
    "x_impersonation_id",
    "x-impersonation_id",
    "X_IMPERSONATION.ID",
];

/// Lends a guard before which nothing removes headers with odd names.
fn lent_alone(members: &Value) -> Lent<Guarded> {
    let guard = for_impersonations(guard(&guard_configuration(members)));
    let listener = Listener::new("guarded").filter(jwt_authn()).filter(guard);
    Guarded::lent_with(listener.route_to(API, "3s"), &filter_configuration())
}

fn run(guarded: &Guarded, cases: &[(&str, Request, u16)]) {
    let mut findings = Findings::default();
    for (case, request, status) in cases {
        for (protocol, send) in PROTOCOLS {
            let answer = send(guarded.envoy.address("guarded"), request);
            let case = format!("{case}, {protocol}: {} {}", request.method, request.target);
            findings.expect(&case, &answer.status, status);
            findings.expect(&case, &guarded.reached(&answer), &(*status == 200));
        }
    }
}

fn asking(method: &str, target: &str) -> Request {
    Request::new(method, target).bearer(&token(&claims()))
}

#[test]
fn no_spelling_of_a_path_evades_a_rule_that_denies_it() {
    let guarded = Guarded::lent(&json!({
        "default": "allow",
        "rules": [
            {"path_prefix": "/account/password", "action": "deny"},
            {"path": "/payments", "action": "deny"},
        ],
    }));
    let requests =
        OF_A_DENIED_PATH.map(|(case, target, status)| (case, asking("GET", target), status));
    run(&guarded, &requests);
}

#[test]
fn no_spelling_of_another_path_passes_for_an_allowed_one() {
    let guarded = Guarded::lent(&json!({
        "default": "deny",
        "rules": [
            {"path": "/orders/search", "methods": ["POST"], "action": "allow"},
            {"path_prefix": "/public", "action": "allow"},
            {"methods": ["HEAD"], "action": "allow"},
        ],
    }));
    let requests = OF_AN_ALLOWED_PATH
        .map(|(case, method, target, status)| (case, asking(method, target), status));
    run(&guarded, &requests);
}

#[test]
fn an_overridden_method_is_refused_if_a_rule_depends_on_methods() {
    let rules = json!([
        {"path_prefix": "/orders/", "methods": ["POST"], "action": "allow"},
        {"path_prefix": "/any/", "action": "allow"},
    ]);
    let guarded = lent_alone(&json!({"rules": rules}));
    let requests = OVERRIDES.map(|(case, method, target, header, status)| {
        let request = asking(method, target);
        let request =
            header.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        (case, request, status)
    });
    run(&guarded, &requests);
}

#[test]
fn a_path_that_a_header_overrides_matches_no_allow_rule() {
    let guarded =
        lent_alone(&json!({"default": "deny", "rules": [{"path_prefix": "/", "action": "allow"}]}));
    let read = || asking("GET", "/orders");
    run(&guarded, &[("no override", read(), 200)]);
    let cases = PATH_HEADERS.map(|name| (name, read().header(name, "/account"), DENIED));
    run(&guarded, &cases);
}

/// A right to read must not open a channel on which anything can be sent.
#[test]
fn an_upgrade_does_not_count_as_a_read() {
    let guarded = Guarded::lent(&json!({"rules": [
        {"path": "/live", "action": "allow"},
        {"path": "/named", "methods": ["CONNECT"], "action": "allow"},
        {"path": "/read", "methods": ["GET"], "action": "allow"},
    ]}));
    for (target, status) in
        [("/live", 101), ("/named", 101), ("/read", DENIED), ("/orders", DENIED)]
    {
        let request = asking("GET", target)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let calls = guarded.api.calls();
        let answer = guarded.envoy.connect().try_send(&request).unwrap();
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(guarded.api.calls() - calls, usize::from(status == 101), "{target}");
    }
}

#[test]
fn no_caller_can_forge_an_identity_header() {
    let guarded = Guarded::lent(&json!({}));
    let forged = |request: Request| {
        request
            .header(ID_HEADER, "forged")
            .header(ACTOR_HEADER, "forged")
            .header(ACTOR_HEADER, "forged too")
            .header("X-Impersonator", "forged")
    };
    let nobody = token(&claims_with(&json!({"act": null})));
    #[rustfmt::skip]
    let cases = [
        ("an impersonation",         token(&claims()),  Some("a-txn"), Some("agent-7")),
        ("one without an actor",     nobody,            Some("a-txn"), None),
        ("an ordinary user",         ordinary_token(),  None,          None),
    ];
    for (case, token, id, actor) in cases {
        for (protocol, send) in PROTOCOLS {
            let request = forged(Request::get("/orders")).bearer(&token);
            let answer = send(guarded.envoy.address("guarded"), &request);
            let received =
                guarded.api.received_for(&answer).unwrap_or_else(|| panic!("{case}: {answer:?}"));
            assert_eq!(received.header(ID_HEADER), id, "{case}, {protocol}");
            assert_eq!(received.header(ACTOR_HEADER), actor, "{case}, {protocol}");
        }
    }
    // If no filter before the guard removes them, the guard removes them from the requests that
    // enter it.
    let alone = json!({"default": "allow"});
    let chain = [guard(&guard_configuration(&alone)).into()];
    let listener = api_listener("guarded", chain);
    let guarded = Guarded::try_start_with(listener).unwrap();
    let request =
        forged(Request::get("/orders")).bearer(&token(&claims_with(&json!({"act": null}))));
    let received = guarded.api.received_for(&guarded.send(&request)).unwrap();
    assert_eq!((received.header(ID_HEADER), received.header(ACTOR_HEADER)), (Some("a-txn"), None));
}

/// A server that reads headers as variables takes all of these for one header: CGI, and PHP, WSGI
/// and Rack after it. Envoy passes underscores on here, as it does by default.
#[test]
fn no_caller_can_forge_an_identity_header_by_another_spelling() {
    // The characters that a name of a header field may have (RFC 9110 §5.6.2), and that a server
    // may take for a hyphen.
    let payloads = "!#$%&'*+.^_`|~".chars().map(|odd| format!("x{odd}jwt{odd}payload"));
    let payloads: Vec<_> =
        payloads.chain(["X-JWT.Payload".into(), "x_jwt-payload".into()]).collect();
    let forged = |request: Request| {
        let request = request.header("x-impersonators", "kept").header("ximpersonator", "kept");
        let request = payloads.iter().fold(request, |request, name| request.header(name, "forged"));
        HEADER_SPELLINGS.iter().fold(request, |request, name| request.header(name, "forged"))
    };
    let expect_none_forged = |guarded: &Guarded, case, token: &str, id: Option<&str>, has_rule| {
        for (protocol, send) in PROTOCOLS {
            let request = forged(Request::get("/orders")).bearer(token);
            let answer = send(guarded.envoy.address("guarded"), &request);
            let received =
                guarded.api.received_for(&answer).unwrap_or_else(|| panic!("{case}: {answer:?}"));
            for name in HEADER_SPELLINGS {
                assert_eq!(received.header(name), None, "{case}, {protocol}, {name}");
            }
            assert_eq!(received.header(ID_HEADER), id, "{case}, {protocol}");
            let told = |(name, _): &&(String, Vec<u8>)| {
                name.to_lowercase().replace(|one: char| !one.is_alphanumeric(), "-")
                    == "x-jwt-payload"
            };
            let payloads = received.headers.iter().filter(told).count();
            assert_eq!(payloads, if has_rule { 1 } else { 17 }, "{case}, {protocol}");
            for name in ["x-impersonators", "ximpersonator"] {
                assert_eq!(received.header(name), Some("kept"), "{case}, {protocol}");
            }
        }
    };
    // Before the guard, `header_mutation` removes them from all requests.
    let guarded = Guarded::lent(&json!({}));
    expect_none_forged(&guarded, "an ordinary user", &ordinary_token(), None, true);
    expect_none_forged(&guarded, "an impersonation", &token(&claims()), Some("a-txn"), true);
    // The guard removes its own from the requests that enter it, whatever stands before it.
    let guarded = lent_alone(&json!({"mode": "report"}));
    expect_none_forged(&guarded, "a guard alone", &token(&claims()), Some("a-txn"), false);
}

/// `jwt_authn` verifies one of two tokens. The API gets the claims of that one, and neither token.
#[test]
fn the_api_gets_the_claims_of_the_verified_one_of_two_tokens() {
    let guarded = Guarded::lent(&json!({}));
    let (impersonation, ordinary) = (token(&claims()), ordinary_token());
    #[rustfmt::skip]
    let cases = [
        ("an impersonation first", [&impersonation, &ordinary]),
        ("an impersonation last",  [&ordinary, &impersonation]),
    ];
    for (case, tokens) in cases {
        for (protocol, send) in PROTOCOLS {
            let request = Request::post("/orders").bearer(tokens[0]).bearer(tokens[1]);
            let answer = send(guarded.envoy.address("guarded"), &request);
            let Some(received) = guarded.api.received_for(&answer) else { continue };
            assert_eq!(received.header("authorization"), None, "{case}, {protocol}");
            let payload = received.header("x-jwt-payload").unwrap();
            let claims = testkit::gateway::raw_part(&format!("x.{payload}"), 1);
            assert_eq!(
                claims["txn"],
                Value::Null,
                "{case}, {protocol}: a write of an impersonation"
            );
        }
    }
}

/// `jwt_authn` looks for a token in the query as well, unless it is told where to look.
#[test]
fn a_token_in_the_query_is_not_accepted() {
    let guarded = Guarded::lent(&json!({}));
    let target = format!("/orders?access_token={}", token(&claims()));
    let answer = guarded.send(&Request::get(&target));
    assert_eq!((answer.status, guarded.reached(&answer)), (401, false));
    let answer = guarded.send_as(&ordinary_token(), Request::post(&target).body("x"));
    let received = guarded.api.received_for(&answer).unwrap();
    let payload = received.header("x-jwt-payload").unwrap();
    assert_eq!(testkit::gateway::raw_part(&format!("x.{payload}"), 1)["txn"], Value::Null);
    assert_eq!(received.header("authorization"), None);
}

#[test]
fn a_request_that_jwt_authn_skips_has_no_identity() {
    // If only impersonations enter the guard, it does not see such a request, and the API gets no
    // identity headers.
    let guarded = Guarded::lent(&json!({}));
    let request =
        Request::get("/unverified").header(ID_HEADER, "forged").header("x-jwt-payload", "forged");
    let answer = guarded.send_as(&token(&claims()), request);
    let received = guarded.api.received_for(&answer).unwrap();
    assert_eq!(received.header(ID_HEADER), None);
    // A guard that every request enters sees it, and refuses.
    let chain = [guard(&guard_configuration(&json!({"default": "allow"}))).into()];
    let guarded = Guarded::try_start_with(api_listener("guarded", chain)).unwrap();
    for request in [Request::get("/unverified"), Request::post("/unverified").body("x")] {
        let answer = guarded.send_as(&token(&claims()), request);
        assert_eq!(answer.refusal(), (401, "invalid_token".into()));
        assert!(!guarded.reached(&answer));
    }
    assert_eq!(guarded.send_as(&token(&claims()), Request::get("/orders")).status, 200);
}

/// Other issuers use `txn`, too (RFC 8417). Theirs names no impersonation, and can be neither found
/// nor ended.
#[test]
fn a_token_of_another_issuer_with_a_txn_is_refused() {
    let guarded = Guarded::lent(&json!({"default": "allow"}));
    let others = claims_with(&json!({"iss": OTHER_ISSUER}));
    let answer = guarded.send_as(&PROVIDER_KEY.sign(&others), Request::get("/orders"));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
    let ordinary = claims_with(&json!({"iss": OTHER_ISSUER, "txn": null}));
    let answer = guarded.send_as(&PROVIDER_KEY.sign(&ordinary), Request::post("/orders").body("x"));
    assert_eq!(answer.status, 200);
    // The other issuer's name with our key does not help either.
    let answer = guarded.send_as(&SIGNING_KEY.sign(&others), Request::get("/orders"));
    assert_eq!(answer.status, 401);
}
