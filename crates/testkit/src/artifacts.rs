//! The programs and modules under test. A missing one is fetched or built when it is first needed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::repository;

/// The Envoy to run, found in the same way as `make run` finds it.
pub static ENVOY: LazyLock<PathBuf> = LazyLock::new(|| printed_path("scripts/envoy", &["--path"]));

/// The version of this Envoy, such as `1.40.0`.
pub static ENVOY_VERSION: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new(&*ENVOY).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // `version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`
    let (_, version) = text.split_once("version: ").unwrap();
    version.split('/').nth(1).unwrap().into()
});

/// The folder of `etcd` and `etcdctl`.
pub(crate) static ETCD: LazyLock<PathBuf> = LazyLock::new(|| printed_path("scripts/etcd", &[]));

/// The variable that names a filter to use instead of building one.
pub(crate) const GIVEN_MODULE: &str = "IMPERSONATION_FILTER_WASM";

/// The filter.
pub static MODULE: LazyLock<PathBuf> =
    LazyLock::new(|| module(GIVEN_MODULE, "build", "impersonation_filter"));

/// The variable that names a guard to use instead of building one.
pub(crate) const GIVEN_GUARD: &str = "IMPERSONATION_GUARD_WASM";

/// The guard.
pub static GUARD: LazyLock<PathBuf> =
    LazyLock::new(|| module(GIVEN_GUARD, "build", "impersonation_guard"));

/// The plugin of `crates/test-plugin`. `TEST_PLUGIN_WASM` names another.
pub static TEST_PLUGIN: LazyLock<PathBuf> =
    LazyLock::new(|| module("TEST_PLUGIN_WASM", "test-plugin", "test_plugin"));

/// The companion of the filter. `IMPERSONATION_FILTER` names another.
pub static COMPANION: LazyLock<PathBuf> = LazyLock::new(|| {
    made("IMPERSONATION_FILTER", "companion", "target/companion/impersonation-filter")
});

/// The path that a script of the repository prints.
pub(crate) fn printed_path(script: &str, arguments: &[&str]) -> PathBuf {
    let mut command = Command::new(repository().join(script));
    let output = command.args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn module(variable: &str, target: &str, name: &str) -> PathBuf {
    made(variable, target, &format!("target/wasm32-wasip1/release/{name}.wasm"))
}

/// The path that a variable names, or the path of the file that `make` builds.
fn made(variable: &str, target: &str, path: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let root = repository();
    let made = Command::new("make").current_dir(root).args(["--silent", target]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    root.join(path)
}
