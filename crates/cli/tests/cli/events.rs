//! Tests of `events`: a transmitter as SSF 1.0 has it, and transmitters that break a rule each. The
//! transmitter and the metrics are fakes here; `tests/js/keycloak/ssf.test.js` has a real
//! transmitter, and Envoy with the filter.

use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::Findings;
use testkit::server::{Received, Reply, Server};

use crate::operator::errors;
use crate::{command, file, stdout};

const TOKEN: &str = "the-transmitters.token";
const HEADER: &str = "Bearer of-the-push";
const ENDPOINT: &str = "https://gateway.example.com/api/security-events";
const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
const WELL_KNOWN: &str = "/.well-known/ssf-configuration/tenant";

/// A transmitter with its streams, and the metrics of an Envoy with the filter.
struct Setting {
    transmitter: Server,
    envoy: Server,
    world: Arc<Mutex<World>>,
}

/// The settings that transmitter and filter share.
#[derive(Default)]
struct World {
    streams: Vec<Value>,
    status: Option<&'static str>,
    /// The verification events that have arrived at the filter.
    arrived: u64,
    /// The events that the filter refused.
    refused: u64,
    state: Option<String>,
}

/// Changes the answer to a request.
type Edit = fn(&Received, &mut World, Reply) -> Reply;

impl Setting {
    fn new(edit: Edit) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        let transmitter = Server::start("transmitter");
        let known = Arc::clone(&world);
        let address = transmitter.address;
        transmitter.answer(move |received| {
            let mut world = known.lock().unwrap();
            let reply = transmit(&format!("http://{address}"), received, &mut world);
            edit(received, &mut world, reply)
        });
        let envoy = Server::start("envoy");
        let known = Arc::clone(&world);
        envoy.answer(move |received| {
            let World { arrived, refused, .. } = *known.lock().unwrap();
            assert!(received.target.starts_with("/stats/prometheus"), "{received:?}");
            let body = format!(
                "impersonation_sender_events_total{{kind=\"security_event\",outcome=\"verification\",sender=\"0\"}} {arrived}\n\
                 impersonation_refusals_total{{endpoint=\"events\",error=\"invalid_audience\",reason=\"audience\"}} {refused}\n"
            );
            Reply { body: body.into_bytes(), ..Reply::status(200) }
        });
        Self { transmitter, envoy, world }
    }

    fn issuer(&self) -> String {
        format!("http://{}/tenant", self.transmitter.address)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["events"];
        all.extend(arguments);
        command(&all)
            .args(["--issuer", &self.issuer()])
            .env("TRANSMITTER_TOKEN", TOKEN)
            .output()
            .unwrap()
    }

    fn register(&self, more: &[&str]) -> Output {
        let header = file("header", &format!("{HEADER}\n"));
        let header = header.to_str().unwrap();
        let given = ["register", "--endpoint", ENDPOINT, "--authorization-file", header];
        self.run(&[&given, more].concat())
    }

    fn metrics(&self) -> String {
        format!("http://{}", self.envoy.address)
    }

    fn register_and_verify(&self, more: &[&str]) -> Output {
        let metrics = self.metrics();
        self.register(&[&["--metrics", &metrics, "--json"], more].concat())
    }

    /// The requests to the transmitter, without the pauses between them.
    fn asked(&self) -> Vec<String> {
        let received = self.transmitter.received();
        received.iter().map(|it| format!("{} {}", it.method, it.target)).collect()
    }
}

/// Answers as SSF 1.0 has it. A verification event arrives at once.
fn transmit(origin: &str, received: &Received, world: &mut World) -> Reply {
    let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    let (path, _) = received.target.split_once('?').unwrap_or((&received.target, ""));
    if path != WELL_KNOWN {
        assert_eq!(received.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    }
    match (&*received.method, path) {
        ("GET", WELL_KNOWN) => Reply::json(&json!({
            "spec_version": "1_0",
            "issuer": format!("{origin}/tenant"),
            "jwks_uri": format!("{origin}/jwks"),
            "delivery_methods_supported": ["urn:ietf:rfc:8935", "urn:ietf:rfc:8936"],
            "configuration_endpoint": format!("{origin}/streams"),
            "status_endpoint": format!("{origin}/status"),
            "verification_endpoint": format!("{origin}/verify"),
            "default_subjects": "ALL",
        })),
        ("GET", "/streams") => Reply::json(&world.streams.clone().into()),
        ("POST", "/streams") => {
            let mut stream = body;
            stream["stream_id"] = "s-1".into();
            stream["iss"] = format!("{origin}/tenant").into();
            stream["aud"] = "filter/s-1".into();
            let delivered = ["session-revoked", "credential-change"];
            stream["events_delivered"] =
                delivered.map(|name| format!("{CAEP}{name}")).as_slice().into();
            world.streams.push(stream.clone());
            Reply { status: 201, ..Reply::json(&stream) }
        }
        ("PATCH", "/streams") => {
            let mut all = world.streams.iter_mut();
            let stream = all.find(|it| it["stream_id"] == body["stream_id"]).unwrap();
            stream["delivery"] = body["delivery"].clone();
            Reply::json(stream)
        }
        ("GET", "/status") => {
            assert_eq!(received.target, "/status?stream_id=s%2D1");
            let status = world.status.unwrap_or("enabled");
            Reply::json(&json!({"stream_id": "s-1", "status": status, "reason": "as it is"}))
        }
        ("POST", "/status") => {
            world.status = None;
            Reply::json(&body)
        }
        ("POST", "/verify") => {
            assert_eq!(body["stream_id"], "s-1");
            world.state = body["state"].as_str().map(str::to_owned);
            world.arrived = world.arrived.saturating_add(1);
            Reply::status(204)
        }
        _ => Reply::status(404),
    }
}

fn unchanged(_: &Received, _: &mut World, reply: Reply) -> Reply {
    reply
}

fn holds_no_secret(output: &Output) {
    for text in [stdout(output), &*errors(output)] {
        assert!(!text.contains(TOKEN) && !text.contains("of-the-push"), "{text}");
    }
}

#[test]
fn register_creates_the_stream_once_and_proves_that_a_verification_event_arrives() {
    let setting = Setting::new(unchanged);
    let first = setting.register_and_verify(&[]);
    assert_eq!(first.status.code(), Some(0), "{}{}", stdout(&first), errors(&first));
    holds_no_secret(&first);
    let report: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(report["holds"], true);
    assert_eq!(report["audiences"], json!(["filter/s-1"]));
    assert_eq!(report["authorization_sha256"], testkit::configuration::sha256_hex(HEADER));
    assert_eq!(report["events_delivered"].as_array().unwrap().len(), 2);
    assert!(report["verified_after_milliseconds"].is_u64(), "{report}");
    assert_eq!(report["filters"][0]["events"]["verification"], 1);
    let state = setting.world.lock().unwrap().state.clone().unwrap();
    assert_eq!(state.len(), 32, "{state}");

    let again = setting.register_and_verify(&[]);
    assert_eq!(again.status.code(), Some(0), "{}", errors(&again));
    let other = setting.world.lock().unwrap().state.clone().unwrap();
    assert_ne!(state, other, "the state is a new one each time");
    let both = ["POST /streams", "PATCH /streams"].map(|change| {
        let begin = ["GET /.well-known/ssf-configuration/tenant", "GET /streams"];
        let end = ["GET /status?stream_id=s%2D1", "POST /verify"];
        [&begin[..], &[change], &end].concat()
    });
    assert_eq!(setting.asked(), both.concat());
    let received = setting.transmitter.received();
    let created: Value = serde_json::from_slice(&received[2].body).unwrap();
    assert_eq!(
        created["delivery"],
        json!({
            "method": "urn:ietf:rfc:8935", "endpoint_url": ENDPOINT, "authorization_header": HEADER,
        })
    );
    assert_eq!(created["events_requested"].as_array().unwrap().len(), 8);
}

#[test]
fn register_prints_the_entry_for_the_filter_before_the_filter_knows_the_transmitter() {
    let setting = Setting::new(unchanged);
    let output = setting.register(&["--no-verification"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    holds_no_secret(&output);
    let (origin, digest) =
        (setting.transmitter.address, testkit::configuration::sha256_hex(HEADER));
    let entry = format!(
        "- issuer: \"http://{origin}/tenant\"\n  audiences: [\"filter/s-1\"]\n  authorization_sha256: [{digest}]\n  \
         remote_jwks: {{http_uri: {{uri: \"http://{origin}/jwks\", cluster: YOUR_CLUSTER, timeout: 5s}}}}\n"
    );
    assert!(stdout(&output).contains(&entry), "{}", stdout(&output));
    assert!(!setting.asked().contains(&"POST /verify".to_owned()));
    assert_eq!(setting.envoy.calls(), 0);
}

#[test]
fn status_compares_the_stream_with_what_the_filters_count() {
    let setting = Setting::new(unchanged);
    let missing = setting.run(&["status"]);
    assert_eq!(missing.status.code(), Some(2), "{}", stdout(&missing));
    setting.register_and_verify(&[]);
    let metrics = setting.metrics();
    let output = setting.run(&["status", "--metrics", &metrics]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    holds_no_secret(&output);
    for line in [
        "stream         s-1",
        "audience       filter/s-1",
        "status         enabled: as it is",
        "sends          session-revoked, credential-change",
        &format!("filter         {metrics}: verification 1"),
    ] {
        assert!(stdout(&output).lines().any(|have| have == line), "{line}: {}", stdout(&output));
    }
    setting.world.lock().unwrap().status = Some("paused");
    let output = setting.run(&["status", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["status"]), (Some(1), &json!("paused")));
}

#[test]
fn a_paused_stream_is_a_problem_until_it_is_enabled() {
    let setting = Setting::new(unchanged);
    setting.world.lock().unwrap().status = Some("paused");
    let output = setting.register(&["--no-verification"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("problem: the transmitter sends nothing"));
    let output = setting.register(&["--no-verification", "--enable"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

/// Adds a member to a JSON answer, or replaces it.
fn with(reply: &Reply, member: &str, value: &Value) -> Reply {
    let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
    body[member] = value.clone();
    Reply { status: reply.status, ..Reply::json(&body) }
}

fn is(received: &Received, request: &str) -> bool {
    format!("{} {}", received.method, received.target) == request
}

/// Each transmitter breaks one rule. Nothing that it says makes the command pass, and no answer
/// makes it print a secret.
#[test]
fn a_transmitter_that_breaks_a_rule_does_not_pass() {
    #[rustfmt::skip]
    let cases: [(&str, Edit, i32, &str); 15] = [
        ("another issuer", |asked, _, reply| if asked.target == WELL_KNOWN { with(&reply, "issuer", &json!("https://other")) } else { reply },
            2, "the issuer is https://other, not"),
        ("no document", |asked, _, reply| if asked.target == WELL_KNOWN { Reply { body: b"<html>".into(), ..reply } } else { reply },
            2, "no configuration of a transmitter"),
        ("no endpoint", |asked, _, reply| if asked.target == WELL_KNOWN { with(&reply, "configuration_endpoint", &Value::Null) } else { reply },
            2, "has no configuration_endpoint"),
        ("no address", |asked, _, reply| if asked.target == WELL_KNOWN { with(&reply, "configuration_endpoint", &json!("file:///etc/passwd")) } else { reply },
            2, "this is no address"),
        ("poll only", |asked, _, reply| if asked.target == WELL_KNOWN { with(&reply, "delivery_methods_supported", &json!(["urn:ietf:rfc:8936"])) } else { reply },
            2, "does not push"),
        ("a redirect", |asked, _, reply| if is(asked, "GET /streams") { Reply::status(302).header("location", "/elsewhere") } else { reply },
            2, "302: a redirect, which is not followed"),
        ("401 with secrets", |asked, _, reply| if is(asked, "POST /streams") {
            Reply { status: 401, ..Reply::json(&json!({"error": "x", "error_description": format!("{TOKEN} {HEADER}\u{1b}[2J")})) } } else { reply },
            2, "401: the access token is not accepted (x: [redacted] [redacted]\\u{1b}[2J)"),
        ("a stream already", |asked, _, reply| if is(asked, "POST /streams") { Reply::status(409) } else { reply },
            2, "--stream"),
        ("too long an answer", |asked, _, reply| if is(asked, "GET /streams") { Reply { body: vec![b' '; 2 << 20], ..Reply::status(200) } } else { reply },
            2, "/streams: "),
        ("no stream in the answer", |asked, _, reply| if is(asked, "POST /streams") { Reply::json(&json!({"ok": true})) } else { reply },
            2, "not one of the Shared Signals Framework"),
        ("another endpoint", |asked, _, reply| if is(asked, "POST /streams") {
            with(&reply, "delivery", &json!({"method": "urn:ietf:rfc:8935", "endpoint_url": "https://other"})) } else { reply },
            1, "does not push its events to the endpoint"),
        ("another issuer of the events", |asked, _, reply| if is(asked, "POST /streams") { with(&reply, "iss", &json!("https://other")) } else { reply },
            1, "have another issuer"),
        ("no event that ends anything", |asked, _, reply| if is(asked, "POST /streams") { with(&reply, "events_delivered", &json!([format!("{CAEP}session-established")])) } else { reply },
            1, "sends no event on this stream that can end anything"),
        ("no verification event", |asked, world, reply| { if is(asked, "POST /verify") { world.arrived -= 1; } reply },
            1, "no verification event has arrived within 1 s, and the filters have refused none"),
        ("an event that the filter refuses", |asked, world, reply| { if is(asked, "POST /verify") { world.arrived -= 1; world.refused += 2; } reply },
            1, "refused 2 (audience)"),
    ];
    let mut findings = Findings::default();
    for (case, edit, status, told) in cases {
        let setting = Setting::new(edit);
        let output = setting.register_and_verify(&["--within", "1s"]);
        findings.expect(case, &output.status.code(), &Some(status));
        let text = format!("{}{}", stdout(&output), errors(&output)).replace("\\\\", "\\");
        findings.expect(format!("{case}: told in\n{text}"), &text.contains(told), &true);
        holds_no_secret(&output);
        let elsewhere = setting.asked().iter().any(|it| it.ends_with("/elsewhere"));
        findings.expect(format!("{case}: elsewhere"), &elsewhere, &false);
    }
}

/// SSF 1.0 §8.1.4.2: a transmitter may refuse verification events in quick succession.
#[test]
fn a_transmitter_that_asks_for_a_pause_is_asked_again() {
    let setting = Setting::new(|asked, world, reply| {
        if is(asked, "POST /verify") && world.refused == 0 {
            (world.refused, world.arrived) = (1, 0);
            return Reply::status(429).header("retry-after", "1");
        }
        reply
    });
    let output = setting.register_and_verify(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let verified = setting.asked().into_iter().filter(|it| it == "POST /verify").count();
    assert_eq!(verified, 2);
}

#[test]
fn nothing_is_asked_of_the_transmitter_without_credentials_metrics_and_a_sender() {
    let setting = Setting::new(unchanged);
    let metrics = setting.metrics();
    let several = file("several", "Bearer x\nX-Other: y");
    let several = several.to_str().unwrap();
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("no metrics",      &[]),
        ("both",            &["--metrics", &metrics, "--no-verification"]),
        ("another sender",  &["--metrics", &metrics, "--sender", "1"]),
        ("two headers",     &["--no-verification", "--authorization-file", several]),
        ("no such file",    &["--no-verification", "--token-file", "/no/such/file"]),
    ];
    for (case, more) in cases {
        let given = ["register", "--endpoint", ENDPOINT];
        let output = setting.run(&[&given, more].concat());
        assert_eq!(output.status.code(), Some(2), "{case}");
        assert!(!output.stderr.is_empty(), "{case}");
    }
    let without = command(&["events", "status", "--issuer", &setting.issuer()]).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert_eq!(setting.transmitter.calls(), 0);
}
