//! `schema`: the JSON Schemas of the configurations, for editors.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};

use super::{Failure, Verdict};

/// The JSON Schema of a plugin's configuration, by which editors complete it.
///
/// An editor knows less than the plugin: `check` says what is really wrong.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Whose configuration.
    #[arg(value_enum, default_value_t = Plugin::Filter)]
    plugin: Plugin,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Plugin {
    Filter,
    Guard,
}

impl Plugin {
    /// What the tests hold to the code that reads the configuration.
    const fn schema(self) -> &'static str {
        match self {
            Self::Filter => include_str!("../../../docs/configuration.schema.json"),
            Self::Guard => include_str!("../../../docs/guard.schema.json"),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    io::stdout().lock().write_all(arguments.plugin.schema().as_bytes())?;
    Ok(Verdict::Fine)
}
