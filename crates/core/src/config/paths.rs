//! The paths that endpoints of the filter have in one configuration.

use serde_json::Value;

use super::node::Node;
use super::section::{Kind, section};

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The default of each path: the specification's.
const SUBJECT_TOKENS: &str = "/api/subject-tokens";
const IMPERSONATIONS: &str = "/api/impersonations";
const APPROVALS: &str = "/api/approvals";
const TOKEN: &str = "/oidc/token";
const REVOCATION: &str = "/oidc/token/revocation";
const INTROSPECTION: &str = "/oidc/token/introspection";
const JWKS: &str = "/oidc/jwks";
const BACK_CHANNEL_LOGOUT: &str = "/oidc/backchannel-logout";
const SECURITY_EVENTS: &str = "/api/security-events";
const CONSOLE: &str = "/impersonations/";
const BROWSER_SESSIONS: &str = "/.impersonation";
const DISCOVERY: &str = "/oidc/.well-known/openid-configuration";

section! {
    /// The paths of the endpoints, each below `base_path`. Name those that your identity gateway
    /// has, and its clients know. No two may be alike.
    pub(super) struct PathMembers {
        /// The token endpoint.
        token: GatewayPath = TOKEN,
        /// The key set.
        jwks: GatewayPath = JWKS,
        /// The discovery document (OpenID Connect Discovery).
        discovery: GatewayPath = DISCOVERY,
        /// The discovery document of RFC 8414.
        oauth_discovery: GatewayPath => "goes on to the provider",
        /// The revocation endpoint (RFC 7009).
        revocation: GatewayPath = REVOCATION,
        /// The introspection endpoint (RFC 7662).
        introspection: GatewayPath = INTROSPECTION,
        /// Mints subject tokens. Each has a path below.
        subject_tokens: EndpointPath = SUBJECT_TOKENS,
        /// Lists impersonations. Each has a path below, as revocations have.
        impersonations: EndpointPath = IMPERSONATIONS,
        /// Lists what waits for a decision. Each has a path below.
        approvals: EndpointPath = APPROVALS,
        /// Receives logout tokens.
        back_channel_logout: EndpointPath = BACK_CHANNEL_LOGOUT,
        /// Receives security events.
        security_events: EndpointPath = SECURITY_EVENTS,
        /// The page of live impersonations.
        console: GatewayPath = CONSOLE,
    }
}

/// The endpoints that the filter has only if the configuration asks for them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IfAskedFor {
    /// Decisions of approvers and users.
    pub(super) approvals: bool,
    /// Logout tokens.
    pub(super) logouts: bool,
    /// Security events.
    pub(super) events: bool,
    /// The page of live impersonations.
    pub(super) console: bool,
    /// Browser sessions.
    pub(super) browser_sessions: bool,
}

/// The paths of one configuration, with `base_path`. Below some of them the table of endpoints has
/// further paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Mints subject tokens. Each token has its own path below.
    pub subject_tokens: String,
    /// Lists impersonations. Each impersonation has its own path below, and so have revocations.
    pub impersonations: String,
    /// Lists what waits for a decision, if anybody may decide. Each has its own path below.
    pub approvals: Option<String>,
    /// Receives logout tokens, if anybody may send them.
    pub back_channel_logout: Option<String>,
    /// Receives security events, if anybody may send them.
    pub security_events: Option<String>,
    /// The page of live impersonations, if it is configured.
    pub console: Option<String>,
    /// The beginning of the paths on the hosts of browser sessions, if there are any. `base_path`
    /// does not stand before it.
    pub browser_sessions: Option<&'static str>,
    /// The token endpoint.
    pub token: String,
    /// The revocation endpoint (RFC 7009).
    pub revocation: String,
    /// The introspection endpoint (RFC 7662).
    pub introspection: String,
    /// The key set.
    pub jwks: String,
    /// The provider's metadata (OpenID Connect Discovery §4).
    pub discovery: String,
    /// The provider's metadata (RFC 8414 §3).
    pub oauth_discovery: Option<String>,
}

impl Paths {
    /// Puts the default paths below `base_path`.
    pub fn new(base_path: &str) -> Self {
        Self::with(base_path, IfAskedFor::default(), |_| None)
    }

    /// Reads the paths of a configuration that need not be valid. A member that is no string counts
    /// as absent.
    pub fn of_unchecked(configuration: &Value) -> Self {
        let base_path = configuration.get("base_path").and_then(Value::as_str).unwrap_or_default();
        let paths = configuration.get("paths");
        let ends_by = |name: &str| configuration["impersonations"].get(name).is_some();
        let asked_for = IfAskedFor {
            approvals: configuration.get("approvals").is_some(),
            logouts: ends_by("back_channel_logout"),
            events: ends_by("security_events"),
            console: configuration.get("console").is_some(),
            browser_sessions: configuration.get("browser_sessions").is_some(),
        };
        Self::with(base_path, asked_for, |name| paths?.get(name)?.as_str())
    }

    /// Returns true for a path that an endpoint may have: Envoy and the identity gateway read it in
    /// one way, as it has no query, no fragment, no escape, no empty segment and no dot segment.
    pub fn may_have(path: &str) -> bool {
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain);
        path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
    }

    /// The default path of the list of impersonations.
    pub const DEFAULT_IMPERSONATIONS: &str = IMPERSONATIONS;

    /// The default path of the list of what waits for a decision.
    pub const DEFAULT_APPROVALS: &str = APPROVALS;

    fn with<'v>(
        base_path: &str,
        asked_for: IfAskedFor,
        given: impl Fn(&str) -> Option<&'v str>,
    ) -> Self {
        let below = |path: &str| format!("{base_path}{path}");
        let path = |name: &str, default: &str| below(given(name).unwrap_or(default));
        Self {
            subject_tokens: path("subject_tokens", SUBJECT_TOKENS),
            impersonations: path("impersonations", IMPERSONATIONS),
            approvals: (asked_for.approvals).then(|| path("approvals", APPROVALS)),
            back_channel_logout: (asked_for.logouts)
                .then(|| path("back_channel_logout", BACK_CHANNEL_LOGOUT)),
            security_events: (asked_for.events).then(|| path("security_events", SECURITY_EVENTS)),
            console: (asked_for.console).then(|| path("console", CONSOLE)),
            browser_sessions: (asked_for.browser_sessions).then_some(BROWSER_SESSIONS),
            token: path("token", TOKEN),
            revocation: path("revocation", REVOCATION),
            introspection: path("introspection", INTROSPECTION),
            jwks: path("jwks", JWKS),
            discovery: path("discovery", DISCOVERY),
            oauth_discovery: given("oauth_discovery").map(below),
        }
    }
}

impl PathMembers {
    /// Puts the paths below `base_path`, and notes those that are alike.
    pub(super) fn below(self, base_path: &str, asked_for: IfAskedFor, place: &Node<'_>) -> Paths {
        self.refuse_alike(&asked_for, place);
        let below = |path: String| format!("{base_path}{path}");
        Paths {
            subject_tokens: below(self.subject_tokens),
            impersonations: below(self.impersonations),
            approvals: (asked_for.approvals).then(|| below(self.approvals)),
            back_channel_logout: (asked_for.logouts).then(|| below(self.back_channel_logout)),
            security_events: (asked_for.events).then(|| below(self.security_events)),
            console: (asked_for.console).then(|| below(self.console)),
            browser_sessions: (asked_for.browser_sessions).then_some(BROWSER_SESSIONS),
            token: below(self.token),
            revocation: below(self.revocation),
            introspection: below(self.introspection),
            jwks: below(self.jwks),
            discovery: below(self.discovery),
            oauth_discovery: self.oauth_discovery.map(below),
        }
    }

    /// Notes each path that is like an earlier one, or that lies where the filter has paths of its
    /// own.
    fn refuse_alike(&self, asked_for: &IfAskedFor, place: &Node<'_>) {
        let mut paths = vec![
            ("subject_tokens", &self.subject_tokens, true),
            ("impersonations", &self.impersonations, true),
            ("token", &self.token, false),
            ("revocation", &self.revocation, false),
            ("introspection", &self.introspection, false),
            ("jwks", &self.jwks, false),
            ("discovery", &self.discovery, false),
        ];
        paths.extend(self.oauth_discovery.as_ref().map(|path| ("oauth_discovery", path, false)));
        // A path that is not asked for is the gateway's.
        let optional = [
            (asked_for.approvals, ("approvals", &self.approvals, true)),
            (asked_for.logouts, ("back_channel_logout", &self.back_channel_logout, false)),
            (asked_for.events, ("security_events", &self.security_events, false)),
            (asked_for.console, ("console", &self.console, false)),
        ];
        let asked_for = optional.into_iter().filter(|(is_asked_for, _)| *is_asked_for);
        paths.extend(asked_for.map(|(_, path)| path));
        for (index, (name, path, has_children)) in paths.iter().enumerate() {
            for (other, earlier, earlier_has_children) in paths.iter().take(index) {
                let alike = without_slash(path).eq_ignore_ascii_case(without_slash(earlier))
                    || *earlier_has_children && is_below(path, earlier)
                    || *has_children && is_below(earlier, path);
                if alike {
                    let text =
                        format!("expected a path that is not like paths.{other} or below it");
                    let _: Option<()> = place.clone().member(name).problem(text);
                    break;
                }
            }
        }
    }
}

/// Removes one slash from the end of a path.
fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns true if a path is below another one, in any letter case.
fn is_below(path: &str, folder: &str) -> bool {
    let (path, folder) = (path.to_ascii_lowercase(), folder.to_ascii_lowercase());
    path.strip_prefix(&folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A path that an endpoint may have.
struct EndpointPath;

impl Kind for EndpointPath {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        read_normal(node, |text| text)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        described("")
    }
}

/// The path of an endpoint that the identity gateway has too, or of a page: an [`EndpointPath`],
/// with or without a slash at its end. authentik's endpoints have one.
struct GatewayPath;

impl Kind for GatewayPath {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        read_normal(node, without_slash)
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        described("/?")
    }
}

/// Reads a path of which this part is normal.
fn read_normal(node: Node<'_>, part: fn(&str) -> &str) -> Option<String> {
    let text = node.clone().string()?;
    match Paths::may_have(part(text)) {
        true => Some(text.to_owned()),
        false => node.problem("expected a normal path such as /oidc/token, without a query"),
    }
}

#[cfg(test)]
fn described(end: &str) -> Described {
    let pattern = format!(r"^(/(?!\.{{1,2}}(/|$))[A-Za-z0-9._~!$&'()*+,=:@-]+)+{end}$");
    Described::plain("path", json!({"type": "string", "pattern": pattern}))
}

/// Returns true for a character of a segment (RFC 3986 §3.3) that needs no escape. Some servers cut
/// a path at `;`, so it is none.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}
