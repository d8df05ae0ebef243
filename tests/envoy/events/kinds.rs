//! Kinds of tokens cannot be confused, in either direction (RFC 8725 §3.11 and §3.12). One key
//! signs for all of them, as that of an identity gateway does, so only their rules keep them apart.

use serde_json::{Value, json};

use super::{Live, actor_token, exchange, mint, shared};
use testkit::Findings;
use testkit::configuration::{ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, SUPPORT};
use testkit::events::{
    CAEP, PORTAL, RECEIVER, event_claims, event_request, logout_claims, logout_request, sign,
    unique_jti,
};
use testkit::gateway::{backend_claims, now};
use testkit::guarded::operator_with;
use testkit::http::Request;

/// The endpoints, by what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Caller,
    SubjectToken,
    ActorToken,
    Operator,
    LogoutToken,
    SecurityEvent,
    Impersonation,
}

const ALL: [Takes; 7] = {
    use Takes::*;
    [Caller, SubjectToken, ActorToken, Operator, LogoutToken, SecurityEvent, Impersonation]
};

impl Takes {
    /// The statuses of success and of refusal.
    const fn statuses(self) -> (u16, &'static [u16]) {
        match self {
            Self::Caller => (201, &[401, 403]),
            Self::SubjectToken | Self::ActorToken | Self::LogoutToken => (200, &[400]),
            Self::Operator => (200, &[401, 403]),
            Self::SecurityEvent => (202, &[400]),
            Self::Impersonation => (200, &[401, 403]),
        }
    }

    /// Presents a token.
    fn present(self, token: &str, live: &Live) -> u16 {
        let guarded = shared();
        let to_filter = |request: &Request| guarded.send_to_filter(request).status;
        match self {
            Self::Caller => {
                let mint = Request::post("/api/subject-tokens").bearer(token);
                to_filter(&mint.json(&json!({"userId": "u-1"})))
            }
            Self::SubjectToken => {
                exchange(token, &actor_token(&live.actor, &live.sid, now())).status
            }
            Self::ActorToken => exchange(&mint("u-1"), token).status,
            Self::Operator => to_filter(&Request::get("/api/impersonations").bearer(token)),
            Self::LogoutToken => to_filter(&logout_request(token)),
            Self::SecurityEvent => to_filter(&event_request(token)),
            Self::Impersonation => guarded.send_as(token, Request::get("/orders")).status,
        }
    }
}

/// All audiences at once: an audience alone must not keep two kinds apart.
fn everywhere() -> Value {
    json!([MANAGEMENT, SUPPORT, ORDERS, PORTAL, RECEIVER, ISSUER])
}

#[test]
fn no_kind_of_token_passes_for_another() {
    let with = |mut claims: Value, members: Value| {
        claims.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        claims
    };
    // Whoever confuses two kinds finds all that an access token needs.
    let lures = json!({
        "aud": everywhere(), "exp": now() + 3600, "client_id": "support-backend",
        "scope": "impersonate openid impersonations:read", "sub": "agent-kinds",
        "jti": unique_jti(), "auth_time": now(),
    });
    let live = Live::begin();
    let id_token = json!({
        "iss": ISSUER, "sub": "agent-kinds", "aud": PORTAL, "azp": PORTAL, "iat": now(),
        "exp": now() + 300, "nonce": "n", "sid": live.sid, "auth_time": now(), "at_hash": "x",
    });
    let assertion = json!({
        "iss": PORTAL, "sub": PORTAL, "aud": ISSUER, "iat": now(), "exp": now() + 60,
        "jti": unique_jti(),
    });
    // Each endpoint needs a fresh token of a kind that counts once.
    type Make = Box<dyn Fn() -> String>;
    let kinds: [(&str, Option<Takes>, Make); 13] = [
        (
            "a caller's access token",
            Some(Takes::Caller),
            Box::new(|| PROVIDER_KEY.sign(&backend_claims())),
        ),
        (
            "an operator's access token",
            Some(Takes::Operator),
            Box::new(|| operator_with("impersonations:read")),
        ),
        (
            "an actor token",
            Some(Takes::ActorToken),
            Box::new(|| actor_token("agent-kinds", "s-kinds", now())),
        ),
        ("a subject token", Some(Takes::SubjectToken), Box::new(|| mint("u-1"))),
        (
            "an impersonation's access token",
            Some(Takes::Impersonation),
            Box::new(|| Live::begin().access_token),
        ),
        ("an ID token", None, {
            let id_token = id_token.clone();
            Box::new(move || sign("JWT", &id_token))
        }),
        ("a client assertion", None, {
            let assertion = assertion.clone();
            Box::new(move || sign("JWT", &assertion))
        }),
        ("an assertion of its own type", None, {
            Box::new(move || sign("client-authentication+jwt", &assertion))
        }),
        (
            "a logout token",
            Some(Takes::LogoutToken),
            Box::new(|| sign("logout+jwt", &logout_claims("another"))),
        ),
        ("a logout token for everywhere", Some(Takes::LogoutToken), {
            let lures = lures.clone();
            Box::new(move || {
                let lures = with(lures.clone(), json!({"jti": unique_jti()}));
                sign("logout+jwt", &with(logout_claims("another"), lures))
            })
        }),
        ("a logout token of type JWT for everywhere", Some(Takes::LogoutToken), {
            let lures = lures.clone();
            Box::new(move || {
                let lures = with(lures.clone(), json!({"jti": unique_jti()}));
                sign("JWT", &with(logout_claims("another"), lures))
            })
        }),
        (
            "a security event",
            Some(Takes::SecurityEvent),
            Box::new(|| {
                let kind = format!("{CAEP}session-revoked");
                sign("secevent+jwt", &event_claims(&kind, &json!({}), "another"))
            }),
        ),
        ("a security event for everywhere", Some(Takes::SecurityEvent), {
            Box::new(move || {
                let kind = format!("{CAEP}session-revoked");
                let lures = with(lures.clone(), json!({"jti": unique_jti()}));
                sign("secevent+jwt", &with(event_claims(&kind, &json!({}), "another"), lures))
            })
        }),
    ];
    let mut findings = Findings::default();
    for (kind, taken_by, make) in &kinds {
        for endpoint in ALL {
            // `jwt_authn` of an API looks at issuer, audience and signature, and not at the type:
            // the guard lets ordinary users pass.
            let has_all_audiences = kind.ends_with("for everywhere");
            if endpoint == Takes::Impersonation && has_all_audiences {
                continue;
            }
            let status = endpoint.present(&make(), &live);
            let (good, refused) = endpoint.statuses();
            let case = format!("{kind} as {endpoint:?}: {status}");
            if *taken_by == Some(endpoint) {
                findings.expect(case, &status, &good);
            } else {
                findings.expect(case, &refused.contains(&status), &true);
            }
        }
    }
    assert!(!live.has_ended(), "none of them ends anything of this one");
}
