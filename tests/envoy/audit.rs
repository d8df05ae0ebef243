//! The audit of what only Envoy can do: other access loggers, ids of requests, several workers,
//! gauges, callers that hang up, and a flood. The rules of the audit are in `tests/rules/audit.rs`.

mod observed;

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hostile::{self, Attacker, inspect_log};
use observed::{ABSENT, Observed, SILENT, json_lines};
use testkit::audit::{
    CREATED, EXCHANGE_REFUSED, EXCHANGED, counters_add_up, tells_no_secret, with_access_log,
};
use testkit::bootstrap::Filter;
use testkit::configuration::{Configuration, MANAGEMENT, PROVIDER_KEY};
use testkit::flood::flood;
use testkit::gateway::{
    Gateway, Options, backend_claims, exchange_form, exchange_request, listener, mint_request,
    with_actor,
};
use testkit::http::Request;
use testkit::report::Counted;
use testkit::{Findings, repository, scratch, wait_for};

/// The bytes by which memory may grow under an attack.
const ROOM: u64 = 30 << 20;

fn mint_with(bearer: &str) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(&json!({"userId": "u-1"}))
}

fn backend_with(name: &str, value: Value) -> String {
    let mut claims = backend_claims();
    claims[name] = value;
    PROVIDER_KEY.sign(&claims)
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
        assert_eq!(alarm["subject_token_id"], created["subject_token_id"], "{alarm}");
        assert_eq!(alarm["first_exchange"]["jti"], winner["jti"], "{alarm}");
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

    let token = observed.mint(&mint_request("u-1"));
    for user in ["u-2", "u-3"] {
        observed.mint(&mint_request(user));
    }
    for _ in 0..4 {
        assert_eq!(observed.envoy().send(&mint_request("u-late")).status, 503);
    }
    gauge("impersonation_subject_tokens_outstanding", 3);
    observed.envoy().clock().set(100);
    wait_for("the oldest token's age", || {
        let age = observed.envoy().metric("impersonation_subject_token_oldest_age_seconds")?;
        (age >= 100).then_some(())
    });
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
    observed.envoy().clock().set(100);
    wait_for("the age of the key set", || {
        (observed.envoy().metric("impersonation_key_set_age_seconds")? >= 100).then_some(())
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
