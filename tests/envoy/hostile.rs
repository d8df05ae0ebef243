//! Twenty thousand hostile requests. The filter may refuse them, but must not answer with a server
//! error, crash, or print a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fastrand::Rng;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, PROVIDER_KEY, SIGNING_KEY, jwks,
};
use testkit::flood::Fate;
use testkit::gateway::{
    ACCESS_TOKEN, BEARER, EXCHANGE_GRANT, Gateway, Options, actor_claims, backend_claims,
    exchange_form, mint_body_request, mint_request, minted, now, with_actor,
};
use testkit::holder::{ASSERTION_TYPE, Holder, assertion_claims};
use testkit::http::{Answer, Connection, Form, Request, urlencode};
use testkit::keys::{has_jwt, unsigned};

/// A client with a key of its own.
static HOLDER: LazyLock<Holder> = LazyLock::new(|| Holder::new(Algorithm::ES256));

/// The access token of a person who may approve.
static APPROVER: LazyLock<String> = LazyLock::new(|| {
    PROVIDER_KEY.sign(&json!({
        "iss": ISSUER, "sub": "dana", "client_id": "console", "aud": "people", "iat": now(),
        "exp": now() + 7200, "scope": "impersonations:approve",
    }))
});

/// The usual configuration, with proofs, a client that authenticates by assertions, and people who
/// approve.
pub(crate) fn configuration() -> Configuration {
    let signer = json!({
        "client_id": "signer", "type": "traditional_web", "authentication": "private_key_jwt",
        "local_jwks": jwks(&[&HOLDER.key]),
    });
    let people = json!({
        "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    let approvals = json!({"authentication": {"jwt": [people]}, "required": 0});
    Configuration::default()
        .with("/dpop", json!({}))
        .with("/clients/-", signer)
        .with("/approvals", approvals)
}

const REQUESTS: usize = 20_000;
const CONNECTIONS: usize = 4;

#[test]
fn hostile_requests_get_no_server_error_and_harm_nobody() {
    let seed = std::env::var("HOSTILE_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("to send the same requests again: HOSTILE_SEED={seed}");
    let options = Options { concurrency: 2, ..Options::default() };
    let gateway = Gateway::try_start(&configuration(), &options).unwrap();
    let bystander = gateway.mint("u-bystander");
    let deadline = Instant::now() + Duration::from_secs(300);

    let outcomes = thread::scope(|scope| {
        let attackers: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let attacker = Attacker::new(&gateway, seed.wrapping_add(number as u64));
                scope.spawn(move || attacker.attack(REQUESTS / CONNECTIONS, deadline))
            })
            .collect();
        attackers.into_iter().map(|attacker| attacker.join().unwrap()).collect::<Vec<_>>()
    });
    let mut statuses = BTreeMap::new();
    for (status, count) in outcomes.into_iter().flatten() {
        *statuses.entry(status).or_insert(0) += count;
    }
    println!("{statuses:?}");
    // The attack reached every part: its requests minted, exchanged, and were refused in every way.
    for status in [200, 201, 400, 401, 405, 413, 415] {
        assert!(statuses.contains_key(&status), "no {status} in {statuses:?}");
    }

    gateway.assert_every_worker_serves("after the attack");
    gateway.assert_spendable(&bystander, "minted before the attack");
    inspect_log(&gateway.envoy.log());
}

/// Checks that Envoy began every line, that no line has a secret, that nothing crashed, and that
/// the audit is valid JSON.
pub(crate) fn inspect_log(log: &str) {
    let mut events = BTreeSet::new();
    for line in log.lines() {
        assert!(line.starts_with('['), "a line that Envoy did not begin: {line:?}");
        for level in ["][error]", "][critical]"] {
            assert!(!line.contains(level), "{line}");
        }
        assert!(!has_jwt(line), "a JWT in the log: {line}");
        // Random text has such a beginning now and then.
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let long = |rest: &str| rest.bytes().take_while(allowed).count() > 30;
        let has_token = line.split("sub_").skip(1).any(long);
        assert!(!has_token, "a subject token in the log: {line}");
        if let Some(json) = audit(line) {
            let record: Value =
                serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {line}"));
            // A replay, for example, raises an alarm and is refused as well.
            if record.get("alarm").is_none() {
                let event = record["event"].as_str();
                events.insert(event.unwrap_or_else(|| panic!("no event: {line}")).to_owned());
            }
        }
    }
    let expected = [
        "approval.denied",
        "approval.given",
        "approval.refused",
        "approval.requested",
        "approvals.list_refused",
        "approvals.listed",
        "subject_token.created",
        "subject_token.refused",
        "token_exchange.refused",
        "token_exchange.succeeded",
    ];
    assert!(events.iter().eq(&expected), "{events:?}");
    for secret in
        [SIGNING_KEY.secrets(), vec![CLIENT_SECRET.clone(), STANDARD.encode(&*CLIENT_SECRET)]]
            .concat()
    {
        assert!(!log.contains(&secret), "a secret in the log: {secret}");
    }
}

/// Returns the JSON that the filter wrote in this line of the log, if any.
fn audit(line: &str) -> Option<&str> {
    let (_, message) = line.split_once("wasm log")?;
    message.find(": {").map(|at| &message[at + 2..])
}

pub(crate) struct Attacker<'a> {
    gateway: &'a Gateway,
    random: Rng,
    /// Subject tokens to attack with.
    tokens: Vec<String>,
    /// The ids of subject tokens that wait for a decision.
    waiting: Vec<String>,
}

/// The bytes to send, and whether they are framed so that an answer must come.
struct Shot {
    method: String,
    bytes: Vec<u8>,
    framed: bool,
}

impl From<Request> for Shot {
    fn from(request: Request) -> Self {
        Self { bytes: request.to_bytes(), method: request.method, framed: true }
    }
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(gateway: &'a Gateway, seed: u64) -> Self {
        let tokens = vec![minted(&gateway.send(&mint_request("u-victim")))];
        let waiting = (0..4).map(|_| {
            let body = json!({"userId": "u-victim", "approvals": 2});
            let answer = gateway.send(&mint_body_request(&body));
            answer.header("location").unwrap().rsplit('/').next().unwrap().to_owned()
        });
        Self { gateway, random: Rng::with_seed(seed), tokens, waiting: waiting.collect() }
    }

    pub(crate) fn attack(mut self, count: usize, deadline: Instant) -> BTreeMap<u16, usize> {
        let mut statuses = BTreeMap::new();
        let mut connection = None;
        for number in 0..count {
            assert!(Instant::now() < deadline, "{number} of {count} requests took too long");
            let shot = self.shot();
            let answer = self.fire(&mut connection, &shot);
            let status = answer.as_ref().map_or(0, |answer| answer.status);
            *statuses.entry(status).or_insert(0) += 1;
            if let Some(answer) = answer {
                self.judge(&shot, &answer);
            }
        }
        statuses
    }

    /// Sends a shot over the open connection or a new one. Returns `None` if no answer was due.
    fn fire(&mut self, open: &mut Option<Connection>, shot: &Shot) -> Option<Answer> {
        if !shot.framed {
            let mut connection = self.gateway.connect();
            // Envoy may close the connection before it has read all of a refused request.
            let _ = connection.write(&shot.bytes);
            let _ = connection.finish();
            return connection.read_answer(&shot.method).ok();
        }
        // The connection may have been closed after the last answer: then a new one is tried.
        if let Some(mut connection) = open.take()
            && let Ok(answer) = exchange(&mut connection, shot)
        {
            *open = reusable(connection, &answer);
            return Some(answer);
        }
        let mut connection = self.gateway.connect();
        let answer = exchange(&mut connection, shot)
            .unwrap_or_else(|error| panic!("no answer ({error}) to {}", printable(&shot.bytes)));
        *open = reusable(connection, &answer);
        Some(answer)
    }

    fn judge(&mut self, shot: &Shot, answer: &Answer) {
        if answer.status >= 500 {
            // A server error is allowed only if Envoy gives the same without the filter.
            let mut connection = Connection::open(self.gateway.envoy.address("bare"));
            let bare = exchange(&mut connection, shot).map(|answer| answer.status).ok();
            assert_eq!(bare, Some(answer.status), "{answer:?} to {}", printable(&shot.bytes));
        }
        if answer.status == 201 && self.tokens.len() < 50 {
            let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            self.tokens.extend(body["subjectToken"].as_str().map(Into::into));
        }
    }

    /// Makes requests for [`flood`](testkit::flood), each with its fate.
    pub(crate) fn requests(mut self, count: usize) -> impl Iterator<Item = (Request, Fate)> {
        (0..count).map(move |_| {
            let fate = match self.random.u32(0..100) {
                0..50 => Fate::Whole,
                50..60 => Fate::InPieces,
                60..75 => Fate::WithTrailers,
                75..90 => Fate::Reset,
                90..95 => Fate::ResetAtOnce,
                95.. => Fate::Abandoned,
            };
            (self.request(), fate)
        })
    }

    /// A request that is framed correctly.
    fn request(&mut self) -> Request {
        match self.random.u32(0..87) {
            0..20 => self.mint(),
            20..35 => self.mint_with_odd_bearer(),
            35..60 => self.exchange(),
            60..68 => self.exchange_with_odd_token(),
            68..75 => self.exchange_with_keys(),
            75..81 => self.anything(),
            81..85 => self.decide(),
            85.. => self.large(),
        }
    }

    fn shot(&mut self) -> Shot {
        match self.random.u32(0..100) {
            0..87 => self.request().into(),
            87..93 => {
                let mut shot = Shot::from(self.any_good_request());
                self.bend(&mut shot.bytes);
                Shot { framed: false, ..shot }
            }
            93..97 => {
                let mut shot = Shot::from(self.any_good_request());
                shot.bytes.truncate(self.random.usize(..shot.bytes.len()));
                Shot { framed: false, ..shot }
            }
            97.. => Shot { method: "GET".into(), bytes: self.bytes(300), framed: false },
        }
    }

    fn any_good_request(&mut self) -> Request {
        if self.random.bool() {
            mint_request("u-1")
        } else {
            form_request(self.good_form().encode().as_bytes())
        }
    }

    fn mint(&mut self) -> Request {
        let mut body = match self.random.u32(0..12) {
            0 => self.bytes(200),
            1 => Vec::new(),
            2 => "[".repeat(self.random.usize(..60_000)).into_bytes(),
            3 => "{\"a\":".repeat(self.random.usize(..12_000)).into_bytes(),
            4 => {
                let depth = self.random.usize(..5000);
                let context = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
                format!(r#"{{"userId":"u-1","context":{context}}}"#).into_bytes()
            }
            5 => json!({"userId": self.odd_text()}).to_string().into_bytes(),
            6 => json!({"userId": "u", "context": {self.odd_text(): self.odd_value()}})
                .to_string()
                .into_bytes(),
            7 => json!({"userId": self.odd_value(), "context": self.odd_value()})
                .to_string()
                .into_bytes(),
            8 => br#"{"userId":"a","userId":"b","context":{},"context":{"x":1e999}}"#.to_vec(),
            9 => format!(r#"{{"userId":"\u{:04x}"}}"#, self.random.u16(..)).into_bytes(),
            _ => json!({"userId": "u-1", "context": {"ticketId": "T-1"}}).to_string().into_bytes(),
        };
        if self.random.u32(..3) == 0 {
            self.bend(&mut body);
        }
        let request = Request::post("/api/subject-tokens").bearer(&BEARER).body(body);
        let content_type = self.pick(
            &["application/json"; 6],
            &["", "text/json", "application/json;;=\"", "a\u{fe}b"],
        );
        self.dress(request.header("content-type", content_type))
    }

    fn mint_with_odd_bearer(&mut self) -> Request {
        let value = self.odd_authorization();
        let request = Request::post("/api/subject-tokens").header("authorization", value);
        self.dress(request.json(&json!({"userId": "u-1"})))
    }

    fn exchange(&mut self) -> Request {
        let mut form = self.good_form();
        for _ in 0..self.random.u32(0..3) {
            let index = self.random.usize(..form.0.len());
            let text = self.odd_text();
            match self.random.u32(0..5) {
                0 => form.0[index].1 = text,
                1 => form.0[index].0 = text,
                2 => drop(form.0.remove(index)),
                3 => form.0.push(form.0[index].clone()),
                _ => self.random.shuffle(&mut form.0),
            }
        }
        let mut body = form.encode().into_bytes();
        match self.random.u32(0..6) {
            0 => self.bend(&mut body),
            1 => body.truncate(self.random.usize(..=body.len())),
            2 => body.extend(
                self.pick(&["%"], &["&&&&=&=&", "&%00=%00", "&a=%F0%9F", "&=%zz%z"]).bytes(),
            ),
            _ => {}
        }
        let request = form_request(&body);
        let request = match self.random.u32(0..4) {
            0 => request.header("authorization", self.odd_authorization()),
            1 => request.basic("support-portal", &self.odd_text()),
            _ => request,
        };
        self.dress(request)
    }

    fn exchange_with_odd_token(&mut self) -> Request {
        let token = self.odd_token();
        let form = match self.random.u32(0..3) {
            0 => {
                let subject_token = self.a_subject_token();
                with_actor(exchange_form(&subject_token), &token)
            }
            _ => exchange_form(&token),
        };
        self.dress(form_request(form.encode().as_bytes()))
    }

    /// An exchange with a proof of possession and a client assertion, good or not.
    fn exchange_with_keys(&mut self) -> Request {
        let mut form = exchange_form(&self.a_subject_token());
        let mut proof = HOLDER.proof("POST", "https://auth.example.com/oidc/token").into_bytes();
        let mut assertion = HOLDER.assert(&assertion_claims("signer", ISSUER)).into_bytes();
        for bytes in [&mut proof, &mut assertion] {
            match self.random.u32(0..4) {
                0 => self.bend(bytes),
                1 => *bytes = self.odd_token().into_bytes(),
                2 => bytes.truncate(self.random.usize(..=bytes.len())),
                _ => {}
            }
        }
        if self.random.bool() {
            let assertion = String::from_utf8_lossy(&assertion).into_owned();
            form = form.without("client_id").set("client_assertion_type", ASSERTION_TYPE);
            form = form.set("client_assertion", &assertion);
        }
        // A header field holds no control characters.
        proof.retain(|byte| !byte.is_ascii_control());
        let request = form_request(form.encode().as_bytes()).header("DPoP", &proof);
        match self.random.u32(0..8) {
            0 => request.header("DPoP", &proof),
            1 => request.header("authorization", format!("DPoP {}", *BEARER)),
            _ => request,
        }
    }

    /// A decision about a token that waits, or a look at all of them.
    fn decide(&mut self) -> Request {
        let authorization = match self.random.u32(0..6) {
            0 => self.odd_authorization(),
            _ => format!("Bearer {}", *APPROVER).into_bytes(),
        };
        if self.random.u32(..4) == 0 {
            let query = self.pick(
                &["", "?limit=2", "?limit=200"],
                &["?", "?limit=0", "?cursor=%ff", "?limit=2&limit=2", "?cursor=256.0", "?a=b"],
            );
            let request = Request::get(&format!("/api/approvals{query}"));
            return self.dress(request.header("authorization", authorization));
        }
        let id = match self.random.u32(0..6) {
            0 => {
                self.pick(&["0"], &["..", "%00", "ffffffffffffffffffffffffffff", "%2e"]).to_owned()
            }
            _ => self.waiting[self.random.usize(..self.waiting.len())].clone(),
        };
        let mut body = match self.random.u32(0..12) {
            0 => self.bytes(200),
            1 => Vec::new(),
            2 => "[".repeat(self.random.usize(..60_000)).into_bytes(),
            3 => json!({"decision": self.odd_value()}).to_string().into_bytes(),
            4 => {
                json!({"decision": "approve", "reason": self.odd_value()}).to_string().into_bytes()
            }
            5 => br#"{"decision":"approve","decision":"deny"}"#.to_vec(),
            6 => json!({"decision": "deny"}).to_string().into_bytes(),
            _ => json!({"decision": "approve", "reason": self.odd_text()}).to_string().into_bytes(),
        };
        if self.random.u32(..4) == 0 {
            self.bend(&mut body);
        }
        let request = Request::post(&format!("/api/approvals/{id}"));
        let request = request.header("authorization", authorization);
        self.dress(request.header("content-type", "application/json").body(body))
    }

    /// A request of any method to any path, ours or not, with any body.
    fn anything(&mut self) -> Request {
        let method = self.pick(
            &["GET", "POST"],
            &["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"],
        );
        let path = self.pick(
            &[
                "/oidc/token",
                "/api/subject-tokens",
                "/oidc/jwks",
                "/oidc/.well-known/openid-configuration",
            ],
            &[
                "/",
                "*",
                "//oidc/token",
                "/oidc/token/..",
                "/oidc/token%00",
                "/oidc/jwks?%ff",
                "/oidc/jw\u{fe}ks",
                "?",
                "/api",
            ],
        );
        let mut request = Request::new(method, path);
        if self.random.bool() {
            let body = self.bytes(500);
            request = if self.random.bool() {
                request.body(body)
            } else {
                request.pieces(body.chunks(7).map(Into::into).collect(), &[("x-last", "1")])
            };
        }
        self.dress(request)
    }

    fn large(&mut self) -> Request {
        let length = self.random.usize(60_000..200_000);
        let filling =
            vec![self.pick(&["a"], &["%", "&", "[", "\u{0}", "=", "%41"]).as_bytes()[0]; length];
        match self.random.u32(0..4) {
            0 => Request::post("/api/subject-tokens")
                .bearer(&BEARER)
                .header("content-type", "application/json")
                .body(filling),
            1 => Request::post("/api/subject-tokens")
                .bearer(&BEARER)
                .json(&json!({"userId": "u", "context": {"a": "x".repeat(length / 3)}})),
            2 => form_request(
                &[
                    b"grant_type=",
                    urlencode(EXCHANGE_GRANT.as_bytes()).as_bytes(),
                    b"&subject_token=sub_",
                    &filling,
                ]
                .concat(),
            ),
            _ => form_request(&filling),
        }
    }

    /// Adds header fields that a good request does not need.
    fn dress(&mut self, mut request: Request) -> Request {
        for _ in 0..self.random.u32(0..3) {
            let value = self.header_bytes();
            request = match self.random.u32(0..8) {
                0 => request.header("x-odd", value),
                1 => request.header("cookie", value),
                2 => request.header("origin", value),
                3 => request.header("x-request-id", value),
                4 => request.header("content-encoding", value),
                5 => request.header("traceparent", value),
                6 => request.header("accept", value),
                _ => request.header("x-forwarded-for", value),
            };
        }
        request
    }

    fn good_form(&mut self) -> Form {
        let token = self.a_subject_token();
        let form = exchange_form(&token);
        if self.random.u32(..4) == 0 {
            with_actor(form, &PROVIDER_KEY.sign(&actor_claims("agent-1")))
        } else {
            form
        }
    }

    fn a_subject_token(&mut self) -> String {
        self.tokens[self.random.usize(..self.tokens.len())].clone()
    }

    fn odd_authorization(&mut self) -> Vec<u8> {
        match self.random.u32(0..6) {
            0 => self.header_bytes(),
            1 => [b"Bearer ".to_vec(), self.header_bytes()].concat(),
            2 => [b"Basic ".to_vec(), self.header_bytes()].concat(),
            3 => format!("Basic {}", STANDARD.encode(self.bytes(40))).into_bytes(),
            _ => format!(
                "Bearer {}",
                self.odd_token().replace(|c: char| c.is_control() || !c.is_ascii(), "")
            )
            .into_bytes(),
        }
    }

    /// Text in the place of a JWT or a subject token.
    fn odd_token(&mut self) -> String {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self.random.u32(0..12) {
            0 => "sub_".into(),
            1 => format!("sub_{}", part(&self.bytes(80))),
            2 => {
                let mut token = self.a_subject_token().into_bytes();
                self.bend(&mut token);
                String::from_utf8_lossy(&token).into_owned()
            }
            3 => format!(
                "{}.{}.{}",
                part(&self.bytes(30)),
                part(&self.bytes(60)),
                part(&self.bytes(80))
            ),
            4 => unsigned(&self.odd_value(), &self.odd_value()) + "." + &part(&self.bytes(70)),
            5 => ".".repeat(self.random.usize(..2000)),
            6 => {
                let header = json!({"alg": self.odd_value(), "kid": self.odd_value(), "typ": self.odd_value()});
                PROVIDER_KEY.sign_with(&header, &backend_claims())
            }
            7 => {
                let mut claims = backend_claims();
                let name =
                    self.pick(&["scope", "aud"], &["exp", "nbf", "iss", "sub", "scp", "iat"]);
                claims[name] = self.odd_value();
                PROVIDER_KEY.sign(&claims)
            }
            8 => {
                let mut token = BEARER.clone().into_bytes();
                self.bend(&mut token);
                String::from_utf8_lossy(&token).into_owned()
            }
            9 => {
                part(br#"{"alg":"RS256"}"#)
                    + "."
                    + &part("{\"a\":".repeat(self.random.usize(..3000)).as_bytes())
                    + ".AAAA"
            }
            10 => ACCESS_TOKEN.into(),
            _ => self.odd_text(),
        }
    }

    fn odd_text(&mut self) -> String {
        match self.random.u32(0..9) {
            0 => String::new(),
            1 => "a\r\nset-cookie: x=1\r\n\r\n{\"event\":\"forged\"}".into(),
            2 => "\u{0}\u{7f}\u{85}\u{2028}\u{feff}\u{1F600}".into(),
            3 => "\"},{\"event\":\"forged\\".into(),
            4 => "%s%n%x{}{:?}${jndi:ldap://x}".into(),
            5 => "x".repeat(self.random.usize(..5000)),
            6 => self
                .pick(
                    &["-1", "0"],
                    &["1e999", "NaN", "null", "true", "../../etc/passwd", " ", "\t"],
                )
                .into(),
            _ => (0..self.random.usize(..40)).map(|_| self.random.char(..)).collect(),
        }
    }

    fn odd_value(&mut self) -> Value {
        match self.random.u32(0..9) {
            0 => Value::Null,
            1 => json!(self.random.bool()),
            2 => json!(self.random.i64(..)),
            3 => json!(self.random.f64() * 1e300),
            4 => json!([self.odd_text(), -1, {}]),
            5 => json!({self.odd_text(): [[[[]]]]}),
            6 => json!(u64::MAX),
            _ => json!(self.odd_text()),
        }
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.random.usize(..most)).map(|_| self.random.u8(..)).collect()
    }

    /// Bytes that may stand in a header: all but control characters, UTF-8 or not.
    fn header_bytes(&mut self) -> Vec<u8> {
        let allowed = |byte: &u8| matches!(byte, b'!'..=b'~' | 0x80..);
        self.bytes(60).into_iter().filter(allowed).collect()
    }

    /// Changes, removes, doubles or adds one to four bytes.
    fn bend(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.random.u32(1..5) {
            if bytes.is_empty() {
                return;
            }
            let place = self.random.usize(..bytes.len());
            match self.random.u32(0..4) {
                0 => bytes[place] = self.random.u8(..),
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, self.random.u8(..)),
                _ => bytes.insert(place, bytes[place]),
            }
        }
    }

    /// Picks one of the usual values half of the time, else one of the odd ones.
    fn pick(&mut self, usual: &[&'static str], odd: &[&'static str]) -> &'static str {
        let from = if self.random.bool() { usual } else { odd };
        from[self.random.usize(..from.len())]
    }
}

fn form_request(body: &[u8]) -> Request {
    Request::post("/oidc/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

fn exchange(connection: &mut Connection, shot: &Shot) -> io::Result<Answer> {
    connection.write(&shot.bytes)?;
    connection.read_answer(&shot.method)
}

/// Returns the connection, unless Envoy will close it.
fn reusable(connection: Connection, answer: &Answer) -> Option<Connection> {
    (answer.header("connection") != Some("close")).then_some(connection)
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().chars().take(3000).collect()
}
