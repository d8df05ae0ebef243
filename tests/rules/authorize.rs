//! The operator's function that authorizes mints. Its input and its possible results are tested
//! beside the code.

use serde_json::{Value, json};

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{Configuration, ORDERS};
use testkit::gateway::{
    BEARER, exchange_form, exchange_request, mint_body_request, mint_request, minted,
    portal_request,
};
use testkit::http::Request;
use testkit::server::Reply;
use testkit::services::http_uri_of;

#[test]
fn the_operators_function_denies_and_narrows_and_fails_closed() {
    let lookup = json!({"http_uri": http_uri_of("users", "/users/{userId}")});
    let script = "const authorizeSubjectToken = async ({
        caller, userId, user, context, bounds, environmentVariables, api,
    }) => {
        if (context.does === 'deny') api.denyAccess(`${caller.clientId} for ${userId}, a ${user.roles[0]}`);
        if (context.does === 'tell') api.denyAccess([
            caller.subject, caller.scope, typeof user, bounds.expiresIn, environmentVariables.REGION,
        ].join(' '));
        if (context.does === 'throw') throw new Error('x');
        if (context.does === 'loop') for (;;);
        if (context.does === 'fill') for (const a = []; ; ) a.push('x'.repeat(10000));
        if (context.does === 'widen') return { expiresIn: 601 };
        if (context.does === 'other') return { allow: true };
        if (context.does === 'undefined') return { actorId: user.agent };
        if (context.does === 'hole') return { resource: [undefined] };
        if (context.does === 'hidden') return Object.create({ expiresIn: 1 });
        if (context.does === 'narrow') return { expiresIn: 300, clientId: 'support-portal' };
    };";
    let configuration = Configuration::default()
        .with("/subject_tokens/user_lookup", lookup)
        .with("/authorize_subject_token/script", script)
        .with("/authorize_subject_token/environment_variables", json!({"REGION": "eu"}))
        .with("/authorize_subject_token/timeout", "1s");
    let world = World::start(&configuration);
    world.upstream("users").answer_always(Reply::json(&json!({"roles": ["customer"]})));
    let mint = |does: &str| {
        let body = json!({"userId": "u-1", "context": {"does": does}, "expiresIn": 400});
        world.send(&Request::post("/api/subject-tokens").bearer(&BEARER).json(&body))
    };
    let denied = mint("deny");
    assert_eq!(denied.refusal(), (403, "access_denied".into()));
    assert_eq!(denied.member("error_description"), "support-backend for u-1, a customer");
    let told = mint("tell").member("error_description");
    assert_eq!(told, "support-backend impersonate object 400 eu");
    for does in ["throw", "loop", "fill", "widen", "other", "undefined", "hole", "hidden"] {
        let failed = mint(does);
        assert_eq!(failed.refusal(), (500, "server_error".into()), "{does}");
        let told = "whether this may be minted could not be decided";
        assert_eq!(failed.member("error_description"), told, "{does}");
        assert_eq!(world.last_event()["reason"], "authorization_failed", "{does}");
        assert_eq!(mint("nothing").status, 201, "after {does}");
    }
    let narrowed = mint("narrow");
    assert_eq!(narrowed.json()["expiresIn"], 300);
    let token = minted(&narrowed);
    let answer = world.send(&exchange_request(&exchange_form(&token)));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()), "another client");
    assert_eq!(world.send(&portal_request(&token)).status, 200);

    let without_users = configuration.without("/subject_tokens/user_lookup");
    let script =
        "const authorizeSubjectToken = ({ user, api }) => api.denyAccess(`user is ${user}`);";
    world.update(&without_users.with("/authorize_subject_token/script", script)).unwrap();
    assert_eq!(world.send(&mint_request("u-1")).member("error_description"), "user is null");
}

#[test]
fn the_function_narrows_and_never_widens() {
    let script = "const authorizeSubjectToken = () => ({
        expiresIn: 300, clientId: ['support-console', 'support-app'], scope: 'orders:read payments:read',
    });";
    let configuration = Configuration::default()
        .with("/authorize_subject_token", json!({"script": script, "timeout": "1s"}));
    let world = World::start(&configuration);
    let mint = |bounds: &Value| {
        let mut body = json!({"userId": "u-1"});
        body.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        world.send(&mint_body_request(&body))
    };
    let asked = json!({
        "expiresIn": 60, "clientId": ["support-portal", "support-console"], "resource": ORDERS,
        "scope": "orders:write orders:read",
    });
    let answer = mint(&asked);
    assert_eq!(answer.json()["expiresIn"], 60, "{answer:?}");
    let left = json!({
        "expiresIn": 60, "clientId": ["support-console"], "resource": [ORDERS],
        "scope": "orders:read",
    });
    assert_eq!(world.last_event()["bounds"], left);
    let token = minted(&answer);
    assert_eq!(world.send(&portal_request(&token)).status, 400);
    assert_eq!(world.last_event()["reason"], "bound_client");
    world.assert_spendable(&token, "by the client that is left");

    let mut findings = Findings::default();
    for (asked, member) in [
        (json!({"clientId": "support-portal"}), "clientId"),
        (json!({"scope": "orders:write"}), "scope"),
    ] {
        let answer = mint(&asked);
        findings.expect(member, &answer.refusal(), &(403, "access_denied".into()));
        findings.expect(member, &world.last_event()["reason"], &json!("authorization_denied"));
        let told = answer.member("error_description");
        findings.expect(&told, &told.starts_with(member), &true);
    }
    let asked = json!({"clientId": "support-console", "scope": "orders:read orders:write"});
    findings.expect("both", &mint(&asked).status, &201);
}

#[test]
fn a_user_of_whom_nothing_is_said_is_null() {
    let script = "const authorizeSubjectToken =
        ({ user, api }) => { if (user !== null) api.denyAccess('known'); };";
    let configuration = Configuration::default()
        .with("/authorize_subject_token", json!({"script": script, "timeout": "1s"}));
    let world = World::start(&configuration);
    assert_eq!(world.send(&mint_request("u-1")).status, 201, "nobody is asked");
    let lookup = json!({"http_uri": http_uri_of("users", "/users/{userId}")});
    world.update(&configuration.with("/subject_tokens/user_lookup", lookup)).unwrap();
    for (reply, status) in [(Reply::status(204), 201), (Reply::json(&json!({})), 403)] {
        world.upstream("users").answer_always(reply);
        assert_eq!(world.send(&mint_request("u-1")).status, status);
    }
}
