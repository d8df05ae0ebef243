//! `impersonation-filter check` reads protobuf's JSON as Envoy does. Each spelling here is given to
//! both, and both must accept or refuse it. `guard/proof` shows that the spellings mean the same to
//! both: with `disabled: "T"` the guard is off.

use std::fs;
use std::process::Command;

use testkit::artifacts::{COMPANION, ENVOY};
use testkit::{Findings, scratch};

/// Members of a cluster, and whether Envoy reads them.
#[rustfmt::skip]
const OF_A_CLUSTER: &[(&str, bool)] = &[
    (r#""ignore_health_on_host_removal": "true""#, true),
    (r#""ignore_health_on_host_removal": "T""#, true),
    (r#""ignoreHealthOnHostRemoval": "YES""#, true),
    (r#""ignore_health_on_host_removal": "0""#, true),
    (r#""ignore_health_on_host_removal": null"#, true),
    (r#""ignore_health_on_host_removal": 1"#, false),
    (r#""ignore_health_on_host_removal": "on""#, false),
    (r#""ignore_health_on_host_removal": " true""#, false),
    (r#""ignore_health_on_host_removal": [true]"#, false),
    (r#""IgnoreHealthOnHostRemoval": true"#, false),
    (r#""ignore_health_On_host_removal": true"#, false),
    (r#""ignore_health": null"#, false),
    (r#""per_connection_buffer_limit_bytes": "5""#, true),
    (r#""per_connection_buffer_limit_bytes": 5.0"#, true),
    (r#""per_connection_buffer_limit_bytes": 5e1"#, true),
    (r#""per_connection_buffer_limit_bytes": {"value": "5"}"#, true),
    (r#""per_connection_buffer_limit_bytes": -1"#, false),
    (r#""per_connection_buffer_limit_bytes": 5.5"#, false),
    (r#""per_connection_buffer_limit_bytes": " 5""#, false),
    (r#""per_connection_buffer_limit_bytes": true"#, false),
    (r#""type": 0"#, true),
    (r#""type": "0""#, true),
    (r#""type": "static""#, true),
    (r#""type": 99"#, false),
    (r#""type": "STATICALLY""#, false),
    (r#""connect_timeout": {"seconds": 1}"#, true),
    (r#""connect_timeout": "1.5s""#, true),
    (r#""connect_timeout": 1"#, false),
    (r#""health_checks": []"#, true),
    (r#""alt_stat_name": 1"#, false),
    (r#""alt_stat_name": "1""#, true),
    (r#""load_assignment": {"cluster_name": "c", "endpoints": {"lbEndpoints": [[{"endpoint": {"address": {"pipe": {"path": "/p"}}}}]]}}"#, true),
    (r#""load_assignment": "c""#, false),
    (r#""metadata": {"filter_metadata": {"a": {"b": null}}}"#, true),
    (r#""metadata": {"filter_metadata": []}"#, false),
    (r#""type": 0, "cluster_type": {"name": "any"}"#, false),
    (r#""transport_socket": {"name": "raw", "typed_config": {"@type": "a/b/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}"#, true),
    (r#""transport_socket": {"name": "raw", "typed_config": {"@type": "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}"#, false),
    (r#""transport_socket": {"name": "raw", "typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "typeUrl": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", "value": {}}}"#, true),
    (r#""transport_socket": {"name": "raw", "typed_config": {"type_url": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}"#, false),
];

#[test]
fn a_spelling_is_accepted_or_refused_by_envoy_and_by_check_alike() {
    let folder = scratch().join("spellings");
    fs::create_dir_all(&folder).unwrap();
    let mut findings = Findings::default();
    for (index, (members, is_read)) in OF_A_CLUSTER.iter().enumerate() {
        let timeout =
            if members.contains("connect_timeout") { "" } else { r#""connect_timeout": "1s","# };
        let file = folder.join(format!("{index}.json"));
        let text = format!(
            r#"{{"static_resources": {{"clusters": [{{"name": "c", {timeout} {members}}}]}}}}"#
        );
        fs::write(&file, text).unwrap();
        let envoy = Command::new(&*ENVOY).args(["--mode", "validate", "-c"]).arg(&file).output();
        let check = Command::new(&*COMPANION).arg("check").arg(&file).output().unwrap();
        let printed = String::from_utf8(check.stdout).unwrap();
        // The file has no filter, which is a problem of its own.
        let of_check = printed.lines().filter(|line| line.contains(": static_resources")).count();
        findings.expect(
            format!("{members}: {printed}"),
            &(envoy.unwrap().status.success(), of_check == 0),
            &(*is_read, *is_read),
        );
    }
}
