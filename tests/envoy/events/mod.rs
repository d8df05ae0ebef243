//! Events of the identity gateway before filter and guard. The rules of logout tokens and security
//! events are in `tests/rules/events`.

mod floods;
mod kinds;

use std::sync::LazyLock;

use serde_json::json;

use testkit::bootstrap::Filter;
use testkit::configuration::PROVIDER_KEY;
use testkit::events::receiving;
use testkit::gateway::{
    actor_claims, exchange_form, exchange_request, mint_request, now, with_actor,
};
use testkit::guarded::{API, Guarded, filter_configuration, guard_configuration, guarded_listener};
use testkit::http::{Answer, Request};
use testkit::server::{Server, as_asked};

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
        Self { actor, sid, access_token: answer.member("access_token") }
    }

    fn has_ended(&self) -> bool {
        match shared().send_as(&self.access_token, Request::get("/orders")).status {
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
