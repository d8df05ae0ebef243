//! The operator's rules in Envoy: each met and not met, and a flood that holds back only its own
//! caller.

use jsonwebtoken::Algorithm;
use serde_json::json;

use testkit::configuration::{Configuration, PROVIDER_KEY, jwks};
use testkit::gateway::{
    BEARER, Gateway, IDENTITY_GATEWAY, Options, backend_claims, exchange_form, exchange_request,
    http_uri, in_front_of, mint_request, minted, portal_request,
};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::{Reply, Server};

fn by(key: &Key, client_id: &str) -> Request {
    let mut claims = backend_claims();
    claims["client_id"] = json!(client_id);
    Request::post("/api/subject-tokens").bearer(&key.sign(&claims)).json(&json!({"userId": "u-1"}))
}

/// All workers count together. The period is far longer than a test.
#[test]
fn a_caller_at_its_mint_limit_does_not_hold_back_others() {
    let configuration = Configuration::default()
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 20, "per": "24h"}));
    let options = Options { concurrency: 2, ..Options::default() };
    let gateway = Gateway::try_start(&configuration, &options).unwrap();
    let mut connections = gateway.envoy.connect_to_every_worker();
    let request = mint_request("u-1");
    let workers = connections.len();
    for n in 0..20 {
        assert_eq!(connections[n % workers].send(&request).status, 201, "mint {n}");
    }
    for connection in &mut connections {
        let answer = connection.send(&request);
        assert_eq!(answer.refusal(), (429, "temporarily_unavailable".into()), "{answer:?}");
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&seconds), "{seconds}");
        assert_eq!(connection.send(&by(&PROVIDER_KEY, "another")).status, 201);
    }
    gateway.update(&configuration.without("/subject_tokens/max_mints_per_caller")).unwrap();
    assert_eq!(gateway.send(&request).status, 201, "after the rule is gone");
}

#[test]
fn a_flood_from_one_of_many_callers_costs_the_others_nothing() {
    const ROOM: u64 = 20 << 20;
    let key = Key::generate(Algorithm::EdDSA, "ed");
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&[&PROVIDER_KEY, &key]))
        .with("/subject_tokens/lifetime", "1s")
        .with("/subject_tokens/max_mints_per_caller", json!({"count": 10, "per": "24h"}));
    let gateway = Gateway::start(&configuration);
    let mut connection = gateway.connect();
    let flood = by(&key, "flood");
    let mut flooded = 0;
    let mut callers = |range: std::ops::Range<u32>| {
        for caller in range {
            let answer = connection.send(&by(&key, &format!("caller-{caller}")));
            assert_eq!(answer.status, 201, "caller {caller}: {answer:?}");
            match connection.send(&flood).status {
                201 => flooded += 1,
                status => assert_eq!(status, 429),
            }
        }
    };
    callers(0..2000);
    let before = gateway.envoy.resident_bytes();
    callers(2000..10_000);
    let after = gateway.envoy.resident_bytes();
    assert_eq!(flooded, 10);
    assert!(after < before + ROOM, "{before} bytes after 2000 callers, {after} after 10 000");
}

#[cfg(feature = "custom-claims")]
#[test]
fn the_operators_function_denies_and_narrows_and_fails_closed() {
    let users = Server::start("users");
    users.answer_always(Reply::json(&json!({"roles": ["customer"]})));
    let lookup = json!({"http_uri": http_uri(&users, "/users/{userId}", "10s")});
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
    let envoy = in_front_of(&[&Server::start(IDENTITY_GATEWAY), &users], &configuration).start();
    let mint = |does: &str| {
        let body = json!({"userId": "u-1", "context": {"does": does}, "expiresIn": 400});
        envoy.send(&Request::post("/api/subject-tokens").bearer(&BEARER).json(&body))
    };
    let denied = mint("deny");
    assert_eq!(denied.refusal(), (403, "access_denied".into()));
    assert_eq!(denied.member("error_description"), "support-backend for u-1, a customer");
    let told = mint("tell").member("error_description");
    assert_eq!(told, "support-backend impersonate object 400 eu");
    for does in ["throw", "loop", "fill", "widen", "other", "undefined", "hole", "hidden"] {
        assert_eq!(mint(does).refusal(), (500, "server_error".into()), "{does}");
        assert_eq!(mint("nothing").status, 201, "after {does}");
    }
    let narrowed = mint("narrow");
    assert_eq!(narrowed.json()["expiresIn"], 300);
    let token = minted(&narrowed);
    let answer = envoy.send(&exchange_request(&exchange_form(&token)));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()), "another client");
    assert_eq!(envoy.send(&portal_request(&token)).status, 200);

    let without_users = configuration.without("/subject_tokens/user_lookup");
    let script =
        "const authorizeSubjectToken = ({ user, api }) => api.denyAccess(`user is ${user}`);";
    let gateway = Gateway::lent(&without_users.with("/authorize_subject_token/script", script));
    assert_eq!(gateway.send(&mint_request("u-1")).member("error_description"), "user is null");
}
