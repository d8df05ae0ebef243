//! Reads numbers, booleans, enums and text in every spelling that Envoy accepts.

use serde_json::{Number, Value};

use super::table::{self, Kind};

/// Reads a scalar. The error says what was expected.
pub(super) fn read(kind: Kind, value: &Value) -> Result<Value, &'static str> {
    let read = match kind {
        Kind::Bool => boolean(value).map(Value::Bool),
        Kind::Text => value.is_string().then(|| value.clone()),
        Kind::Int => integer(value).and_then(|number| i64::try_from(number).ok()).map(Value::from),
        Kind::Uint => integer(value).and_then(|number| u64::try_from(number).ok()).map(Value::from),
        Kind::Float => float(value),
        Kind::Enum(name) => one_of(name, value),
        Kind::Message(_) => None,
    };
    read.or_else(|| value.is_null().then(|| default(kind))).ok_or(match kind {
        Kind::Bool => "true or false",
        Kind::Text => "a string",
        Kind::Int | Kind::Uint => "a whole number in its range",
        Kind::Float => "a number",
        Kind::Enum(_) => "one of its values",
        Kind::Message(_) => "an object",
    })
}

/// Returns the value that null stands for in a list.
fn default(kind: Kind) -> Value {
    match kind {
        Kind::Bool => false.into(),
        Kind::Int | Kind::Uint | Kind::Float => 0.into(),
        Kind::Enum(name) => table::values(name).next().map_or(Value::Null, |(name, _)| name.into()),
        Kind::Text | Kind::Message(_) => "".into(),
    }
}

/// Reads a boolean. In a string, Envoy accepts all that `absl::SimpleAtob` does.
fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) => match &*text.to_ascii_lowercase() {
            "true" | "t" | "yes" | "y" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Reads a whole number, which may be written as a string or with a fraction of zero.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => {
            let signed = number.as_i64().map(i128::from);
            signed.or_else(|| number.as_u64().map(i128::from)).or_else(|| whole(number.as_f64()?))
        }
        Value::String(text) => text.parse().ok().or_else(|| match hexadecimal(text) {
            Some(number) => Some(number),
            None => whole(text.parse().ok()?),
        }),
        _ => None,
    }
}

fn hexadecimal(text: &str) -> Option<i128> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok().map(i128::from)
}

/// The largest power of two below which a double has every whole number.
const LARGEST: f64 = 9_007_199_254_740_992.0;

fn whole(number: f64) -> Option<i128> {
    let is_whole = number.fract() == 0.0 && number.abs() <= LARGEST;
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and in range")]
    is_whole.then_some(number as i128)
}

fn float(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value.clone()),
        Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
            Some(value.clone())
        }
        Value::String(text) => {
            let whole = text.parse::<i64>().ok().map(Value::from);
            whole.or_else(|| Number::from_f64(text.parse().ok()?).map(Value::Number))
        }
        _ => None,
    }
}

/// Reads a value of an enum: by its name, in any letter case, or by its number.
fn one_of(name: &str, value: &Value) -> Option<Value> {
    if name == "google.protobuf.NullValue" {
        return Some(Value::Null);
    }
    let text = value.as_str();
    let number = integer(value);
    let mut values = table::values(name);
    let found = values.find(|(name, of_name)| {
        text.is_some_and(|text| text.eq_ignore_ascii_case(name))
            || number == Some(i128::from(*of_name))
    });
    found.map(|(name, _)| name.into())
}

/// Reads a duration that is written as a message.
pub(super) fn duration(value: &Value) -> Value {
    let part = |name| value.get(name).and_then(integer).unwrap_or_default();
    let (seconds, nanos) = (part("seconds"), part("nanos"));
    if nanos == 0 { format!("{seconds}s").into() } else { format!("{seconds}.{nanos:09}s").into() }
}
