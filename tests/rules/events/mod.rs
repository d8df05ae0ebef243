//! Impersonations end by themselves: by logout tokens and security events of the identity gateway.
//! Each event meets an impersonation that is under way.

mod forms;
mod logout_token;
mod outcomes;
mod security_event;

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::PROVIDER_KEY;
use testkit::events::receiving;
use testkit::gateway::{actor_claims, exchange_form, mint_request, minted, now, with_actor};
use testkit::guarded::filter_configuration;
use testkit::http::Answer;
use testkit::impersonations::{introspection, unique};

fn start() -> World {
    World::start(&receiving(filter_configuration()))
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
    fn begin(world: &World) -> Self {
        Self::begin_after(world, now() - 10)
    }

    /// Begins an impersonation, from an actor token that was issued at that time.
    fn begin_after(world: &World, issued_at: u64) -> Self {
        let (user, actor, sid) = (unique("user"), unique("agent"), unique("session"));
        let actor_token = actor_token(&actor, &sid, issued_at);
        let answer = exchange(world, &mint(world, &user), &actor_token);
        assert_eq!(answer.status, 200, "{answer:?}");
        Self { user, actor, sid, access_token: answer.member("access_token") }
    }

    fn has_ended(&self, world: &World) -> bool {
        let answer = world.send(&introspection(&self.access_token));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["active"] == false
    }
}

fn mint(world: &World, user: &str) -> String {
    minted(&world.send(&mint_request(user)))
}

/// The token of an actor who signed in at that time.
fn actor_token(actor: &str, sid: &str, issued_at: u64) -> String {
    let mut claims = actor_claims(actor);
    claims["sid"] = json!(sid);
    claims["iat"] = json!(issued_at);
    PROVIDER_KEY.sign(&claims)
}

fn exchange(world: &World, subject_token: &str, actor_token: &str) -> Answer {
    world.exchange(&with_actor(exchange_form(subject_token), actor_token))
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
fn audited(world: &World, jti: &str) -> Value {
    let lines = world.audit();
    lines.into_iter().find(|line| line["event_id"] == jti).expect("the audit line")
}
