//! Tests of `schema`: the JSON Schemas for editors.

use crate::{stdout, with_input};

#[test]
fn the_printed_schema_is_the_documented_one() {
    let filter = include_str!("../../../../docs/configuration.schema.json");
    let guard = include_str!("../../../../docs/guard.schema.json");
    for (arguments, schema) in
        [(&["schema"][..], filter), (&["schema", "filter"], filter), (&["schema", "guard"], guard)]
    {
        let output = with_input(arguments, b"");
        assert!(output.status.success());
        assert_eq!(stdout(&output), schema);
    }
    assert_eq!(with_input(&["schema", "other"], b"").status.code(), Some(2));
}
