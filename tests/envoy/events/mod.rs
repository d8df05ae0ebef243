//! Impersonations end by themselves: by logout tokens and security events of the identity gateway.
//! Each event meets an impersonation that is under way. The guard shows whether it has ended.
//!
//! Most tests share one Envoy, and each of them ends only what it has begun.

mod floods;
mod forms;
mod kinds;
mod logout_token;
mod security_event;
mod step_up;

use std::sync::LazyLock;

use serde_json::{Value, json};

use testkit::bootstrap::Filter;
use testkit::configuration::PROVIDER_KEY;
use testkit::events::receiving;
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_request, now, with_actor,
};
use testkit::guarded::{API, Guarded, filter_configuration, guard_configuration, guarded_listener};
use testkit::http::{Answer, Request};
use testkit::server::{Server, as_asked};
use testkit::{Findings, wait_for};

fn shared() -> &'static Guarded {
    static SHARED: LazyLock<Guarded> = LazyLock::new(|| {
        let api = Server::start(API);
        api.answer(as_asked);
        let filter = Filter::from(&receiving(filter_configuration()));
        let listener = guarded_listener(&guard_configuration(&json!({})));
        let bootstrap = Guarded::bootstrap_with(listener, filter, api.address);
        Guarded { envoy: bootstrap.workers(2).start(), api }
    });
    &SHARED
}

/// An impersonation that is under way, and the names in it that no other has.
struct Live {
    user: String,
    actor: String,
    sid: String,
    access_token: String,
}

impl Live {
    /// Begins an impersonation, from an actor token of a sign-in ten seconds ago.
    fn begin() -> Self {
        let unique = |name: &str| format!("{name}-{:016x}", fastrand::u64(..));
        let (user, actor, sid) = (unique("user"), unique("agent"), unique("session"));
        let answer = exchange(&mint(&user), &actor_token(&actor, &sid, now() - 10));
        assert_eq!(answer.status, 200, "{answer:?}");
        Self { user, actor, sid, access_token: answer.member("access_token") }
    }

    fn status(&self) -> u16 {
        shared().send_as(&self.access_token, Request::get("/orders")).status
    }

    fn has_ended(&self) -> bool {
        match self.status() {
            200 => false,
            401 => true,
            status => panic!("{status}"),
        }
    }
}

fn mint(user: &str) -> String {
    let answer = shared().send_to_filter(&mint_request(user));
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.member("subjectToken")
}

/// The token of an actor who signed in at that time.
fn actor_token(actor: &str, sid: &str, issued_at: u64) -> String {
    let mut claims = actor_claims(actor);
    claims["sid"] = json!(sid);
    claims["iat"] = json!(issued_at);
    PROVIDER_KEY.sign(&claims)
}

fn exchange(subject_token: &str, actor_token: &str) -> Answer {
    let form = with_actor(exchange_form(subject_token), actor_token);
    shared().send_to_filter(&exchange_request(&form))
}

/// The value with changes. A member that a change sets to null is removed; a member that it sets to
/// `"null"` is null.
fn changed(mut value: Value, changes: &Value) -> Value {
    let members = value.as_object_mut().unwrap();
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => drop(members.remove(name)),
            Value::String(text) if text == "null" => {
                drop(members.insert(name.clone(), Value::Null))
            }
            change => drop(members.insert(name.clone(), change.clone())),
        }
    }
    value
}

/// Returns the audit line of the event with this `jti`.
fn audited(jti: &str) -> Value {
    wait_for("the audit line", || {
        shared().envoy.log().lines().find_map(|line| {
            let line = &line[line.find("{\"event\"")?..];
            let line =
                serde_json::Deserializer::from_str(line).into_iter::<Value>().next()?.ok()?;
            (line["event_id"] == jti).then_some(line)
        })
    })
}
