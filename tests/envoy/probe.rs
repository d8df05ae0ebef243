//! `impersonation-filter probe` against a real filter and a real guard: it passes where they hold, and
//! fails where one is missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use testkit::artifacts::COMPANION;
use testkit::bootstrap::Listener;
use testkit::configuration::{CLIENT_SECRET, ORDERS, PROVIDER_KEY};
use testkit::gateway::{actor_claims, backend_claims};
use testkit::guarded::{
    API, Guarded, api_listener, for_impersonations, guard, guard_configuration, guarded_listener,
    operator, operator_with,
};
use testkit::http::Request;
use testkit::scratch;
use testkit::server::Server;
use testkit::streaming;

const USER: &str = "probe-user";

/// Files with the credentials of one probe.
fn credentials(name: &str) -> PathBuf {
    let folder = scratch().join("probe").join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    file("caller", &PROVIDER_KEY.sign(&backend_claims()));
    file("actor", &PROVIDER_KEY.sign(&actor_claims("probe-agent")));
    file("operator", &operator());
    file("secret", &CLIENT_SECRET);
    folder
}

/// The exit status, the report, and all text that the companion printed.
fn probe(name: &str, filter: &str, apis: &[String], more: &Value) -> (i32, Value, String) {
    let folder = credentials(name);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut settings = json!({
        "filter": filter,
        "api": apis,
        "read": "/orders/7",
        "write": "/orders",
        "resource": ORDERS,
        "scope": "orders:read",
        "user": USER,
        "context": "{\"reason\": \"a probe\"}",
        "client_id": "support-portal",
        "client_secret_file": file("secret"),
        "caller_token_file": file("caller"),
        "actor_token_file": file("actor"),
        "operator_token_file": file("operator"),
        // No test waits for a clock: the time is only measured.
        "within": 60_000,
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let described = folder.join("probe.json");
    fs::write(&described, settings.to_string()).unwrap();
    let output = Command::new(&*COMPANION)
        .args(["probe", "--json", "--settings"])
        .arg(&described)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let report = serde_json::from_str(&out).unwrap_or_default();
    (output.status.code().unwrap(), report, out + &err)
}

fn address(guarded: &Guarded, listener: &str) -> String {
    format!("http://{}", guarded.envoy.address(listener))
}

fn failed(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|it| it["holds"] == false).map(|it| it["check"].as_str().unwrap()).collect()
}

/// How many impersonations of the probe's user are live.
fn live(guarded: &Guarded) -> usize {
    let list = Request::get("/api/impersonations?userId=probe-user");
    let answer = guarded.send_to_filter(&list.bearer(&operator_with("impersonations:read")));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["impersonations"].as_array().unwrap().len()
}

#[test]
fn a_deployment_that_holds_passes_and_nothing_of_the_probe_stays() {
    let guarded = Guarded::start_with_workers(&json!({}), 2);
    let apis = [address(&guarded, "guarded")];
    let (status, report, printed) =
        probe("holds", &address(&guarded, "gateway"), &apis, &json!({}));
    assert_eq!((status, &report["holds"]), (0, &json!(true)), "{printed}");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() > 30, "{printed}");
    let ended =
        checks.iter().find(|it| it["check"] == "an ended impersonation is refused").unwrap();
    assert_eq!(ended["holds"], true);
    assert!(ended["milliseconds"].is_u64());
    assert_eq!(live(&guarded), 0);
    for secret in ["eyJ", "sub_", &**CLIENT_SECRET] {
        assert!(!printed.contains(secret), "a secret was printed: {printed}");
    }
}

#[test]
fn an_open_stream_ends_with_the_impersonation() {
    let listener = guarded_listener(&guard_configuration(&json!({})));
    let envoy = Guarded::bootstrap(listener, streaming::start()).workers(2).start();
    let guarded = Guarded { envoy, api: Server::start(API) };
    let (status, report, printed) = probe(
        "stream",
        &address(&guarded, "gateway"),
        &[address(&guarded, "guarded")],
        &json!({"stream": "/events"}),
    );
    let checks = report["checks"].as_array().unwrap_or_else(|| panic!("{status}: {printed}"));
    let stream =
        checks.iter().find(|it| it["check"] == "an open stream of an ended impersonation ends");
    let stream = stream.unwrap();
    assert_eq!(stream["holds"], true, "{stream}");
}

#[test]
fn an_api_without_the_guard_fails_the_probe() {
    let guarded = Guarded::start(&json!({}));
    let apis = ["guarded", "bare"].map(|listener| address(&guarded, listener));
    let (status, report, printed) =
        probe("no-guard", &address(&guarded, "gateway"), &apis, &json!({}));
    assert_eq!(status, 1, "{printed}");
    let at_the_bare_one =
        report["checks"].as_array().unwrap().iter().filter(|it| it["holds"] == false);
    assert!(at_the_bare_one.clone().all(|it| it["at"] == *apis[1]), "{printed}");
    for check in ["a write is refused", "an ended impersonation is refused"] {
        assert!(failed(&report).contains(&check), "{check}: {printed}");
    }
    assert_eq!(live(&guarded), 0);
}

#[test]
fn each_gap_before_the_api_fails_the_probe() {
    let chain = |members: &Value| for_impersonations(guard(&guard_configuration(members)));
    #[rustfmt::skip]
    let gaps: [(&str, Listener, &str); 3] = [
        ("all is allowed", guarded_listener(&guard_configuration(&json!({"default": "allow"}))), "a write is refused"),
        ("it only reports", guarded_listener(&guard_configuration(&json!({"mode": "report"}))),  "a write is refused"),
        ("any method of one path", api_listener("guarded", [chain(&json!({"rules": [{"path_prefix": "/orders/", "action": "allow"}]}))]), "x-http-method-override is refused"),
    ];
    for (gap, listener, check) in gaps {
        let guarded = Guarded::try_start_with(listener).unwrap();
        let apis = [address(&guarded, "guarded")];
        let (status, report, printed) =
            probe("gap", &address(&guarded, "gateway"), &apis, &json!({}));
        assert_eq!(status, 1, "{gap}: {printed}");
        assert!(failed(&report).contains(&check), "{gap}: {printed}");
    }
}

#[test]
fn a_probe_that_finds_nothing_to_test_does_not_pass() {
    let guarded = Guarded::start(&json!({}));
    let (filter, api) = (address(&guarded, "gateway"), address(&guarded, "guarded"));
    let nowhere = "http://127.0.0.1:1".to_owned();
    #[rustfmt::skip]
    let cases = [
        ("no filter there",     &nowhere, &api,     json!({})),
        ("no API there",        &filter,  &nowhere, json!({})),
        ("an unknown resource", &filter,  &api,     json!({"resource": "https://nobody.example.com"})),
        ("an unknown member",   &filter,  &api,     json!({"colour": "blue"})),
        ("a missing file",      &filter,  &api,     json!({"caller_token_file": "/nowhere"})),
    ];
    for (case, filter, api, members) in cases {
        let (status, _, printed) = probe("nothing", filter, std::slice::from_ref(api), &members);
        assert_eq!(status, 2, "{case}: {printed}");
    }
    assert_eq!(live(&guarded), 0);
}
