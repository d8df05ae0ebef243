//! The proxy on the way to the service, if there is one.
//!
//! A proxy for an `http:` address reads the operator's access token, and can answer as it likes: it
//! can say "has ended" about an impersonation that goes on. So the companion reaches `http:`
//! addresses directly, even if `HTTP_PROXY` is set. For an `https:` address a proxy only carries
//! bytes between the two ends of TLS. The companion uses it as other programs do, and names it.

use std::env::var;

use ureq::Proxy;
use ureq::http::Uri;

use super::Failure;
use super::display::escaped;

/// The variables that name a proxy for `https:` addresses. The first that is set decides.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Returns the proxy for this address, and names it on standard error.
pub(super) fn on_the_way_to(address: &str) -> Result<Option<Proxy>, Failure> {
    let uri: Uri = address.parse().map_err(|error| Failure::new(address, error))?;
    let host = uri.host().unwrap_or_default();
    if uri.scheme_str() != Some("https") || is_loopback(host) || is_excepted(host) {
        return Ok(None);
    }
    let set = |name| Some((name, var(name).ok().filter(|value| !value.is_empty())?));
    let Some((name, value)) = VARIABLES.into_iter().find_map(set) else { return Ok(None) };
    // The value may hold a password, so no message shows it.
    let proxy = Proxy::new(&value).ok().filter(|proxy| {
        proxy.uri().scheme_str().is_some_and(|scheme| ["http", "https"].contains(&scheme))
    });
    let Some(proxy) = proxy else {
        let told = "expected the http or https address of a proxy, or nothing";
        return Err(Failure::new(name, told));
    };
    let shown = format!("{}:{}", proxy.host(), proxy.port());
    eprintln!("impersonation-filter: by way of the proxy {} ({name})", escaped(&shown));
    Ok(Some(proxy))
}

/// Returns true if the host is this machine. No proxy is used for it.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Returns true if `NO_PROXY` names the host or its domain.
fn is_excepted(host: &str) -> bool {
    let excepted = var("NO_PROXY").or_else(|_| var("no_proxy")).unwrap_or_default();
    names(&excepted, host)
}

fn names(excepted: &str, host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    excepted.split([',', ' ']).map(|name| name.trim().to_ascii_lowercase()).any(|name| {
        let name = name.trim_start_matches('*').trim_start_matches('.');
        match name {
            "" => excepted.trim() == "*",
            name => {
                host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_names_a_host_or_a_domain() {
        #[rustfmt::skip]
        let cases = [
            ("",                                "auth.example.com", false),
            ("auth.example.com",                "auth.example.com", true),
            ("other, Example.COM",              "auth.example.com", true),
            (".example.com",                    "auth.example.com", true),
            ("*.example.com",                   "auth.example.com", true),
            ("*",                               "auth.example.com", true),
            ("example.com",                     "notexample.com",   false),
            ("auth.example.com,",               "example.com",      false),
            ("10.0.0.1",                        "10.0.0.1",         true),
        ];
        for (excepted, host, expected) in cases {
            assert_eq!(names(excepted, host), expected, "{excepted:?} and {host}");
        }
    }
}
