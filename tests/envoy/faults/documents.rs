//! The gateway's key set and discovery document with ours added, and the answers while the gateway
//! fails: a key set with our keys alone would lock out all users of the gateway wherever it is
//! cached.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::BOUND;
use testkit::bootstrap::{Filter, Listener};
use testkit::configuration::Configuration;
use testkit::documents::{DISCOVERY, JWKS, gateway_document, has_documents, keeping, merging};
use testkit::envoy::Envoy;
use testkit::gateway::{Gateway, IDENTITY_GATEWAY, in_front_of, listener};
use testkit::http::{Answer, Request};
use testkit::http2;
use testkit::lent::Lent;
use testkit::server::{Fault, Received, Reply, Server};
use testkit::{Findings, wait_for};

/// Lends a filter that merges the documents of the gateway behind it.
fn lent() -> Lent<Gateway> {
    Gateway::lent(&merging())
}

/// Waits until a document stands in for the failing gateway.
pub(super) fn stand_in(envoy: &Envoy, target: &str) -> Answer {
    wait_for("a document that stands in", || {
        let answer = envoy.send(&Request::get(target));
        (answer.status == 200 && answer.header("cache-control") == Some("max-age=60"))
            .then_some(answer)
    })
}

/// Waits until the filter has asked for a document itself, after so many requests.
pub(super) fn wait_for_a_fetch(gateway: &Server, after: usize, target: &str) {
    wait_for("the filter's own request", || {
        gateway.received()[after..].iter().any(|asked| asked.target == target).then_some(())
    });
}

/// Starts a gateway whose documents stay the same from one request to the next.
pub(super) fn gateway_with_documents() -> (Server, Value, Value) {
    let gateway = Server::start(IDENTITY_GATEWAY);
    let (key_set, discovery) = has_documents(&gateway);
    (gateway, key_set, discovery)
}

fn expect_honest_length(findings: &mut Findings, case: &str, answer: &Answer) {
    let length = answer.header("content-length").map(|length| length.parse().unwrap());
    findings.expect(
        format!("{case}: content-length"),
        &length.unwrap_or(answer.body.len()),
        &answer.body.len(),
    );
}

/// Compresses whenever it may: RFC 9110 §12.5.3 allows it unless the request says `identity`.
fn compressing(asked: &Received) -> Reply {
    let document = json!({"keys": [], "z": "é", "grant_types_supported": ["authorization_code"]});
    let plain = Reply::json(&document).header("vary", "accept-encoding");
    if asked.header("accept-encoding").is_some_and(|accepted| !accepted.contains("gzip")) {
        return plain;
    }
    let body = gzip(&["-c"], &plain.body);
    Reply { body, ..plain }.header("content-encoding", "gzip")
}

fn gzip(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    gzip.stdin.take().unwrap().write_all(input).unwrap();
    let output = gzip.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn documents_of_a_compressing_gateway_are_merged_too() {
    let lent = lent();
    let (gateway, envoy) = (&lent.upstream, &lent.envoy);
    gateway.answer(compressing);
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        for accepted in [None, Some("gzip, br"), Some("identity"), Some("gzip;q=1.0, *;q=0")] {
            let case = format!("{target} with accept-encoding {accepted:?}");
            let mut request = Request::get(target);
            if let Some(accepted) = accepted {
                request = request.header("accept-encoding", accepted);
            }
            let answer = envoy.send(&request);
            let body = match answer.header("content-encoding") {
                Some("gzip") => gzip(&["-dc"], &answer.body),
                _ => answer.body.clone(),
            };
            let document: Value = serde_json::from_slice(&body).unwrap_or_default();
            findings.expect(format!("{case}: theirs"), &document["z"], &json!("é"));
            let grants = document["grant_types_supported"].as_array().map_or(0, Vec::len);
            let (keys, expected) = if target == JWKS { (1, 1) } else { (0, 2) };
            findings.expect(format!("{case}: grants"), &grants, &expected);
            let found = document["keys"].as_array().map_or(0, Vec::len);
            findings.expect(format!("{case}: keys"), &found, &keys);
            expect_honest_length(&mut findings, &case, &answer);
        }
    }
}

#[test]
fn envoys_own_compressor_compresses_the_merged_document() {
    let envoy = &lent_behind_a_compressor().envoy;
    for target in [JWKS, DISCOVERY] {
        let plain = envoy.send(&Request::get(target));
        assert_eq!(plain.header("content-encoding"), None);
        let packed = envoy.send(&Request::get(target).header("accept-encoding", "gzip"));
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{packed:?}");
        assert_eq!(gzip(&["-dc"], &packed.body), plain.body);
    }
}

/// Lends a filter behind Envoy's compressor.
fn lent_behind_a_compressor() -> Lent<Gateway> {
    let lent = lent();
    has_documents(&lent.upstream);
    let listener = listener("gateway", Some(Filter::from(&merging()).into()));
    lent.envoy.update(listener.first_filter(compressor())).unwrap();
    lent
}

fn compressor() -> Value {
    json!({
        "name": "envoy.filters.http.compressor",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor",
            "response_direction_config": {"common_config": {
                "min_content_length": 30,
                "content_type": ["application/json", "application/jwk-set+json"],
            }},
            "compressor_library": {
                "name": "gzip",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip"},
            },
        },
    })
}

/// RFC 9110 §9.3.2: a client can learn whether a document has changed without reading it.
#[test]
fn head_is_answered_with_the_header_fields_of_get() {
    let lent = Gateway::lent(&Configuration::default());
    let (gateway, envoy) = (&lent.upstream, &lent.envoy);
    has_documents(gateway);
    let before = gateway.calls();
    lent.update(&keeping(&json!({}))).unwrap();
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        wait_for_a_fetch(gateway, before, target);
        gateway.fail(Fault::ServerError);
        stand_in(envoy, target);
        gateway.heal();
        let etag = envoy.send(&Request::get(target)).header("etag").unwrap().to_owned();
        let plain = Request::get(target);
        #[rustfmt::skip]
        let cases = [
            ("plain",                  None,                            plain.clone()),
            ("known",                  None,                            plain.clone().header("if-none-match", &etag)),
            ("the gateway's is known", None,                            plain.clone().header("if-none-match", "\"theirs\"")),
            ("compressed",             None,                            plain.clone().header("accept-encoding", "gzip")),
            ("refused",                Some(Fault::Refused),            plain.clone()),
            ("no JSON",                Some(Fault::WrongContentType),   plain.clone()),
            ("junk",                   Some(Fault::Junk),               plain.clone()),
            ("empty",                  Some(Fault::Empty),              plain.clone()),
        ];
        for (name, fault, get) in cases {
            if let Some(fault) = fault {
                gateway.fail(fault);
            }
            let head = Request { method: "HEAD".into(), ..get.clone() };
            for http2 in [false, true] {
                let case = format!("{target}: {name}, HTTP/2: {http2}");
                let send = |request: &Request| match http2 {
                    false => envoy.send(request),
                    true => http2::send(envoy.address("gateway"), request),
                };
                let (head, get) = (send(&head), send(&get));
                findings.expect(format!("{case}: status"), &head.status, &get.status);
                findings.expect(format!("{case}: fields"), &lasting(&head), &lasting(&get));
                findings.expect(format!("{case}: body"), &head.body, &Vec::new());
            }
            gateway.heal();
        }
        envoy.send(&Request::new("HEAD", target).header("if-none-match", &etag));
        let asked = gateway.last();
        assert_eq!((asked.method.as_str(), asked.header("if-none-match")), ("GET", None));
    }
}

/// Returns the header fields that do not change from one answer to the next. Envoy's 304 answers
/// have no content type.
fn lasting(answer: &Answer) -> Vec<(String, String)> {
    let mut fields = answer.headers.clone();
    fields.retain(|(name, _)| match name.as_str() {
        "date" | "x-envoy-upstream-service-time" => false,
        "content-type" => answer.status != 304,
        _ => true,
    });
    fields.sort();
    fields
}

/// An unexpected body would be read as the next answer on the connection.
#[test]
fn no_body_follows_the_answer_to_a_head() {
    let envoy = &lent_behind_a_compressor().envoy;
    let mut connection = envoy.connect();
    for target in [JWKS, DISCOVERY] {
        let whole = connection.send(&Request::get(target));
        for accepted in ["identity", "gzip"] {
            let head = Request::new("HEAD", target).header("accept-encoding", accepted);
            assert_eq!(connection.send(&head).status, 200, "{target} {accepted}");
            let next = connection.send(&Request::get(target));
            assert_eq!((next.status, &next.body), (200, &whole.body), "{target} {accepted}");
        }
    }
}

const FAULTS: [Fault; 6] = [
    Fault::Refused,
    Fault::Slow,
    Fault::ServerError,
    Fault::WrongContentType,
    Fault::Junk,
    Fault::Empty,
];

#[test]
fn a_connection_to_the_gateway_that_fails_adds_nothing_of_ours() {
    let gateway = Server::start(IDENTITY_GATEWAY);
    let bootstrap = in_front_of(&[&gateway], &merging());
    let envoy = bootstrap.edit_listener(Listener::watched).start();
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        gateway.answer_always(Reply::json(&gateway_document(target)));
        for fault in FAULTS {
            let case = format!("{target}: {fault:?}");
            gateway.fail(fault);
            let began = Instant::now();
            let answer = envoy.send(&Request::get(target).header("if-none-match", "*"));
            let status = match fault {
                Fault::Refused => 503,
                Fault::Slow => 504,
                Fault::ServerError => 500,
                _ => 200,
            };
            findings.expect(format!("{case}: status"), &answer.status, &status);
            let ours = answer.body.windows(9).any(|window| window == b"gateway-1");
            findings.expect(format!("{case}: nothing of ours"), &ours, &false);
            if began.elapsed() > BOUND {
                findings.add(format!("{case}: answered after {:?}", began.elapsed()));
            }
            gateway.heal();
        }
    }
    // With the gateway's cluster, a document stands in for the one that comes too late.
    let (before, filter) = (gateway.calls(), Filter::from(&keeping(&json!({}))));
    has_documents(&gateway);
    let listener = Listener::new("gateway").filter(filter).route_to(IDENTITY_GATEWAY, "3s");
    envoy.update(listener).unwrap();
    for target in [JWKS, DISCOVERY] {
        wait_for_a_fetch(&gateway, before, target);
        gateway.fail(Fault::Slow);
        stand_in(&envoy, target);
        gateway.heal();
    }
}

/// HTTP/2 can end an answer in more ways than HTTP/1.1.
#[test]
fn trailers_of_a_gateway_do_not_matter() {
    let configuration =
        Configuration::default().with("/identity_gateway", json!({"documents": "merge"}));
    let gateway = Gateway::lent(&configuration);
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        for (name, size) in [("no body", 0), ("a body", 1000), ("a long body", 700_000)] {
            for trailers in [false, true] {
                let case = format!("{target}: {name}, trailers: {trailers}");
                let mut request = Request::get(target).header("x-answer-bytes", size.to_string());
                if trailers {
                    request = request.header("te", "trailers").header("x-answer-trailers", "yes");
                }
                for answer in [gateway.send(&request), http2::send(gateway.address(), &request)] {
                    // The answer is not a document, so it passes unchanged.
                    findings.expect(format!("{case}: status"), &answer.status, &200);
                    findings.expect(format!("{case}: length"), &answer.body.len(), &size);
                }
            }
        }
    }
    gateway.assert_serves("after answers with trailers");
}

/// Envoy itself answers 502 or 504 then, past all filters, so the last good document cannot be
/// served. Half a document must not pass for a whole one, and no caller may wait for ever.
#[test]
fn a_broken_off_document_never_passes_for_a_whole_one() {
    let (gateway, ..) = gateway_with_documents();
    let envoy = in_front_of(&[&gateway], &merging()).start();
    let mut findings = Findings::default();
    for target in [JWKS, DISCOVERY] {
        for fault in [Fault::ResetMidBody, Fault::Stalled] {
            let case = format!("{target}: {fault:?}");
            gateway.fail(fault);
            let began = Instant::now();
            let answer = envoy.connect().try_send(&Request::get(target));
            if let Some(answer) = answer.ok().filter(|answer| answer.status < 500) {
                findings.add(format!("{case}: {answer:?}"));
            }
            if began.elapsed() > BOUND {
                findings.add(format!("{case}: ended after {:?}", began.elapsed()));
            }
            gateway.heal();
            findings.expect(&case, &envoy.send(&Request::get(target)).status, &200);
        }
    }
}
