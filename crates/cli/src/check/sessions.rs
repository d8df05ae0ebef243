//! The members of both configurations for browser sessions.

use serde_json::Value;

use super::wasm::Plugin;

/// The path below which the filter answers on a session's host.
const BASE: &str = "/.impersonation/";

/// The paths of a session's host at which the filter answers.
pub(super) const PATHS: [&str; 4] = [
    "/.impersonation/begin",
    "/.impersonation/me",
    "/.impersonation/end",
    "/.impersonation/banner.js",
];

/// The id of a subject token, for the host of a session.
const ID: &str = "f69c769c7328d1eaca86918b4690";

/// Returns true for a path that the filter has on the hosts of sessions alone.
pub(super) fn is_of_sessions(path: &str) -> bool {
    path.starts_with(BASE)
}

/// Returns the host of a session.
pub(super) fn host_of(domain: &str) -> String {
    format!("{ID}.{domain}")
}

/// The `browser_sessions` of a filter.
pub(super) struct Sessions {
    pub(super) domain: String,
    pub(super) resource: String,
    pub(super) read_only: bool,
}

impl Plugin<'_> {
    /// Reads the sessions of a filter; `None` if it has none.
    pub(super) fn sessions(&self) -> Option<Sessions> {
        let (configuration, _) = self.configuration().ok()?;
        let member = configuration.get("browser_sessions")?;
        let text = |name| member.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let read_only = member.get("read_only").and_then(Value::as_bool).unwrap_or(true);
        Some(Sessions { domain: text("domain"), resource: text("resource"), read_only })
    }

    /// Reads the domain whose sessions a guard is for; `None` if it is for APIs.
    pub(super) fn session_domain(&self) -> Option<String> {
        let (configuration, _) = self.configuration().ok()?;
        let domain = configuration.get("browser_session")?.get("domain");
        Some(domain.and_then(Value::as_str).unwrap_or_default().to_owned())
    }
}

/// Returns a domain of a virtual host without its port.
pub(super) fn without_port(domain: &str) -> &str {
    match domain.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => domain,
    }
}
