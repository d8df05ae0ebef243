//! `impersonation-filter check --envoy-version` says what a version of Envoy lacks. Each test tries
//! one such statement in the Envoy that runs, whatever its version is: `make test-envoys`.

#[path = "../../crates/cli/src/check/versions/newer.rs"]
mod newer;

use std::fs;
use std::path::Path;
use std::process::Command;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::artifacts::{COMPANION, ENVOY, ENVOY_VERSION};
use testkit::bootstrap::{Bootstrap, Filter, Listener};
use testkit::configuration::{Configuration, SIGNING_KEY};
use testkit::gateway::{Gateway, IDENTITY_GATEWAY, exchange_form, exchange_request, in_front_of};
use testkit::http::{Connection, Request};
use testkit::keys::Key;
use testkit::server::{Server, as_asked};
use testkit::{Findings, repository, scratch};

use self::newer::{BOOTSTRAP, CLUSTER, LISTENER, MANAGER, NEWER, NEWEST, Newer, ROUTES};

/// Returns the newest version of Envoy that `check` knows.
pub(crate) fn newest() -> String {
    format!("1.{}.{}", NEWEST.0, NEWEST.1)
}

/// The findings of `check` about a file, for the Envoy that runs.
fn check(file: &Path) -> String {
    let mut command = Command::new(&*COMPANION);
    command.args(["check", "--assume-environment", "--envoy-version", &ENVOY_VERSION]).arg(file);
    let output = command.env_clear().output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The scratch file of a test.
fn file(name: &str, content: &Value) -> std::path::PathBuf {
    let folder = scratch().join("versions").join(&*ENVOY_VERSION);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    fs::write(&file, content.to_string()).unwrap();
    file
}

#[test]
fn the_shipped_configuration_has_nothing_that_this_envoy_lacks() {
    let printed = check(&repository().join("envoy.yaml"));
    let findings: Vec<_> = printed.lines().filter(|line| line.contains("Envoy 1.")).collect();
    assert!(findings.is_empty(), "{findings:?}");
    assert!(printed.contains(": valid"), "{printed}");
}

#[test]
fn a_newer_field_is_refused_by_envoy_and_by_check_alike() {
    let minor: u32 = ENVOY_VERSION.split('.').nth(1).unwrap().parse().unwrap();
    let mut findings = Findings::default();
    for (index, newer) in NEWER.iter().enumerate() {
        let file = file(&format!("field-{index}.json"), &bootstrap_with(newer));
        let mut command = Command::new(&*ENVOY);
        let output = command.args(["--mode", "validate", "-c"]).arg(&file).output().unwrap();
        // Protobuf varies the spaces in its messages, so that nobody compares them.
        let log = String::from_utf8_lossy(&output.stderr);
        let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
        let field = newer.field.rsplit('.').next().unwrap();
        let by_envoy = log.contains(&format!("no such field: '{field}'"));
        let by_check = check(&file).contains(&format!("{field}: is not known to Envoy"));
        let is_newer = newer.since > minor;
        findings.expect(format!("{newer:?}: {log}"), &(by_envoy, by_check), &(is_newer, is_newer));
    }
}

/// A bootstrap with an empty message in the place of the field. Envoy takes that for a mistake in
/// most fields, and names the field if it does not know it.
fn bootstrap_with(newer: &Newer) -> Value {
    let mut message = json!({});
    *newer.field.split('.').fold(&mut message, |place, step| match step.strip_suffix("[]") {
        Some(name) => {
            place[name] = json!([{}]);
            &mut place[name][0]
        }
        None => &mut place[if step == "*" { "any" } else { step }],
    }) = json!({});
    let listener = |manager: Value| {
        let mut typed = json!({"@type": format!("type.googleapis.com/envoy.{MANAGER}")});
        typed.as_object_mut().unwrap().extend(manager.as_object().unwrap().clone());
        json!({"filter_chains": [{"filters": [{"name": "manager", "typed_config": typed}]}]})
    };
    let resources = match newer.message {
        BOOTSTRAP => {
            message["static_resources"] = json!({});
            return message;
        }
        LISTENER => json!({"listeners": [message]}),
        CLUSTER => json!({"clusters": [message]}),
        MANAGER => json!({"listeners": [listener(message)]}),
        ROUTES => json!({"listeners": [listener(json!({"route_config": message}))]}),
        // Envoy reads the whole file before it looks whether a message fits its place.
        other => {
            message["@type"] = format!("type.googleapis.com/envoy.{other}").into();
            let filters = json!([{"name": "any", "typed_config": message}]);
            json!({"listeners": [listener(json!({"http_filters": filters}))]})
        }
    };
    json!({"static_resources": resources})
}

#[test]
fn a_route_raises_the_limit_of_bodies_as_check_says() {
    let upstream = Server::start(IDENTITY_GATEWAY);
    upstream.answer(as_asked);
    let limits = |listener: &mut Value| {
        listener["per_connection_buffer_limit_bytes"] = 32_768.into();
        let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
        let routes = &mut manager["route_config"]["virtual_hosts"][0]["routes"];
        for route in routes.as_array_mut().unwrap().iter_mut().filter(|it| it["route"].is_object())
        {
            route["request_body_buffer_limit"] = 131_072.into();
        }
    };
    let bootstrap = in_front_of(&[&upstream], &Configuration::default());
    let envoy = bootstrap.edit_listener(|listener| listener.edited(limits)).start();
    let long = exchange_form("sub_unknown").set("reason", &"x".repeat(50_000));
    let answer = envoy.send(&exchange_request(&long));
    let by_check = check(&envoy.directory().join("envoy.json"))
        .contains("per_connection_buffer_limit_bytes: must be at least 65536");
    // The filter's own answer, or Envoy's.
    let expected = if by_check { 413 } else { 400 };
    assert_eq!(answer.status, expected, "{answer:?}");
}

#[test]
fn a_byte_that_is_not_utf_8_passes_an_expression_as_check_says() {
    let server = Server::start(IDENTITY_GATEWAY);
    let listener = Listener::new("public")
        .route(json!({
            "match": {"safe_regex": {"regex": ".*/;.*"}}, "direct_response": {"status": 404},
        }))
        .answer("/", "passed");
    let normalizing = |listener: &mut Value| {
        listener["filter_chains"][0]["filters"][0]["typed_config"]["normalize_path"] = true.into();
    };
    let safe = listener.clone().edited(normalizing);
    for (listener, normalizes) in [(listener, false), (safe, true)] {
        let envoy = Bootstrap::default().listener(listener).servers(&[&server]).start();
        let by_check = check(&envoy.directory().join("envoy.json")).contains("CVE-2026-73552");
        let address = envoy.address("public");
        let status = |path: &[u8]| status_over_http2(Connection::open(address), path);
        assert_eq!((status(b"/"), status(b"/;/x")), (200, 404), "{normalizes}");
        assert_eq!(status(b"/\xff/;/x"), if by_check { 200 } else { 404 }, "{normalizes}");
        assert!(!(normalizes && by_check), "check and Envoy agree that normalize_path helps");
    }
}

/// Requests a path, written byte by byte, because a client refuses paths that are not UTF-8.
/// Returns 200 or 404.
fn status_over_http2(mut connection: Connection, path: &[u8]) -> u16 {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const END_OF_STREAM_AND_HEADERS: u8 = 5;
    // RFC 7541, section 6: `:method: GET` and `:scheme: http` by their index, `:authority` and
    // `:path` as literals.
    let length = u8::try_from(path.len()).unwrap();
    let fields = [&[0x82, 0x86, 0x01, 1, b'x', 0x04, length], path].concat();
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_OF_STREAM_AND_HEADERS, 1, &fields),
    ];
    connection.write(&request.concat()).unwrap();
    loop {
        let head = connection.read_raw(9).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = connection.read_raw(usize::try_from(length).unwrap()).unwrap();
        match (head[3], payload.first()) {
            (HEADERS, Some(0x88)) => return 200,
            (HEADERS, Some(0x8d)) => return 404,
            (HEADERS, _) => panic!("another status: {payload:?}"),
            _ => {}
        }
    }
}

#[test]
fn a_new_value_of_an_environment_variable_arrives_as_check_says() {
    let configuration =
        Configuration::default().with("/signing_keys/0", json!({"environment_variable": "KEY"}));
    let with_key = |key: &Key| Filter {
        environment: vec![("KEY".into(), key.private_jwk().to_string())],
        ..Filter::from(&configuration)
    };
    let gateway = Gateway::try_start(with_key(&SIGNING_KEY), &Default::default()).unwrap();
    let next = Key::generate(Algorithm::ES256, "gateway-2");
    gateway.update(with_key(&next)).unwrap();
    let published = gateway.send(&Request::get("/oidc/jwks")).text();
    let manager = json!({"http_filters": [Value::from(with_key(&SIGNING_KEY))]});
    let file =
        file("variables.json", &json!({"static_resources": {"listeners": [{"manager": manager}]}}));
    let by_check = check(&file).contains("cannot be changed while Envoy");
    let expected = if by_check { &SIGNING_KEY.kid } else { &next.kid };
    assert!(published.contains(&**expected), "{by_check}: {published}");
}
