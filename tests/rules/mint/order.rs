//! The order of the checks of a mint. docs/who-may-impersonate-whom.md has the table of these
//! checks: `make docs` writes it.

use serde_json::{Value, json};

use crate::world::World;
use testkit::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks};
use testkit::gateway::mint_body_request;
use testkit::generated::{between, hold};
use testkit::http::Request;
use testkit::server::Reply;
use testkit::services::http_uri_of;

/// A check of a mint, and a fault that it finds.
struct Check {
    /// The row of the page.
    text: &'static str,
    /// The reason of the refusal in the audit log.
    reason: &'static str,
    /// Mends the fault.
    mend: fn(&World, &mut Asked),
}

/// A request that mints.
struct Asked {
    has_token: bool,
    body: Value,
}

impl Asked {
    fn without(&mut self, member: &str) {
        self.body.as_object_mut().unwrap().remove(member);
    }

    fn request(&self) -> Request {
        match self.has_token {
            true => mint_body_request(&self.body),
            false => Request::post("/api/subject-tokens").json(&self.body),
        }
    }
}

/// The checks in their order.
const CHECKS: &[Check] = &[
    Check {
        text: "The backend's access token: issuer, audience, scope, `client_ids`, and a name that \
               cannot be mistaken for another issuer's",
        reason: "bearer_missing",
        mend: |_, asked| asked.has_token = true,
    },
    Check {
        text: "The body: a JSON object of known members",
        reason: "body_malformed",
        mend: |_, asked| asked.without("unknown"),
    },
    Check {
        text: "`userId` is well formed",
        reason: "user_id",
        mend: |_, asked| asked.body["userId"] = json!("root"),
    },
    Check {
        text: "`context`, and the form of each bound",
        reason: "context",
        mend: |_, asked| asked.body["context"] = json!({}),
    },
    Check {
        text: "`breakGlass` is allowed, if it is given",
        reason: "break_glass_not_allowed",
        mend: |_, asked| asked.without("breakGlass"),
    },
    Check {
        text: "Each [bound](#bounds) can be met",
        reason: "bounds",
        mend: |_, asked| asked.without("expiresIn"),
    },
    Check {
        text: "`required_context`, and that of `break_glass`",
        reason: "required_context",
        mend: |_, asked| asked.body["context"] = json!({"ticketId": "T-1"}),
    },
    Check {
        text: "`protected_users`, by `userId`",
        reason: "protected_user",
        mend: |_, asked| asked.body["userId"] = json!("u-1"),
    },
    Check {
        text: "`max_mints_per_caller`, before the filter asks another service",
        reason: "too_many_mints",
        mend: |world, _| world.advance(1801),
    },
    Check {
        text: "`user_lookup`: the user exists",
        reason: "user_not_found",
        mend: |world, _| name_user(world, "root", "admin"),
    },
    Check {
        text: "`protected_users` and bounds, by the canonical identifier",
        reason: "protected_user",
        mend: |world, _| name_user(world, "u-1", "admin"),
    },
    Check {
        text: "`authzen`: the [policy decision point](approvals.md#your-policy-decision-point)",
        reason: "decision_point_denied",
        mend: |world, _| decide(world, true),
    },
    Check {
        text: "`authorize_subject_token`: [your function](#your-own-rules)",
        reason: "authorization_denied",
        mend: |world, _| name_user(world, "u-1", "customer"),
    },
];

fn name_user(world: &World, id: &str, role: &str) {
    world.upstream("users").answer_always(Reply::json(&json!({"id": id, "role": role})));
}

fn decide(world: &World, decision: bool) {
    world.upstream("decision_point").answer_always(Reply::json(&json!({"decision": decision})));
}

fn configuration() -> Configuration {
    let script = "const authorizeSubjectToken = ({ user, api }) => {
        if (user.role === 'admin') api.denyAccess('an admin');
    };";
    let lookup =
        json!({"http_uri": http_uri_of("users", "/users/{userId}"), "user_id_member": "id"});
    let people = json!({
        "issuer": ISSUER, "name_prefix": "", "audiences": ["people"],
        "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    Configuration::default()
        .with("/subject_tokens/required_context", json!(["ticketId"]))
        .with("/subject_tokens/protected_users", json!(["root"]))
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 1, "per": "1800s"}))
        .with("/subject_tokens/user_lookup", lookup)
        .with("/approvals", json!({"authentication": {"jwt": [people]}}))
        .with("/authzen/http_uri", http_uri_of("decision_point", "/access/v1/evaluation"))
        .with("/authorize_subject_token", json!({"script": script, "timeout": "1s"}))
}

#[test]
fn a_mint_is_checked_in_the_order_of_the_page() {
    let world = World::start(&configuration());
    name_user(&world, "u-1", "customer");
    decide(&world, true);
    // The first mint uses up what the caller may mint.
    let good = json!({"userId": "u-1", "context": {"ticketId": "T-1"}});
    let answer = world.send(&mint_body_request(&good));
    assert_eq!(answer.status, 201, "{answer:?}");

    world.upstream("users").answer_always(Reply::status(404));
    decide(&world, false);
    let body = json!({
        "userId": "", "context": "none", "breakGlass": true, "expiresIn": 1_000_000, "unknown": 1,
    });
    let mut asked = Asked { has_token: false, body };
    for Check { text, reason, mend } in CHECKS {
        let answer = world.send(&asked.request());
        assert_eq!(world.last_event()["reason"], *reason, "{text}: {answer:?}");
        mend(&world, &mut asked);
    }
    let answer = world.send(&asked.request());
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[test]
fn the_page_has_the_checks_of_a_mint() {
    const BEGIN: &str = "<!-- checks of a mint -->\n";
    const END: &str = "<!-- end of the checks -->";
    let mut table = "| | Check | Reason of a refusal |\n|---|---|---|\n".to_owned();
    for (index, Check { text, reason, .. }) in CHECKS.iter().enumerate() {
        table += &format!("| {} | {text} | `{reason}` |\n", index + 1);
    }
    hold("docs/who-may-impersonate-whom.md", |page| between(page, BEGIN, &table, END));
}
