//! The members of both configurations for browser sessions.

use serde_json::Value;

use super::findings::Findings;
use super::tree::Place;
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

/// The hosts on which the application's users have their own sign-in.
#[derive(Debug, Default)]
pub(super) struct OrdinaryHosts(pub(super) Vec<String>);

impl OrdinaryHosts {
    /// Returns true if a virtual host takes these hosts and no other.
    pub(super) fn have(&self, host: &Place<'_>) -> bool {
        let domains = host.list("domains");
        let is_one = |domain: &Place<'_>| {
            domain.text().is_some_and(|domain| {
                let host = without_port(domain).to_ascii_lowercase();
                self.0.contains(&host)
            })
        };
        !domains.is_empty() && domains.iter().all(is_one)
    }

    /// Reports a domain of sessions that is not apart from an ordinary host.
    pub(super) fn check_apart(&self, plugin: &Plugin<'_>, findings: &mut Findings) {
        let (Some(sessions), Ok((_, path))) = (plugin.sessions(), plugin.configuration()) else {
            return;
        };
        let path = format!("{path}.browser_sessions.domain");
        let domain = sessions.domain.to_ascii_lowercase();
        for host in &self.0 {
            if is_at_or_below(&domain, host) || is_at_or_below(host, &domain) {
                findings.problem(
                    &*path,
                    format!("is not apart from the ordinary host {host}: cookies of the one reach the other; take a domain that only sessions use"),
                );
            } else if ends_alike(&domain, host) {
                findings.warning(
                    &*path,
                    format!("seems to be of one site with the ordinary host {host}: its pages can send requests with the cookie of a session; take a domain that only sessions use"),
                );
            }
        }
    }
}

/// Reads the value of `--ordinary-host`.
pub(super) fn ordinary_host(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match text.split('.').all(is_label) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("expected the name of a host, such as shop.example.com".to_owned()),
    }
}

/// Returns a domain of a virtual host without its port.
pub(super) fn without_port(domain: &str) -> &str {
    match domain.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => domain,
    }
}

fn is_at_or_below(host: &str, other: &str) -> bool {
    host.strip_suffix(other).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns true if two hosts have the last two labels in common. Below some of these pairs anybody
/// can register a name, so they need not be of one site.
fn ends_alike(one: &str, other: &str) -> bool {
    let end = |host: &str| {
        let labels: Vec<_> = host.rsplit('.').take(2).map(str::to_owned).collect();
        (labels.len() == 2).then_some(labels)
    };
    end(one).is_some() && end(one) == end(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_host_is_a_name_without_scheme_and_port() {
        for host in ["https://shop.example.com", "shop.example.com:443", "*.example.com", ""] {
            assert!(ordinary_host(host).is_err(), "{host}");
        }
        assert_eq!(ordinary_host("Shop.example.com").as_deref(), Ok("shop.example.com"));
    }
}
