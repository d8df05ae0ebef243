//! Compares the JSON Schemas for editors with the parsers. A schema must refuse misspelt, mistyped
//! and missing members, and must accept everything that the parser accepts.

use jsonschema::Validator;

use super::*;
use crate::config::{GuardConfig, guard};

/// A schema and the parser of the same configuration.
struct Schema {
    text: &'static str,
    /// Valid configurations that together have every member.
    complete: fn() -> Vec<Value>,
    /// A valid configuration with the required members only.
    minimal: fn() -> Value,
    problems: fn(&Value) -> Vec<Problem>,
    /// Members that the schema lets be absent although another member refers to them.
    elsewhere: &'static [&'static str],
}

const FILTER: Schema = Schema {
    text: include_str!("../../../../../../docs/configuration.schema.json"),
    complete: || vec![everything(), everything_in_etcd()],
    minimal,
    problems: |value| parse(value).err().map(|error| error.problems).unwrap_or_default(),
    elsewhere: &[
        "actor_tokens",
        "resources[0]",
        "resources[2]",
        "clients[3].resources",
        "clients[4].resources",
        "clients[5].resources",
        "subject_tokens.authentication.introspection.name_prefix",
        "actor_tokens.introspection.name_prefix",
        "actor_tokens.userinfo.name_prefix",
        "identity_gateway.cluster",
        "impersonations.authentication.introspection.name_prefix",
        "approvals.authentication.introspection.name_prefix",
    ],
};

const GUARD: Schema = Schema {
    text: include_str!("../../../../../../docs/guard.schema.json"),
    complete: || vec![guard::tests::full(), guard_with_etcd()],
    minimal: || json!({"issuer": "https://auth.example.com/oidc"}),
    problems: |value| {
        let error = GuardConfig::from_value(value).err();
        error.map(|error| error.problems).unwrap_or_default()
    },
    elsewhere: &["public_origin"],
};

impl Schema {
    fn read(&self) -> Value {
        serde_json::from_str(self.text).unwrap()
    }

    fn validator(&self) -> Validator {
        jsonschema::validator_for(&self.read()).unwrap()
    }

    fn accepts(&self, value: &Value) -> bool {
        (self.problems)(value).is_empty()
    }
}

/// [`full`], and the members that only one kind of module or deployment has.
fn everything() -> Value {
    let max_stale = "/subject_tokens/authentication/jwt/0/remote_jwks/max_stale";
    let mut value = with(max_stale, json!("1h"));
    value["custom_claims"] = json!({
        "script": "const getCustomJwtClaims = () => ({})",
        "environment_variables": {"REGION": "eu"},
        "on_error": "issue_without",
        "timeout": "20ms",
        "memory_limit_bytes": 2_097_152,
    });
    value
}

/// [`everything`], with the tokens in etcd.
fn everything_in_etcd() -> Value {
    let etcd = json!({"cluster": "c", "prefix": "/p/", "timeout": "2s", "authority": "a"});
    removed(changed(everything(), "/store", json!({"etcd": etcd})), "/impersonations")
}

fn guard_with_etcd() -> Value {
    let etcd = json!({"cluster": "c", "prefix": "/p/", "timeout": "2s", "authority": "a"});
    changed(guard::tests::full(), "/store", json!({"etcd": etcd}))
}

fn assert_refuses_misspelt_mistyped_and_missing(held: &Schema) {
    let validator = held.validator();
    let everything = (held.complete)().swap_remove(0);
    for valid in (held.complete)().into_iter().chain([(held.minimal)()]) {
        let errors: Vec<_> = validator.iter_errors(&valid).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
    for (pointer, path) in places(&everything).into_iter().skip(1) {
        let value = everything.clone();
        let old = value.pointer(&pointer).unwrap();
        let own_names = pointer.ends_with("/jwk") || pointer.ends_with("/environment_variables");
        if old.is_object() && !own_names {
            let misspelt = changed(value.clone(), &format!("{pointer}/colour"), json!("blue"));
            assert!(!validator.is_valid(&misspelt), "{path}.colour");
        }
        for other in [json!(null), json!(true), json!(7.5), json!("\u{0}"), json!([]), json!({})] {
            if std::mem::discriminant(&other) != std::mem::discriminant(old) {
                let mistyped = changed(value.clone(), &pointer, other.clone());
                assert!(!validator.is_valid(&mistyped), "{path} = {other}");
            }
        }
        let missing = removed(value.clone(), &pointer);
        // Only the parser knows the rules between two members.
        let fine = held.accepts(&missing) || held.elsewhere.contains(&&*path);
        assert_eq!(validator.is_valid(&missing), fine, "without {path}");
    }
}

#[test]
fn a_schema_refuses_misspelt_mistyped_and_missing_members() {
    assert!(FILTER.validator().is_valid(&full()));
    assert_refuses_misspelt_mistyped_and_missing(&FILTER);
    assert_refuses_misspelt_mistyped_and_missing(&GUARD);
}

/// Replaces some values of the configuration.
fn changed_at(mut value: Value, changes: Vec<(Index, Value)>) -> Value {
    for (index, new) in changes {
        let places = places(&value);
        let (pointer, _) = index.get(&places);
        *value.pointer_mut(pointer).unwrap() = new;
    }
    value
}

fn assert_accepts_what_the_parser_accepts(held: &Schema, validator: &Validator, value: &Value) {
    assert!(!held.accepts(value) || validator.is_valid(value), "{value}");
}

thread_local! {
    static FILTERS: Validator = FILTER.validator();
    static GUARDS: Validator = GUARD.validator();
}

proptest! {
    #[test]
    fn a_schema_accepts_what_the_parser_accepts(
        changes in prop::collection::vec((any::<Index>(), any_json()), 1..3)
    ) {
        let value = changed_at(full(), changes.clone());
        FILTERS.with(|it| assert_accepts_what_the_parser_accepts(&FILTER, it, &value));
        for value in (GUARD.complete)() {
            let value = changed_at(value, changes.clone());
            GUARDS.with(|it| assert_accepts_what_the_parser_accepts(&GUARD, it, &value));
        }
    }
}
