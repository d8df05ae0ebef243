//! `schema`: the JSON Schema of the configuration, for editors.

use std::io::{self, Write as _};

use clap::Args;

use super::{Failure, Verdict};

/// What the tests hold to the code that reads the configuration.
const SCHEMA: &str = include_str!("../../../docs/configuration.schema.json");

/// The JSON Schema of the plugin configuration, by which editors complete it.
///
/// An editor knows less than the filter: `check` says what is really wrong.
#[derive(Debug, Args)]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments) -> Result<Verdict, Failure> {
    io::stdout().lock().write_all(SCHEMA.as_bytes())?;
    Ok(Verdict::Fine)
}
