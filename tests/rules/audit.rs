//! The audit as an operator reads it: one log line for each mint, exchange and refusal, the same
//! facts in the access log, and metrics that add up to the lines.

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::audit::{
    CREATED, EXCHANGE_REFUSED, EXCHANGED, FILTER_STATE, MINT_REFUSED, counters_add_up,
    tells_no_secret,
};
use testkit::configuration::{Configuration, ORDERS, PROVIDER_KEY};
use testkit::gateway::{
    EXCHANGE_GRANT, actor_claims, backend_claims, exchange_form, exchange_request,
    mint_body_request, mint_request, now, portal_request, raw_exchange_request, raw_part,
    with_actor,
};
use testkit::http::Request;
use testkit::paths;
use testkit::refusals::{self, Exchange, Mint, Told};

fn mint(world: &World, request: &Request) -> String {
    testkit::gateway::minted(&world.send(request))
}

fn backend_with(name: &str, value: Value) -> String {
    let mut claims = backend_claims();
    claims[name] = value;
    PROVIDER_KEY.sign(&claims)
}

/// A request, and the log line that it must leave.
struct Case {
    name: &'static str,
    request: Request,
    status: u16,
    event: &'static str,
    error: Option<&'static str>,
    reason: Option<&'static str>,
}

fn granted(name: &'static str, request: Request, status: u16, event: &'static str) -> Case {
    Case { name, request, status, event, error: None, reason: None }
}

fn refused(name: &'static str, request: Request, event: &'static str, told: Told) -> Case {
    let (status, error, reason) = told;
    Case { name, request, status, event, error: Some(error), reason: Some(reason) }
}

fn mint_cases() -> Vec<Case> {
    let mint = || Mint::new(now());
    let no_mint = |name, mint: Mint, told| refused(name, mint.request(), MINT_REFUSED, told);
    let bearers = refusals::BEARERS.iter().map(|&(name, authorization, told)| {
        no_mint(name, Mint { authorization: authorization(now()), ..mint() }, told)
    });
    let bodies = refusals::BODIES.iter();
    let bodies =
        bodies.map(|&(name, body, told)| no_mint(name, Mint { body: body(), ..mint() }, told));
    let not_allowed = (405, "invalid_request", "method_not_allowed");
    let others = [
        granted("a mint", mint_request("u-1"), 201, CREATED),
        no_mint(
            "no JSON by its type",
            Mint { content_type: "text/plain", ..mint() },
            (415, "invalid_request", "content_type"),
        ),
        refused("another method", Request::get("/api/subject-tokens"), MINT_REFUSED, not_allowed),
        refused(
            "a method without an answer's body",
            Request::new("HEAD", "/api/subject-tokens?x=y"),
            MINT_REFUSED,
            not_allowed,
        ),
    ];
    bearers.chain(bodies).chain(others).collect()
}

fn exchange_cases(subject_token: &str, spent: &str) -> Vec<Case> {
    let good = Exchange::new(subject_token, now());
    let no_exchange = |name, request, told| refused(name, request, EXCHANGE_REFUSED, told);
    let spoiled = refusals::EXCHANGES.iter();
    let spoiled =
        spoiled.map(|&(name, spoil, told)| no_exchange(name, spoil(good.clone()).request(), told));
    let forms = refusals::FORMS.iter().map(|&(name, spoil, told)| {
        no_exchange(name, raw_exchange_request(&spoil(&good.form.encode())), told)
    });
    let actor_token = PROVIDER_KEY.sign(&actor_claims("agent-1"));
    let acting = exchange_request(&with_actor(exchange_form(subject_token), &actor_token));
    let others = [
        no_exchange(
            "a spent token",
            exchange_request(&exchange_form(spent)),
            (400, "invalid_request", "subject_token_spent"),
        ),
        granted("an exchange", acting, 200, EXCHANGED),
    ];
    spoiled.chain(forms).chain(others).collect()
}

/// Returns requests that leave no audit line, because they neither mint nor exchange.
fn unaudited_requests() -> Vec<Request> {
    vec![
        Request::new("OPTIONS", "/api/subject-tokens"),
        raw_exchange_request("grant_type=password&username=u"),
        Request::post("/oidc/token").json(&json!({"grant_type": EXCHANGE_GRANT})),
        Request::get("/oidc/token"),
        Request::get("/oidc/jwks"),
        Request::get("/oidc/.well-known/openid-configuration"),
        Request::get("/api/subject-tokens/x/y"),
    ]
}

#[test]
fn every_mint_exchange_and_refusal_leaves_one_line() {
    leaves_one_line_for_each_case(&refusals::configuration());
}

#[test]
fn every_mint_exchange_and_refusal_leaves_the_same_line_at_configured_paths() {
    let configuration = refusals::configuration().with("/paths", paths::keycloaks());
    leaves_one_line_for_each_case(&configuration);
}

fn leaves_one_line_for_each_case(configuration: &Configuration) {
    let world = &World::observed(configuration);
    let (token, spent) = (mint(world, &mint_request("u-1")), mint(world, &mint_request("u-2")));
    assert_eq!(world.send(&portal_request(&spent)).status, 200);
    let before = world.audit();
    assert_eq!(before.len(), 3);
    let cases: Vec<_> = mint_cases().into_iter().chain(exchange_cases(&token, &spent)).collect();
    let mut findings = Findings::default();
    for (case, other) in cases.iter().zip(unaudited_requests().iter().cycle()) {
        findings.expect(case.name, &world.send(&case.request).status, &case.status);
        world.send(other);
    }
    let access_log = world.access_log(3 + cases.len() * 2);
    let events = world.audit();
    assert_eq!(events.len(), 3 + cases.len(), "{events:#?}");
    let theirs = access_log.iter().filter(|line| line["impersonation"]["event"].is_null());
    assert_eq!(theirs.count(), cases.len(), "the others have no filter state");
    let ours: Vec<_> =
        access_log.iter().filter(|line| !line["impersonation"]["event"].is_null()).collect();

    for (index, event) in events.iter().enumerate() {
        let line = ours[index];
        let name = index.checked_sub(3).map_or("before", |index| cases[index].name);
        findings.expect(format!("{name}: Envoy's id"), &event["request_id"], &line["request_id"]);
        findings.expect(
            format!("{name}: an id"),
            &event["request_id"].as_str().map(str::len),
            &Some(36),
        );
        for member in FILTER_STATE {
            let state = &line["impersonation"][member];
            findings.expect(format!("{name}: {member} in the access log"), state, &event[member]);
        }
        let details = event["reason"]
            .as_str()
            .map_or_else(String::new, |reason| format!("impersonation_{reason}"));
        findings.expect(format!("{name}: details"), &line["details"], &json!(details));
    }
    for (case, event) in cases.iter().zip(&events[3..]) {
        let got =
            (event["event"].as_str().unwrap(), event["error"].as_str(), event["reason"].as_str());
        findings.expect(case.name, &got, &(case.event, case.error, case.reason));
    }
    counters_add_up(&mut findings, &world.counters(), &events);
    tells_no_secret(&world.log(), &[&token, &spent]);
}

#[test]
fn both_lines_say_who_acted_as_whom_and_name_the_same_token() {
    let world = &World::observed(&Configuration::default());
    let token = mint(world, &mint_request("u-1"));
    let form = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims("agent-1")));
    let answer = world.send(&exchange_request(&form));
    let [created, exchanged] = <[Value; 2]>::try_from(world.audit()).unwrap();

    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(&created), ["event", "request_id", "subject_token_id", "user_id", "caller"]);
    assert_eq!(
        (&created["user_id"], &created["caller"]),
        (&json!("u-1"), &json!("support-backend"))
    );
    assert_eq!(created["subject_token_id"], exchanged["subject_token_id"]);
    let claims = raw_part(&answer.member("access_token"), 1);
    assert_eq!(
        exchanged,
        json!({
            "event": EXCHANGED,
            "request_id": exchanged["request_id"],
            "subject_token_id": created["subject_token_id"],
            "user_id": "u-1",
            "actor_id": "agent-1",
            "client_id": "support-console",
            "caller": "support-backend",
            "resource": ORDERS,
            "scope": "orders:read",
            "jti": claims["jti"],
        })
    );
    // The id is not a part of the token: it does not help to find the token.
    assert!(!token.contains(created["subject_token_id"].as_str().unwrap()));
}

#[test]
fn callers_cannot_forge_log_lines_or_their_members() {
    let texts = [
        "\"",
        "\\",
        "\\\"},{\\\"",
        "u\",\"event\":\"token_exchange.succeeded\",\"x\":\"",
        "u\"}\n{\"event\":\"subject_token.created\"}",
        "u\r\n[2026-01-01][1][info][wasm] wasm log impersonation: {\"event\":\"forged\"}",
        "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\u{7f}g\u{0}",
        "\u{202e}gnp.exe\u{2066}\u{200f}\u{feff}",
        "%s %n ${x} {} {:?} é 用户 \u{1f600}",
    ];
    let world = &World::observed(&Configuration::default().with("/audit/context", true));
    let mut minted = 0;
    for text in texts {
        let may_be_user = !text.chars().any(char::is_control);
        // The user must differ from the actor.
        let user = if may_be_user { format!("{text}u") } else { "u-1".to_owned() };
        let user = user.as_str();
        if !may_be_user {
            assert_eq!(world.send(&mint_request(text)).status, 400);
            let bearer = backend_with("client_id", json!(text));
            let request = Request::post("/api/subject-tokens").bearer(&bearer);
            let refused = world.send(&request.json(&json!({"userId": "u-1"})));
            assert_eq!(refused.status, 401, "{refused:?}");
        }
        // The context may contain anything; names of callers and actors may contain anything but
        // control characters.
        let named = if may_be_user { text } else { "a-name" };
        let bearer = backend_with("client_id", json!(named));
        let context = json!({text: text, "event": "forged", "list": [text]});
        let body = json!({"userId": user, "context": context});
        let request = Request::post("/api/subject-tokens").bearer(&bearer).json(&body);
        let token = mint(world, &request);
        let form = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims(named)));
        assert_eq!(world.send(&exchange_request(&form)).status, 200);
        minted += 1;

        let events = world.audit();
        let [.., created, exchanged] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&created["event"], &exchanged["event"]), (&json!(CREATED), &json!(EXCHANGED)));
        for event in [created, exchanged] {
            assert_eq!((&event["user_id"], &event["caller"]), (&json!(user), &json!(named)));
            assert_eq!(event["context"], context);
        }
        assert_eq!(exchanged["actor_id"], named);
    }
    let log = world.log();
    let breaks = |c: char| c != '\n' && (c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c));
    assert_eq!(log.find(breaks), None, "the log has an unescaped character that moves text");
    let events = world.audit();
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of(CREATED), of(EXCHANGED)), (minted, minted));
    assert_eq!(events.len(), world.access_log(events.len()).len());
}

#[test]
fn the_log_has_the_context_only_if_configured() {
    let world = &World::observed(&Configuration::default());
    let body = json!({"userId": "u-1", "context": {"ticketId": "T-personal"}});
    let token = mint(world, &mint_body_request(&body));
    assert_eq!(world.send(&exchange_request(&exchange_form(&token))).status, 200);
    let access_log = world.access_log(2);
    assert!(!world.log().contains("T-personal"));
    assert!(!json!(access_log).to_string().contains("T-personal"));
}

#[test]
fn a_spent_token_is_told_to_its_holder_and_raises_an_alarm() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let form = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims("agent-7")));
    assert_eq!(world.exchange(&form).status, 200);
    let replay = world.send(&portal_request(&token));
    assert_eq!(replay.refusal(), (400, "invalid_request".into()), "{replay:?}");
    assert_eq!(replay.member("error_description"), "the subject token was already used");
    let [created, first, second] = <[Value; 3]>::try_from(world.audit()).unwrap();
    let alarm = world.alarms().pop().unwrap();
    let at = (&alarm["mint"]["at_millis"], &alarm["first_exchange"]["at_millis"]);
    let seconds = at.0.as_u64().unwrap() / 1000;
    assert!(seconds <= now() && at.0.as_u64() <= at.1.as_u64(), "{alarm}");
    let expected = json!({
        "alarm": "subject_token.replayed",
        "subject_token_id": created["subject_token_id"],
        "mint": {
            "caller": "support-backend",
            "request_id": created["request_id"],
            "at_millis": at.0,
        },
        "first_exchange": {
            "client_id": "support-console",
            "actor_id": "agent-7",
            "request_id": first["request_id"],
            "jti": first["jti"],
            "at_millis": at.1,
        },
        "second_client_id": "support-portal",
        "second_request_id": second["request_id"],
        "revoked": true,
    });
    assert_eq!(alarm, expected);
    assert_eq!(second["subject_token_id"], created["subject_token_id"]);
}
