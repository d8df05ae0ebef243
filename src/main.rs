//! The native companion of the filter: what an operator needs before Envoy is started.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
