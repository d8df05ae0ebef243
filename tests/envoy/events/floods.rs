//! Floods of events: nobody ends other people's work by volume. One account signs out without end,
//! or a sender tells of people who impersonate nobody. Each flood is larger than the room for
//! events.

use std::sync::LazyLock;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use testkit::bootstrap::{Cluster, Filter};
use testkit::configuration::{Configuration, ISSUER, SUPPORT, jwks};
use testkit::etcd::Etcd;
use testkit::events::{
    CAEP, PORTAL, RECEIVER, event_claims, event_request, logout_claims, logout_request, receiving,
};
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_request, now, with_actor,
};
use testkit::guarded::{
    API, Guarded, connect, filter_configuration, guard_configuration, guarded_listener,
};
use testkit::http::{Answer, Request};
use testkit::keys::Key;
use testkit::server::{Server, as_asked};
use testkit::wait_for;

const PARTNER: &str = "https://partner.example.com";

/// A key of both issuers, whose signatures cost little.
static KEY: LazyLock<Key> = LazyLock::new(|| Key::generate(Algorithm::ES256, "flood-1"));

/// More events than there is room for.
const FLOOD: usize = 8400;

/// Two issuers of actor tokens, each of which sends events, too.
fn configuration() -> Configuration {
    let entries = |members: &Value| {
        let entry = |issuer: &str, prefix: &str| {
            let mut entry = members.clone();
            entry["issuer"] = json!(issuer);
            entry["name_prefix"] = json!(prefix);
            entry["local_jwks"] = jwks(&[&KEY]);
            entry
        };
        json!([entry(ISSUER, ""), entry(PARTNER, "partner:")])
    };
    receiving(filter_configuration())
        .with("/actor_tokens/jwt", entries(&json!({"audiences": [SUPPORT]})))
        .with("/impersonations/back_channel_logout", entries(&json!({"audiences": [PORTAL]})))
        .with("/impersonations/security_events", entries(&json!({"audiences": [RECEIVER]})))
}

fn start(configuration: &Configuration, guard: &Value, clusters: Vec<Cluster>) -> Guarded {
    let api = Server::start(API);
    api.answer(as_asked);
    let listener = guarded_listener(guard);
    let bootstrap = Guarded::bootstrap_with(listener, Filter::from(configuration), api.address);
    let bootstrap = clusters.into_iter().fold(bootstrap, |bootstrap, one| bootstrap.cluster(one));
    Guarded { envoy: bootstrap.workers(2).start(), api }
}

fn shared() -> &'static Guarded {
    static SHARED: LazyLock<Guarded> =
        LazyLock::new(|| start(&configuration(), &guard_configuration(&json!({})), Vec::new()));
    &SHARED
}

/// Guard and filter with an etcd.
fn with_etcd(etcd: &Etcd) -> Guarded {
    let store = json!({"etcd": {"cluster": "etcd"}});
    let mut guard = guard_configuration(&json!({}));
    guard["store"] = store.clone();
    let cluster = Cluster::new("etcd", etcd.address).with("connect_timeout", "0.25s").http2();
    start(&configuration().with("/store", store), &guard, vec![cluster])
}

fn unique(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

/// Begins an impersonation by an actor of this issuer, who signed in at that time. Returns its
/// access token.
fn begin(guarded: &Guarded, issuer: &str, actor: &str, signed_in_at: u64) -> String {
    let minted = guarded.send_to_filter(&mint_request(&unique("user")));
    assert_eq!(minted.status, 201, "{minted:?}");
    let mut claims = actor_claims(actor);
    claims["iss"] = json!(issuer);
    claims["sid"] = json!(unique("session"));
    claims["iat"] = json!(signed_in_at);
    let form = with_actor(exchange_form(&minted.member("subjectToken")), &KEY.sign(&claims));
    let exchanged = guarded.send_to_filter(&exchange_request(&form));
    assert_eq!(exchanged.status, 200, "{exchanged:?}");
    let access_token = exchanged.member("access_token");
    wait_for("the guard to pass it", || passes(guarded, &access_token).then_some(()));
    access_token
}

/// Returns true if the guard lets a request pass.
fn passes(guarded: &Guarded, access_token: &str) -> bool {
    match guarded.send_as(access_token, Request::get("/orders")).status {
        200 => true,
        401 | 503 => false,
        status => panic!("{status}"),
    }
}

fn sign(r#type: &str, issuer: &str, mut claims: Value) -> String {
    claims["iss"] = json!(issuer);
    KEY.sign_with(&json!({"alg": KEY.alg, "kid": KEY.kid, "typ": r#type}), &claims)
}

/// The logout of one of an account's sessions, which has a new `sid`.
fn logout_of(account: &str) -> Request {
    let mut claims = logout_claims(&unique("sid"));
    claims["sub"] = json!(account);
    logout_request(&sign("logout+jwt", ISSUER, claims))
}

/// An event of the partner about somebody who impersonates nobody.
fn about_nobody(issuer_of_subject: &str) -> Request {
    let mut claims = event_claims(&format!("{CAEP}session-revoked"), &json!({}), "");
    let nobody = unique("nobody");
    claims["sub_id"] = json!({"format": "iss_sub", "iss": issuer_of_subject, "sub": nobody});
    event_request(&sign("secevent+jwt", PARTNER, claims))
}

/// Sends many requests at once. Returns the answers that are not of this status.
fn flood(
    guarded: &Guarded,
    number: usize,
    status: u16,
    request: impl Fn() -> Request + Sync,
) -> Vec<Answer> {
    const CONNECTIONS: usize = 6;
    std::thread::scope(|scope| {
        let send = || {
            let mut connection = connect(&guarded.envoy, "gateway");
            let answers = (0..number.div_ceil(CONNECTIONS)).map(|_| connection.send(&request()));
            answers.filter(|answer| answer.status != status).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(send)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn one_accounts_logouts_end_only_its_own_work() {
    let (guarded, account) = (shared(), unique("account"));
    let victim = begin(guarded, ISSUER, &unique("agent"), now() - 10);
    let of_account = begin(guarded, ISSUER, &account, now() - 10);
    let refused = flood(guarded, FLOOD, 200, || logout_of(&account));
    assert!(refused.is_empty(), "{:?}", refused.first());
    assert!(passes(guarded, &victim));
    assert!(!passes(guarded, &of_account), "another session of the same account");
}

#[test]
fn a_senders_flood_ends_only_its_own_peoples_work() {
    let guarded = shared();
    let victim = begin(guarded, ISSUER, &unique("agent"), now() - 10);
    let of_partner = begin(guarded, PARTNER, &unique("agent"), now() - 10);
    let refused = flood(guarded, FLOOD, 202, || about_nobody(PARTNER));
    assert!(refused.is_empty(), "{:?}", refused.first());
    assert!(guarded.envoy.metric("impersonation_events_overflowed_total") > Some(0), "the alarm");
    assert!(passes(guarded, &victim));
    assert!(!passes(guarded, &of_partner), "the older half of the partner's work");
    begin(guarded, PARTNER, &unique("agent"), now() + 1);
}

/// A partner may end what a person of another issuer does, and by volume nothing.
#[test]
fn a_flood_about_another_issuers_people_is_refused() {
    let guarded = shared();
    let victim = begin(guarded, ISSUER, &unique("agent"), now() - 10);
    let refused = flood(guarded, 1500, 202, || about_nobody(ISSUER));
    assert!(!refused.is_empty());
    for answer in &refused {
        assert_eq!((answer.status, answer.member("err")), (503, "temporarily_unavailable".into()));
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    assert!(passes(guarded, &victim));
    // Their own issuer is heard all the same.
    let account = unique("account");
    let of_account = begin(guarded, ISSUER, &account, now() - 10);
    let mut claims = event_claims(&format!("{CAEP}session-revoked"), &json!({}), &account);
    claims["sub_id"]["iss"] = json!(ISSUER);
    let told = guarded.send_to_filter(&event_request(&sign("secevent+jwt", ISSUER, claims)));
    assert_eq!(told.status, 202, "{told:?}");
    assert!(!passes(guarded, &of_account));
}

/// The number of keys of revocations in etcd.
fn keys(etcd: &Etcd) -> usize {
    etcd.keys().iter().filter(|key| key.contains("/revocations/")).count()
}

#[test]
fn with_etcd_a_flood_ends_no_others_work_and_leaves_few_keys() {
    let etcd = Etcd::start();
    let (guarded, account) = (with_etcd(&etcd), unique("account"));
    let begin = |issuer, actor: &str| begin(&guarded, issuer, actor, now() - 10);
    let victim = begin(ISSUER, &unique("agent"));
    let of_partner = begin(PARTNER, &unique("agent"));
    let of_account = begin(ISSUER, &account);
    let refused = flood(&guarded, 200, 200, || logout_of(&account));
    assert!(refused.is_empty(), "{:?}", refused.first());
    assert!(keys(&etcd) < 60, "{}", keys(&etcd));
    assert!(!passes(&guarded, &of_account), "another session of the same account");
    assert!(passes(&guarded, &victim) && passes(&guarded, &of_partner));
    let refused = flood(&guarded, FLOOD / 2, 202, || about_nobody(PARTNER));
    assert!(refused.is_empty(), "{:?}", refused.first());
    assert!(guarded.envoy.metric("impersonation_events_overflowed_total") > Some(0), "the alarm");
    assert!(keys(&etcd) < 3000, "{}", keys(&etcd));
    assert!(!passes(&guarded, &of_partner), "the older half of the partner's work");
    assert!(passes(&guarded, &victim));
}
