//! The scripts of `tests/claims-scripts` and the one of docs/custom-claims.md, each with its input
//! and its output. `reference.test.js` there compares them with another engine.

use serde_json::Value;
use std::fs;

use crate::configuration::Configuration;
use crate::gateway::{exchange_form, exchange_request};
use crate::http::Request;
use crate::repository;

pub struct Case {
    pub name: String,
    pub script: String,
    /// The input, as for `impersonation-filter claims`.
    pub input: Value,
    /// The claims, or the description of a denial.
    pub outcome: Result<Value, String>,
}

pub fn all() -> Vec<Case> {
    let folder = repository().join("tests/claims-scripts");
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let mut case: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        cases.push(Case {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            script: fs::read_to_string(path.with_extension("js")).unwrap(),
            input: case["input"].take(),
            outcome: match &case["denied"] {
                Value::String(description) => Err(description.clone()),
                _ => Ok(case["claims"].take()),
            },
        });
    }
    let docs = |name: &str| {
        let path = repository().join("docs/claims").join(name);
        fs::read_to_string(path).unwrap()
    };
    let page = fs::read_to_string(repository().join("docs/custom-claims.md")).unwrap();
    let (_, claims) = page.split_once("--input docs/claims/input.json\n").unwrap();
    let (claims, _) = claims.split_once("```").unwrap();
    cases.push(Case {
        name: "the documentation's".into(),
        script: docs("impersonation.js"),
        input: serde_json::from_str(&docs("input.json")).unwrap(),
        outcome: Ok(serde_json::from_str(claims).unwrap()),
    });
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 15, "the scripts have gone");
    cases
}

/// A configuration with this script.
pub fn script(source: &str) -> Configuration {
    Configuration::default().with("/custom_claims/script", source)
}

/// A configuration whose function has this body. Its timeout is long enough for a busy machine.
pub fn function(body: &str) -> Configuration {
    script(&format!(
        "const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => {{\n{body}\n}};"
    ))
    .with("/custom_claims/timeout", "1s")
}

/// An exchange for `orders:write`: the scripts of these tests fail for this scope.
pub fn misbehaving(subject_token: &str) -> Request {
    exchange_request(&exchange_form(subject_token).set("scope", "orders:write"))
}

/// Leaves the claims of an access token that a script has added.
pub fn custom(mut claims: Value) -> Value {
    for name in ["iss", "sub", "aud", "client_id", "iat", "exp", "jti", "txn", "scope"] {
        assert!(claims.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    claims
}
