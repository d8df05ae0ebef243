//! A report as rows (RFC 4180), one for each request, for spreadsheets.
//!
//! A spreadsheet takes a cell that begins like a formula for one, and callers choose paths. Such a
//! cell gets an apostrophe, as OWASP recommends ("CSV Injection").

use std::io::{self, Write};

use serde_json::Value;

use super::super::entry::Entry;
use crate::display::escaped;

const COLUMNS: &str = "id,user,actor,caller,client,resource,scope,time,what,outcome,event,by,\
                       method,path,status,guard,error,reason,note,request_id,client_address,jti,repetition";

pub(super) fn begin(out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{COLUMNS}\r\n")
}

pub(super) fn entry(out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
    for step in &entry.steps {
        let word = |value: &dyn Fn() -> serde_json::Result<Value>| match value() {
            Ok(Value::String(word)) => Some(word),
            _ => None,
        };
        let what = word(&|| serde_json::to_value(step.what));
        let outcome = word(&|| serde_json::to_value(step.outcome));
        let cells = [
            &entry.id,
            &entry.user_id,
            &entry.actor_id,
            &entry.caller,
            &entry.client_id,
            &entry.resource,
            &entry.scope,
            &step.time,
            &what,
            &outcome,
            &step.event,
            &step.by,
            &step.method,
            &step.path,
            &step.status,
            &step.guard,
            &step.error,
            &step.reason,
            &step.note,
            &step.request_id,
            &step.client_address,
            &step.jti,
            &step.repetition,
        ];
        let row = cells.map(|text| text.as_deref().map(cell).unwrap_or_default()).join(",");
        write!(out, "{row}\r\n")?;
    }
    Ok(())
}

fn cell(text: &str) -> String {
    // Spreadsheets ignore white space, and know the wide forms of these signs.
    let begins_a_formula = |character: char| {
        matches!(character, '=' | '+' | '-' | '@' | '|' | '%' | '＝' | '＋' | '－' | '＠')
            || character.is_control()
    };
    let mark =
        if text.trim_start().starts_with(begins_a_formula) || text.starts_with(begins_a_formula) {
            "'"
        } else {
            ""
        };
    let text = escaped(text);
    if mark.is_empty() && !text.contains([',', '"', ';', '\'']) && text.trim() == text {
        return text;
    }
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_or_ends_early() {
        #[rustfmt::skip]
        let cases = [
            ("user-42",             "user-42"),
            ("",                    ""),
            ("=1+1",                "\"'=1+1\""),
            ("@SUM(A1)",            "\"'@SUM(A1)\""),
            ("-jti",                "\"'-jti\""),
            (" +1",                 "\"' +1\""),
            ("\t=1",                "\"'\\u{9}=1\""),
            ("＝1",                 "\"'＝1\""),
            ("a,b",                 "\"a,b\""),
            ("a\"b",                "\"a\"\"b\""),
            ("a\",=1",              "\"a\"\",=1\""),
            ("a\nb",                "a\\u{a}b"),
        ];
        for (text, written) in cases {
            assert_eq!(cell(text), written, "{text:?}");
        }
    }
}
