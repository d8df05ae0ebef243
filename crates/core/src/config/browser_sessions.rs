//! Browser sessions: where they are, which pages may begin them, and where they end.

use std::collections::HashMap;
use std::rc::Rc;

use super::clients::Client;
use super::kinds::{Boolean, NonEmpty};
use super::node::Node;
use super::resources::{Indicator, Resource};
use super::section::{Kind, Raw, Refined, section};
use super::service::OriginUri;
use crate::browser_session::is_landing;
use crate::oauth::uri::HttpUrl;

#[cfg(test)]
use serde_json::json;

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// The browser sessions of a service.
#[derive(Debug, PartialEq, Eq)]
pub struct BrowserSessions {
    /// The domain below which each session has a host.
    pub domain: String,
    /// The origins whose pages may begin a session.
    pub begin_from: Vec<String>,
    /// The address to which a tab goes when its session has ended.
    pub ended: String,
    /// The resource of a session's access token.
    pub resource: String,
    /// True if agents are told that they can only read.
    pub read_only: bool,
    /// The address on the session's host of its first page.
    pub landing: String,
}

section! {
    /// Sessions in which an agent sees an application as the user, each in a tab of its own.
    pub(super) struct BrowserSessionsMembers under "browser_sessions", "browser sessions" {
        /// The domain of the sessions, such as `shop-as-user.example`, which nothing else uses. The
        /// host of a session is `{txn}.shop-as-user.example`.
        domain: DomainName,
        /// The origins whose pages may begin a session, such as `https://support.example.com`.
        begin_from: NonEmpty<OriginUri>,
        /// The address to which a tab goes when its session has ended. It is not below `domain`.
        ended: PageUrl,
        /// The resource of the sessions' access tokens: one of `resources`, without
        /// `token_binding`. Access tokens for it are issued to browser sessions alone.
        resource: Indicator,
        /// If true, agents are told that they can only read. The guard decides it, and must be
        /// configured so.
        read_only: Boolean = true,
        /// The first page of a session: a path on its host. The form that begins a session may name
        /// another one.
        landing: Landing = "/",
    }
}

impl Refined for BrowserSessions {
    type From = BrowserSessionsMembers;
    type Value = Self;

    fn refine(raw: Raw<Self>, place: Node<'_>) -> Option<Self> {
        let BrowserSessionsMembers { domain, begin_from, ended, resource, read_only, landing } =
            raw;
        let begin = place.clone().member("begin_from");
        let inside = begin_from.iter().position(|origin| is_within(origin, &domain));
        if let Some(index) = inside {
            return begin.item(index).problem(NOT_WITHIN);
        }
        if is_within(&ended, &domain) {
            return place.member("ended").problem(NOT_WITHIN);
        }
        Some(Self { domain, begin_from, ended, resource, read_only, landing })
    }
}

/// A page of a session could begin a session, or a tab would never leave its host.
const NOT_WITHIN: &str = "expected an address outside of domain: only sessions use that";

/// Returns true if the host of an address is `domain`, or below it.
fn is_within(address: &str, domain: &str) -> bool {
    let Some(url) = HttpUrl::parse(address) else { return false };
    let host = url.authority.rsplit_once(':').map_or(url.authority, |(host, _)| host);
    let host = host.to_ascii_lowercase();
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl BrowserSessions {
    /// Notes what contradicts the rest of the configuration.
    pub(super) fn check(
        &self,
        place: &Node<'_>,
        issuer: &str,
        resources: &HashMap<String, Resource>,
        clients: &[Rc<Client>],
    ) {
        let here = |name| place.clone().member("browser_sessions").member(name);
        if is_within(issuer, &self.domain) {
            let text = "expected a domain that the issuer is not in: only sessions use it";
            let _: Option<()> = here("domain").problem(text);
        }
        let wrong = match resources.get(&self.resource) {
            None => "expected the indicator of one of the resources",
            Some(resource) if resource.token_binding.is_some() => {
                "expected a resource without token_binding: a browser proves no key"
            }
            Some(_) => "",
        };
        if !wrong.is_empty() {
            let _: Option<()> = here("resource").problem(wrong);
        }
        for (index, client) in clients.iter().enumerate() {
            let wrong = match &client.resources {
                _ if client.token_binding.is_none() => continue,
                Some(named) if !named.contains(&self.resource) => continue,
                Some(_) => {
                    "the client has a token_binding, and its resources have browser_sessions.resource: a browser proves no key"
                }
                None => {
                    "is required beside token_binding and browser_sessions: name the resources, and not that of the sessions"
                }
            };
            let client = place.clone().member("clients").item(index);
            let _: Option<()> = client.member("resources").problem(wrong);
        }
    }
}

section! {
    /// Browser sessions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GuardSessions {
        /// The filter's `browser_sessions.domain`.
        pub domain: DomainName as String,
    }
}

/// The name of a domain, as browsers write it: in small letters, without a port.
struct DomainName;

impl Kind for DomainName {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        /// A session's host has one more label, of up to 32 characters.
        const LONGEST: usize = 220;
        let text = node.clone().string()?;
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if text.len() <= LONGEST && text.split('.').all(is_label) {
            return Some(text.to_owned());
        }
        node.problem("expected a domain in small letters, such as shop-as-user.example")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
        let pattern = format!(r"^{label}(\.{label})*$");
        let schema = json!({"type": "string", "pattern": pattern, "maxLength": 220});
        Described::plain("domain", schema)
    }
}

/// The address of a page.
struct PageUrl;

impl Kind for PageUrl {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if HttpUrl::parse(text).is_some() {
            return Some(text.to_owned());
        }
        node.problem("expected an http or https URL without user information and fragment")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        Described::plain("URL", json!({"type": "string", "pattern": "^https?://[^#]+$"}))
    }
}

/// A path on the session's own host.
struct Landing;

impl Kind for Landing {
    type Value = String;

    fn read(node: Node<'_>) -> Option<String> {
        let text = node.clone().string()?;
        if is_landing(text) {
            return Some(text.to_owned());
        }
        node.problem("expected a path such as /orders, without the name of a host")
    }

    #[cfg(test)]
    fn describe(_: &mut Descriptions) -> Described {
        let schema = json!({"type": "string", "pattern": r"^/([!-.0-\[\]-~][!-\[\]-~]*)?$"});
        Described::plain("path", schema)
    }
}
