//! The scripts in this folder, each with what it is given and what it gives. `reference.test.js` holds them
//! against another engine.

use std::fs;
use std::path::Path;

use serde_json::Value;

pub struct Case {
    pub name: String,
    pub script: String,
    /// As for `impersonation-filter claims`.
    pub input: Value,
    /// The claims, or the description of a denial.
    pub outcome: Result<Value, String>,
}

pub fn all() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/claims-scripts");
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
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 15, "the scripts have gone");
    cases
}
