//! Checks Envoy's `jwt_authn`: it must refuse requests without a valid token, and leave the claims
//! of every valid token where the guard's matcher reads them.

use impersonation_core::jose::PublishedKey;
use serde_json::Value;

use super::findings::Doubt;
use super::routing::{self, Match, Route, Variant};
use super::topology::Filter;
use super::tree::{Place, member_path};

pub(super) const JWT_AUTHN: &str = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication";

const PER_ROUTE: &str = "envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig";

/// The settings of a provider that leave the claims where the guard is entered by, and the route as
/// it is.
const OF_PROVIDERS: [&str; 20] = [
    "audiences",
    "claim_to_headers",
    "clock_skew_seconds",
    "failed_status_in_metadata",
    "forward",
    "forward_payload_header",
    "from_cookies",
    "from_headers",
    "from_params",
    "header_in_metadata",
    "issuer",
    "jwt_cache_config",
    "local_jwks",
    "max_lifetime",
    "normalize_payload_in_metadata",
    "pad_forward_payload_header",
    "payload_in_metadata",
    "remote_jwks",
    "require_expiration",
    "subjects",
];

/// The facts about the filter's tokens by which providers of `jwt_authn` are judged.
pub(super) struct Tokens<'c> {
    /// The issuers of all filters and guards of the file.
    pub(super) issuers: Vec<&'c str>,
    /// The indicators of the filters' resources; `None` if the file has no filter.
    pub(super) indicators: Option<Vec<&'c str>>,
    /// The issuer of each filter, and the path of its key set. A guard does not know the path of
    /// its filter's.
    pub(super) key_sets: Vec<(&'c str, &'c str)>,
    /// The ports of the filters' listeners; empty if the file has no filter.
    pub(super) ports: Vec<u64>,
    /// The keys that the filters publish; `None` if they cannot be known here.
    pub(super) published: Option<Vec<&'c PublishedKey>>,
}

/// The judgement about `jwt_authn` on a route.
pub(super) struct Verified<'d> {
    /// The provider that verifies the filter's tokens.
    pub(super) provider: Option<Place<'d>>,
    pub(super) doubts: Vec<Doubt>,
    /// Faults for which no request passes the guard.
    pub(super) faults: Vec<Doubt>,
}

/// A requirement of `jwt_authn` on a route.
enum Requirement<'d> {
    /// A request needs no token.
    Missing(Doubt),
    Given(Place<'d>),
}

/// Judges a `jwt_authn` on a route.
pub(super) fn verify<'d>(
    jwt_authn: &Filter<'d>,
    route: &Route<'d>,
    variant: &Variant<'d>,
    tokens: &Tokens<'_>,
    endpoint_ports: &dyn Fn(&str) -> Option<Vec<u64>>,
) -> Verified<'d> {
    let mut doubts = Vec::new();
    let mut requirements = Vec::new();
    for requirement in requirements_on(jwt_authn, route, variant) {
        match requirement {
            Requirement::Missing(doubt) => doubts.push(doubt),
            Requirement::Given(requirement) => requirements.push(requirement),
        }
    }
    let mut found = Vec::new();
    for requirement in &requirements {
        providers(&jwt_authn.fields, requirement, &mut found, &mut doubts);
    }
    let ours: Vec<_> = found.iter().filter(|provider| tokens.may_be_of(provider)).collect();
    if let (true, true, Some(requirement)) =
        (ours.is_empty(), doubts.is_empty(), requirements.first())
    {
        doubts.push(Doubt::new(
            &*requirement.path,
            format!("no provider that it requires has the issuer of the filter ({}), so no impersonation is accepted, and what is accepted is not proved: name that issuer, or give the route a listener without the guard", tokens.issuers.join(", ")),
        ));
    }
    if requirements.is_empty() && doubts.is_empty() {
        let text = "it names a requirement that jwt_authn does not have, which refuses every request: name one of its requirement_map";
        doubts.push(Doubt::new(&*route.route.path, text));
    }
    for provider in &ours {
        tokens.check_provider(provider, endpoint_ports, &mut doubts);
    }
    // Several providers must read the token from the same header and leave the claims in the same
    // place.
    let alike = |name: &str| {
        let mut members = found.iter().map(|one| one.get(name).map(|member| member.value));
        let first = members.next();
        members.all(|member| Some(member) == first)
    };
    let apart = ["from_headers", "payload_in_metadata"].into_iter().find(|name| !alike(name));
    if let (Some(name), Some(first)) = (apart, found.first()) {
        doubts.push(Doubt::new(
            &*first.path,
            format!("of several providers not all have the same {name}: a request with two tokens could enter no guard; give them the same"),
        ));
    }
    let mut faults = Vec::new();
    check_settings(jwt_authn, &mut doubts, &mut faults);
    let provider = ours.first().map(|provider| (*provider).clone());
    Verified { provider, doubts, faults }
}

/// Finds all requirements that a request on the route may have to meet.
fn requirements_on<'d>(
    jwt_authn: &Filter<'d>,
    route: &Route<'d>,
    variant: &Variant<'d>,
) -> Vec<Requirement<'d>> {
    let by_name = |name: &Place<'d>| {
        let map = jwt_authn.fields.get("requirement_map");
        let all = map.into_iter().flat_map(|map| map.members().collect::<Vec<_>>());
        // jwt_authn refuses every request where a route names one that is not there.
        all.filter(|(have, _)| Some(*have) == name.text())
            .map(|(_, requirement)| Requirement::Given(requirement))
            .collect::<Vec<_>>()
    };
    let off = |place: &Place<'_>| {
        let text = "jwt_authn is disabled here: nobody verifies the token, and the guard is not entered; take that out";
        vec![Requirement::Missing(Doubt::new(&*place.path, text))]
    };
    if let Some(setting) = variant.setting(jwt_authn.name()) {
        if routing::disables(&setting) {
            return off(&setting);
        }
        let message = setting.message();
        let inner = match &message {
            Some(message) if routing::is_filter_config(message) => message.fields.get("config"),
            _ => Some(setting.clone()),
        };
        if let Some(inner) = inner {
            if inner.message().is_none_or(|message| message.r#type != PER_ROUTE) {
                let text =
                    "what this setting of jwt_authn requires is not known: give a PerRouteConfig";
                return vec![Requirement::Missing(Doubt::new(&*inner.path, text))];
            }
            if inner.is_set("disabled") {
                return off(&inner);
            }
            if let Some(name) = inner.get("requirement_name") {
                return by_name(&name);
            }
        }
    } else if jwt_authn.entry.is_set("disabled") {
        return off(&jwt_authn.entry);
    }
    let mut found = Vec::new();
    for rule in jwt_authn.fields.list("rules") {
        let about = routing::covered_by(&route.route, &rule);
        if about == Match::Never {
            continue;
        }
        if let Some(requirement) = rule.get("requires") {
            found.push(Requirement::Given(requirement));
        } else if let Some(name) = rule.get("requirement_name") {
            found.extend(by_name(&name));
        } else {
            let text = "a rule of jwt_authn requires nothing here: name a requirement";
            found.push(Requirement::Missing(Doubt::new(&*rule.path, text)));
        }
        if about == Match::Always {
            return found;
        }
    }
    let text = "no rule of jwt_authn is certain to match all of its requests, and none requires a token then: name a requirement on the route (PerRouteConfig), or take the route away";
    found.push(Requirement::Missing(Doubt::new(&*route.route.path, text)));
    found
}

/// Finds the providers of a requirement, and the settings by which requests pass without them.
fn providers<'d>(
    fields: &Place<'d>,
    requirement: &Place<'d>,
    found: &mut Vec<Place<'d>>,
    doubts: &mut Vec<Doubt>,
) {
    let named = |name: &str| {
        let all = fields.get("providers");
        let all = all.into_iter().flat_map(|all| all.members().collect::<Vec<_>>());
        all.filter(|(have, _)| *have == name).map(|(_, provider)| provider).collect::<Vec<_>>()
    };
    if requirement.other_than(&[]).is_none() {
        doubts.push(Doubt::new(
            &*requirement.path,
            "an empty requirement lets every request pass, without a token: name a provider",
        ));
    }
    for (name, member) in requirement.members() {
        match name {
            "provider_name" => {
                found.extend(member.text().map_or_else(Vec::new, named));
            }
            "provider_and_audiences" => {
                found.extend(member.text_of("provider_name").map_or_else(Vec::new, named));
                doubts.push(Doubt::new(
                    &*member.path,
                    "provider_and_audiences puts other audiences in the place of the provider's: name them in the provider, and require it by provider_name",
                ));
            }
            "requires_any" | "requires_all" => {
                for requirement in member.list("requirements") {
                    providers(fields, &requirement, found, doubts);
                }
            }
            "allow_missing" => doubts.push(Doubt::new(
                &*member.path,
                "allow_missing lets requests pass that jwt_authn finds no token in, such as `authorization: bearer` in small letters: require the provider alone",
            )),
            "allow_missing_or_failed" => doubts.push(Doubt::new(
                &*member.path,
                "allow_missing_or_failed lets requests pass whose token is not valid, and enters no guard for them: require the provider alone",
            )),
            "extract_only_without_validation" => {
                doubts.push(Doubt::new(
                    &*member.path,
                    "extract_only_without_validation verifies no token: require the provider",
                ));
            }
            _ => {}
        }
    }
}

/// Checks the settings for all routes.
fn check_settings(jwt_authn: &Filter<'_>, doubts: &mut Vec<Doubt>, faults: &mut Vec<Doubt>) {
    let fields = &jwt_authn.fields;
    if jwt_authn.entry.is_set("is_optional") {
        doubts.push(Doubt::new(
            member_path(&jwt_authn.entry.path, "is_optional"),
            "Envoy leaves jwt_authn out if it cannot load it, and lets every request pass: take that out",
        ));
    }
    let providers = fields.get("providers");
    for (_, provider) in providers.iter().flat_map(Place::members) {
        check_effects(&provider, doubts);
    }
    if fields.is_set("bypass_cors_preflight") {
        doubts.push(Doubt::new(
            member_path(&fields.path, "bypass_cors_preflight"),
            "bypass_cors_preflight lets OPTIONS pass without a token and without the guard: let the cors filter answer preflights, before jwt_authn",
        ));
    }
    if fields.is_set("strip_failure_response") {
        faults.push(Doubt::new(
            member_path(&fields.path, "strip_failure_response"),
            "strip_failure_response takes WWW-Authenticate from refusals: callers cannot tell an ended impersonation from a fault; take it out",
        ));
    }
}

/// Checks that a provider, of any issuer, changes neither the claims nor the route.
fn check_effects(provider: &Place<'_>, doubts: &mut Vec<Doubt>) {
    if let Some(other) = provider.other_than(&OF_PROVIDERS) {
        let name = other.path.rsplit('.').next().unwrap_or_default().to_owned();
        let text = match &*name {
            "clear_route_cache" => "clear_route_cache lets a verified request take another route, whose requirement it does not meet: take it out".to_owned(),
            name => format!("{name} is not known to leave the claims and the route alone: take it out"),
        };
        doubts.push(Doubt::new(other.path, text));
    }
    let payload = provider.text_of("payload_in_metadata");
    for name in ["header_in_metadata", "failed_status_in_metadata"] {
        if let Some(same) = provider.get(name).filter(|same| same.text() == payload) {
            let text = format!(
                "{name} overwrites the claims, by which the guard is entered: give it another name"
            );
            doubts.push(Doubt::new(same.path, text));
        }
    }
}

impl Tokens<'_> {
    /// Returns true if a provider accepts, or was meant to accept, tokens of a filter's issuer.
    pub(super) fn may_be_of(&self, provider: &Place<'_>) -> bool {
        let Some(issuer) = provider.text_of("issuer") else { return true };
        self.issuers.iter().any(|ours| folded(ours) == folded(issuer))
    }

    fn check_provider(
        &self,
        provider: &Place<'_>,
        endpoint_ports: &dyn Fn(&str) -> Option<Vec<u64>>,
        doubts: &mut Vec<Doubt>,
    ) {
        let path = |name: &str| {
            provider.get(name).map_or_else(|| provider.path.clone(), |member| member.path)
        };
        match provider.text_of("issuer") {
            None => doubts.push(Doubt::new(
                path("issuer"),
                "the provider has no issuer: it takes tokens of everybody whose key is in the key set; name the filter's",
            )),
            Some(issuer) if !self.issuers.contains(&issuer) => doubts.push(Doubt::new(
                path("issuer"),
                format!("the provider's issuer {issuer:?} is not quite the filter's: no token of an impersonation is accepted; spell it as there"),
            )),
            Some(_) => {}
        }
        self.check_audiences(provider, doubts);
        check_places(provider, doubts);
        self.check_keys(provider, endpoint_ports, doubts);
    }

    fn check_audiences(&self, provider: &Place<'_>, doubts: &mut Vec<Doubt>) {
        let audiences = provider.list("audiences");
        if audiences.is_empty() {
            let text = "the provider has no audiences: a token that is for another API is taken here, too; name this API's indicator";
            doubts.push(Doubt::new(&*provider.path, text));
            return;
        }
        let Some(indicators) = &self.indicators else { return };
        let is_ours = |audience: &Place<'_>| {
            audience.text().is_some_and(|audience| {
                indicators.iter().any(|ours| as_audience(ours) == as_audience(audience))
            })
        };
        if let Some(first) = audiences.first().filter(|_| !audiences.iter().any(is_ours)) {
            let text = "no resource of the filter has one of the provider's audiences as its indicator: no token of an impersonation is accepted; spell it as in resources";
            doubts.push(Doubt::new(&*first.path, text));
        }
    }

    /// Checks that the provider's keys are those that the filter publishes.
    fn check_keys(
        &self,
        provider: &Place<'_>,
        endpoint_ports: &dyn Fn(&str) -> Option<Vec<u64>>,
        doubts: &mut Vec<Doubt>,
    ) {
        if let Some(remote) = provider.get("remote_jwks") {
            let uri = remote.at(&["http_uri", "uri"]);
            let path = uri.as_ref().and_then(Place::text).map(path_of);
            let issuer = provider.text_of("issuer").map(folded);
            let ours: Vec<_> = self
                .key_sets
                .iter()
                .filter(|(ours, _)| issuer.as_ref().is_none_or(|issuer| *issuer == folded(ours)))
                .map(|(_, path)| *path)
                .collect();
            if !ours.is_empty() && !path.is_some_and(|path| ours.contains(&path)) {
                doubts.push(Doubt::new(
                    uri.map_or(remote.path.clone(), |uri| uri.path),
                    format!("the provider's key set is not the one that the filter serves: take that ({})", ours.join(", ")),
                ));
                return;
            }
            let cluster = remote.at(&["http_uri", "cluster"]);
            let Some((cluster, name)) = cluster.and_then(|cluster| {
                let name = cluster.text()?;
                Some((cluster, name))
            }) else {
                return;
            };
            let ports = endpoint_ports(name);
            let leads_here =
                ports.is_none_or(|ports| ports.iter().any(|port| self.ports.contains(port)));
            if !self.ports.is_empty() && !leads_here {
                doubts.push(Doubt::new(
                    cluster.path,
                    format!("the provider's key set comes from the cluster {name:?}, past the filter: the filter's keys are not in it; ask a listener that the filter is on"),
                ));
            }
        } else if let Some(local) = provider.get("local_jwks") {
            let keys = local.text_of("inline_string");
            let Some(keys) = keys.and_then(|keys| serde_json::from_str::<Value>(keys).ok()) else {
                let text = "the provider's local_jwks cannot be looked into: give an inline_string, or the filter's key set by remote_jwks";
                doubts.push(Doubt::new(local.path, text));
                return;
            };
            let keys = keys.get("keys").and_then(Value::as_array).cloned().unwrap_or_default();
            let Some(published) = &self.published else { return };
            let has = |published: &&PublishedKey| {
                let Ok(published) = serde_json::to_value(published) else { return false };
                keys.iter().any(|key| {
                    ["kty", "crv", "x", "y", "n", "e"]
                        .iter()
                        .all(|part| key.get(part) == published.get(part))
                })
            };
            if !published.iter().any(has) {
                let text = "the provider's local_jwks has no key of the filter: no token of an impersonation is accepted; add it, or take the filter's key set by remote_jwks";
                doubts.push(Doubt::new(local.path, text));
            }
        }
    }
}

/// Checks the places from which a provider reads tokens.
fn check_places(provider: &Place<'_>, doubts: &mut Vec<Doubt>) {
    let headers = provider.list("from_headers");
    let elsewhere = ["from_params", "from_cookies"].into_iter().find_map(|name| provider.get(name));
    if let Some(elsewhere) = elsewhere {
        doubts.push(Doubt::new(
            elsewhere.path,
            "the provider takes tokens from elsewhere than a header: a request with two tokens could enter no guard, and proxies log queries; take that out",
        ));
    } else if headers.is_empty() {
        let text = if provider.is_set("forward") {
            "the provider has no from_headers, so jwt_authn takes `?access_token=` too, and forward sends both tokens on: a request with its own token and that of an impersonation enters no guard; name Authorization in from_headers"
        } else {
            "the provider has no from_headers, so jwt_authn takes `?access_token=` too: name Authorization in from_headers"
        };
        doubts.push(Doubt::new(&*provider.path, text));
    }
    let is_bearer = |header: &Place<'_>| {
        header.text_of("name").is_some_and(|name| name.eq_ignore_ascii_case("authorization"))
            && header.text_of("value_prefix").is_some_and(|prefix| !prefix.is_empty())
    };
    if let Some(other) = headers.iter().find(|header| !is_bearer(header)) {
        doubts.push(Doubt::new(
            &*other.path,
            "the provider takes tokens from another header than Authorization, or without a value_prefix: a request with two tokens could enter no guard; name Authorization alone, with \"Bearer \"",
        ));
    }
}

/// Normalises an audience as Envoy does: without a scheme, and without a slash at the end.
pub(super) fn as_audience(text: &str) -> &str {
    let text =
        text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    text.strip_suffix('/').unwrap_or(text)
}

/// Normalises an issuer as a reader does, who overlooks letter case and slashes at the end.
fn folded(issuer: &str) -> String {
    issuer.trim().trim_end_matches('/').to_ascii_lowercase()
}

/// Returns the path of a URI, without its query.
fn path_of(uri: &str) -> &str {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').and_then(|start| rest.get(start..)).unwrap_or("/");
    path.split(['?', '#']).next().unwrap_or(path)
}
