//! deploy/siem maps the events of the log while it is written, in the languages of Vector and of
//! Fluent Bit. Their tables of events are this crate's.

use testkit::generated::{between, hold};

use super::event::{ALARMS, EVENTS, Roles, Row};
use crate::logs::line::FAMILIES;

/// The language of a shipper, and the marks around the generated parts of its file.
struct Language {
    row: fn(&str, &Row) -> String,
    family: fn(&str) -> String,
    file: &'static str,
    begin: &'static str,
    end: &'static str,
    families: [&'static str; 2],
}

fn quoted(texts: &[&str]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
}

/// Returns the dataset without `impersonation.`, which the programs put before it.
fn dataset(row: &Row) -> &'static str {
    row.dataset().trim_start_matches("impersonation.")
}

const VRL: Language = Language {
    row: |key, row| {
        format!(
            "        {key:?}: {{\"category\": [{}], \"type\": [{}], \"acts_as\": {}, \
             \"dataset\": {:?}}},\n",
            quoted(row.categories),
            quoted(row.types),
            row.roles == Roles::ActsAs,
            dataset(row),
        )
    },
    family: |family| format!("        {family:?},\n"),
    file: "deploy/siem/vector.yaml",
    begin: "      events = {\n",
    end: "      }\n      # The end of the table.\n",
    families: ["      families = [\n", "      ]\n\n"],
};

const LUA: Language = Language {
    row: |key, row| {
        format!(
            "  [{key:?}] = {{category = {{{}}}, type = {{{}}}, acts_as = {}, dataset = {:?}}},\n",
            quoted(row.categories),
            quoted(row.types),
            row.roles == Roles::ActsAs,
            dataset(row),
        )
    },
    family: |family| format!("  {family:?},\n"),
    file: "deploy/siem/ecs.lua",
    begin: "local EVENTS = {\n",
    end: "}\n-- The end of the table.\n",
    families: ["local FAMILIES = {\n", "}\n\n"],
};

#[test]
fn evidence_in_step_the_shippers_have_the_table_of_events() {
    for language in [VRL, LUA] {
        let events = EVENTS.iter().filter(|row| !row.name.is_empty());
        let events = events.map(|row| (language.row)(row.name, row));
        let alarms = ALARMS.iter().map(|row| (language.row)(&format!("alarm:{}", row.name), row));
        let rows: String = events.chain(alarms).collect();
        let families: String = FAMILIES.iter().map(|family| (language.family)(family)).collect();
        let [begin, end] = language.families;
        hold(language.file, |text| {
            let text = between(text, language.begin, &rows, language.end);
            between(&text, begin, &families, end)
        });
    }
}
