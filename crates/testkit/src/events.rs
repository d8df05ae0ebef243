//! The identity gateway as a sender of logout tokens and security events.

use serde_json::{Value, json};

use crate::configuration::{Configuration, ISSUER, PROVIDER_KEY, jwks, sha256_hex};
use crate::gateway::now;
use crate::http::{Form, Request};

/// The path for logout tokens.
pub const LOGOUT_PATH: &str = "/oidc/backchannel-logout";
/// The path for security events.
pub const EVENTS_PATH: &str = "/api/security-events";
/// The media type of security events.
pub const EVENT_TYPE: &str = "application/secevent+jwt";

/// The audience of logout tokens.
pub const PORTAL: &str = "support-portal";
/// The audience of security events.
pub const RECEIVER: &str = "https://gateway.example.com/api/security-events";
/// The `Authorization` header of the transmitter.
pub const AUTHORIZATION: &str = "Bearer of the transmitter";

/// The member of `events` in a logout token.
pub const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// The prefix of CAEP's events.
pub const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
/// The prefix of RISC's events.
pub const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
/// The prefix of the events of the framework itself.
pub const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

/// The configuration with one sender for each kind of event: the identity gateway.
pub fn receiving(configuration: Configuration) -> Configuration {
    let keys = jwks(&[&PROVIDER_KEY]);
    let logouts = json!([{"issuer": ISSUER, "audiences": [PORTAL], "local_jwks": keys}]);
    let events = json!([{
        "issuer": ISSUER, "audiences": [RECEIVER], "local_jwks": keys,
        "authorization_sha256": [sha256_hex(AUTHORIZATION)],
    }]);
    configuration
        .with("/impersonations/back_channel_logout", logouts)
        .with("/impersonations/security_events", events)
}

/// Signs a statement with this `typ`.
pub fn sign(r#type: &str, claims: &Value) -> String {
    let header = json!({"alg": PROVIDER_KEY.alg, "kid": PROVIDER_KEY.kid, "typ": r#type});
    PROVIDER_KEY.sign_with(&header, claims)
}

/// An id that no other event has.
pub fn unique_jti() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// The claims of a logout token that ends this session.
pub fn logout_claims(sid: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": PORTAL, "iat": now(), "exp": now() + 120, "jti": unique_jti(),
        "sid": sid, "events": {LOGOUT: {}},
    })
}

/// The claims of an event about an actor.
pub fn event_claims(kind: &str, event: &Value, actor: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": RECEIVER, "iat": now(), "jti": unique_jti(),
        "sub_id": {"format": "iss_sub", "iss": ISSUER, "sub": actor},
        "events": {kind: event},
    })
}

/// A good event about an actor, signed, that ends all impersonations of this actor.
pub fn session_revoked(actor: &str) -> String {
    sign("secevent+jwt", &event_claims(&format!("{CAEP}session-revoked"), &json!({}), actor))
}

/// The request that brings a logout token.
pub fn logout_request(token: &str) -> Request {
    Request::post(LOGOUT_PATH)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Form::default().set("logout_token", token).encode())
}

/// The request that brings a security event.
pub fn event_request(token: &str) -> Request {
    Request::post(EVENTS_PATH)
        .header("content-type", EVENT_TYPE)
        .header("authorization", AUTHORIZATION)
        .body(token)
}
