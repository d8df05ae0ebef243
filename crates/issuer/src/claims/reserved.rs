//! The claims that a script must not set.

use serde_json::{Map, Value};

use super::ClaimsError;

/// The reserved claims: those that the filter sets, those that would take effect in a token (`nbf`,
/// `cnf`, `may_act`, `txn`), and other names for claims that the filter sets (`scp` for `scope`,
/// `azp` for `client_id`). A consumer in JavaScript may read `__proto__` as all claims at once.
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

/// Reads the claims that a script returned. The check sees the final JSON, so proxies, getters and
/// `toJSON` cannot change it afterwards.
pub(super) fn read(json: &str) -> Result<Map<String, Value>, ClaimsError> {
    match serde_json::from_str(json) {
        Ok(Value::Object(claims)) => {
            match RESERVED.into_iter().find(|name| claims.contains_key(*name)) {
                Some(name) => Err(ClaimsError::Reserved(name)),
                None => Ok(claims),
            }
        }
        Ok(_) => Err(ClaimsError::NotAnObject),
        // QuickJS wrote the JSON. It may still hold text that is no Rust string, or be nested
        // deeper than every consumer can read.
        Err(_) => Err(ClaimsError::NotPortable),
    }
}
