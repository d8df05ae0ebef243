//! Where the requests of sessions are answered, and where sessions show.

use serde_json::json;

use super::*;
use testkit::gateway::{exchange_form, exchange_request};
use testkit::impersonations::list_request;

const PATHS: [(&str, &str); 4] = [
    ("POST", "/.impersonation/begin"),
    ("GET", "/.impersonation/me"),
    ("POST", "/.impersonation/end"),
    ("GET", "/.impersonation/banner.js"),
];

#[test]
fn the_paths_of_sessions_belong_to_the_gateway_on_every_other_host() {
    let (with, without) = (start(), World::start(&filter_configuration()));
    let below = format!("0a.{DOMAIN}");
    for (method, path) in PATHS {
        for (world, host) in [
            (&with, "gateway.test"),
            (&with, DOMAIN),
            (&with, "0aas-user.localhost"),
            (&without, &*below),
        ] {
            let answer = world.send(&Request::new(method, path).header("host", host));
            assert!(world.passed_on(&answer), "{method} {path} at {host}: {answer:?}");
        }
        let answer = with.send(&Request::new(method, path).header("host", &below));
        assert!(!with.passed_on(&answer), "{method} {path}: {answer:?}");
    }
}

/// The application may have the same paths.
#[test]
fn no_other_endpoint_is_on_the_host_of_a_session() {
    let world = start();
    let host = format!("0a.{DOMAIN}");
    let exchange = exchange_request(&exchange_form("sub_x"));
    let list = list_request("");
    for request in [exchange, list, Request::get("/oidc/jwks")] {
        let answer = world.send(&request.clone().header("host", &host));
        assert!(world.passed_on(&answer), "{request:?}: {answer:?}");
    }
}

#[test]
fn the_list_marks_the_impersonations_that_are_browser_sessions() {
    let world = start();
    let session = begin(&world);
    let Minted { parties, id, .. } = &session.minted;
    let listed = |world: &World| {
        let answer = world.send(&list_request(&format!("?actorId={}", parties.actor)));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["impersonations"].as_array().unwrap().clone()
    };
    let [entry] = &*listed(&world) else { panic!("one") };
    assert_eq!((&entry["id"], &entry["browserSession"]), (&json!(id), &json!(true)), "{entry}");
    let minted = mint_for(&world, parties.clone());
    let form = parties.exchange_form(&minted.subject_token);
    assert_eq!(world.exchange(&form).status, 200);
    let entries = listed(&world);
    let other = entries.iter().find(|entry| entry["id"] == minted.id).unwrap();
    assert_eq!(other.get("browserSession"), None, "{other}");
}

#[test]
fn the_banner_is_a_script_for_pages_of_the_same_host() {
    let world = start();
    let banner =
        || Request::get("/.impersonation/banner.js").header("host", format!("0a.{DOMAIN}"));
    let answer = world.send(&banner());
    assert_eq!(answer.status, 200, "{answer:?}");
    #[rustfmt::skip]
    let fields = [
        ("content-type",                 "text/javascript; charset=utf-8"),
        ("content-encoding",             "gzip"),
        ("cache-control",                "no-store"),
        ("x-content-type-options",       "nosniff"),
        ("cross-origin-resource-policy", "same-origin"),
        ("vary",                         "accept-encoding"),
    ];
    for (name, value) in fields {
        assert_eq!(answer.header(name), Some(value), "{name}: {answer:?}");
    }
    assert!(answer.body.starts_with(b"\x1f\x8b"), "no gzip file");
    let plain = world.send(&banner().header("accept-encoding", "identity"));
    assert_eq!(plain.refusal(), (406, "invalid_request".into()));
    let posted = world.send(&Request { method: "POST".into(), ..banner() });
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")), "{posted:?}");
}
