//! The page of live impersonations, as a stream answers with it. The tests use a page of one line;
//! `tests/js/console` reads the real one.

use impersonation_issuer::issuer::{BuiltPage, Service};
use impersonation_issuer::stream::Flow;
use serde_json::{Value, json};

use super::setting::{ISSUER, configuration, configured};
use crate::driver::{FakeStream, Gateway, START, Sent};

const PATH: &str = "/impersonations/";

fn console() -> Value {
    json!({"client_id": "oncall", "scopes": ["openid", "impersonations:read"]})
}

/// Returns the filter's answer; `None` if the request goes on to the gateway.
fn ask(gateway: &Gateway, method: &str, path: &str, fields: &[(&str, &str)]) -> Option<Sent> {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    let shown = FakeStream::new(method, path.as_bytes(), fields, b"");
    let mut stream = gateway.stream();
    let flow = stream.on_request_headers(&shown, true);
    let answered = shown.answered.take();
    assert_eq!(flow, if answered.is_some() { Flow::Pause } else { Flow::Continue });
    answered
}

fn field<'s>(sent: &'s Sent, name: &str) -> Vec<&'s str> {
    let named = sent.headers.iter().filter(|(known, _)| known == name);
    named.map(|(_, value)| str::from_utf8(value).unwrap()).collect()
}

#[test]
fn the_page_has_the_header_fields_of_its_build_and_ends_with_its_configuration() {
    let gateway = Gateway::new(&configured("/console", console()));
    for method in ["GET", "HEAD"] {
        // A person returns from the sign-in with a query.
        for path in [PATH, "/impersonations/?code=1&state=2"] {
            let page = ask(&gateway, method, path, &[("accept-encoding", "gzip, br")]).unwrap();
            assert_eq!(page.status, 200);
            assert_eq!(field(&page, "content-type"), ["text/html; charset=utf-8"]);
            assert_eq!(field(&page, "content-security-policy"), ["default-src 'none'"]);
            assert_eq!(field(&page, "content-encoding"), ["gzip"]);
            assert_eq!(field(&page, "vary"), ["accept-encoding"]);
            let end = page.body.strip_prefix(BuiltPage::ONE_LINE.gzip).unwrap();
            let (json, trailer) = element(end);
            let expected = json!({
                "issuer": ISSUER,
                "discovery": "/oidc/.well-known/openid-configuration",
                "clientId": "oncall",
                "scopes": ["openid", "impersonations:read"],
                "impersonations": "/api/impersonations",
            });
            assert_eq!(json, expected);
            assert_eq!(trailer.len(), 8);
        }
    }
    assert!(gateway.world.events.borrow().is_empty(), "the page is not audited");
}

/// Reads the one stored block of a page's end, and what follows it.
fn element(end: &[u8]) -> (Value, &[u8]) {
    let (block, trailer) = end[5..].split_at(end.len() - 5 - 8);
    let text = str::from_utf8(block).unwrap();
    let (_, json) = text.split_once('>').unwrap();
    (serde_json::from_str(json.strip_suffix("</script>\n").unwrap()).unwrap(), trailer)
}

#[test]
fn the_page_and_what_it_names_move_with_the_paths() {
    let mut moved = configured("/console", console());
    moved["base_path"] = json!("/tenant-a");
    moved["console"]["resource"] = json!("https://auth.example.com/api");
    moved["paths"] = json!({"console": "/oncall", "impersonations": "/support/list"});
    let gateway = Gateway::new(&moved);
    assert!(ask(&gateway, "GET", PATH, &[]).is_none());
    assert!(ask(&gateway, "GET", "/oncall", &[]).is_none());
    let page = ask(&gateway, "GET", "/tenant-a/oncall", &[]).unwrap();
    let (json, _) = element(page.body.strip_prefix(BuiltPage::ONE_LINE.gzip).unwrap());
    assert_eq!(json["impersonations"], "/tenant-a/support/list");
    assert_eq!(json["discovery"], "/tenant-a/oidc/.well-known/openid-configuration");
    assert_eq!(json["resource"], "https://auth.example.com/api");
}

#[test]
fn the_page_answers_other_methods_with_405_and_readers_without_gzip_with_406() {
    let gateway = Gateway::new(&configured("/console", console()));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get", "PRI"] {
        let refused = ask(&gateway, method, PATH, &[]).unwrap();
        assert_eq!((refused.status, &*field(&refused, "allow")), (405, &["GET, HEAD"][..]));
        assert_eq!(refused.json()["error"], "invalid_request", "{method}");
    }
    for coding in ["identity", "br, gzip;q=0"] {
        let refused = ask(&gateway, "GET", PATH, &[("accept-encoding", coding)]).unwrap();
        assert_eq!((refused.status, &*field(&refused, "vary")), (406, &["accept-encoding"][..]));
        assert_eq!(refused.json()["error"], "invalid_request", "{coding}");
    }
}

#[test]
fn without_its_configuration_the_path_of_the_page_is_the_gateways() {
    let gateway = Gateway::new(&configuration());
    for method in ["GET", "HEAD", "POST"] {
        assert!(ask(&gateway, method, PATH, &[]).is_none(), "{method}");
    }
}

#[test]
fn a_module_without_the_page_refuses_its_configuration() {
    let configure = |configuration: &Value| {
        let bytes = configuration.to_string().into_bytes();
        Service::configure(&bytes, &|_| None, START, None, None)
    };
    assert!(configure(&configuration()).is_ok());
    let error = configure(&configured("/console", console())).err().unwrap();
    let [problem] = &*error.problems else { panic!("{error}") };
    assert_eq!(problem.path, "console");
    assert!(problem.expected.contains("without the page"), "{problem}");
}
