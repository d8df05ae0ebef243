//! The member `paths`: an endpoint answers at its configured path, and its default path belongs to
//! the identity gateway.
//!
//! The rules of the audit and of impersonations run at configured paths, too.

use serde_json::json;

use crate::world::World;
use testkit::Findings;
use testkit::configuration::{CLIENT_SECRET, Configuration, ISSUER, SIGNING_KEY};
use testkit::gateway::{
    EXCHANGE_GRANT, IDENTITY_GATEWAY, exchange_form, exchange_request, mint_request, minted,
};
use testkit::guarded::{filter_configuration, operator, operator_with};
use testkit::http::{Answer, Form, Request};
use testkit::paths::{OAUTH_DISCOVERY, keycloaks, moved};
use testkit::server::Reply;

fn configuration() -> Configuration {
    filter_configuration().with("/paths", keycloaks())
}

/// A form about a token, from a client that has a secret.
fn about(path: &str, token: &str) -> Request {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    let form = Form::default().set("token", token).encode();
    request.body(form).basic("support-portal", &CLIENT_SECRET)
}

#[test]
fn every_endpoint_answers_at_its_configured_path_and_leaves_the_default_to_the_gateway() {
    let world = World::start(&configuration());
    let mut findings = Findings::default();
    let mut ask = |request: Request, status: u16| -> Answer {
        let case = format!("{} {}", request.method, request.target);
        let elsewhere = world.send_unmoved(&request);
        let gateway = world.upstream(IDENTITY_GATEWAY);
        let received = gateway.received_for(&elsewhere).map(|it| it.target);
        findings.expect(
            format!("{case}, at the gateway"),
            &received,
            &Some(request.target.clone()),
        );
        let answer = world.send(&request);
        findings.expect(&case, &answer.status, &status);
        findings.expect(format!("{case}, moved"), &world.passed_on(&answer), &false);
        answer
    };

    let taken_back = ask(mint_request("u-1"), 201);
    let location = taken_back.header("location").unwrap();
    let (folder, id) = location.rsplit_once('/').unwrap();
    assert_eq!(folder, moved("/api/subject-tokens"));
    let backend = mint_request("u-1").headers.remove(0).1;
    let cancel = Request::new("DELETE", &format!("/api/subject-tokens/{id}"));
    ask(cancel.header("authorization", backend), 204);

    let mut begin = |user: &str| {
        let form = exchange_form(&minted(&ask(mint_request(user), 201))).without("client_id");
        let request = exchange_request(&form).basic("support-portal", &CLIENT_SECRET);
        ask(request, 200).member("access_token")
    };
    let [by_operator, by_client] = ["u-1", "u-2"].map(&mut begin);
    let reads = operator_with("impersonations:read");
    let list = ask(Request::get("/api/impersonations?userId=u-1").bearer(&reads), 200);
    let id = list.json()["impersonations"][0]["id"].as_str().unwrap().to_owned();
    let introspect = |token: &str| about("/oidc/token/introspection", token);
    let begun = [&by_operator, &by_client];
    for token in begun {
        assert_eq!(ask(introspect(token), 200).json()["active"], true);
    }
    let end = Request::new("DELETE", &format!("/api/impersonations/{id}")).bearer(&operator());
    ask(end, 204);
    ask(about("/oidc/token/revocation", &by_client), 200);
    for token in begun {
        assert_eq!(ask(introspect(token), 200).json(), json!({"active": false}));
    }
    let all = Request::post("/api/impersonations/revocations").bearer(&operator());
    ask(all.json(&json!({"all": true})), 201);
    ask(Request::get("/oidc/jwks"), 200);
    ask(Request::get("/oidc/.well-known/openid-configuration"), 200);
    ask(Request::get("/api/subject-tokens"), 405);
}

#[test]
fn documents_are_merged_at_their_configured_paths_and_name_the_configured_endpoints() {
    let configuration = configuration().with("/identity_gateway", json!({"documents": "merge"}));
    let [token, jwks] = ["/oidc/token", "/oidc/jwks"].map(moved);
    let at = |path: &str| json!(format!("https://auth.example.com{path}"));
    let theirs = json!({
        "issuer": ISSUER,
        "token_endpoint": at(&token),
        "jwks_uri": at(&jwks),
        "grant_types_supported": ["authorization_code"],
    });
    let keys = json!({"keys": []});
    let documents = (theirs.clone(), keys.clone());
    let world = World::start(&configuration);
    world.upstream(IDENTITY_GATEWAY).answer(move |asked| {
        let is_key_set = asked.target.ends_with("/jwks") || asked.target.ends_with("/certs");
        Reply::json(if is_key_set { &documents.1 } else { &documents.0 })
    });
    let get = |path: &str| {
        let answer = world.send_unmoved(&Request::get(path));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    assert_eq!(get(&jwks)["keys"][0]["x"], SIGNING_KEY.public_jwk()["x"]);
    let merged = get(&moved("/oidc/.well-known/openid-configuration"));
    for (member, value) in [
        ("token_endpoint", at(&token)),
        ("jwks_uri", at(&jwks)),
        ("grant_types_supported", json!(["authorization_code", EXCHANGE_GRANT])),
        ("revocation_endpoint", at(&moved("/oidc/token/revocation"))),
        ("introspection_endpoint", at(&moved("/oidc/token/introspection"))),
    ] {
        assert_eq!(merged[member], value, "{member}");
    }
    assert_eq!(get(OAUTH_DISCOVERY), merged);
    assert_eq!(get("/oidc/jwks"), keys);
    assert_eq!(get("/oidc/.well-known/openid-configuration"), theirs);
}

#[test]
fn without_a_gateway_the_documents_name_the_configured_endpoints() {
    let world = World::start(&configuration());
    let document = world.send(&Request::get("/oidc/.well-known/openid-configuration")).json();
    for (member, default) in [
        ("token_endpoint", "/oidc/token"),
        ("jwks_uri", "/oidc/jwks"),
        ("revocation_endpoint", "/oidc/token/revocation"),
        ("introspection_endpoint", "/oidc/token/introspection"),
    ] {
        assert_eq!(document[member], format!("https://auth.example.com{}", moved(default)));
    }
    assert_eq!(world.send(&Request::get(OAUTH_DISCOVERY)).json(), document);
    let unset = configuration().without("/paths/oauth_discovery");
    world.update(&unset).unwrap();
    assert!(world.passed_on(&world.send(&Request::get(OAUTH_DISCOVERY))));
}
