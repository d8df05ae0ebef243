//! An operator sees which version of which module runs.

use serde_json::json;

use testkit::guarded::Guarded;

#[test]
fn each_module_tells_its_version_in_the_log_and_in_a_metric() {
    let guarded = Guarded::start(&json!({}));
    let version = env!("CARGO_PKG_VERSION");
    for module in ["filter", "guard"] {
        let metric = format!("impersonation_build_info.module.{module}.version.{version}");
        assert_eq!(guarded.envoy.metric(&metric), Some(1), "{metric}");
        let line = format!("impersonation-{module} {version}\n");
        assert!(guarded.envoy.log().contains(&line), "{}", guarded.envoy.log());
    }
}
