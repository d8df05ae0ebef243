//! The JSON Schema for editors, held to the parser: it has the same members everywhere, and refuses nothing that the
//! parser takes.

use jsonschema::Validator;

use super::*;

const SCHEMA: &str = include_str!("../../../../../../docs/configuration.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).unwrap()
}

/// [`full`] with those members that are good for one kind of module or of deployment only.
fn everything() -> Value {
    let max_stale = "/subject_tokens/authentication/jwt/0/remote_jwks/max_stale";
    let mut value = with(max_stale, json!("1h"));
    if cfg!(feature = "custom-claims") {
        value["custom_claims"] = json!({
            "script": "const getCustomJwtClaims = () => ({})",
            "environment_variables": {"REGION": "eu"},
            "on_error": "issue_without",
            "timeout": "20ms",
            "memory_limit_bytes": 2_097_152,
        });
    }
    value
}

/// The same with its tokens in etcd.
fn everything_in_etcd() -> Value {
    let etcd = json!({"cluster": "c", "prefix": "/p/", "timeout": "2s", "authority": "a"});
    removed(changed(everything(), "/store", json!({"etcd": etcd})), "/impersonations")
}

/// What the schema says of a place, by its JSON pointer.
fn at(schema: &Value, pointer: &str) -> Value {
    let resolve = |mut place: Value| {
        while let Some(name) = place.get("$ref").or_else(|| place.pointer("/allOf/0/$ref")) {
            let name = name.as_str().unwrap().strip_prefix('#').unwrap();
            place = schema.pointer(name).unwrap().clone();
        }
        place
    };
    pointer.split('/').skip(1).fold(schema.clone(), |place, step| {
        let next = if step.parse::<usize>().is_ok() {
            place.get("items")
        } else {
            place["properties"].get(step).or_else(|| place.get("additionalProperties"))
        };
        let next = next.unwrap_or_else(|| panic!("{pointer}: the schema has no {step}"));
        resolve(next.clone())
    })
}

/// The list at the end of the message that the parser has for a value there.
fn listed(value: &Value, before: &str) -> Option<Vec<String>> {
    let problems = problems(value);
    let list = problems.iter().find_map(|problem| problem.expected.strip_prefix(before))?;
    let mut list: Vec<_> = list.split(", ").map(str::to_owned).collect();
    list.sort();
    Some(list)
}

fn sorted<'w>(words: impl Iterator<Item = &'w str>) -> Vec<String> {
    let mut words: Vec<_> = words.map(str::to_owned).collect();
    words.sort();
    words
}

#[test]
fn it_has_the_members_and_the_words_of_the_parser() {
    let schema = schema();
    let all = [everything(), everything_in_etcd()];
    let places =
        all.iter().flat_map(|value| places(value).into_iter().map(move |place| (value, place)));
    for (everything, (pointer, path)) in places {
        let said = at(&schema, &pointer);
        if let Some(members) = said["properties"].as_object().filter(|_| !pointer.ends_with("/jwk"))
        {
            let value = changed(everything.clone(), &format!("{pointer}/colour"), json!("blue"));
            let known = listed(&value, "unknown member; expected one of ");
            let members = sorted(members.keys().map(String::as_str));
            assert_eq!(Some(members), known, "{path}");
            assert_eq!(said["additionalProperties"], false, "{path}");
        }
        if let Some(words) = said["enum"].as_array().filter(|_| !path.ends_with(".alg")) {
            let known =
                listed(&changed(everything.clone(), &pointer, json!("\u{0}")), "expected one of ");
            assert_eq!(Some(sorted(words.iter().filter_map(Value::as_str))), known, "{path}");
        }
        if said["type"] == "integer" {
            let bounds = ["minimum", "maximum"].map(|name| said[name].as_u64().unwrap());
            let takes =
                |number: u64| parse(&changed(everything.clone(), &pointer, number.into())).is_ok();
            assert!(bounds.into_iter().all(takes), "{path}");
            assert!(!takes(bounds[0] - 1) && !takes(bounds[1] + 1), "{path}");
        }
    }
}

#[test]
fn it_refuses_what_is_misspelt_mistyped_or_missing() {
    let validator = validator();
    for valid in [full(), minimal(), everything(), everything_in_etcd()] {
        let errors: Vec<_> = validator.iter_errors(&valid).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
    for (pointer, path) in places(&everything()).into_iter().skip(1) {
        let value = everything();
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
        // What one member says of another is for the parser alone.
        let elsewhere = ["actor_tokens", "resources[0]"].contains(&&*path);
        let fine = parse(&missing).is_ok() || elsewhere;
        assert_eq!(validator.is_valid(&missing), fine, "without {path}");
    }
}

proptest! {
    #[test]
    fn it_refuses_nothing_that_the_parser_takes(
        changes in prop::collection::vec((any::<Index>(), any_json()), 1..3)
    ) {
        thread_local! {
            static VALIDATOR: Validator = validator();
        }
        let mut value = full();
        for (index, new) in changes {
            let places = places(&value);
            let (pointer, _) = index.get(&places);
            *value.pointer_mut(pointer).unwrap() = new;
        }
        if parse(&value).is_ok() {
            prop_assert!(VALIDATOR.with(|validator| validator.is_valid(&value)), "{value}");
        }
    }
}
