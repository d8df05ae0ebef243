//! Two issuers use the same names: a name of one issuer is never taken for the other's.

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, SUPPORT};
use testkit::gateway::{
    IDENTITY_GATEWAY, backend_claims, exchange_form, mint_request, minted, raw_part,
};
use testkit::http::{Answer, Request};
use testkit::server::{Received, Reply};
use testkit::services::http_uri_of;
use testkit::two_issuers::{ACTORS, CALLERS, PARTNER, acting, agent, backend, both, mint, signed};

const OPERATORS: &str = "/impersonations/authentication/jwt";

fn configuration() -> Configuration {
    Configuration::default()
        .with(CALLERS, both(MANAGEMENT))
        .with(&format!("{CALLERS}/1/client_ids"), json!(["backend", "second"]))
        .with(ACTORS, both(SUPPORT))
        .with(OPERATORS, both(MANAGEMENT))
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 2, "per": "3600s"}))
}

fn operator(issuer: &str, name: &str) -> String {
    let mut claims = backend_claims();
    claims["sub"] = json!(name);
    claims["scope"] = json!("impersonations:read impersonations:revoke");
    signed(issuer, claims)
}

fn actor_of(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    raw_part(&answer.member("access_token"), 1)["act"]["sub"].clone()
}

/// Returns the audit line of this event about this subject token.
fn event(world: &World, event: &str, id: &str) -> Value {
    let lines = world.audit();
    let found =
        lines.into_iter().find(|line| line["event"] == event && line["subject_token_id"] == id);
    found.unwrap_or_else(|| panic!("no {event} of {id}"))
}

fn id_of(minted: &Answer) -> String {
    minted.header("location").unwrap().rsplit('/').next().unwrap().to_owned()
}

#[test]
fn only_the_actor_of_the_named_issuer_meets_a_bound() {
    let world = World::start(&configuration().without("/subject_tokens/max_mints_per_caller"));
    let bearer = backend(ISSUER, "backend");
    let begun = |user: &str, actor_id: &str| {
        minted(&world.send(&mint(&bearer, &json!({"userId": user, "actorId": actor_id}))))
    };
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("u-1",             "agent-7",         PARTNER, "agent-7",         None),
        ("u-1",             "agent-7",         ISSUER,  "agent-7",         Some("agent-7")),
        ("u-1",             "partner:agent-7", PARTNER, "agent-7",         Some("partner:agent-7")),
        ("u-1",             "partner:agent-7", ISSUER,  "agent-7",         None),
        // An issuer without a prefix cannot use a name that has one.
        ("u-1",             "partner:agent-7", ISSUER,  "partner:agent-7", None),
        ("u-1",             "agent-7",         PARTNER, "partner:agent-7", None),
        // The actor is not the user, although both have the same name at their issuers.
        ("agent-7",         "partner:agent-7", PARTNER, "agent-7",         Some("partner:agent-7")),
    ];
    for (user, actor_id, issuer, name, expected) in cases {
        let case = format!("{user}, {actor_id}, by {name} of {issuer}");
        let token = begun(user, actor_id);
        let answer = world.send(&acting(&token, &agent(issuer, name)));
        match expected {
            Some(expected) => findings.expect(case, &actor_of(&answer), &json!(expected)),
            None => findings.expect(case, &answer.refusal(), &(400, "invalid_request".into())),
        }
    }
    let unbound = minted(&world.send(&mint(&bearer, &json!({"userId": "partner:agent-7"}))));
    let answer = world.send(&acting(&unbound, &agent(PARTNER, "agent-7")));
    findings.expect("as themselves", &answer.refusal(), &(400, "invalid_request".into()));
    let answer = world.send(&acting(&unbound, &agent(ISSUER, "agent-7")));
    findings.expect("as another", &actor_of(&answer), &json!("agent-7"));
}

#[test]
fn callers_of_two_issuers_with_one_name_are_kept_apart() {
    let world = World::start(&configuration());
    let (ours, theirs) = (backend(ISSUER, "backend"), backend(PARTNER, "backend"));
    let body = json!({"userId": "u-1"});

    // One backend cannot cancel the other's token.
    let one = world.send(&mint(&ours, &body));
    let id = id_of(&one);
    let delete = |bearer: &str| {
        let path = format!("/api/subject-tokens/{id}");
        world.send(&Request::new("DELETE", &path).bearer(bearer)).status
    };
    assert_eq!(delete(&theirs), 404);
    assert_eq!(world.exchange(&exchange_form(&minted(&one))).status, 200);
    assert_eq!(delete(&theirs), 404, "an impersonation, by the list");
    assert_eq!(delete(&ours), 204);

    // Each backend has its own limit of mints.
    assert_eq!(world.send(&mint(&ours, &body)).status, 201);
    assert_eq!(world.send(&mint(&ours, &body)).status, 429);
    let two = world.send(&mint(&theirs, &body));
    assert_eq!(world.send(&mint(&theirs, &body)).status, 201);
    assert_eq!(world.send(&mint(&theirs, &body)).status, 429);

    // Each backend has its own name in the audit.
    assert_eq!(event(&world, "subject_token.created", &id)["caller"], "backend");
    let created = event(&world, "subject_token.created", &id_of(&two));
    assert_eq!(created["caller"], "partner:backend");

    // `client_ids` are the issuer's own names.
    assert_eq!(world.send(&mint(&backend(PARTNER, "second"), &body)).status, 201);
    let answer = world.send(&mint(&backend(PARTNER, "another"), &body));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
    // An issuer without a prefix cannot use a name that has one.
    let answer = world.send(&mint(&backend(ISSUER, "partner:backend"), &body));
    assert_eq!(answer.refusal(), (401, "invalid_token".into()));
    let refused = "impersonation_refusals_total.endpoint.subject_tokens.error.invalid_token.reason";
    assert_eq!(world.counted(&format!("{refused}.name_of_another_issuer")), 1);
}

#[test]
fn lists_and_revocations_tell_names_of_two_issuers_apart() {
    let world = World::start(&configuration().without("/subject_tokens/max_mints_per_caller"));
    let begin = |issuer: &str| {
        let minted_answer =
            world.send(&mint(&backend(issuer, "backend"), &json!({"userId": "u-1"})));
        let answer = world.send(&acting(&minted(&minted_answer), &agent(issuer, "agent-7")));
        assert_eq!(answer.status, 200, "{answer:?}");
        id_of(&minted_answer)
    };
    let (ours, theirs) = (begin(ISSUER), begin(PARTNER));
    let list = |query: &str| {
        let request = Request::get(&format!("/api/impersonations{query}"));
        let answer = world.send(&request.bearer(&operator(PARTNER, "night")));
        let body = answer.json();
        let rows = body["impersonations"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
        let mut rows: Vec<_> = rows
            .iter()
            .map(|row| {
                ["id", "actorId", "caller"].map(|name| row[name].as_str().unwrap().to_owned())
            })
            .collect();
        rows.sort_by_key(|row| row[1].clone());
        rows
    };
    let our_row = [ours.clone(), "agent-7".into(), "backend".into()];
    let their_row = [theirs.clone(), "partner:agent-7".into(), "partner:backend".into()];
    assert_eq!(list(""), [our_row.clone(), their_row.clone()]);
    for (query, expected) in [
        ("?actorId=agent-7", &our_row),
        ("?actorId=partner%3Aagent-7", &their_row),
        ("?caller=backend", &our_row),
        ("?caller=partner%3Abackend", &their_row),
    ] {
        assert_eq!(list(query), std::slice::from_ref(expected), "{query}");
    }

    let revoke = |body: &Value| {
        let request = Request::post("/api/impersonations/revocations");
        let answer = world.send(&request.bearer(&operator(PARTNER, "night")).json(body));
        assert_eq!(answer.status, 201, "{answer:?}");
    };
    revoke(&json!({"actorId": "agent-7"}));
    assert_eq!(list(""), [their_row]);
    revoke(&json!({"caller": "partner:backend"}));
    assert_eq!(list(""), [] as [[String; 3]; 0]);
    assert_eq!(world.last_event()["requested_by"], "partner:night");
}

#[cfg(feature = "custom-claims")]
#[test]
fn the_operators_function_gets_the_callers_prefixed_name() {
    let script = "const authorizeSubjectToken = ({ caller, api }) =>
      api.denyAccess(`${caller.clientId} ${caller.subject}`);";
    let configuration = configuration()
        .with("/authorize_subject_token/script", script)
        .with("/authorize_subject_token/timeout", "1s");
    let world = World::start(&configuration);
    for (issuer, told) in
        [(ISSUER, "backend backend"), (PARTNER, "partner:backend partner:backend")]
    {
        let answer = world.send(&mint(&backend(issuer, "backend"), &json!({"userId": "u-1"})));
        assert_eq!((answer.status, answer.member("error_description")), (403, told.to_owned()));
    }
}

/// Introspection and userinfo count as an issuer, too.
#[test]
fn an_opaque_token_cannot_name_anyone_of_another_issuer() {
    let answers = |asked: &Received| {
        let token = (asked.method == "POST").then(|| asked.parameter("token").unwrap());
        let bearer = asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let name = token.as_deref().or(bearer).unwrap().replace("~", ":");
        let (name, issuer) = name.split_once("::").unwrap_or((&name, ""));
        let mut answer = json!({
            "active": true, "scope": "impersonate openid", "sub": name, "client_id": name,
        });
        if !issuer.is_empty() {
            answer["iss"] = json!(if issuer == "partner" { PARTNER } else { "https://x.example" });
        }
        Reply::json(&answer)
    };
    let introspection = json!({
        "http_uri": http_uri_of("introspection", "/introspect"), "client_id": "filter",
        "client_secret": {"inline_string": "introspection-secret"}, "cache_duration": "0s",
    });
    let userinfo = json!({"http_uri": http_uri_of("userinfo", "/me"), "cache_duration": "0s"});
    let start = |prefix: &str| {
        let named = |mut way: Value| {
            way["name_prefix"] = json!(prefix);
            way
        };
        let configuration = configuration()
            .without("/subject_tokens/max_mints_per_caller")
            .with("/subject_tokens/authentication/introspection", named(introspection.clone()))
            .with("/actor_tokens/userinfo", named(userinfo.clone()));
        let world = World::start(&configuration);
        for name in ["introspection", "userinfo"] {
            world.upstream(name).answer(answers);
        }
        world
    };
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        // A token is the name with `~` for `:`. The issuer that the answer names follows after
        // `~~`.
        ("",         "agent-7",          Some("agent-7"),          true),
        ("",         "partner~agent-7",  None,                     true),
        ("",         "agent-7~~partner", None,                     false),
        ("",         "agent-7~~another", None,                     false),
        ("opaque:",  "agent-7",          Some("opaque:agent-7"),   true),
        ("opaque:",  "partner~agent-7",  Some("opaque:partner:agent-7"), true),
        ("opaque:",  "agent-7~~another", Some("opaque:agent-7"),   false),
        ("opaque:",  "agent-7~~partner", None,                     false),
        ("partner:", "agent-7~~partner", Some("partner:agent-7"),  false),
    ];
    for prefix in ["", "opaque:", "partner:"] {
        let world = start(prefix);
        for (_, token, expected, acts) in cases.iter().filter(|case| case.0 == prefix) {
            let case = format!("{prefix:?} {token}");
            let answer = world.send(&mint(token, &json!({"userId": "u-1"})));
            let status = if expected.is_some() { 201 } else { 401 };
            findings.expect(format!("{case} mints"), &answer.status, &status);
            if let Some(name) = expected {
                findings.expect(
                    format!("{case} is named"),
                    &world.last_event()["caller"],
                    &json!(name),
                );
            }
            if !acts {
                continue;
            }
            let answer = world.send(&acting(&minted(&world.send(&mint_request("u-1"))), token));
            let actor = (answer.status == 200).then(|| actor_of(&answer));
            findings.expect(format!("{case} acts"), &actor, &expected.map(|name| json!(name)));
        }
    }
}

#[test]
fn a_configuration_is_refused_in_which_two_issuers_have_one_prefix() {
    let world = World::start(&configuration());
    for (case, changed) in [
        ("absent", configuration().without(&format!("{ACTORS}/0/name_prefix"))),
        ("alike", configuration().with(&format!("{CALLERS}/1/name_prefix"), "")),
        ("of operators", configuration().with(&format!("{OPERATORS}/0/name_prefix"), "partner:")),
    ] {
        let refused = world.update(&changed).expect_err(case);
        if case == "absent" {
            let told = "actor_tokens.jwt[0].name_prefix: is required";
            assert!(refused.contains(told), "{refused}");
        }
    }
    world.assert_spendable(&world.mint(), "by the one before");
}

/// People who approve, of both issuers.
const APPROVERS: &str = "/approvals/authentication/jwt";

/// Two people must stand behind an impersonation. A person with two names would be two of them.
#[test]
fn a_person_who_would_have_one_name_to_approve_and_another_to_act_is_refused_at_load() {
    let approvers = |configuration: Configuration| configuration.with(APPROVERS, both("people"));
    let partners = |prefix: Option<&str>| {
        let mut entry = both(SUPPORT)[1].clone();
        entry.as_object_mut().unwrap().remove("name_prefix");
        if let Some(prefix) = prefix {
            entry["name_prefix"] = json!(prefix);
        }
        json!([entry])
    };
    let plain = || approvers(Configuration::default());
    let asked = |secret: bool| {
        let mut way = json!({
            "http_uri": {"uri": "https://auth.example.com/x", "cluster": IDENTITY_GATEWAY},
        });
        if secret {
            way["client_id"] = json!("filter");
            way["client_secret"] = json!({"inline_string": "introspection-secret"});
        }
        way
    };
    let named = |prefix: &str, mut way: Value| {
        way["name_prefix"] = json!(prefix);
        way
    };
    const INTROSPECTION: &str = "/subject_tokens/authentication/introspection";
    const OF_OPERATORS: &str = "/impersonations/authentication/introspection";
    const LOGOUTS: &str = "/impersonations/back_channel_logout";
    #[rustfmt::skip]
    let cases = [
        // `partner:agent-7` approves, and `agent-7` acts.
        ("actors without a prefix",     plain().with(ACTORS, partners(None)),                          Some("approvals.authentication.jwt[1].name_prefix")),
        ("actors with another prefix",  plain().with(ACTORS, partners(Some("p:"))),                    Some("approvals.authentication.jwt[1].name_prefix")),
        ("callers without a prefix",    plain().with(CALLERS, partners(None)),                         Some("approvals.authentication.jwt[1].name_prefix")),
        ("operators without a prefix",  plain().with(OPERATORS, partners(None)),                       Some("approvals.authentication.jwt[1].name_prefix")),
        ("logouts without a prefix",    plain().with(LOGOUTS, partners(None)),                         Some("back_channel_logout[0].name_prefix")),
        ("events with another prefix",  plain().with("/impersonations/security_events", partners(Some("p:"))).with(OPERATORS, both(MANAGEMENT)), Some("security_events[0].name_prefix")),
        ("userinfo without a prefix",   plain().with("/actor_tokens/userinfo", asked(false)),          Some("actor_tokens.userinfo.name_prefix")),
        ("actors, introspected",        plain().with("/actor_tokens/introspection", asked(true)),      Some("actor_tokens.introspection.name_prefix")),
        ("callers, introspected",       plain().with(INTROSPECTION, asked(true)),                      Some("subject_tokens.authentication.introspection.name_prefix")),
        ("operators, introspected",     plain().with(OF_OPERATORS, asked(true)),                       Some("impersonations.authentication.introspection.name_prefix")),
        ("approvers, introspected",     plain().with("/approvals/authentication/introspection", asked(true)), Some("approvals.authentication.introspection.name_prefix")),
        ("one prefix everywhere",       plain().with(ACTORS, partners(Some("partner:"))).with(OPERATORS, both(MANAGEMENT)), None),
        ("userinfo with a prefix",      plain().with("/actor_tokens/userinfo", named("", asked(false))), None),
        ("introspection with its own",  plain().with(INTROSPECTION, named("opaque:", asked(true))),    None),
    ];
    let world = World::start(&plain());
    let mut findings = Findings::default();
    for (case, configuration, refused) in cases {
        // A sender of events has no scopes, and operators must be there to receive any.
        let configuration = match configuration.0.pointer("/impersonations/authentication") {
            None if configuration.0.get("impersonations").is_some() => {
                configuration.with(OPERATORS, both(MANAGEMENT))
            }
            _ => configuration,
        };
        match (world.update(&configuration), refused) {
            (Ok(()), Some(_)) => findings.add(format!("{case}: accepted")),
            (Err(log), None) => findings.add(format!("{case}: refused: {log}")),
            (Err(log), Some(path)) => findings.expect(case, &log.contains(path), &true),
            (Ok(()), None) => {}
        }
    }
}

/// The people of two lists are compared, so no issuer of one list may give a name of the other's.
#[test]
fn an_issuer_of_one_list_cannot_give_a_name_of_another_lists_issuer() {
    let configuration =
        Configuration::default().with(APPROVERS, both("people")).with("/approvals/required", 0);
    let world = World::start(&configuration);
    for (name, status) in [("agent-7", 200), ("partner:agent-7", 400)] {
        let token = minted(&world.send(&mint_request("u-1")));
        let answer = world.send(&acting(&token, &agent(ISSUER, name)));
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
}
