//! Finds the demo's secrets in a configuration. They are public, as envoy.yaml and
//! docker-compose.yml are.

use impersonation_core::config::Config;
use impersonation_core::secret::Digest;

use super::findings::Findings;
use super::tree::Place;

/// The secrets of the demo's clients, and of the client by which the filter introspects.
const SECRETS: [&str; 4] = [
    "demo-only-support-portal",
    "demo-only-integrator-backend",
    "demo-only-operations",
    "demo-only-impersonation-filter",
];

/// Reports clients that have a secret of the demo's, and introspection with such a secret.
pub(super) fn check(configuration: &Place<'_>, config: &Config, findings: &mut Findings) {
    let known = SECRETS.map(|secret| Digest::of(secret.as_bytes()));
    let is_known = |digest: &Digest| known.iter().any(|one| one.matches(digest));
    for client in configuration.list("clients") {
        let its = client.text_of("client_id").and_then(|name| config.clients.get(name));
        if its.is_some_and(|client| client.secret_digests.iter().any(is_known)) {
            let path =
                client.get("client_secret_sha256").map_or(client.path, |secrets| secrets.path);
            findings.warning(
                path,
                "is the demo's, as in the envoy.yaml that is shipped, and everybody knows the secret: make one with `impersonation-filter hash-secret`",
            );
        }
    }
    let ways = [
        &config.subject_tokens.authentication,
        &config.actor_tokens.verification,
        &config.impersonations.authentication,
    ];
    let mut introspections = ways.iter().filter_map(|way| way.introspection.as_ref());
    if introspections.any(|one| is_known(&Digest::of(one.client_secret.expose().as_bytes()))) {
        findings.warning(
            &*configuration.path,
            "introspects with the demo's client_secret, which everybody knows: give the gateway's client another",
        );
    }
}
