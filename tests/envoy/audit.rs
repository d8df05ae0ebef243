//! The audit as an operator reads it: one log line for each mint, exchange and refusal, the same
//! facts in the access log, and metrics that add up to the lines.

mod observed;

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hostile::{self, Attacker, inspect_log};
use observed::{ABSENT, FILTER_STATE, Observed, SILENT, json_lines, with_access_log};
use testkit::bootstrap::Filter;
use testkit::configuration::{
    CLIENT_SECRET, Configuration, MANAGEMENT, ORDERS, PROVIDER_KEY, SIGNING_KEY,
};
use testkit::flood::flood;
use testkit::gateway::{
    EXCHANGE_GRANT, Gateway, Options, actor_claims, backend_claims, exchange_form,
    exchange_request, listener, mint_body_request, mint_request, now, portal_request,
    raw_exchange_request, raw_part, with_actor,
};
use testkit::http::Request;
use testkit::keys::{has_jwt, unsigned};
use testkit::refusals::{self, Exchange, Mint, Told};
use testkit::report::Counted;
use testkit::{Findings, paths, repository, scratch, wait_for};

const CREATED: &str = "subject_token.created";
const MINT_REFUSED: &str = "subject_token.refused";
const EXCHANGED: &str = "token_exchange.succeeded";
const EXCHANGE_REFUSED: &str = "token_exchange.refused";

/// The bytes by which memory may grow under an attack.
const ROOM: u64 = 30 << 20;

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

fn mint_with(bearer: &str) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(&json!({"userId": "u-1"}))
}

fn backend_with(name: &str, value: Value) -> String {
    let mut claims = backend_claims();
    claims[name] = value;
    PROVIDER_KEY.sign(&claims)
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
    leaves_one_line_for_each_case(&Observed::lent(&refusals::configuration()));
}

#[test]
fn every_mint_exchange_and_refusal_leaves_the_same_line_at_configured_paths() {
    let configuration = refusals::configuration().with("/paths", paths::keycloaks());
    let mut observed = Observed::lent(&configuration);
    observed.move_requests();
    leaves_one_line_for_each_case(&observed);
}

fn leaves_one_line_for_each_case(observed: &Observed) {
    let (token, spent) = (observed.mint(&mint_request("u-1")), observed.mint(&mint_request("u-2")));
    assert_eq!(observed.envoy().send(&portal_request(&spent)).status, 200);
    let before = observed.events();
    assert_eq!(before.len(), 3);
    let cases: Vec<_> = mint_cases().into_iter().chain(exchange_cases(&token, &spent)).collect();
    let mut findings = Findings::default();
    for (case, other) in cases.iter().zip(unaudited_requests().iter().cycle()) {
        findings.expect(case.name, &observed.envoy().send(&case.request).status, &case.status);
        observed.envoy().send(other);
    }
    let access_log = observed.access_log(3 + cases.len() * 2);
    let events = observed.events();
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
    counters_add_up(&mut findings, &observed.envoy().metrics(), &events);
    tells_no_secret(&observed.log(), &[&token, &spent]);
}

/// Checks that the counters of outcomes equal the numbers of events, and that there are no other
/// counters.
fn counters_add_up(findings: &mut Findings, metrics: &[(String, u64)], events: &[Value]) {
    let mut expected = BTreeMap::from([
        ("impersonation_subject_tokens_created_total".to_owned(), 0),
        ("impersonation_subject_tokens_exchanged_total".to_owned(), 0),
    ]);
    for event in events {
        let text = |member: &str| event[member].as_str().unwrap_or_default();
        let refusal = |endpoint: &str| {
            let (error, reason) = (text("error"), text("reason"));
            format!(
                "impersonation_refusals_total.endpoint.{endpoint}.error.{error}.reason.{reason}"
            )
        };
        let counter = match text("event") {
            CREATED => "impersonation_subject_tokens_created_total".to_owned(),
            EXCHANGED => "impersonation_subject_tokens_exchanged_total".to_owned(),
            MINT_REFUSED => refusal("subject_tokens"),
            EXCHANGE_REFUSED => refusal("token"),
            other => panic!("no event of ours: {other}"),
        };
        *expected.entry(counter).or_insert(0) += 1;
    }
    let outcome = |name: &str| {
        ["_created_total", "_exchanged_total"].iter().any(|end| name.ends_with(end))
            || name.starts_with("impersonation_refusals_total")
    };
    // A lent Envoy has the counters of other tests, too.
    let counted = metrics
        .iter()
        .filter(|(name, count)| outcome(name) && (*count > 0 || expected.contains_key(name)));
    let counted: BTreeMap<_, _> = counted.cloned().collect();
    findings.expect("counters and events", &counted, &expected);

    let of = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count() as u64;
    let metric =
        |name: &str| metrics.iter().find(|(have, _)| have == name).map(|(_, value)| *value);
    let replayed = metric("impersonation_subject_tokens_replayed_total");
    findings.expect("replays", &replayed, &Some(of("subject_token_spent")));
    findings.expect("full", &metric("impersonation_store_full_total"), &Some(of("store_full")));
}

/// Checks that the log contains no secret of this run.
fn tells_no_secret(log: &str, tokens: &[&str]) {
    let token = unsigned(&json!({"alg": "ES256"}), &json!({}));
    assert!(has_jwt(&format!("a line with {token:.20}")), "what this looks for");
    assert!(!has_jwt(log), "a JWT in the log");
    let random_parts = tokens.iter().map(|token| token[12..].to_owned());
    for secret in
        SIGNING_KEY.secrets().into_iter().chain(random_parts).chain([CLIENT_SECRET.clone()])
    {
        assert!(!log.contains(&secret), "a secret in the log: {secret}");
    }
}

#[test]
fn both_lines_say_who_acted_as_whom_and_name_the_same_token() {
    let observed = Observed::lent(&Configuration::default());
    let token = observed.mint(&mint_request("u-1"));
    let form = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims("agent-1")));
    let answer = observed.envoy().send(&exchange_request(&form));
    let [created, exchanged] = <[Value; 2]>::try_from(observed.events()).unwrap();

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
    let observed = Observed::lent(&Configuration::default().with("/audit/context", true));
    let mut minted = 0;
    for text in texts {
        let may_be_user = !text.chars().any(char::is_control);
        // The user must differ from the actor.
        let user = if may_be_user { format!("{text}u") } else { "u-1".to_owned() };
        let user = user.as_str();
        if !may_be_user {
            assert_eq!(observed.envoy().send(&mint_request(text)).status, 400);
            let bearer = backend_with("client_id", json!(text));
            let request = Request::post("/api/subject-tokens").bearer(&bearer);
            let refused = observed.envoy().send(&request.json(&json!({"userId": "u-1"})));
            assert_eq!(refused.status, 401, "{refused:?}");
        }
        // The context may contain anything; names of callers and actors may contain anything but
        // control characters.
        let named = if may_be_user { text } else { "a-name" };
        let bearer = backend_with("client_id", json!(named));
        let context = json!({text: text, "event": "forged", "list": [text]});
        let body = json!({"userId": user, "context": context});
        let request = Request::post("/api/subject-tokens").bearer(&bearer).json(&body);
        let token = observed.mint(&request);
        let form = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims(named)));
        assert_eq!(observed.envoy().send(&exchange_request(&form)).status, 200);
        minted += 1;

        let events = observed.events();
        let [.., created, exchanged] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&created["event"], &exchanged["event"]), (&json!(CREATED), &json!(EXCHANGED)));
        for event in [created, exchanged] {
            assert_eq!((&event["user_id"], &event["caller"]), (&json!(user), &json!(named)));
            assert_eq!(event["context"], context);
        }
        assert_eq!(exchanged["actor_id"], named);
    }
    let log = observed.log();
    let breaks = |c: char| c != '\n' && (c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c));
    assert_eq!(log.find(breaks), None, "the log has an unescaped character that moves text");
    for line in log.lines() {
        assert!(line.starts_with("[20"), "Envoy did not begin this line: {line:?}");
    }
    let events = observed.events();
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of(CREATED), of(EXCHANGED)), (minted, minted));
    assert_eq!(events.len(), observed.access_log(events.len()).len());
}

#[test]
fn the_log_has_the_context_only_if_configured() {
    let observed = Observed::lent(&Configuration::default());
    let body = json!({"userId": "u-1", "context": {"ticketId": "T-personal"}});
    let token = observed.mint(&mint_body_request(&body));
    assert_eq!(observed.envoy().send(&exchange_request(&exchange_form(&token))).status, 200);
    let access_log = observed.access_log(2);
    assert!(!observed.log().contains("T-personal"));
    assert!(!json!(access_log).to_string().contains("T-personal"));
}

/// The access logger of docs/operations.md.
pub(crate) fn audit_logger(path: &std::path::Path) -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "filter": {"extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                "expression": "'wasm.impersonation.audit' in filter_state",
            },
        }},
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": path,
            "log_format": {"text_format_source": {"inline_string": "%FILTER_STATE(wasm.impersonation.audit:PLAIN)%\n"}},
        },
    })
}

#[test]
fn the_audit_goes_only_to_the_configured_log() {
    let manual = std::fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    assert!(manual.contains("expression: \"'wasm.impersonation.audit' in filter_state\""));
    for log in ["envoy", "access_log"] {
        let configuration = Configuration::default().with("/audit/log", log);
        let path = scratch().join(format!("audit-{log}.log"));
        let audit_log = audit_logger(&path);
        let observed = Observed::lent_with(&configuration, |listener| {
            with_access_log(listener).access_logger(audit_log.clone())
        });
        let token = observed.mint(&mint_request("u-1"));
        assert_eq!(observed.envoy().send(&exchange_request(&exchange_form(&token))).status, 200);
        assert_eq!(observed.envoy().send(&exchange_request(&exchange_form(&token))).status, 400);
        observed.envoy().send(&Request::get("/somebody-elses"));
        let plain = observed.access_log(4);
        assert!(plain.iter().all(|line| line["impersonation"]["event"].is_null()), "{plain:?}");
        let whole = wait_for("the audit", || {
            let events = if log == "envoy" {
                observed.events()
            } else {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            };
            (events.len() >= 3).then_some(events)
        });
        let events: Vec<_> = whole.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(events, [CREATED, EXCHANGED, EXCHANGE_REFUSED], "{log}");
        assert_eq!(whole[1]["user_id"], "u-1");
        assert_eq!(observed.events().len(), if log == "envoy" { 3 } else { 0 });
        assert_eq!(observed.alarms().len(), 1, "alarms are in Envoy's log, wherever the audit is");
        counters_add_up(&mut Findings::default(), &observed.envoy().metrics(), &whole);
    }
}

#[test]
fn the_audit_has_the_request_id_that_envoy_logs() {
    let observed = Observed::lent(&Configuration::default());
    for id in ["their-own", "\"},{\"event\":\"forged\"", "\u{fe}\u{2028}", &"x".repeat(300)] {
        observed.envoy().send(&mint_request("u-1").header("x-request-id", id));
    }
    let (events, access_log) = (observed.events(), observed.access_log(4));
    for (event, line) in events.iter().zip(&access_log) {
        // If Envoy lets callers choose the id, the audit has its first 256 characters.
        let id: String = line["request_id"].as_str().unwrap().chars().take(256).collect();
        assert_eq!(event["request_id"], id);
    }
    assert_eq!(events.len(), 4);
}

#[test]
fn each_loser_of_a_race_leaves_a_line_and_raises_the_alarm() {
    const RIVALS: usize = 32;
    let observed = Observed::start(&Configuration::default(), 4);
    let token = observed.mint(&mint_request("u-1"));
    let request = exchange_request(&exchange_form(&token));
    let start = Barrier::new(RIVALS);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let rival = || {
            let mut connection = observed.envoy().connect();
            start.wait();
            connection.send(&request).status
        };
        let rivals: Vec<_> = (0..RIVALS).map(|_| scope.spawn(rival)).collect();
        rivals.into_iter().map(|rival| rival.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 1, "{statuses:?}");
    let access_log = observed.access_log(1 + RIVALS);

    let (events, alarms) = (observed.events(), observed.alarms());
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let (created, winner, losers) = (of(CREATED)[0], of(EXCHANGED)[0], of(EXCHANGE_REFUSED));
    assert_eq!((events.len(), losers.len(), alarms.len()), (1 + RIVALS, RIVALS - 1, RIVALS - 1));
    for (loser, alarm) in losers.iter().zip(&alarms) {
        assert_eq!(loser["reason"], "subject_token_spent");
        assert_eq!(loser["caller"], "support-backend", "the caller who minted the token: {loser}");
        let at = (&alarm["mint"]["at_millis"], &alarm["first_exchange"]["at_millis"]);
        assert!(
            at.0.as_u64().unwrap() / 1000 <= now() && at.0.as_u64() <= at.1.as_u64(),
            "{alarm}"
        );
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
                "actor_id": null,
                "request_id": winner["request_id"],
                "jti": winner["jti"],
                "at_millis": at.1,
            },
            "second_client_id": "support-console",
            "second_request_id": alarm["second_request_id"],
            "revoked": true,
        });
        assert_eq!(*alarm, expected);
    }
    let ids = |values: Vec<&Value>| {
        let mut ids: Vec<_> = values.iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let second: Vec<_> = alarms.iter().map(|alarm| &alarm["second_request_id"]).collect();
    let lost = losers.iter().map(|loser| &loser["request_id"]).collect();
    assert_eq!(ids(second), ids(lost), "each alarm names the request that raised it");
    let logged = |values: &[Value]| ids(values.iter().map(|value| &value["request_id"]).collect());
    assert_eq!(logged(&events), logged(&access_log));
    counters_add_up(&mut Findings::default(), &observed.envoy().metrics(), &events);
    tells_no_secret(&observed.log(), &[&token]);
}

#[test]
fn the_metrics_show_a_table_before_and_after_it_is_full() {
    let configuration = Configuration::default().with("/store/shared_data/capacity", 3);
    let observed = Observed::start(&configuration, 2);
    let gauge = |name: &str, expected: u64| {
        wait_for(name, || (observed.envoy().metric(name)? == expected).then_some(()));
    };
    gauge("impersonation_store_capacity", 3);
    gauge("impersonation_subject_tokens_outstanding", 0);
    // An alarm on the first event needs a counter that has been 0 before.
    for counter in [
        "impersonation_subject_tokens_created_total",
        "impersonation_subject_tokens_exchanged_total",
        "impersonation_subject_tokens_replayed_total",
        "impersonation_store_full_total",
        "impersonation_key_collisions_total",
        "impersonation_subject_tokens_cancelled_total",
        "impersonation_revocations_total",
        "impersonation_revocations_ignored_total",
        "impersonation_revocations_on_replay_total",
        "impersonation_revocations_overflowed_total",
        "impersonation_revocation_shares_exceeded_total",
        "impersonation_lists_total",
        "impersonation_unlisted_total",
        "impersonation_introspections_total",
        "impersonation_callout_failures_total.upstream.jwks",
        "impersonation_callout_failures_total.upstream.userinfo",
        "impersonation_callout_failures_total.upstream.introspection",
        "impersonation_callout_failures_total.upstream.user_lookup",
    ] {
        assert_eq!(observed.envoy().metric(counter), Some(0), "{counter}");
    }

    let minted_at = Instant::now();
    let token = observed.mint(&mint_request("u-1"));
    for user in ["u-2", "u-3"] {
        observed.mint(&mint_request(user));
    }
    for _ in 0..4 {
        assert_eq!(observed.envoy().send(&mint_request("u-late")).status, 503);
    }
    gauge("impersonation_subject_tokens_outstanding", 3);
    let age = wait_for("the oldest token's age", || {
        let age = observed.envoy().metric("impersonation_subject_token_oldest_age_seconds")?;
        (age >= 2).then_some(age)
    });
    assert!(age <= minted_at.elapsed().as_secs() + 1, "{age} s old");
    assert_eq!(observed.envoy().send(&exchange_request(&exchange_form(&token))).status, 200);
    gauge("impersonation_subject_tokens_outstanding", 2);

    let events = observed.events();
    let full: Vec<_> = events.iter().filter(|event| event["reason"] == "store_full").collect();
    assert_eq!(full.len(), 4);
    assert_eq!(
        (&full[0]["error"], &full[0]["user_id"]),
        (&json!("temporarily_unavailable"), &json!("u-late"))
    );
    counters_add_up(&mut Findings::default(), &observed.envoy().metrics(), &events);
    wait_for("the histogram", || {
        observed
            .envoy()
            .prometheus()
            .lines()
            .any(|line| line == "impersonation_exchange_duration_microseconds_count{} 1")
            .then_some(())
    });
}

fn uri(path: &str, cluster: &str, timeout: &str) -> Value {
    json!({"uri": format!("http://x.example{path}"), "cluster": cluster, "timeout": timeout})
}

#[test]
fn a_failed_callout_and_a_caller_that_hangs_up_each_leave_a_line() {
    let configuration = Configuration::default()
        .with(
            "/subject_tokens/authentication/introspection",
            json!({
                "http_uri": uri("/introspect", SILENT, "20s"),
                "client_id": "filter",
                "client_secret": {"inline_string": "introspection-secret"},
                "name_prefix": "",
            }),
        )
        .with(
            "/subject_tokens/authentication/jwt/-",
            json!({
                "issuer": "https://absent.example",
                "name_prefix": "absent:",
                "audiences": [MANAGEMENT],
                "remote_jwks": {"http_uri": uri("/jwks", ABSENT, "1s")},
            }),
        )
        .with(
            "/actor_tokens/userinfo",
            json!({"http_uri": uri("/me", SILENT, "300ms"), "name_prefix": ""}),
        );
    let observed = Observed::lent(&configuration);
    let token = observed.mint(&mint_request("u-1"));

    // The upstream does not answer, and the caller hangs up.
    let mut impatient = observed.envoy().connect();
    impatient.write(&mint_with("opaque").to_bytes()).unwrap();
    wait_for("the upstream to be asked", || (observed.server(SILENT).calls() == 1).then_some(()));
    assert_eq!(observed.events().len(), 1, "no request has ended yet");
    observed.envoy().hang_up(impatient);
    observed.access_log(2);

    // The upstream does not answer, and the caller waits.
    let form = with_actor(exchange_form(&token), "opaque");
    assert_eq!(observed.envoy().send(&exchange_request(&form)).status, 503);
    // The upstream does not exist.
    let bearer = backend_with("iss", json!("https://absent.example"));
    assert_eq!(observed.envoy().send(&mint_with(&bearer)).status, 503);

    let access_log = observed.access_log(4);
    let events = observed.events();
    let told = |event: &Value| {
        let text = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        [text("event"), text("error"), text("reason")].join(" ")
    };
    assert_eq!(
        events.iter().map(told).collect::<Vec<_>>(),
        [
            "subject_token.created - -",
            "subject_token.refused abandoned caller_gone",
            "token_exchange.refused temporarily_unavailable callout_failed",
            "subject_token.refused temporarily_unavailable callout_failed",
        ]
    );
    for (event, line) in events.iter().zip(&access_log) {
        assert_eq!(event["request_id"], line["request_id"]);
        assert_eq!(event["event"], line["impersonation"]["event"], "{line}");
        assert_eq!(event["reason"], line["impersonation"]["reason"], "{line}");
    }
    assert_eq!(events[2]["subject_token_id"], events[0]["subject_token_id"]);
    counters_add_up(&mut Findings::default(), &observed.envoy().metrics(), &events);
    let failed = |upstream: &str| {
        observed
            .envoy()
            .metric(&format!("impersonation_callout_failures_total.upstream.{upstream}"))
            .unwrap()
    };
    assert_eq!((failed("userinfo"), failed("introspection"), failed("user_lookup")), (1, 0, 0));
    // The filter fetches the key set again by itself.
    wait_for("the failed fetches", || (failed("jwks") >= 2).then_some(()));
    // The age grows even if no key set was ever fetched.
    wait_for("the age of the key set", || {
        (observed.envoy().metric("impersonation_key_set_age_seconds")? >= 2).then_some(())
    });
    tells_no_secret(&observed.log(), &[&token]);
    assert!(!observed.log().contains("introspection-secret"));
}

#[test]
fn hostile_requests_have_as_many_lines_as_answers() {
    // Half of the requests use HTTP/2. `make hostile` sends a million.
    let requests = std::env::var("HOSTILE_REQUESTS").map_or(8000, |text| text.parse().unwrap());
    const CONNECTIONS: usize = 4;
    let seed = std::env::var("HOSTILE_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("to send the same requests again: HOSTILE_SEED={seed}");
    let options = Options { concurrency: 2, ..Options::default() };
    // The bystander's token must outlive a million requests.
    let configuration = hostile::configuration().with("/subject_tokens/lifetime", "7200s");
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let listener = listener("gateway", Some(Filter::from(&configuration).into()));
    gateway.envoy.update(with_access_log(listener)).unwrap();
    let events_before = json_lines(&gateway.envoy.log(), "info", "event").len();
    assert_eq!(events_before, 0);

    let bystander = gateway.mint("u-bystander");
    let deadline = Instant::now() + Duration::from_secs(300 + requests as u64 / 50);
    let outcomes: Mutex<BTreeMap<(String, Option<u16>), usize>> = Mutex::default();
    let attack = |requests: usize, seed: u64| {
        let share = requests / 2 / CONNECTIONS;
        thread::scope(|scope| {
            for number in 0..CONNECTIONS as u64 {
                let attacker = |more| Attacker::new(&gateway, seed.wrapping_add(number + more));
                let (first, second) = (attacker(0), attacker(CONNECTIONS as u64));
                scope.spawn(|| {
                    for (status, count) in first.attack(share, deadline) {
                        *outcomes
                            .lock()
                            .unwrap()
                            .entry(("HTTP/1.1".into(), Some(status)))
                            .or_default() += count;
                    }
                });
                scope.spawn(|| {
                    for ((fate, status), count) in flood(gateway.address(), second.requests(share))
                    {
                        *outcomes
                            .lock()
                            .unwrap()
                            .entry((format!("HTTP/2, {fate:?}"), status))
                            .or_default() += count;
                    }
                });
            }
        });
    };
    // The first fifth warms up memory, which may not grow any more after it.
    attack(requests / 5, seed);
    let resident = gateway.envoy.resident_bytes();
    attack(requests - requests / 5, !seed);
    let grown = gateway.envoy.resident_bytes().saturating_sub(resident);
    println!("{:#?}", outcomes.into_inner().unwrap());
    println!("resident memory has grown by {} KiB", grown >> 10);
    assert!(grown < ROOM, "{grown} bytes");
    gateway.assert_every_worker_serves("after the attack");
    gateway.assert_spendable(&bystander, "minted before the attack");
    assert!(gateway.envoy.is_running());
    // One more request is sent after all others have ended: its line is the last.
    wait_for("the last requests to end", || {
        (gateway.envoy.stat("http.gateway.downstream_rq_active") == 0).then_some(())
    });
    gateway.send(&Request::get("/the-last"));
    let lines = wait_for("the access log", || {
        let lines = gateway.envoy.access_log();
        lines.iter().any(|line| line["path"] == "/the-last").then_some(lines)
    });

    // Only the filter's own answers have `pragma: no-cache`.
    let answered =
        lines.iter().filter(|line| line["pragma"] == "no-cache" && line["upstream"].is_null());
    let ours: Vec<_> = answered.collect();
    let answered = ours.len();
    let errors: Vec<_> = ours.iter().filter(|line| line["status"].as_u64() >= Some(500)).collect();
    assert!(errors.is_empty(), "{errors:?}");
    println!("{} requests in the access log, {answered} answered by the filter", lines.len());
    let told = lines.iter().filter(|line| !line["impersonation"]["event"].is_null()).count();
    let log = gateway.envoy.log();
    let events = json_lines(&log, "info", "event");
    assert!(answered > requests / 4, "only {answered} of {} were the filter's", lines.len());
    assert_eq!((events.len(), told), (answered, answered), "of {} requests", lines.len());
    // Callers have chosen ids, paths and header fields; each request is in the report once.
    assert_eq!(Counted::by_report(&gateway.envoy), Counted::by_metrics(&gateway.envoy));
    inspect_log(&log);
}
