//! Events of the identity gateway, beside exchanges of the actor whom they name, and very many of
//! them.
//!
//! A race has two Envoys with two workers each, and one etcd. An event about an actor is sent while
//! several exchanges of this actor are under way. Whatever the order:
//!
//! - Impersonations by an actor token of before the event have ended, in both Envoys.
//! - Those by an actor token of the next sign-in have ended if the exchange was answered before the
//!   event was sent, and are live if it was sent after the event was answered.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{join, join_all};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use testkit::Findings;
use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::client::{Answer, Client};
use testkit::configuration::{CLIENT_SECRET, Configuration, ISSUER, jwks};
use testkit::envoy::Envoy;
use testkit::etcd::Etcd;
use testkit::events::{
    CAEP, LOGOUT, PORTAL, RECEIVER, event_claims, event_request, logout_request, receiving,
    unique_jti,
};
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_body_request, now, with_actor,
};
use testkit::guarded::filter_configuration;
use testkit::http::{Form, Request};
use testkit::keys::Key;
use tokio::runtime;

use crate::from_environment;

/// The exchanges of one actor beside one event: half of them with actor tokens of before the event,
/// half with those of the next sign-in.
const AT_ONCE: usize = 8;

/// A key whose signatures cost little.
fn sender_key() -> Key {
    Key::generate(Algorithm::ES256, "sender-1")
}

/// The configuration of a filter whose identity gateway signs with this key.
fn configuration(key: &Key) -> Configuration {
    let keys = jwks(&[key]);
    receiving(filter_configuration())
        .with("/actor_tokens/jwt/0/local_jwks", keys.clone())
        .with("/impersonations/back_channel_logout/0/local_jwks", keys.clone())
        .with("/impersonations/security_events/0/local_jwks", keys)
}

fn gateway(configuration: &Configuration) -> Bootstrap {
    let listener = Listener::new("gateway").filter(Filter::from(configuration));
    Bootstrap::default().listener(listener.answer("/", "not ours").keeps_connections()).workers(2)
}

fn sign(key: &Key, r#type: &str, claims: &Value) -> String {
    key.sign_with(&json!({"alg": key.alg, "kid": key.kid, "typ": r#type}), claims)
}

fn actor_token(key: &Key, actor: &str, issued_at: u64) -> String {
    let mut claims = actor_claims(actor);
    claims["iat"] = json!(issued_at);
    key.sign(&claims)
}

fn introspection(token: &str) -> Vec<u8> {
    Request::post("/oidc/token/introspection")
        .header("content-type", "application/x-www-form-urlencoded")
        .basic("support-robot", &CLIENT_SECRET)
        .body(Form::default().set("token", token).encode())
        .to_bytes()
}

/// Returns true if an Envoy says that an access token is good.
async fn is_active(client: &mut Client, access_token: &str) -> bool {
    let request = introspection(access_token);
    loop {
        let answer = client.send(&request).await;
        if answer.is_unavailable() {
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.body.escape_ascii());
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        return body["active"].as_bool().unwrap();
    }
}

/// The sign-in that an exchange was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SignIn {
    Before,
    Next,
}

/// The order of an exchange and the event, as far as their callers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// The exchange was answered before the event was sent.
    Before,
    Beside,
    /// The exchange was sent after the event was answered.
    After,
}

/// Two Envoys of two workers each, with one store.
struct Race {
    key: Key,
    envoys: [Envoy; 2],
    clients: Vec<Client>,
    sender: Client,
    /// The number of exchanges by sign-in, order, status, and whether the impersonation is live.
    outcomes: BTreeMap<(SignIn, Order, u16, bool), usize>,
    findings: Findings,
}

impl Race {
    /// One event beside the exchanges of its actor.
    async fn round(&mut self, number: usize) {
        let actor = format!("agent-{number}");
        let mut tokens = Vec::with_capacity(AT_ONCE);
        for client in &mut self.clients {
            let mint = mint_body_request(&json!({"userId": "u-1"})).to_bytes();
            tokens.push(client.send(&mint).await.member("subjectToken").unwrap());
        }
        // The event's own time, in milliseconds. The actor tokens are older by a second at least,
        // or of a sign-in in the next second, whose clock is the sender's.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let event_at = since_epoch.as_secs();
        let event = json!({"event_timestamp": since_epoch.as_secs_f64()});
        let claims = event_claims(&format!("{CAEP}session-revoked"), &event, &actor);
        let event = event_request(&sign(&self.key, "secevent+jwt", &claims)).to_bytes();
        let sign_ins = [SignIn::Before, SignIn::Next];
        let requests: Vec<_> = tokens
            .iter()
            .zip(sign_ins.iter().cycle())
            .map(|(token, sign_in)| {
                let issued_at = event_at - 1 + 2 * u64::from(*sign_in == SignIn::Next);
                let actor_token = actor_token(&self.key, &actor, issued_at);
                exchange_request(&with_actor(exchange_form(token), &actor_token)).to_bytes()
            })
            .collect();
        // An exchange takes two to five milliseconds here, an event a little less.
        let pause = || std::time::Duration::from_micros(fastrand::u64(..6000));
        let exchanges = self.clients.iter_mut().zip(&requests).map(|(client, request)| {
            let pause = pause();
            async move {
                tokio::time::sleep(pause).await;
                let sent = Instant::now();
                let answer = client.send(request).await;
                (sent, Instant::now(), answer)
            }
        });
        let (sender, told_after) = (&mut self.sender, pause());
        let telling = async {
            tokio::time::sleep(told_after).await;
            let sent = Instant::now();
            let mut answer = sender.send(&event).await;
            while answer.status == 503 {
                answer = sender.send(&event).await;
            }
            (sent, Instant::now(), answer)
        };
        let (exchanged, (sent, answered, told)) = join(join_all(exchanges), telling).await;
        self.findings.expect(format!("the event about {actor}"), &told.status, &202);
        for ((exchange, sign_in), index) in exchanged.iter().zip(sign_ins.iter().cycle()).zip(0..) {
            let (began, ended, answer) = exchange;
            let order = match () {
                () if *ended < sent => Order::Before,
                () if *began > answered => Order::After,
                () => Order::Beside,
            };
            self.judge(index, (*sign_in, order), answer).await;
        }
    }

    async fn judge(&mut self, index: usize, kind: (SignIn, Order), answer: &Answer) {
        let mut live = false;
        if let Some(token) = answer.member("access_token") {
            let [one, other] = self.clients.get_disjoint_mut([0, 2]).unwrap();
            let both = [is_active(one, &token).await, is_active(other, &token).await];
            self.findings.expect(format!("{kind:?}: both Envoys agree"), &both[0], &both[1]);
            live = both[0];
        }
        *self.outcomes.entry((kind.0, kind.1, answer.status, live)).or_default() += 1;
        let is_right = match (kind, answer.status) {
            // Nothing of the old sign-in is live, and none of its exchanges succeeds later.
            ((SignIn::Before, Order::After), status) => status == 400,
            ((SignIn::Before, _), 200 | 400 | 503) => !live,
            ((SignIn::Next, Order::Before), 200) => !live,
            ((SignIn::Next, Order::After), status) => status == 200 && live,
            // Its access token would have ended in this very moment: 503.
            ((SignIn::Next, Order::Beside), 200 | 503) => true,
            _ => false,
        };
        if !is_right {
            let body = answer.body.escape_ascii();
            self.findings.add(format!("{kind:?} {index}: {} {live} {body}", answer.status));
        }
    }
}

#[test]
fn whatever_was_issued_until_an_event_ends_whatever_the_order() {
    let exchanges = from_environment("EVENT_RACE_EXCHANGES", 400);
    let (etcd, key) = (Etcd::start(), sender_key());
    let configuration = configuration(&key).with("/store", json!({"etcd": {"cluster": "etcd"}}));
    let envoys = [(); 2].map(|()| {
        let cluster = Cluster::new("etcd", etcd.address).http2();
        gateway(&configuration).cluster(cluster).start()
    });
    envoys.iter().for_each(|envoy| envoy.set_log_level("wasm", "error"));
    let address = |index: usize| envoys[index % 2].address("gateway");
    let clients = (0..AT_ONCE).map(|index| Client::new(address(index / 2))).collect();
    let sender = Client::new(address(1));
    let (outcomes, findings) = Default::default();
    let mut race = Race { key, clients, sender, envoys, outcomes, findings };
    let began = Instant::now();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..exchanges.div_ceil(AT_ONCE) {
            race.round(number).await;
        }
    });
    println!("{exchanges} exchanges beside events in {:.0?}:", began.elapsed());
    for ((sign_in, order, status, live), count) in &race.outcomes {
        let live = if *live { "live" } else { "" };
        println!("  sign-in {sign_in:?}, exchange {order:?}: {status} {live} {count}");
    }
    for envoy in &race.envoys {
        race.findings.expect("the same process", &envoy.is_running(), &true);
    }
    let of = |sign_in| {
        let all = race.outcomes.iter().filter(|((of, ..), _)| *of == sign_in);
        all.map(|(_, count)| count).sum::<usize>()
    };
    race.findings.expect("of each sign-in", &of(SignIn::Before), &of(SignIn::Next));
}

/// Events that nobody has asked for, one for each ordinary user who leaves, and junk between them.
/// The memory of Envoy stays flat, and a repetition ends nothing that began since.
#[test]
fn a_flood_of_events_and_of_junk_leaves_memory_flat() {
    let events = from_environment("FLOOD_EVENTS", 3000);
    let key = sender_key();
    let envoy = gateway(&configuration(&key)).start();
    envoy.set_log_level("wasm", "error");
    let address = envoy.address("gateway");
    let mut clients: Vec<_> = (0..16).map(|_| Client::new(address)).collect();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut findings = Findings::default();

    let actor = "agent-of-the-flood";
    let begin = async |client: &mut Client, issued_at: u64| {
        let mint = mint_body_request(&json!({"userId": "u-1"})).to_bytes();
        let token = client.send(&mint).await.member("subjectToken").unwrap();
        let form = with_actor(exchange_form(&token), &actor_token(&key, actor, issued_at));
        client.send(&exchange_request(&form).to_bytes()).await.member("access_token").unwrap()
    };
    let event_at = now() - 5;
    let mut claims = event_claims(&format!("{CAEP}session-revoked"), &json!({}), actor);
    claims["iat"] = json!(event_at);
    let first = event_request(&sign(&key, "secevent+jwt", &claims)).to_bytes();
    let old = runtime.block_on(begin(&mut clients[0], event_at - 1));
    let told = runtime.block_on(clients[0].send(&first));
    findings.expect("the first event", &told.status, &202);
    findings.expect("it ends", &runtime.block_on(is_active(&mut clients[0], &old)), &false);

    let request = |number: usize| -> (u16, Vec<u8>) {
        let logout = |key: &Key| {
            let claims = json!({
                "iss": ISSUER, "aud": PORTAL, "iat": now(), "exp": now() + 120,
                "jti": unique_jti(), "sub": format!("user-{number}"), "events": {LOGOUT: {}},
            });
            sign(key, "logout+jwt", &claims)
        };
        match number % 8 {
            0 => (400, logout_request("a.b.c").to_bytes()),
            1 => {
                let token = logout(&key);
                let (signed, _) = token.rsplit_once('.').unwrap();
                (400, logout_request(&format!("{signed}.AAAA")).to_bytes())
            }
            2 => {
                let nothing = json!({
                    "iss": ISSUER, "aud": RECEIVER, "iat": now(), "jti": unique_jti(),
                    "events": {"urn:example:nothing": {}},
                });
                (202, event_request(&sign(&key, "secevent+jwt", &nothing)).to_bytes())
            }
            _ => (200, logout_request(&logout(&key)).to_bytes()),
        }
    };
    let mut sizes = Vec::new();
    let began = Instant::now();
    for part in 0..8 {
        let part = events / 8 * part..events / 8 * (part + 1);
        let each = part.len().div_ceil(clients.len());
        let flood = clients.iter_mut().zip(0..).map(|(client, share): (_, usize)| {
            let share = part.start + each * share..(part.start + each * (share + 1)).min(part.end);
            let request = &request;
            async move {
                let mut wrong = Vec::new();
                for number in share {
                    let (status, request) = request(number);
                    let answer = client.send(&request).await;
                    if answer.status != status {
                        wrong.push(format!("{number}: {} for {status}", answer.status));
                    }
                }
                wrong
            }
        });
        let wrong = runtime.block_on(join_all(flood)).concat();
        wrong.into_iter().take(10).for_each(|one| findings.add(one));
        sizes.push(envoy.resident_bytes());
    }
    let mebibytes: Vec<_> = sizes.iter().map(|bytes| bytes >> 20).collect();
    let rate = events as f64 / began.elapsed().as_secs_f64();
    println!("{events} events, {rate:.0} a second; resident MiB: {mebibytes:?}");
    let turned_over = events > 200_000;
    if turned_over {
        // Half of the flood has filled the memory of ids and the room for events.
        findings.expect("flat", &(sizes[7] <= sizes[3] + sizes[3] / 20), &true);
        let overflowed = envoy.metric("impersonation_events_overflowed_total");
        findings.expect("the room was used up", &(overflowed > Some(0)), &true);
    }
    // The actor signs in again. The sender repeats the first event, and then all that it can.
    let new = runtime.block_on(begin(&mut clients[0], now() + 1));
    for _ in 0..3 {
        let told = runtime.block_on(clients[1].send(&first));
        findings.expect("the repetition", &told.status, &202);
    }
    findings.expect("still live", &runtime.block_on(is_active(&mut clients[1], &new)), &true);
    findings.expect("the same process", &envoy.is_running(), &true);
}
