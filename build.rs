//! Makes the page of live impersonations and the banner, which the module has inside: see
//! console/build.js.
//!
//! They are made from their sources whenever the module is, so that a module cannot have those of
//! another version. The same sources give the same bytes on each machine. A native build of this
//! package is empty, and needs neither Node.js nor them.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    for file in ["banner.css", "banner.js", "build.js", "document.js", "package-lock.json", "src"] {
        println!("cargo::rerun-if-changed=console/{file}");
    }
    let is_module = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "wasm32");
    if !is_module || env::var_os("CARGO_FEATURE_CONSOLE").is_none() {
        return ExitCode::SUCCESS;
    }
    if !Path::new("console/node_modules").exists() {
        return fail("its packages are missing. Run `make build`, or `npm ci` in console/");
    }
    let folder = env::var_os("OUT_DIR").unwrap_or_default();
    match Command::new("node").arg("console/build.js").arg(folder).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => fail(&format!("console/build.js ended with {status}")),
        Err(error) => fail(&format!("Node.js cannot be run: {error}")),
    }
}

fn fail(why: &str) -> ExitCode {
    println!("cargo::error=the page of live impersonations cannot be made: {why}");
    println!("cargo::error=leave the page out with --no-default-features --features custom-claims");
    ExitCode::FAILURE
}
