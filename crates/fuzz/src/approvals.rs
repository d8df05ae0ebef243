//! Answers of people, of the decision point and of another version of the filter about tokens that
//! need an approval. A token that waits is exchanged after its approval, never after a denial, and
//! once.

use std::rc::Rc;

use impersonation_core::fakes::{FakeHost, START};
use impersonation_core::step::{Call, Reply};
use impersonation_issuer::issuer::Service;
use serde_json::{Value, json};

use crate::setting::{
    ISSUER, JSON, OPAQUE, exchange, exchange_form, mint, minted, provider_keys, says_yes, service,
    signed,
};
use crate::world::{Request, play};

/// A mint whose token two others approve, or the user and one other.
const MINT: &[u8] = br#"{"userId":"user-42","approvals":1,"context":{"ticketId":"T-1"}}"#;

/// The longest reason of a decision, in characters.
const LONGEST_REASON: usize = 1024;

/// A service with approvals, and the host of a token that waits for one.
struct Waiting {
    service: Rc<Service>,
    world: FakeHost,
    token: String,
    /// The path of the token's decisions.
    path: String,
    approver: String,
}

thread_local! {
    static WAITING: Waiting = Waiting::new();
    static ASKING: Rc<Service> = service(&json!({"authzen": {"http_uri": {
        "uri": "https://pdp.example.com/access/v1/evaluation", "cluster": "pdp", "timeout": "1s",
    }}}));
}

impl Waiting {
    fn new() -> Self {
        let people =
            json!({"issuer": ISSUER, "audiences": ["people"], "local_jwks": provider_keys()});
        let service = service(&json!({"approvals": {"authentication": {"jwt": [people]}}}));
        let world = Rc::new(FakeHost::default());
        service.create_tables(&*world);
        let answer = play(&service, &world, &mint(OPAQUE, MINT), says_yes).unwrap();
        let token = minted(&answer);
        let location = answer.headers.iter().find(|(name, _)| name == "location").unwrap();
        let location = str::from_utf8(&location.1).unwrap();
        let path = format!("/api/approvals/{}", location.rsplit('/').next().unwrap());
        let claims = json!({
            "iss": ISSUER, "sub": "dana", "client_id": "desk", "aud": "people",
            "exp": START.secs() + 600, "scope": "impersonations:approve",
        });
        let signed = signed(br#"{"alg":"EdDSA","typ":"at+jwt"}"#, claims.to_string().as_bytes());
        let approver = format!("Bearer {signed}");
        let waiting = Self { service, world: world.copy(), token, path, approver };
        // If this failed, no input would reach anything further.
        let world = waiting.world();
        assert_eq!(waiting.decide(&world, br#"{"decision":"approve"}"#), 200);
        assert_eq!(waiting.exchange(&world), (200, String::new()));
        waiting
    }

    fn world(&self) -> Rc<FakeHost> {
        Rc::new(self.world.copy())
    }

    /// The status of the answer to a request of the approver.
    fn ask(&self, world: &Rc<FakeHost>, method: &str, path: &[u8], body: &[u8]) -> u16 {
        let headers = vec![JSON, ("authorization", self.approver.as_bytes())];
        let request = Request { method, path, headers, body, answer: None };
        play(&self.service, world, &request, says_yes).map_or(0, |answer| answer.status)
    }

    fn decide(&self, world: &Rc<FakeHost>, body: &[u8]) -> u16 {
        self.ask(world, "POST", self.path.as_bytes(), body)
    }

    /// The status of an exchange, and the error.
    fn exchange(&self, world: &Rc<FakeHost>) -> (u16, String) {
        let form = exchange_form(&self.token);
        let answer = play(&self.service, world, &exchange(form.as_bytes()), says_yes).unwrap();
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        (answer.status, error)
    }
}

/// The first byte selects what follows: the body of a decision, the query or the rest of the path
/// of the list, the id of a decision, or the answer of the decision point behind a byte for its
/// status.
pub(crate) fn approvals(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let is_path = !rest.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
    match kind % 4 {
        0 => decision(rest),
        1 if is_path => WAITING.with(|waiting| {
            let world = waiting.world();
            let path = [b"/api/approvals", rest].concat();
            let status = waiting.ask(&world, "GET", &path, b"");
            assert!(status < 500, "{status}");
            // A look changes nothing.
            assert_eq!(world.stored(), waiting.world.stored());
        }),
        2 if is_path => WAITING.with(|waiting| {
            let world = waiting.world();
            let path = [b"/api/approvals/", rest].concat();
            let status = waiting.ask(&world, "POST", &path, br#"{"decision":"approve"}"#);
            let is_known = path.split(|byte| *byte == b'?').next() == Some(waiting.path.as_bytes());
            assert!(status != 200 || is_known, "{status}");
        }),
        3 => answer_of_the_decision_point(rest),
        _ => {}
    }
}

/// Another reader finds the same decision in an accepted body, and no other member.
fn decision(body: &[u8]) {
    WAITING.with(|waiting| {
        let world = waiting.world();
        let status = waiting.decide(&world, body);
        let (exchanged, error) = waiting.exchange(&world);
        if status != 200 {
            assert!((400..500).contains(&status), "{status}");
            assert_eq!((exchanged, &*error), (400, "authorization_pending"));
            return;
        }
        let body: Value = serde_json::from_slice(body).unwrap();
        let members = body.as_object().unwrap();
        assert!(members.keys().all(|name| ["decision", "reason"].contains(&&**name)));
        let reason = members.get("reason").map(|reason| reason.as_str().unwrap());
        assert!(reason.is_none_or(|reason| reason.chars().count() <= LONGEST_REASON));
        match body["decision"].as_str().unwrap() {
            "approve" => assert_eq!(exchanged, 200),
            "deny" => assert_eq!((exchanged, &*error), (400, "access_denied")),
            other => panic!("{other} was accepted"),
        }
    });
}

/// Only 200 and a decision that is true let a mint continue.
fn answer_of_the_decision_point(answer: &[u8]) {
    let Some((status, body)) = answer.split_first() else { return };
    let status = [200, 201, 204, 302, 400, 403, 500, 503][usize::from(status % 8)];
    ASKING.with(|service| {
        let theirs = |call: &Call| match call {
            Call::Http(http) if http.path.starts_with("/access/") => {
                Reply::Http { status, json: true, body: body.to_vec() }
            }
            _ => says_yes(call),
        };
        let world = Rc::default();
        let body_of_mint = br#"{"userId":"user-42","actorId":"agent-7"}"#;
        let answer = play(service, &world, &mint(OPAQUE, body_of_mint), theirs).unwrap();
        match answer.status {
            201 => {
                let said: Value = serde_json::from_slice(body).unwrap();
                assert!(status == 200 && said["decision"] == true);
            }
            403 => assert_eq!(serde_json::from_slice::<Value>(body).unwrap()["decision"], false),
            other => assert_eq!(other, 503),
        }
    });
}

/// A stored value of a token that waits, as another version of the filter may have written it. The
/// first byte selects the key. If the second is even, the rest replaces the value; otherwise the
/// third byte is a place in the value, the fourth a number of bytes, and the rest replaces these.
/// The token is exchanged at most once, and not after a denial that was answered with 200.
pub(crate) fn waiting(data: &[u8]) {
    let [which, how, rest @ ..] = data else { return };
    WAITING.with(|waiting| {
        let world = waiting.world();
        let stored = world.stored();
        let (key, mut value) = stored[usize::from(*which) % stored.len()].clone();
        match rest {
            [at, count, new @ ..] if how % 2 == 1 => {
                let at = usize::from(*at).min(value.len());
                let end = (at + usize::from(*count)).min(value.len());
                drop(value.splice(at..end, new.iter().copied()));
            }
            _ => value = rest.to_vec(),
        }
        world.overwrite(&key, &value);
        let _ = waiting.ask(&world, "GET", b"/api/approvals?limit=200", b"");
        let before = waiting.exchange(&world).0 == 200;
        let denied = waiting.decide(&world, br#"{"decision":"deny"}"#) == 200;
        let after = waiting.exchange(&world).0 == 200;
        assert!(!(before && after), "it is exchanged twice");
        assert!(!(denied && (before || after)), "it is exchanged and denied");
        let _ = play(&waiting.service, &world, &mint(OPAQUE, MINT), says_yes);
    });
}
