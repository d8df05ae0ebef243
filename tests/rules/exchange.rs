//! `POST {base}/oidc/token` with the token-exchange grant: the content of an access token, the
//! callers who may get one, and that a subject token yields exactly one.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::flow::{claims_of, describes};
use crate::world::World;
use testkit::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, MANAGEMENT, ORDERS, PAYMENTS, PLAIN, PROVIDER_KEY,
    SIGNING_KEY, SUPPORT, jwks,
};
use testkit::gateway::{
    ACCESS_TOKEN, actor_claims, exchange_form, exchange_request, key_set, mint_body_request,
    mint_request, minted, now, portal_request, raw_exchange_request, verify, with_actor,
};
use testkit::holder::changed;
use testkit::http::{Form, Request};
use testkit::keys::{Key, unsigned};
use testkit::refusals::{self, Exchange};
use testkit::services::userinfo;
use testkit::{Findings, paths};

#[test]
fn answers_200_with_exactly_five_members() {
    let world = World::start(&Configuration::default());
    let answer = world.exchange(&exchange_form(&world.mint()));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("pragma"), Some("no-cache"));
    assert!(!world.passed_on(&answer));
    let body = answer.json();
    let members: HashSet<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["access_token", "issued_token_type", "token_type", "expires_in", "scope"];
    assert_eq!(members, HashSet::from(expected));
    assert_eq!(body["issued_token_type"], ACCESS_TOKEN);
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(body["expires_in"], 3600);
    assert_eq!(body["scope"], "orders:read");
}

#[test]
fn an_access_token_has_the_documented_claims_and_no_others() {
    let before = now();
    let world = World::start(&Configuration::default());
    let answer = world.exchange(
        &exchange_form(&world.mint_for("auth0|ü 1")).set("scope", "orders:write orders:read"),
    );
    let (header, mut claims) = verify(&answer.member("access_token"), &key_set(&SIGNING_KEY));
    let after = now();

    assert_eq!(header, json!({"alg": "EdDSA", "typ": "at+jwt", "kid": SIGNING_KEY.kid}));
    let iat = claims["iat"].as_u64().unwrap();
    assert!((before..=after).contains(&iat), "{before} {iat} {after}");
    let jti = claims["jti"].as_str().unwrap().to_owned();
    assert!(jti.len() >= 22, "128 bits are 22 characters of base64: {jti}");
    let mut scopes: Vec<_> = claims["scope"].as_str().unwrap().split(' ').collect();
    scopes.sort_unstable();
    assert_eq!(scopes, ["orders:read", "orders:write"]);
    assert_eq!(claims["scope"], answer.json()["scope"]);
    for name in ["iat", "jti", "txn", "scope"] {
        claims.as_object_mut().unwrap().remove(name);
    }
    let rest = json!({
        "iss": ISSUER,
        "sub": "auth0|ü 1",
        "aud": ORDERS,
        "client_id": "support-console",
        "exp": iat + 3600,
    });
    assert_eq!(claims, rest);
}

#[test]
fn a_mint_has_one_line_in_the_audit_and_an_exchange_another() {
    let with_context = Configuration::default().with("/audit/context", true);
    let world = World::start(&with_context);
    let context = json!({"ticketId": "T-1"});
    let mint = mint_body_request(&json!({"userId": "u-1", "context": context}));
    let line = || {
        let mut event = world.last_event();
        event.as_object_mut().unwrap().remove("request_id");
        event
    };
    let minted_answer = world.send(&mint);
    let id = minted_answer.header("location").unwrap().rsplit_once('/').unwrap().1;
    let created = json!({
        "event": "subject_token.created", "subject_token_id": id, "user_id": "u-1",
        "caller": "support-backend", "context": context,
    });
    assert_eq!(line(), created);
    let form = exchange_form(&minted(&minted_answer));
    let claims = claims_of(&world.exchange(&form.set("scope", "orders:write admin orders:read")));
    let succeeded = json!({
        "event": "token_exchange.succeeded", "subject_token_id": id, "user_id": "u-1",
        "client_id": "support-console", "caller": "support-backend", "resource": ORDERS,
        "scope": "orders:write orders:read", "jti": claims["jti"], "context": context,
    });
    assert_eq!(line(), succeeded);
    assert_eq!(world.audit().len(), 2);

    world.update(&with_context.with("/audit/context", false)).unwrap();
    let token = minted(&world.send(&mint));
    assert_eq!(line().get("context"), None);
    assert_eq!(world.exchange(&exchange_form(&token)).status, 200);
    assert_eq!(line().get("context"), None);
}

#[test]
fn an_access_token_has_the_type_that_its_resource_names_or_else_the_configured_one() {
    let of_payments = |configuration: Configuration, name: &str| {
        configuration.with("/resources/1/access_token_typ", name)
    };
    let plain = Configuration::default();
    let of_all = Configuration::default().with("/access_tokens/typ", "JWT");
    let world = World::start(&plain);
    #[rustfmt::skip]
    let cases = [
        ("the default",           plain.clone(),                    ["at+jwt", "at+jwt"]),
        ("of one resource",       of_payments(plain, "JWT"),        ["at+jwt", "JWT"]),
        ("of all",                of_all.clone(),                   ["JWT", "JWT"]),
        ("of all but one",        of_payments(of_all, "at+jwt"),    ["JWT", "at+jwt"]),
    ];
    let mut findings = Findings::default();
    for (case, configuration, types) in cases {
        if let Err(log) = world.update(&configuration) {
            findings.add(format!("{case}: refused: {log}"));
            continue;
        }
        let asked = [(ORDERS, "orders:read"), (PAYMENTS, "payments:read")];
        for ((resource, scope), name) in asked.into_iter().zip(types) {
            let form = exchange_form(&world.mint());
            let answer = world.exchange(&form.set("resource", resource).set("scope", scope));
            let (header, _) = verify(&answer.member("access_token"), &key_set(&SIGNING_KEY));
            let expected = json!({"alg": "EdDSA", "typ": name, "kid": SIGNING_KEY.kid});
            findings.expect(format!("{case}: {resource}"), &header, &expected);
        }
    }
}

#[test]
fn no_two_access_tokens_have_the_same_jti() {
    let world = World::start(&Configuration::default());
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let claims = claims_of(&world.exchange(&exchange_form(&world.mint())));
        assert!(seen.insert(claims["jti"].as_str().unwrap().to_owned()), "the same jti twice");
    }
}

#[test]
fn an_access_token_has_the_audience_and_lifetime_of_its_resource() {
    let world = World::start(&Configuration::default());
    for (resource, scope, granted, lifetime) in [
        (ORDERS, "orders:read", "orders:read", 3600),
        (PAYMENTS, "payments:read", "payments:read", 900),
        (PLAIN, "anything", "", 3600),
    ] {
        let form = exchange_form(&world.mint()).set("resource", resource).set("scope", scope);
        let answer = world.exchange(&form);
        let claims = claims_of(&answer);
        let body = answer.json();
        assert_eq!(
            (&body["expires_in"], &body["scope"]),
            (&json!(lifetime), &json!(granted)),
            "{resource}"
        );
        assert_eq!(
            (&claims["aud"], &claims["scope"]),
            (&json!(resource), &json!(granted)),
            "{resource}"
        );
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), lifetime);
    }
}

#[test]
fn the_scope_is_the_requested_one_cut_down_to_the_resources() {
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    #[rustfmt::skip]
    let cases = [
        ("orders:read",                            "orders:read"),
        ("orders:read orders:write",               "orders:read orders:write"),
        ("orders:read admin",                      "orders:read"),
        ("admin orders:write openid",              "orders:write"),
        ("orders:read orders:read",                "orders:read"),
    ];
    for (asked, granted) in cases {
        let answer = world.exchange(&exchange_form(&world.mint()).set("scope", asked));
        findings.expect(asked, &answer.member("scope").as_str(), &granted);
        findings.expect(asked, &claims_of(&answer)["scope"], &json!(granted));
    }
}

#[test]
fn the_context_is_not_in_the_access_token() {
    let world = World::start(&Configuration::default());
    let body = json!({"userId": "u-1", "context": {"ticketId": "T-SECRET", "reason": "a"}});
    let token = minted(&world.send(&mint_body_request(&body)));
    let claims = claims_of(&world.exchange(&exchange_form(&token)));
    assert!(!claims.to_string().contains("T-SECRET"), "{claims}");
}

#[test]
fn a_subject_token_yields_one_access_token() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let answer = world.exchange(&exchange_form(&token));
    assert_eq!(answer.status, 200, "{answer:?}");
    for attempt in ["second", "third"] {
        world.assert_spent(&token, attempt);
    }
    // Another client or another resource gets no access token for it either.
    let answer = world.send(&portal_request(&token));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
    let answer = world.exchange(&exchange_form(&token).set("resource", PLAIN));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()));
}

#[test]
fn a_subject_token_ends_with_its_lifetime() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    world.advance(601);
    world.assert_spent(&token, "expired");
    let event = world.last_event();
    let facts = ["reason", "user_id", "caller"].map(|name| event[name].as_str().unwrap());
    assert_eq!(facts, ["subject_token_expired", "u-1", "support-backend"]);
    world.assert_spendable(&world.mint(), "minted after an expiry");
}

#[test]
fn only_a_holder_of_the_secret_learns_that_a_token_is_used_or_expired() {
    let world = World::start(&Configuration::default());
    let describe = |token: &str| world.exchange(&exchange_form(token)).member("error_description");
    let tampered = |token: &str| {
        let (kept, secret) = token.split_at(token.len() - 12);
        let turned: String = secret.chars().map(|c| if c == 'A' { 'B' } else { 'A' }).collect();
        format!("{kept}{turned}")
    };
    let unknown = describe(&format!("sub_{}", URL_SAFE_NO_PAD.encode([7; 40])));

    let used = world.mint();
    assert_eq!(world.exchange(&exchange_form(&used)).status, 200);
    let says_used = describe(&used);
    assert_eq!(describe(&tampered(&used)), unknown, "the secret of a used token");

    let expired = world.mint();
    assert_eq!(describe(&tampered(&expired)), unknown, "the secret of a good token");
    world.advance(601);
    let says_expired = describe(&expired);
    assert_eq!(describe(&tampered(&expired)), unknown, "the secret of an expired token");

    assert_ne!(says_used, says_expired);
    assert_ne!(says_used, unknown);
    assert_ne!(says_expired, unknown);
}

fn actor_token() -> String {
    PROVIDER_KEY.sign(&actor_claims("agent-1"))
}

#[test]
fn a_refused_exchange_says_why_and_leaves_the_token_spendable() {
    says_why_and_leaves_the_token_spendable(&refusals::configuration(), str::to_owned);
}

#[test]
fn a_refused_exchange_says_the_same_at_configured_paths() {
    let configuration = refusals::configuration().with("/paths", paths::keycloaks());
    says_why_and_leaves_the_token_spendable(&configuration, paths::moved);
}

fn says_why_and_leaves_the_token_spendable(
    configuration: &Configuration,
    path: fn(&str) -> String,
) {
    let world = World::start(configuration);
    let send = |request: Request| world.send(&Request { target: path(&request.target), ..request });
    let mut findings = Findings::default();
    for &(case, spoil, (status, error, reason)) in refusals::EXCHANGES {
        let token = minted(&send(mint_request("u-1")));
        let answer = send(spoil(Exchange::new(&token, now())).request());
        findings.expect(case, &answer.refusal(), &(status, error.into()));
        findings.expect(format!("{case}, passed on"), &world.passed_on(&answer), &false);
        describes(&mut findings, case, &answer);
        if answer.text().contains(&token) || answer.text().contains(&*CLIENT_SECRET) {
            findings.add(format!("{case}: a secret comes back in {answer:?}"));
        }
        if answer.status == 401 {
            let (scheme, parameters) = answer.challenge();
            let challenge = (scheme.as_str(), parameters[0].0.as_str());
            findings.expect(case, &challenge, &("Basic", "realm"));
        }
        let event = world.last_event();
        findings.expect(case, &event["event"], &json!("token_exchange.refused"));
        findings.expect(case, &event["reason"], &json!(reason));
        let after = send(exchange_request(&exchange_form(&token)));
        findings.expect(format!("{case}, then the right request"), &after.status, &200);
    }
    findings.expect("alarms", &world.alarms(), &Vec::new());
}

#[test]
fn a_malformed_form_is_refused_and_leaves_the_token_spendable() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let good = exchange_form(&token).encode();
    let mut findings = Findings::default();
    for &(case, spoil, (status, error, _)) in refusals::FORMS {
        let answer = world.send(&raw_exchange_request(&spoil(&good)));
        findings.expect(case, &answer.refusal(), &(status, error.into()));
    }
    world.assert_spendable(&token, "after malformed forms");
}

#[test]
fn a_form_is_read_as_the_url_standard_writes_it() {
    let world = World::start(&Configuration::default());
    let form = |token: &str| exchange_form(token).encode();
    #[rustfmt::skip]
    let cases: Vec<(&str, String)> = vec![
        ("another order",            form(&world.mint_for("u")).split('&').rev().collect::<Vec<_>>().join("&")),
        ("every byte escaped",       form(&world.mint_for("u")).replace("orders%3Aread", "%6f%72%64%65%72%73%3a%72%65%61%64")),
        ("an escaped name",          form(&world.mint_for("u")).replace("scope=", "%73cope=")),
        ("nothing escaped",          form(&world.mint_for("u")).replace("%3A", ":").replace("%2F", "/")),
        ("empty pairs",              format!("&&{}&", form(&world.mint_for("u")))),
        ("unknown parameters",       format!("{}&trace=1&nothing", form(&world.mint_for("u")))),
        ("a space as %20",          form(&world.mint_for("u")).replace("orders%3Aread", "orders%3Aread%20admin")),
        ("requested_token_type",     format!("{}&requested_token_type={ACCESS_TOKEN}", form(&world.mint_for("u")))),
        ("requested_token_type jwt", format!("{}&requested_token_type=urn:ietf:params:oauth:token-type:jwt", form(&world.mint_for("u")))),
    ];
    let mut findings = Findings::default();
    for (case, body) in cases {
        let answer = world.send(&raw_exchange_request(&body));
        findings.expect(case, &(answer.status, world.passed_on(&answer)), &(200, false));
    }
    for content_type in [
        "application/x-www-form-urlencoded; charset=UTF-8",
        "application/x-www-form-urlencoded;charset=utf-8",
        "Application/X-WWW-Form-URLEncoded",
    ] {
        let request = Request::post("/oidc/token").header("content-type", content_type);
        let answer = world.send(&request.body(form(&world.mint_for("u"))));
        findings.expect(content_type, &answer.status, &200);
    }
    let answer = world.send(&{
        let mut request = exchange_request(&exchange_form(&world.mint_for("u")));
        request.target.push_str("?trace=1");
        request
    });
    findings.expect("a query", &answer.status, &200);
}

/// RFC 6749 §3.2: a parameter without a value counts as omitted. Client libraries send some.
#[test]
fn an_empty_parameter_counts_as_omitted() {
    let world = World::start(&Configuration::default());
    let without_value = |token: &str| {
        ["audience", "requested_token_type", "actor_token", "actor_token_type", "organization_id"]
            .into_iter()
            .chain(["client_secret", "client_assertion", "client_assertion_type"])
            .fold(exchange_form(token), |form, name| form.set(name, ""))
    };
    let mut findings = Findings::default();
    for case in ["name=", "name"] {
        let mut body = without_value(&world.mint()).encode();
        if case == "name" {
            body = body
                .split('&')
                .map(|pair| pair.trim_end_matches('='))
                .collect::<Vec<_>>()
                .join("&");
        }
        let answer = world.send(&raw_exchange_request(&body));
        findings.expect(case, &answer.status, &200);
    }
    let by_basic = without_value(&world.mint()).set("client_id", "");
    let by_basic = exchange_request(&by_basic).basic("support-portal", &CLIENT_SECRET);
    findings.expect("Basic", &world.send(&by_basic).status, &200);
    // The client is named in the header alone where tokens are revoked and introspected, too.
    let live = world.exchange(&exchange_form(&world.mint())).member("access_token");
    for path in ["introspection", "revocation"] {
        let form = Form::default().set("token", &live).set("token_type_hint", "");
        let form = form.set("client_id", "").set("client_secret", "").encode();
        let request = Request::post(&format!("/oidc/token/{path}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .basic("support-portal", &CLIENT_SECRET);
        findings.expect(path, &world.send(&request.body(form)).status, &200);
    }
}

#[test]
fn refuses_every_other_subject_token() {
    let world = World::start(&Configuration::default());
    let good = world.mint();
    let secret = good.strip_prefix("sub_").unwrap();
    let random = |length: usize| {
        let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
        URL_SAFE_NO_PAD.encode(bytes)
    };
    #[rustfmt::skip]
    let cases: Vec<(&str, String)> = vec![
        ("the prefix",                "sub_".into()),
        ("half a token",              good[..good.len() / 2].into()),
        ("a character less",          good[..good.len() - 1].into()),
        ("a character more",          format!("{good}A")),
        ("the token twice",           format!("{good}{good}")),
        ("padded",                    format!("{good}=")),
        ("a space after",             format!("{good} ")),
        ("a line feed after",         format!("{good}\n")),
        ("a NUL after",               format!("{good}\0")),
        ("standard base64",           format!("sub_+/{}", &secret[2..])),
        ("not ASCII",                 format!("sub_ü{}", &secret[2..])),
        ("a random one of its length", format!("sub_{}", &random(64)[..secret.len()])),
        ("zeros",                     format!("sub_{}", "A".repeat(secret.len()))),
        ("ones",                      format!("sub_{}", "_".repeat(secret.len()))),
        ("very long",                 format!("sub_{}", random(20_000))),
        ("another prefix",            format!("tok_{secret}")),
        ("the prefix in capitals",    format!("SUB_{secret}")),
        ("no prefix",                 secret.into()),
        ("an access token",           PROVIDER_KEY.sign(&actor_claims("u-1"))),
        ("an opaque token",           random(32)),
        ("empty",                     String::new()),
    ];
    let mut findings = Findings::default();
    for (case, token) in cases {
        let answer = world.exchange(&exchange_form(&token));
        findings.expect(case, &answer.refusal(), &(400, "invalid_request".into()));
        findings.expect(case, &world.passed_on(&answer), &false);
    }
    for place in (4..good.len()).step_by(3) {
        let turned = if &good[place..=place] == "A" { "B" } else { "A" };
        let token = format!("{}{turned}{}", &good[..place], &good[place + 1..]);
        let answer = world.exchange(&exchange_form(&token));
        findings.expect(
            format!("character {place} changed"),
            &answer.refusal(),
            &(400, "invalid_request".into()),
        );
    }
    world.assert_spendable(&good, "after its imitations");
}

#[test]
fn the_order_of_the_checks_tells_strangers_nothing() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let form = || exchange_form(&token);
    let unknown = || exchange_form("sub_AAAA");
    #[rustfmt::skip]
    let cases = [
        ("the form before the client",            form().set("client_id", "nobody").add("scope", "x"),                         400, "invalid_request"),
        ("the client before the grant",           form().set("client_id", "nobody").set("subject_token_type", "x"),            401, "invalid_client"),
        ("the client before the subject token",   unknown().set("client_id", "nobody"),                                        401, "invalid_client"),
        ("the client before the resource",        form().set("client_id", "nobody").set("resource", "https://x.example"),      401, "invalid_client"),
        ("the client before the scope",           form().set("client_id", "nobody").set("scope", "none"),                      401, "invalid_client"),
        ("the client before the actor",           with_actor(form().set("client_id", "nobody"), "x"),                          401, "invalid_client"),
        ("the grant before the resource",         form().set("subject_token_type", "x").set("resource", "https://x.example"),  400, "invalid_request"),
        ("the subject token before the resource", unknown().set("resource", "https://x.example"),                              400, "invalid_request"),
        ("the subject token before the scope",    unknown().set("scope", "none"),                                              400, "invalid_request"),
        ("the resource before the scope",         form().set("resource", "https://x.example").set("scope", "none"),            400, "invalid_target"),
        ("the resource before the actor",         with_actor(form().set("resource", "https://x.example"), "x"),                400, "invalid_target"),
        ("the scope before the actor",            with_actor(form().set("scope", "none"), "x"),                                400, "invalid_scope"),
    ];
    let mut findings = Findings::default();
    for (case, form, status, error) in cases {
        findings.expect(case, &world.exchange(&form).refusal(), &(status, error.into()));
    }
    world.assert_spendable(&token, "after all these");
}

#[test]
fn the_access_token_names_the_actor_if_there_is_one() {
    let world = World::start(&Configuration::default());
    let answer = world.exchange(&with_actor(exchange_form(&world.mint()), &actor_token()));
    let acted = claims_of(&answer);
    assert_eq!((&acted["sub"], &acted["act"]), (&json!("u-1"), &json!({"sub": "agent-1"})));
    assert_eq!(world.last_event()["actor_id"], "agent-1");
    let alone = claims_of(&world.exchange(&exchange_form(&world.mint())));
    assert_eq!(alone.get("act"), None);
}

#[test]
fn an_actor_proves_the_openid_scope_with_a_valid_token() {
    let world = World::start(&Configuration::default());
    let key = &*PROVIDER_KEY;
    let stranger = Key::generate(Algorithm::ES256, &key.kid);
    let actor = |name: &str, value: Value| {
        let mut claims = actor_claims("agent-1");
        claims[name] = value;
        if claims[name].is_null() {
            claims.as_object_mut().unwrap().remove(name);
        }
        claims
    };
    let scp = |value: Value| {
        let mut claims = actor("scope", Value::Null);
        claims["scp"] = value;
        claims
    };
    let signature = actor_token().rsplit_once('.').unwrap().1.to_owned();
    #[rustfmt::skip]
    let cases = [
        ("as it should be",         key.sign(&actor_claims("agent-1")),                        true),
        ("openid alone",            key.sign(&actor("scope", json!("openid"))),                true),
        ("openid at the end",       key.sign(&actor("scope", json!("email openid"))),          true),
        ("openid in scp",           key.sign(&scp(json!("openid"))),                           true),
        ("scope, a list",           key.sign(&actor("scope", json!(["email", "openid"]))),     true),
        ("openid in a list",        key.sign(&scp(json!(["email", "openid"]))),                true),
        ("within the skew",         key.sign(&actor("exp", json!(now() - 30))),                true),
        ("without openid",          key.sign(&actor("scope", json!("profile email"))),         false),
        ("openid2",                 key.sign(&actor("scope", json!("openid2"))),               false),
        ("no scope",                key.sign(&actor("scope", Value::Null)),                    false),
        ("expired",                 key.sign(&actor("exp", json!(now() - 90))),                false),
        ("no expiry",               key.sign(&actor("exp", Value::Null)),                      false),
        ("not yet valid",           key.sign(&actor("nbf", json!(now() + 90))),                false),
        ("another issuer",          key.sign(&actor("iss", json!("https://evil.example"))),    false),
        ("another audience",        key.sign(&actor("aud", json!(ORDERS))),                    false),
        ("no audience",             key.sign(&actor("aud", Value::Null)),                      false),
        ("no subject",              key.sign(&actor("sub", Value::Null)),                      false),
        ("an empty subject",        key.sign(&actor("sub", json!(""))),                        false),
        ("a subject of wrong type", key.sign(&actor("sub", json!(1))),                         false),
        ("a stranger's key",        stranger.sign(&actor_claims("agent-1")),                   false),
        ("alg none",                format!("{}.", unsigned(&json!({"alg": "none"}), &actor_claims("agent-1"))), false),
        ("another's signature",     format!("{}.{signature}", unsigned(&json!({"alg": "RS256", "kid": key.kid}), &actor_claims("agent-2"))), false),
        ("crit",                    key.sign_with(&json!({"alg": "RS256", "kid": key.kid, "crit": ["x"], "x": 1}), &actor_claims("agent-1")), false),
        ("a subject token",         world.mint_for("agent-1"),                                   false),
        ("opaque",                  "0123456789abcdef".into(),                                 false),
    ];
    let mut findings = Findings::default();
    for (case, actor_token, good) in cases {
        let token = world.mint();
        let answer = world.exchange(&with_actor(exchange_form(&token), &actor_token));
        if good {
            findings.expect(case, &answer.status, &200);
        } else {
            findings.expect(case, &answer.refusal(), &(400, "invalid_request".into()));
            describes(&mut findings, case, &answer);
            let after = world.exchange(&with_actor(exchange_form(&token), &self::actor_token()));
            findings.expect(format!("{case}, then the right request"), &after.status, &200);
        }
    }
}

/// The gateway's key set contains our keys, so the token's signature is valid.
#[test]
fn an_impersonations_token_can_neither_mint_nor_act_even_without_an_actor() {
    let keys = jwks(&[&PROVIDER_KEY, &SIGNING_KEY]);
    let audiences = json!([MANAGEMENT, SUPPORT, ORDERS]);
    let scopes = ["openid", "impersonate", "impersonations:read"];
    let operators = json!([{"issuer": ISSUER, "audiences": audiences, "local_jwks": keys}]);
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", keys.clone())
        .with("/subject_tokens/authentication/jwt/0/audiences", audiences.clone())
        .with("/actor_tokens/jwt/0/local_jwks", keys)
        .with("/actor_tokens/jwt/0/audiences", audiences)
        .with("/impersonations/authentication/jwt", operators)
        .with("/resources/0/scopes", json!(scopes));
    let world = World::start(&configuration);
    for typ in ["at+jwt", "JWT"] {
        world.update(&configuration.clone().with("/access_tokens/typ", typ)).unwrap();
        let form = exchange_form(&world.mint()).set("scope", &scopes.join(" "));
        let impersonation = world.exchange(&form).member("access_token");

        let mint = Request::post("/api/subject-tokens").json(&json!({"userId": "u-2"}));
        let minted = world.send(&mint.bearer(&impersonation));
        assert_eq!(minted.refusal(), (401, "invalid_token".into()), "{typ}: {minted:?}");
        let listed = world.send(&Request::get("/api/impersonations").bearer(&impersonation));
        assert_eq!(listed.refusal(), (401, "invalid_token".into()), "{typ}: {listed:?}");
        let form = form.set("subject_token", &world.mint_for("u-2"));
        let refused = world.exchange(&with_actor(form.clone(), &impersonation));
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{typ}: {refused:?}");
        let acted = world.exchange(&with_actor(form, &actor_token()));
        assert_eq!(claims_of(&acted)["act"], json!({"sub": "agent-1"}));
    }
}

/// A token that the filter signed is in the issuer's name, and without an `act` claim it looks like
/// the user's own token. A caller that used it as such would act as another user without being
/// accountable. The filter does not ask the gateway about it either: the gateway knows the filter's
/// keys, and would accept the token.
#[test]
fn a_token_with_the_filters_own_signature_can_neither_mint_nor_act() {
    let retired = Key::generate(Algorithm::ES256, "gateway-0");
    let keys = jwks(&[&PROVIDER_KEY, &SIGNING_KEY, &retired]);
    let signing = json!([{"jwk": SIGNING_KEY.private_jwk()}, {"jwk": retired.public_jwk()}]);
    let asking = Configuration::default()
        .with("/signing_keys", signing)
        .with("/subject_tokens/authentication/jwt/0/local_jwks", keys.clone())
        .with("/subject_tokens/authentication/jwt/0/audiences", json!([MANAGEMENT, SUPPORT]))
        .with("/actor_tokens", json!({"userinfo": userinfo("0s")}));
    let verifying = asking.clone().with(
        "/actor_tokens",
        json!({"jwt": [
            {"issuer": ISSUER, "name_prefix": "", "audiences": [SUPPORT], "local_jwks": keys},
        ]}),
    );
    let world = World::start(&verifying);
    let claims = || changed(actor_claims("agent-1"), &json!({"scope": "openid impersonate"}));
    #[rustfmt::skip]
    let cases = [
        ("a key that signed before", retired.sign(&claims()),                                               "delegated"),
        ("custom claims",            SIGNING_KEY.sign(&changed(claims(), &json!({"azp": {}}))),              "claims"),
        ("for a client alone",       SIGNING_KEY.sign(&changed(claims(), &json!({"sub": null}))),            "delegated"),
    ];
    for (case, token, reason) in cases {
        world.update(&verifying).unwrap();
        let mint = Request::post("/api/subject-tokens").json(&json!({"userId": "u-1"}));
        for _ in ["fresh", "again"] {
            let answer = world.send(&mint.clone().bearer(&token));
            assert_eq!(answer.refusal(), (401, "invalid_token".into()), "{case}: {answer:?}");
            assert_eq!(world.last_event()["reason"], reason, "{case}");
        }
        for configuration in [&verifying, &asking] {
            world.update(configuration).unwrap();
            let answer = world.exchange(&with_actor(exchange_form(&world.mint()), &token));
            assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{case}: {answer:?}");
            assert_eq!(world.last_event()["reason"], "actor_token", "{case}");
        }
    }
    assert_eq!(world.upstream("userinfo").calls(), 0);
}

/// RFC 8693 §3: a JWT may be presented as one. Spring Security does so.
#[test]
fn an_actor_token_that_is_a_jwt_may_be_called_one() {
    const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
    let world = World::start(&Configuration::default());
    let form =
        |token: &str| with_actor(exchange_form(&world.mint()), token).set("actor_token_type", JWT);
    let acted = world.exchange(&form(&actor_token()));
    assert_eq!(claims_of(&acted)["act"], json!({"sub": "agent-1"}));
    let opaque = world.exchange(&form("0123456789abcdef"));
    assert_eq!(opaque.refusal(), (400, "invalid_request".into()));
    assert!(opaque.member("error_description").contains("for a JWT"), "{opaque:?}");
}

#[test]
fn a_subject_token_has_one_of_the_configured_types() {
    const LOGTO: &str = "urn:logto:token-type:impersonation_token";
    let types = |types: Value| Configuration::default().with("/subject_tokens/token_types", types);
    let world = World::start(&Configuration::default());
    let mut findings = Findings::default();
    for (case, configuration, good) in [
        ("the default", None, [true, false]),
        ("another", Some(types(json!([LOGTO]))), [false, true]),
        ("both", Some(types(json!([ACCESS_TOKEN, LOGTO]))), [true, true]),
    ] {
        if let Some(Err(log)) = configuration.map(|one| world.update(&one)) {
            findings.add(format!("{case}: refused: {log}"));
            continue;
        }
        for (name, good) in [ACCESS_TOKEN, LOGTO].into_iter().zip(good) {
            let form = exchange_form(&world.mint()).set("subject_token_type", name);
            let answer = world.exchange(&form);
            findings.expect(
                format!("{case}: {name}"),
                &answer.status,
                &if good { 200 } else { 400 },
            );
        }
    }
}

/// A client that can repair its request is told what to repair, and learns of nothing else.
#[test]
fn a_description_names_the_fault_that_the_client_can_repair() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let foreign = PROVIDER_KEY.sign(&actor_claims("u-1"));
    let by_another = |client_id: &str, secret: &str| {
        exchange_request(&exchange_form(&token)).basic(client_id, secret)
    };
    let mut findings = Findings::default();
    for (case, request, told) in [
        ("two clients", by_another("support-portal", &CLIENT_SECRET), "client_id in the form"),
        ("of which one is unknown", by_another("nobody", "x"), "client_id in the form"),
        (
            "a foreign subject token without a scope",
            exchange_request(&exchange_form(&foreign).without("scope")),
            "begin with sub_",
        ),
    ] {
        let description = world.send(&request).member("error_description");
        findings.expect(format!("{case}: {description}"), &description.contains(told), &true);
    }
}

#[test]
fn an_actor_may_be_required_of_all_or_of_one_client() {
    let configuration = Configuration::default().with(
        "/clients/-",
        json!({"client_id": "strict", "type": "single_page", "actor_token_required": true}),
    );
    let world = World::start(&configuration);
    let refused = (400, "invalid_request".to_owned());
    let by_strict = |token: &str| exchange_form(token).set("client_id", "strict");

    let token = world.mint();
    assert_eq!(world.exchange(&by_strict(&token)).refusal(), refused);
    assert_eq!(world.exchange(&with_actor(by_strict(&token), &actor_token())).status, 200);
    assert_eq!(world.exchange(&exchange_form(&world.mint())).status, 200, "other clients");

    world.update(&configuration.with("/actor_tokens/required", true)).unwrap();
    let token = world.mint();
    assert_eq!(world.exchange(&exchange_form(&token)).refusal(), refused);
    assert_eq!(world.exchange(&with_actor(exchange_form(&token), &actor_token())).status, 200);
}

#[test]
fn an_actor_token_is_refused_if_nothing_is_configured_to_check_it() {
    let world = World::start(&Configuration::default().without("/actor_tokens"));
    let token = world.mint();
    let answer = world.exchange(&with_actor(exchange_form(&token), &actor_token()));
    assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
    world.assert_spendable(&token, "after an actor token that cannot be checked");
}

#[test]
fn the_flow_works_below_a_base_path() {
    let world = World::start(&Configuration::default().with("/base_path", "/tenant-a"));
    let at = |request: Request| {
        let target = format!("/tenant-a{}", request.target);
        Request { target, ..request }
    };
    let token = minted(&world.send(&at(mint_body_request(&json!({"userId": "u-1"})))));
    let elsewhere = world.exchange(&exchange_form(&token));
    assert!(world.passed_on(&elsewhere), "{elsewhere:?}");
    assert_eq!(world.send(&at(exchange_request(&exchange_form(&token)))).status, 200);
    for path in ["/tenant-a/oidc/jwks", "/tenant-a/oidc/.well-known/openid-configuration"] {
        assert_eq!(world.send(&Request::get(path)).status, 200, "{path}");
    }
    for path in ["/api/subject-tokens", "/oidc/jwks", "/tenant-b/oidc/jwks", "/tenant-a2/oidc/jwks"]
    {
        let answer = world.send(&Request::get(path));
        assert!(world.passed_on(&answer), "{path}: {answer:?}");
    }
}

/// An impersonation needs a second person who can be held accountable.
#[test]
fn an_actor_cannot_impersonate_themselves() {
    let world = World::start(&Configuration::default());
    let token = world.mint();
    let own = with_actor(exchange_form(&token), &PROVIDER_KEY.sign(&actor_claims("u-1")));
    let answer = world.exchange(&own);
    assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{answer:?}");
    assert_eq!(world.last_event()["actor_id"], "u-1");
    world.assert_spendable(&token, "after its own user acted");
}

/// None of the facts of a sign-in is at top level, where it would speak of the user.
#[test]
fn the_session_of_the_actor_is_named_beside_the_actor() {
    let world = World::start(&Configuration::default());
    let signed_in = changed(actor_claims("agent-1"), &json!({"acr": "phr", "auth_time": now()}));
    #[rustfmt::skip]
    let cases = [
        ("a session",     changed(signed_in.clone(), &json!({"sid": "s-1"})), json!({"sub": "agent-1", "sid": "s-1"})),
        ("an empty name", changed(signed_in.clone(), &json!({"sid": ""})),    json!({"sub": "agent-1"})),
        ("no session",    signed_in,                                          json!({"sub": "agent-1"})),
    ];
    for (case, actor, act) in cases {
        let form = with_actor(exchange_form(&world.mint()), &PROVIDER_KEY.sign(&actor));
        let claims = claims_of(&world.exchange(&form));
        assert_eq!(claims["act"], act, "{case}");
        for name in ["sid", "acr", "auth_time"] {
            assert_eq!(claims.get(name), None, "{case}");
        }
    }
}

#[test]
fn a_client_that_leaves_scope_out_is_told_that_it_is_required() {
    let world = World::start(&Configuration::default());
    let form = exchange_form(&world.mint());
    for form in [form.clone().without("scope"), form.set("scope", "")] {
        let told = world.exchange(&form).member("error_description");
        assert!(told.contains("needs scope"), "{told}");
        assert!(!told.contains("orders"), "{told}");
    }
}

#[test]
fn a_request_that_is_not_for_the_filter_goes_on() {
    let world = World::start(&Configuration::default());
    let foreign = exchange_form("eyJhbGciOiJub25lIn0.e30.");
    let at = |method: &str, path: &str| Request {
        method: method.into(),
        target: path.into(),
        ..exchange_request(&foreign)
    };
    let json = Request::post("/oidc/token").header("content-type", "application/json");
    let mut others = vec![
        exchange_request(&foreign.clone().without("grant_type")),
        json.body(foreign.encode()),
        at("GET", "/oidc/token"),
        at("OPTIONS", "/api/subject-tokens"),
        at("POST", "/oidc/tokens"),
        at("POST", "/"),
    ];
    for grant in ["authorization_code", "refresh_token", "client_credentials", ""] {
        others.push(exchange_request(&foreign.clone().set("grant_type", grant)));
    }
    for request in others {
        assert!(world.passed_on(&world.send(&request)), "{request:?}");
    }
    let refused = world.exchange(&foreign);
    assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{refused:?}");

    let passes = Configuration::default().with("/foreign_subject_tokens", "pass_through");
    world.update(&passes).unwrap();
    assert!(world.passed_on(&world.exchange(&foreign)));
    let spelled = exchange_form(&world.mint()).encode();
    let spelled =
        spelled.replace("grant_type", "grant%5Ftype").replace("subject_token", "subject%5ftoken");
    let answer = world.send(&raw_exchange_request(&spelled));
    assert_eq!(answer.status, 200, "names can be escaped too: {answer:?}");
    // The filter does not read the part of a form behind 64 KiB of padding.
    let padded = format!("x={}&{spelled}", "y".repeat(65_536));
    assert!(world.passed_on(&world.send(&raw_exchange_request(&padded))));
    world.update(&Configuration::default()).unwrap();
    let answer = world.send(&raw_exchange_request(&padded));
    assert_eq!(answer.refusal(), (413, "invalid_request".into()), "{answer:?}");
}
