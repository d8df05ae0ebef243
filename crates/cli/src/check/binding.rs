//! Checks what Envoy must be for clients with certificates, and for access tokens that are bound to
//! keys: Envoy admits certificates that nobody verified, forwards headers that anybody wrote, and
//! hides the scheme of a token from the guard, without a word.

use impersonation_core::config::CertificateUse;

use super::findings::Findings;
use super::jwt_authn::JWT_AUTHN;
use super::proof::{EnvoyFile, is_in};
use super::topology::{self, Chain, Listener};
use super::tree::{Place, member_path};

const HEADER_TO_METADATA: &str = "envoy.extensions.filters.http.header_to_metadata.v3.Config";

/// Where the guard reads the `Authorization` header.
const NAMESPACE: &str = "impersonation";
const KEY: &str = "authorization";

/// Checks every chain with a filter or a guard that reads certificates or proofs.
pub(super) fn check(file: &EnvoyFile<'_, '_, '_>, findings: &mut Findings) {
    for listener in &topology::listeners(file.root) {
        // No client of a browser session has a certificate, and no token of one is bound.
        for chain in listener.chains.iter().filter(|chain| !file.has_sessions(chain)) {
            let of_filters = file.issuers.iter().filter(|issuer| is_in(issuer.plugin, chain));
            for issuer in of_filters {
                check_certificates(
                    listener,
                    chain,
                    issuer.checked.config.certificate_use(),
                    findings,
                );
            }
            for guard in file.guards.iter().filter(|guard| is_in(guard.plugin, chain)) {
                check_certificates(listener, chain, guard.config.certificate_use(), findings);
                if guard.config.public_origin.is_some() {
                    check_authorization(chain, findings);
                    check_schemes(chain, findings);
                }
            }
        }
    }
    let binds = file.issuers.iter().any(|issuer| issuer.checked.config.demands_proofs());
    // The tokens of browser sessions are bound to no key.
    let of_apis = file.guards.iter().filter(|guard| guard.plugin.session_domain().is_none());
    for guard in of_apis.filter(|guard| binds && guard.config.public_origin.is_none()) {
        let path = guard.plugin.configuration().map(|(_, path)| path).unwrap_or_default();
        findings.warning(
            member_path(&path, "public_origin"),
            "is not set: the guard refuses the access tokens that a client or a resource of the filter wants bound by a proof",
        );
    }
}

fn check_certificates(
    listener: &Listener<'_>,
    chain: &Chain<'_>,
    used: CertificateUse,
    findings: &mut Findings,
) {
    if used == CertificateUse::None {
        return;
    }
    let chains = listener.place.list("filter_chains");
    let default = listener.place.get("default_filter_chain");
    let mut around = chains.into_iter().chain(default);
    let around = around.find(|one| chain.manager.path.starts_with(&format!("{}.", one.path)));
    let Some(around) = around else { return };
    let tls = around.at(&["transport_socket", "typed_config"]);
    let validation =
        tls.as_ref().and_then(|tls| tls.at(&["common_tls_context", "validation_context"]));
    let path = tls.as_ref().map_or_else(
        || member_path(&around.path, "transport_socket"),
        |tls| member_path(&member_path(&tls.path, "common_tls_context"), "validation_context"),
    );
    let by_sds = tls.as_ref().is_some_and(|tls| {
        ["validation_context_sds_secret_config", "combined_validation_context"]
            .iter()
            .any(|name| tls.at(&["common_tls_context", name]).is_some())
    });
    if by_sds {
        findings.warning(path, "comes from elsewhere, and nobody knows whether Envoy verifies the certificates of clients");
        return;
    }
    let Some(validation) = validation else {
        findings.problem(
            path,
            "must be set: Envoy asks clients for no certificate, and so no client that needs one can do anything",
        );
        return;
    };
    if used == CertificateUse::Any {
        return;
    }
    if validation.text_of("trust_chain_verification") == Some("ACCEPT_UNTRUSTED") {
        findings.problem(
            member_path(&validation.path, "trust_chain_verification"),
            "must not be ACCEPT_UNTRUSTED: anybody can make a certificate with the name of a client, or of the proxy in front",
        );
    }
    let has_authority = ["trusted_ca", "ca_certificate_provider_instance"]
        .iter()
        .any(|name| validation.get(name).is_some());
    if !has_authority {
        findings.problem(
            member_path(&validation.path, "trusted_ca"),
            "must be set: Envoy verifies no certificate without it",
        );
    }
    if used == CertificateUse::Forwarded {
        check_forwarding(chain, tls.as_ref(), findings);
    }
}

/// A forwarded certificate is worth as much as the proof that a proxy forwarded it.
fn check_forwarding(chain: &Chain<'_>, tls: Option<&Place<'_>>, findings: &mut Findings) {
    if let Some(tls) = tls.filter(|tls| !tls.is_set("require_client_certificate")) {
        findings.problem(
            member_path(&tls.path, "require_client_certificate"),
            "must be true: with client_certificate: forwarded, only the proxy in front may connect",
        );
    }
    let details = chain.manager.text_of("forward_client_cert_details");
    if details != Some("FORWARD_ONLY") {
        findings.problem(
            member_path(&chain.manager.path, "forward_client_cert_details"),
            "must be FORWARD_ONLY: other values lose the certificate that the proxy in front forwards, or let anybody forward one",
        );
    }
}

/// The guard reads scheme and token where `header_to_metadata` has put the whole header, before
/// `jwt_authn` takes it away.
fn check_authorization(chain: &Chain<'_>, findings: &mut Findings) {
    let keeps = |place: &Place<'_>| {
        place.list("request_rules").iter().any(|rule| {
            let there = rule.get("on_header_present");
            let says =
                |name, text| there.as_ref().and_then(|there| there.text_of(name)) == Some(text);
            let is_header = rule
                .text_of("header")
                .is_some_and(|name| name.eq_ignore_ascii_case("authorization"));
            let is_whole = there.as_ref().is_some_and(|there| {
                there.get("regex_value_rewrite").is_none() && there.get("value").is_none()
            });
            is_header
                && is_whole
                && says("metadata_namespace", NAMESPACE)
                && says("key", KEY)
                && !rule.is_set("remove")
        })
    };
    let jwt_authn = chain.filters.iter().position(|filter| filter.r#type == JWT_AUTHN);
    // A chain without jwt_authn is reported elsewhere.
    let before = chain.filters.iter().take(jwt_authn.unwrap_or(usize::MAX));
    let kept = before
        .filter(|filter| filter.r#type == HEADER_TO_METADATA && !filter.entry.is_set("disabled"))
        .any(|filter| keeps(&filter.fields));
    if !kept {
        findings.problem(
            member_path(&chain.manager.path, "http_filters"),
            "header_to_metadata must keep authorization as impersonation.authorization before jwt_authn: without it the guard refuses every bound token",
        );
    }
}

/// `jwt_authn` must find tokens of both schemes.
fn check_schemes(chain: &Chain<'_>, findings: &mut Findings) {
    for filter in chain.filters.iter().filter(|filter| filter.r#type == JWT_AUTHN) {
        let providers = filter.fields.get("providers");
        for (_, provider) in providers.iter().flat_map(Place::members) {
            let headers = provider.list("from_headers");
            let has = |prefix: &str| {
                headers.iter().any(|header| header.text_of("value_prefix") == Some(prefix))
            };
            let has_both = has("DPoP ") && has("Bearer ");
            if !headers.is_empty() && !has_both {
                findings.warning(
                    member_path(&provider.path, "from_headers"),
                    "should have the value_prefixes \"DPoP \" and \"Bearer \": jwt_authn finds no token that is bound to a key",
                );
            }
        }
    }
}
