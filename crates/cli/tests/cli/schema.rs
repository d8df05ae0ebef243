//! `schema`: what editors go by.

use crate::{stdout, with_input};

#[test]
fn what_is_printed_is_what_is_documented() {
    let output = with_input(&["schema"], b"");
    assert!(output.status.success());
    assert_eq!(stdout(&output), include_str!("../../../../docs/configuration.schema.json"));
}
