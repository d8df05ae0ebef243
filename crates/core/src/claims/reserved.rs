//! The claims that no script may set.

use serde_json::{Map, Value};

use super::ClaimsError;

/// What the token says by itself; what would take effect in it (`nbf`, `cnf`, `may_act`, `txn`), or does
/// as another name of something else (`scp` of `scope`, `azp` of `client_id`); and the name that a
/// consumer in JavaScript may read as all of them at once.
pub(super) const RESERVED: [&str; 16] = [
    "iss",
    "sub",
    "aud",
    "exp",
    "iat",
    "nbf",
    "jti",
    "client_id",
    "scope",
    "act",
    "may_act",
    "cnf",
    "txn",
    "scp",
    "azp",
    "__proto__",
];

/// Reads what a script returned. It is checked as the JSON that it has become: whatever proxies,
/// getters and `toJSON` had to say has been said.
pub(super) fn read(json: &str) -> Result<Map<String, Value>, ClaimsError> {
    match serde_json::from_str(json) {
        Ok(Value::Object(claims)) => {
            match RESERVED.into_iter().find(|name| claims.contains_key(*name)) {
                Some(name) => Err(ClaimsError::Reserved(name)),
                None => Ok(claims),
            }
        }
        Ok(_) => Err(ClaimsError::NotAnObject),
        // QuickJS wrote it, so it is JSON: but JSON may say what Rust has no string for, or go deeper
        // than any consumer should have to.
        Err(_) => Err(ClaimsError::NotPortable),
    }
}
