//! Access to etcd: a certificate names the user, whose role has the prefix and nothing else.

use std::fs;

use serde_json::{Value, json};

use testkit::bootstrap::Cluster;
use testkit::configuration::Configuration;
use testkit::etcd::{Etcd, Settings};
use testkit::gateway::{Gateway, Options, exchange_form, mint_request};
use testkit::tls::{Authority, Identity};
use testkit::{repository, scratch};

use super::{assert_unavailable, complaints, configuration};

/// Starts an etcd that requires a client certificate, and returns the authority that issues them.
pub(crate) fn secured() -> (Etcd, Authority) {
    let directory = scratch().join(format!("tls/{:016x}", fastrand::u64(..)));
    let authority = Authority::new(&directory);
    let [server, root] = ["server", "root"].map(|name| authority.issue(name));
    let flags = |names: [&str; 3], Identity { certificate, key }: &Identity| {
        let paths = [&authority.certificate, certificate, key];
        let flags = names.into_iter().zip(paths);
        flags.map(|(name, path)| format!("{name}={}", path.display())).collect::<Vec<_>>()
    };
    let mut settings = Settings {
        flags: flags(["--trusted-ca-file", "--cert-file", "--key-file"], &server),
        ctl_flags: flags(["--cacert", "--cert", "--key"], &root),
    };
    settings.flags.push("--client-cert-auth".into());
    (Etcd::start_with(settings), authority)
}

/// The cluster of envoy.yaml, with TLS.
pub(crate) fn cluster(etcd: &Etcd, authority: &Authority, client: Option<&Identity>) -> Cluster {
    let file = |path: &std::path::Path| json!({"filename": path});
    let certificates = client.map(|Identity { certificate, key }| {
        json!({"certificate_chain": file(certificate), "private_key": file(key)})
    });
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": certificates.into_iter().collect::<Vec<Value>>(),
            "validation_context": {"trusted_ca": file(&authority.certificate)},
        },
    });
    let plain = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"});
    let health_check = json!({
        "timeout": "1s", "interval": "1s", "unhealthy_threshold": 3, "healthy_threshold": 1,
        "http_health_check": {"path": "/health"},
        "transport_socket_match_criteria": {"health": "plain"},
    });
    Cluster::without_endpoints("etcd")
        .endpoint_with_health_at(etcd.address, etcd.health.port())
        .http2()
        .with("health_checks", json!([health_check]))
        .with("transport_socket", json!({"name": "envoy.transport_sockets.tls", "typed_config": tls}))
        .with("transport_socket_matches", json!([{
            "name": "plain",
            "match": {"health": "plain"},
            "transport_socket": {"name": "envoy.transport_sockets.raw_buffer", "typed_config": plain},
        }]))
}

fn gateway(cluster: Cluster, configuration: &Configuration) -> Gateway {
    Gateway::try_start(configuration, &Options { clusters: vec![cluster], ..Options::default() })
        .unwrap()
}

/// Creates the users and roles of docs/many-envoys.md, and the others: each has one permission for
/// a range.
pub(crate) fn let_in_as_documented(etcd: &Etcd, others: &[(&str, &str, &str)]) {
    let page = fs::read_to_string(repository().join("docs/many-envoys.md")).unwrap();
    let section = page.split("### TLS and roles").nth(1).unwrap().split("\n## ").next().unwrap();
    let commands = section.lines().filter_map(|line| line.strip_prefix("    etcdctl "));
    let commands: Vec<Vec<_>> = commands.map(|line| line.split(' ').collect()).collect();
    let (enable, users) = commands.split_last().unwrap();
    assert_eq!(enable, &["auth", "enable"]);
    users.iter().for_each(|command| drop(etcd.ctl(command)));
    for (user, permission, range) in others {
        etcd.ctl(&["user", "add", user, "--no-password"]);
        etcd.ctl(&["role", "add", user]);
        etcd.ctl(&["role", "grant-permission", user, "--prefix=true", permission, range]);
        etcd.ctl(&["user", "grant-role", user, user]);
    }
    etcd.ctl(enable);
}

/// Runs `etcdctl` with this certificate.
pub(crate) fn ctl_as(
    etcd: &Etcd,
    Identity { certificate, key }: &Identity,
    arguments: &[&str],
) -> Result<Vec<u8>, String> {
    let flags = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    etcd.try_ctl(&[&flags[..], arguments].concat())
}

#[test]
fn the_filter_needs_a_certificate_with_a_role_for_its_prefix() {
    let (etcd, authority) = secured();
    let_in_as_documented(&etcd, &[("stranger", "readwrite", "/elsewhere/")]);

    let [known, stranger, nobody] =
        ["impersonation-filter", "stranger", "nobody"].map(|name| authority.issue(name));
    let elsewhere = Authority::new(&scratch().join("tls/other"));
    let forged = elsewhere.issue("impersonation-filter");

    let allowed = gateway(cluster(&etcd, &authority, Some(&known)), &configuration());
    // The first mint grants a lease, for which etcd needs no permission.
    let token = allowed.mint("u-1");
    allowed.assert_spendable(&token, "with the role");
    allowed.assert_spent(&token, "with the role");
    let outstanding = allowed.mint("u-2");
    assert_eq!(etcd.tokens().len(), 2);
    assert!(etcd.keys().iter().all(|key| key.starts_with("/impersonation/")), "{:?}", etcd.keys());
    assert!(complaints(&allowed).is_empty(), "{:?}", complaints(&allowed));

    let other_prefix = configuration().with("/store/etcd/prefix", "/other/");
    let plain = Cluster::without_endpoints("etcd").endpoint(etcd.address).http2();
    let tls = |client| cluster(&etcd, &authority, client);
    #[rustfmt::skip]
    let cases = [
        ("a user without the role",    tls(Some(&stranger)), configuration(), "forbidden",   "etcd does not allow it, see its users and roles: gRPC status 7"),
        ("no user of this name",       tls(Some(&nobody)),   configuration(), "forbidden",   "etcd does not allow it, see its users and roles: gRPC status 7"),
        ("keys beside the prefix",     tls(Some(&known)),    other_prefix,    "forbidden",   "etcd does not allow it, see its users and roles: gRPC status 7"),
        ("no certificate",             tls(None),            configuration(), "unreachable", "etcd does not answer"),
        ("another authority's",        tls(Some(&forged)),   configuration(), "unreachable", "etcd does not answer"),
        ("no TLS",                     plain,                configuration(), "unreachable", "etcd does not answer"),
    ];
    for (case, cluster, configuration, kind, because) in cases {
        let refused = gateway(cluster, &configuration);
        for _ in 0..3 {
            assert_unavailable(&refused.send(&mint_request("u-1")), case);
            assert_unavailable(&refused.exchange(&exchange_form(&outstanding)), case);
        }
        let lines = complaints(&refused);
        assert_eq!(lines.len(), 1, "{case}: {lines:?}");
        assert!(lines[0].contains(because), "{case}: {lines:?}");
        let counter = format!("wasmcustom.impersonation_store_errors_total.kind.{kind}");
        // A timer counts the outstanding tokens, and fails as well.
        let counted = refused.envoy.stat(&counter);
        assert!(counted >= 6, "{case}: {counted}");
    }
    allowed.assert_spendable(&outstanding, "no refused Envoy could spend it");
}
