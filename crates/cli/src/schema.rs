//! `schema`: prints the JSON Schemas of the configurations, for editors.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};

use super::{Failure, Verdict};

/// Prints the JSON Schema of a plugin's configuration, with which editors complete it.
///
/// The schema knows fewer rules than the plugin: `check` finds all problems.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The plugin whose configuration it is.
    #[arg(value_enum, default_value_t = Plugin::Filter)]
    plugin: Plugin,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Plugin {
    Filter,
    Guard,
}

impl Plugin {
    /// Returns the schema, which tests compare with the parser.
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
