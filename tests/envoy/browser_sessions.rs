//! The host of a browser session in a real Envoy: the filter first, the cookie as the bearer of
//! `jwt_authn`, and the guard before the application. `tests/rules/browser_sessions` has the rules
//! of the filter's own paths.

mod etcd;
mod streams;

use serde_json::{Value, json};

use testkit::Findings;
use testkit::bootstrap::{Filter, Listener};
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY};
use testkit::gateway::raw_part;
use testkit::guarded::{
    ACTOR_HEADER, API, Guarded, ID_HEADER, Parties, claims_with, filter_configuration, guard,
    guard_configuration, jwt_authn, token, without_headers,
};
use testkit::http::{Answer, Request};
use testkit::impersonations::end_by_id;
use testkit::keys::has_jwt;
use testkit::lent::Lent;
use testkit::wait_for;

pub(crate) const SHOP: &str = "https://shop.example/";
/// Below `localhost` a host has an origin without TLS.
pub(crate) const DOMAIN: &str = "as-user.localhost";
pub(crate) const SUPPORT_DESK: &str = "https://support.example";
pub(crate) const COOKIE: &str = "__Host-impersonation";

pub(crate) fn filter() -> Configuration {
    filter_configuration()
        .with("/resources/-", json!({"indicator": SHOP, "scopes": ["shop"]}))
        .with(
            "/browser_sessions",
            json!({
                "domain": DOMAIN, "begin_from": [SUPPORT_DESK], "resource": SHOP,
                "ended": "https://support.example/ended",
            }),
        )
}

fn header_mutation(mutations: Value) -> Value {
    json!({
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": mutations},
        },
    })
}

/// Makes the cookie of the session, and nothing else, the access token.
pub(crate) fn token_of_cookie() -> [Value; 2] {
    let bearer = json!({"append_action": "OVERWRITE_IF_EXISTS_OR_ADD", "header": {
        "key": "authorization", "value": "Bearer %DYNAMIC_METADATA(impersonation:cookie)%",
    }});
    let kept = json!({
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{
                "cookie": COOKIE,
                "on_header_present": {
                    "metadata_namespace": "impersonation", "key": "cookie", "type": "STRING",
                },
            }],
        },
    });
    [kept, header_mutation(json!([{"append": bearer}]))]
}

/// Envoy's `jwt_authn` for the tokens of sessions.
pub(crate) fn jwt_authn_of_sessions() -> Value {
    let mut jwt_authn = jwt_authn();
    jwt_authn["typed_config"]["providers"]["ours"]["audiences"] = json!([SHOP]);
    jwt_authn
}

/// The hosts of sessions, before the application.
fn listener(guard_members: &Value) -> Listener {
    verifying_listener(guard_members, &filter()).route_to(API, "0s").edited(leave_out_the_version)
}

/// A listener for the hosts of sessions without routes to the application.
fn verifying_listener(guard_members: &Value, filter: &Configuration) -> Listener {
    let listener = Listener::new("guarded").filter(Filter::from(filter));
    let listener = token_of_cookie().into_iter().fold(listener, Listener::filter);
    listener
        .filter(jwt_authn_of_sessions())
        .filter(without_headers(&[ID_HEADER, ACTOR_HEADER]))
        .filter(guard(&guard_configuration(guard_members)))
}

/// The guard stands before every route but the one by which tests see that a listener is in use.
fn leave_out_the_version(listener: &mut Value) {
    let routes = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
    let version = listener.pointer_mut(&format!("{routes}/0")).unwrap();
    version["typed_per_filter_config"] = json!({"guard": {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
    }});
}

fn start_with(rules: Value) -> Lent<Guarded> {
    let members = json!({"browser_session": {"domain": DOMAIN}, "rules": rules});
    Guarded::lent_with(listener(&members), &filter())
}

fn start() -> Lent<Guarded> {
    start_with(json!([{"path": "/live", "methods": ["CONNECT"], "action": "allow"}]))
}

struct Session {
    parties: Parties,
    id: String,
    host: String,
    token: String,
    /// The request that began the session.
    begin: Request,
}

impl Session {
    fn begin(guarded: &Guarded) -> Self {
        Self::begin_as(guarded, Parties::new())
    }

    fn begin_as(guarded: &Guarded, parties: Parties) -> Self {
        let minted = guarded.send_to_filter(&parties.mint_request(&json!({})));
        assert_eq!(minted.status, 201, "{minted:?}");
        let id = minted.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
        let form = parties.exchange_form(&minted.member("subjectToken"));
        let form = form.set("resource", SHOP).set("scope", "shop").set("landing", "/orders");
        let host = format!("{id}.{DOMAIN}");
        let request = Request::post("/.impersonation/begin")
            .header("host", &host)
            .header("origin", SUPPORT_DESK)
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.encode());
        let answer = guarded.send(&request);
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        let token = cookie.split_once("; ").unwrap().0.strip_prefix(&format!("{COOKIE}="));
        Self { parties, id, host, token: token.unwrap().to_owned(), begin: request }
    }

    fn cookie(&self) -> String {
        format!("{COOKIE}={}", self.token)
    }

    /// A request with the session's cookie, of which the browser says nothing more.
    fn bare(&self, method: &str, target: &str) -> Request {
        let request = Request::new(method, target).header("host", &self.host);
        request.header("cookie", self.cookie())
    }

    /// A request that a page of the session causes.
    fn request(&self, method: &str, target: &str) -> Request {
        self.bare(method, target).header("sec-fetch-site", "same-origin")
    }
}

fn websocket(request: Request) -> Request {
    request
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[test]
fn the_application_sees_the_user_and_never_the_token() {
    let guarded = start();
    let session = Session::begin(&guarded);
    let request = session.request("GET", "/orders");
    let answer = guarded.send(&request.header("cookie", "a=b").header(ID_HEADER, "forged"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let received = guarded.api.received_for(&answer).unwrap();
    assert_eq!(received.header("cookie"), Some("a=b"), "{received:?}");
    assert_eq!(received.header(ID_HEADER), Some(&*session.id), "{received:?}");
    assert_eq!(received.header(ACTOR_HEADER), Some(&*session.parties.actor), "{received:?}");
    assert_eq!(received.header("authorization"), None, "{received:?}");
    let text = received.headers.iter().map(|(_, value)| String::from_utf8_lossy(value));
    let (_, signature) = session.token.rsplit_once('.').unwrap();
    assert!(!text.collect::<String>().contains(signature), "{received:?}");
    let alone = guarded.send(&session.request("GET", "/orders"));
    assert_eq!(guarded.api.received_for(&alone).unwrap().header("cookie"), None, "{alone:?}");
    let written = guarded.send(&session.request("POST", "/orders"));
    assert_eq!(written.refusal(), (403, "insufficient_scope".into()), "{written:?}");
}

/// Pages and applications escape what they show. They get each name as it is.
#[test]
fn a_name_of_255_characters_or_of_markup_arrives_as_it_is() {
    let guarded = start();
    let mut findings = Findings::default();
    for (case, name) in [
        ("longest", format!("{:a<255}", Parties::new().user)),
        ("longest of others", format!("{:\u{7530}<255}", Parties::new().user)),
        ("markup", format!("</script><img src=x onerror=alert(1)>\"'&;,{}", Parties::new().user)),
    ] {
        let actor = format!("of-{}", name.chars().take(252).collect::<String>());
        let parties = Parties { user: name, actor, ..Parties::new() };
        let session = Session::begin_as(&guarded, parties);
        let me = guarded.send(&session.request("GET", "/.impersonation/me")).json();
        let Parties { user, actor, .. } = &session.parties;
        findings.expect(case, &(&me["userId"], &me["actorId"]), &(&json!(user), &json!(actor)));
        let answer = guarded.send(&session.request("GET", "/orders"));
        let received = guarded.api.received_for(&answer).unwrap();
        let payload = received.header("x-jwt-payload").unwrap();
        let claims = raw_part(&format!(".{payload}"), 1);
        findings.expect(case, &claims["sub"], &json!(user));
        findings.expect(case, &claims["act"]["sub"], &json!(actor));
        let told = received.header(ACTOR_HEADER).unwrap();
        findings.expect(case, &told.bytes().all(|byte| byte.is_ascii_graphic()), &true);
    }
}

/// Logs are read by many, and addresses are kept in histories and sent along.
#[test]
fn no_log_no_address_and_no_answer_has_a_token() {
    let guarded = start();
    let session = Session::begin(&guarded);
    let elsewhere = session.bare("GET", "/orders").header("sec-fetch-site", "cross-site");
    let answers = [
        session.request("GET", "/orders"),
        session.request("POST", "/orders"),
        session.request("GET", "/.impersonation/me"),
        session.request("GET", "/.impersonation/banner.js"),
        elsewhere,
        session.begin.clone(),
        session.request("GET", "/orders"),
        session.request("POST", "/.impersonation/end"),
    ]
    .map(|request| guarded.send(&request));
    let statuses = answers.each_ref().map(|answer| answer.status);
    assert_eq!(statuses, [200, 403, 200, 200, 403, 400, 401, 401]);
    for answer in &answers {
        let headers = answer.headers.iter().map(|(_, value)| value.as_str());
        let text = headers.collect::<String>() + &answer.text();
        assert!(!has_jwt(&text) && !text.contains("sub_"), "{answer:?}");
        if let Some(received) = guarded.api.received_for(answer) {
            assert!(!has_jwt(&received.target), "{received:?}");
        }
    }
    let log = wait_for("the last line of the log", || {
        let log = guarded.envoy.log();
        log.contains("\"reason\":\"another_origin\"").then_some(log)
    });
    assert!(!has_jwt(&log) && !log.contains("sub_"), "{log}");
}

#[test]
fn a_session_ends_for_the_application_when_it_ends_or_is_ended() {
    let guarded = start();
    let (by_banner, by_operator) = (Session::begin(&guarded), Session::begin(&guarded));
    for session in [&by_banner, &by_operator] {
        assert_eq!(guarded.send(&session.request("GET", "/orders")).status, 200);
        assert_eq!(guarded.send(&session.request("GET", "/.impersonation/me")).status, 200);
    }
    let ended = guarded.send(&by_banner.request("POST", "/.impersonation/end"));
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(guarded.send_to_filter(&end_by_id(&by_operator.id)).status, 204);
    for session in [&by_banner, &by_operator] {
        let answer = guarded.send(&session.request("GET", "/orders"));
        assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{answer:?}");
        let me = guarded.send(&session.request("GET", "/.impersonation/me"));
        assert_eq!(me.refusal(), (401, "invalid_token".into()), "{me:?}");
    }
}

#[test]
fn nothing_is_done_as_the_user_by_another_page_or_with_another_token() {
    let guarded = start();
    let (session, other) = (Session::begin(&guarded), Session::begin(&guarded));
    let at = |host: &str, cookie: &str| {
        let request = Request::get("/orders").header("host", host).header("cookie", cookie);
        request.header("sec-fetch-site", "same-origin")
    };
    let (host, cookie) = (&*session.host, &*session.cookie());
    let holding = |token: &str| format!("{COOKIE}={token}");
    let ordinary = claims_with(&json!({"txn": null, "act": null, "aud": SHOP}));
    let bound = claims_with(&json!({
        "txn": null, "act": null, "aud": SHOP, "cnf": {"jkt": "A".repeat(43)},
    }));
    let of_nobody = claims_with(&json!({"txn": null, "aud": SHOP, "iss": ISSUER}));
    let two = format!("{}; {cookie}", other.cookie());
    let by = |request: Request, name: &str, value: &str| request.header(name, value);
    let get = || session.bare("GET", "/orders");
    let handshake = || websocket(session.bare("GET", "/live"));
    let own = format!("http://{host}");
    const NOT_OURS: &str = "invalid_token";
    const ELSEWHERE: &str = "access_denied";
    #[rustfmt::skip]
    let cases = [
        ("another session's token",     at(host, &other.cookie()),                         401, NOT_OURS),
        ("another session's host",      at(&other.host, cookie),                           401, NOT_OURS),
        ("another token first",         at(host, &two),                                    401, NOT_OURS),
        ("a label more",                at(&format!("a.{host}"), cookie),                  401, NOT_OURS),
        ("the domain itself",           at(DOMAIN, cookie),                                401, NOT_OURS),
        ("another domain",              at("shop.example", cookie),                        401, NOT_OURS),
        ("an ordinary user",            at(host, &holding(&PROVIDER_KEY.sign(&ordinary))), 401, NOT_OURS),
        ("a bound ordinary user",       at(host, &holding(&PROVIDER_KEY.sign(&bound))),    401, NOT_OURS),
        ("a token without txn",         at(host, &holding(&token(&of_nobody))),            401, NOT_OURS),
        ("no cookie",                   at(host, "a=b"),                                   401, "-"),
        ("the bearer alone",            at(host, "a=b").bearer(&session.token),            401, "-"),
        ("a stranger's link",           by(get(), "sec-fetch-site", "cross-site"),         403, ELSEWHERE),
        ("a sibling's link",            by(get(), "sec-fetch-site", "same-site"),          403, ELSEWHERE),
        ("an odd site",                 by(get(), "sec-fetch-site", "Same-Origin"),        403, ELSEWHERE),
        ("two sites",                   by(session.request("GET", "/orders"), "sec-fetch-site", "same-origin"), 403, ELSEWHERE),
        ("a stranger's fetch",          by(get(), "origin", "https://evil.example"),       403, ELSEWHERE),
        ("a sibling's fetch",           by(get(), "origin", &format!("http://{}", other.host)), 403, ELSEWHERE),
        ("a sandboxed frame",           by(get(), "origin", "null"),                       403, ELSEWHERE),
        ("a stranger's form",           by(session.bare("POST", "/orders"), "sec-fetch-site", "cross-site"), 403, ELSEWHERE),
        ("nobody says whose form",      session.bare("POST", "/orders"),                   403, ELSEWHERE),
        ("a preflight",                 by(session.bare("OPTIONS", "/orders"), "sec-fetch-site", "cross-site"), 403, ELSEWHERE),
        ("a WebSocket of nobody",       handshake(),                                       403, ELSEWHERE),
        ("a stranger's WebSocket",      by(handshake(), "origin", "https://evil.example"), 403, ELSEWHERE),
        ("a WebSocket over TLS",        by(handshake(), "origin", &format!("https://{host}")), 403, ELSEWHERE),
    ];
    let mut findings = Findings::default();
    for (case, request, status, error) in cases {
        let answer = guarded.send(&request);
        findings.expect(case, &answer.refusal(), &(status, error.to_owned()));
        findings.expect(case, &guarded.reached(&answer), &false);
        let asks = answer.header("www-authenticate").is_some();
        findings.expect(case, &asks, &(status == 401));
    }
    #[rustfmt::skip]
    let good = [
        ("a page of its own",           session.request("GET", "/orders")),
        ("a typed address",             by(get(), "sec-fetch-site", "none")),
        ("its own fetch",               by(get(), "origin", &own)),
        ("an old browser reads",        get()),
        ("under no-referrer",           by(session.request("GET", "/orders"), "origin", "null")),
    ];
    for (case, request) in good {
        let answer = guarded.send(&request);
        findings.expect(case, &guarded.reached(&answer), &true);
    }
    for (case, request) in [
        ("a WebSocket of Chromium", by(handshake(), "origin", &own)),
        ("a WebSocket of Firefox", websocket(session.request("GET", "/live"))),
    ] {
        let answer = guarded.envoy.connect().try_send(&request).unwrap();
        findings.expect(case, &answer.status, &101);
    }
}

/// The reasons tell the operator what was tried.
#[test]
fn the_audit_log_says_why_a_request_is_not_the_sessions() {
    let guarded = start();
    let (session, other) = (Session::begin(&guarded), Session::begin(&guarded));
    let elsewhere = Request { headers: Vec::new(), ..session.bare("GET", "/orders") };
    let elsewhere = elsewhere.header("host", &other.host).header("cookie", session.cookie());
    let from_elsewhere = session.bare("GET", "/orders").header("sec-fetch-site", "cross-site");
    for (request, reason) in [(elsewhere, "another_session"), (from_elsewhere, "another_origin")] {
        let answer: Answer = guarded.send(&request);
        assert!(matches!(answer.status, 401 | 403), "{answer:?}");
        let written = format!("\"reason\":\"{reason}\"");
        let line = wait_for("the line of the audit", || {
            let log = guarded.envoy.log();
            log.lines().find(|line| line.contains(&written)).map(str::to_owned)
        });
        assert!(line.contains(&session.id), "{line}");
    }
}

/// Before APIs the guard leaves cookies alone, and asks for no origin.
#[test]
fn a_guard_before_apis_is_as_it_was() {
    let guarded = Guarded::lent(&json!({}));
    let request = Request::get("/orders")
        .header("cookie", format!("a=b; {COOKIE}=x"))
        .header("sec-fetch-site", "cross-site")
        .header("origin", "https://evil.example");
    let answer = guarded.send_as(&token(&claims_with(&json!({}))), request);
    assert_eq!(answer.status, 200, "{answer:?}");
    let received = guarded.api.received_for(&answer).unwrap();
    assert_eq!(received.header("cookie"), Some(&*format!("a=b; {COOKIE}=x")), "{received:?}");
}

/// On other hosts than those of sessions the filter adds no header field and no cookie.
#[test]
fn an_ordinary_host_is_as_it_was() {
    let (with, without) = (start(), Guarded::lent(&json!({})));
    for target in ["/orders", "/.impersonation/me", "/.impersonation/banner.js"] {
        let request = Request::get(target)
            .header("cookie", format!("{COOKIE}=x"))
            .header("sec-fetch-site", "cross-site");
        let [with, without] = [&with, &without].map(|guarded| {
            let mut answer = guarded.send_to_filter(&request);
            answer.headers.retain(|(name, _)| name != "date");
            (answer.status, answer.headers, answer.body)
        });
        assert_eq!(with, without, "{target}");
    }
}
