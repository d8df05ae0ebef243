//! Browser sessions: who may begin one, who sees and ends it, and that nothing else gets its access
//! token. `tests/envoy/browser_sessions` has the rules of the guard on the session's host.

mod begin;
mod end;
mod me;
mod places;

use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::{Configuration, SIGNING_KEY};
use testkit::gateway::{key_set, verify};
use testkit::guarded::filter_configuration;
use testkit::http::{Answer, Form, Request};
use testkit::impersonations::Parties;

/// The resource of sessions.
const SHOP: &str = "https://shop.example/";
/// Below `localhost` a host has an origin without TLS.
const DOMAIN: &str = "as-user.localhost";
const SUPPORT_DESK: &str = "https://support.example";
const ENDED: &str = "https://support.example/ended";
const COOKIE: &str = "__Host-impersonation";

fn configuration() -> Configuration {
    filter_configuration()
        .with("/resources/-", json!({"indicator": SHOP, "scopes": ["shop"]}))
        .with("/impersonations/context", json!(["ticketId"]))
        .with(
            "/browser_sessions",
            json!({
                "domain": DOMAIN, "begin_from": ["https://other.example", SUPPORT_DESK],
                "ended": ENDED, "resource": SHOP,
            }),
        )
}

fn start() -> World {
    World::start(&configuration())
}

/// A subject token for a session, and the session's host.
struct Minted {
    parties: Parties,
    subject_token: String,
    id: String,
    host: String,
}

impl Minted {
    /// The form of the exchange that begins the session.
    fn form(&self) -> Form {
        let form = self.parties.exchange_form(&self.subject_token);
        form.set("resource", SHOP).set("scope", "shop")
    }

    fn begin_request(&self) -> Request {
        begin_request(&self.host, &self.form())
    }
}

fn mint(world: &World) -> Minted {
    mint_for(world, Parties::new())
}

fn mint_for(world: &World, parties: Parties) -> Minted {
    let answer = world.send(&parties.mint_request(&json!({"context": {"ticketId": "T-1"}})));
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let host = format!("{id}.{DOMAIN}:8443");
    Minted { parties, subject_token: answer.member("subjectToken"), id, host }
}

/// Begins a session, as the form of a support desk does in a browser.
fn begin_request(host: &str, form: &Form) -> Request {
    bare_begin_request(host, form)
        .header("origin", SUPPORT_DESK)
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document")
}

/// Such a request without a word of the browser's about the page.
fn bare_begin_request(host: &str, form: &Form) -> Request {
    Request::post("/.impersonation/begin")
        .header("host", host)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.encode())
}

/// A session that has begun.
struct Session {
    minted: Minted,
    access_token: String,
    claims: Value,
}

impl Session {
    fn request(&self, method: &str, path: &str) -> Request {
        let cookie = format!("a=b; {COOKIE}={}", self.access_token);
        self.request_without_cookie(method, path).header("cookie", cookie)
    }

    fn request_without_cookie(&self, method: &str, path: &str) -> Request {
        let request = Request::new(method, path).header("host", &self.minted.host);
        request.header("sec-fetch-site", "same-origin")
    }

    fn me(&self) -> Request {
        self.request("GET", "/.impersonation/me")
    }

    fn end(&self) -> Request {
        self.request("POST", "/.impersonation/end")
    }
}

fn begin(world: &World) -> Session {
    begun(world, mint(world))
}

fn begun(world: &World, minted: Minted) -> Session {
    let answer = world.send(&minted.begin_request());
    let access_token = token_in(&answer);
    let claims = verify(&access_token, &key_set(&SIGNING_KEY)).1;
    Session { minted, access_token, claims }
}

/// Returns the access token that an answer puts into the cookie.
fn token_in(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, _) = cookie.split_once("; ").unwrap();
    pair.strip_prefix(&format!("{COOKIE}=")).unwrap().to_owned()
}

fn assert_live(world: &World, session: &Session) {
    let answer = world.send(&session.me());
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn assert_over(world: &World, session: &Session, case: &str) {
    let answer = world.send(&session.me());
    assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{case}: {answer:?}");
}
