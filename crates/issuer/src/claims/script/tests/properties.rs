//! JSON that a script returns unchanged comes out as the same JSON.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

thread_local! {
    static SCRIPT: Script = script();
}

/// A script that returns its input in three ways.
fn script() -> Script {
    // The limits are as large as the engine allows. Other tests cover them.
    let limits =
        Limits { timeout: Duration::from_secs(10), output_bytes: 1 << 20, ..Limits::default() };
    let source = "const getCustomJwtClaims = async ({ token: { way }, context: { grant } }) => {
        const { subjectTokenContext } = grant;
        if (way === 'whole') return subjectTokenContext;
        if (way === 'units') return { text: String.fromCharCode(...subjectTokenContext.units) };
        return { within: subjectTokenContext, copy: JSON.parse(JSON.stringify(subjectTokenContext)) };
    };";
    Script::compile(source, &limits, &BTreeMap::new()).unwrap()
}

fn give(way: &str, context: &Value) -> Result<Value, ClaimsError> {
    let token = json!({ "way": way }).to_string();
    let input = Input {
        token: &token,
        grant_type: TOKEN_EXCHANGE,
        subject_token_context: &context.to_string(),
    };
    SCRIPT.with(|script| script.run(&input, &mut |_| ())).map(Value::Object)
}

/// Converts JSON as JavaScript does: all numbers are floats, and there is one zero.
fn as_javascript(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap() + 0.0),
        Value::Array(items) => items.iter().map(as_javascript).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), as_javascript(value))).collect(),
        ),
        other => other.clone(),
    }
}

/// Names with a meaning to JavaScript or JSON, and arbitrary names.
fn name() -> impl Strategy<Value = String> {
    static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
        let known = [
            "0",
            "1",
            "10",
            "-1",
            "01",
            "4294967295",
            "__proto__",
            "constructor",
            "toJSON",
            "length",
            "then",
            "",
            "\0",
            "sub",
        ];
        known.iter().map(|name| (*name).to_owned()).collect()
    });
    prop_oneof![proptest::sample::select(&**KNOWN), any::<String>(), "[a-z]{1,8}"]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has it", |number| number.is_finite()).prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        proptest::sample::select(vec![
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            -0.0,
            1e21,
            1e-7,
            2_f64.powi(53) + 2.0
        ])
        .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        any::<String>().prop_map(Value::from),
        "[\\u{0}-\\u{1f}\"\\\\/\\u{7f}-\\u{9f}\\u{2028}\\u{2029}\\u{d7ff}\\u{e000}\\u{ffff}\\u{10ffff}]{0,8}"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    btree_map(name(), value, 0..8).prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn a_context_that_is_returned_becomes_the_same_claims(context in members(value()).prop_map(Value::from)) {
        let given = give("within", &context).unwrap();
        let expected = as_javascript(&context);
        prop_assert_eq!(as_javascript(&given["within"]), expected.clone());
        prop_assert_eq!(as_javascript(&given["copy"]), expected);
    }

    #[test]
    fn no_object_smuggles_a_claim_of_ours_in(
        context in members(value()),
        reserved in proptest::option::of(proptest::sample::select(reserved::RESERVED.to_vec())),
    ) {
        let mut context = context;
        context.remove("__proto__");
        context.remove("sub");
        if let Some(name) = reserved {
            context.insert(name.to_owned(), json!(1));
        }
        let context = Value::from(context);
        match reserved {
            Some(name) => prop_assert_eq!(give("whole", &context), Err(ClaimsError::Reserved(name))),
            None => prop_assert_eq!(as_javascript(&give("whole", &context).unwrap()), as_javascript(&context)),
        }
    }

    /// A JavaScript string is a sequence of code units, and not every sequence is text.
    #[test]
    fn a_string_that_is_not_text_is_no_claim(units in vec(prop_oneof![any::<u16>(), 0xd7f0..0xe010_u16], 0..50)) {
        let given = give("units", &json!({ "units": units }));
        match String::from_utf16(&units) {
            Ok(text) => prop_assert_eq!(given, Ok(json!({ "text": text }))),
            Err(_) => prop_assert_eq!(given, Err(ClaimsError::NotPortable)),
        }
    }

    /// The log gets one line of a script's text, and the client gets ASCII without quotes.
    #[test]
    fn what_a_script_says_is_fit_to_be_written(said: String) {
        let line = one_line(&said, LOG_LINE_BYTES);
        prop_assert!(line.len() <= LOG_LINE_BYTES && !line.contains(char::is_control));
        let description = denial(&said);
        prop_assert!(!description.is_empty() && description.len() <= DENIAL_CHARACTERS);
        prop_assert!(description.chars().all(|c| matches!(c, ' '..='~') && c != '"' && c != '\\'));
    }
}

/// Tests the greatest depth of a subject token's context, and one level more.
#[test]
fn claims_can_be_as_deep_as_the_context() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| {
            let inner = if open == "[" { "" } else { "0" };
            format!("{{\"a\":{}{inner}{}}}", open.repeat(depth), close.repeat(depth))
        };
        for depth in [1, 10, 100, 125] {
            let context: Value = serde_json::from_str(&nested(depth)).unwrap();
            assert_eq!(give("whole", &context), Ok(context), "{depth}");
        }
        assert!(serde_json::from_str::<Value>(&nested(130)).is_err(), "no context is so deep");
        let input = Input {
            token: "{\"way\":\"whole\"}",
            grant_type: "",
            subject_token_context: &nested(130),
        };
        let given = SCRIPT.with(|script| script.run(&input, &mut |_| ()));
        assert_eq!(given, Err(ClaimsError::NotPortable));
    }
}
