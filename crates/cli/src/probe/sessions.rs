//! Checks of browser sessions: their hosts do what their own pages ask for, and nothing else.
//!
//! A browser sends the cookie of a session along whatever page asks, so each attack here is a
//! request with the right cookie and the wrong origin, as a browser would send it.

use impersonation_core::browser_session::COOKIE;
use ureq::http::{Method, Request, request::Builder};

use super::answer::{Answer, Reading};
use super::deployment::{At, Deployment, Impersonation, SubjectToken, built};
use super::report::{Group, Outcome, Report};
use super::settings::SessionSettings;
use crate::Failure;
use crate::http::Base;

const ATTRIBUTES: [&str; 4] = ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"];
const STRANGER: &str = "https://probe.invalid";

/// Header fields of a request.
type Fields<'a> = Vec<(&'static str, &'a str)>;

/// The header fields of a tab that goes to a page.
const OF_A_TAB: [(&str, &str); 2] =
    [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];

/// The handshake of a WebSocket.
const UPGRADE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The hosts of the sessions.
struct Hosts<'d> {
    deployment: &'d Deployment,
    settings: &'d SessionSettings,
    scheme: &'d str,
    /// The domain, with its port.
    authority: &'d str,
}

/// A session that has begun.
struct Session {
    host: String,
    cookie: String,
}

/// Runs all checks.
pub(super) fn check(
    deployment: &Deployment,
    settings: &SessionSettings,
    impersonation: &Impersonation,
    report: &mut Report,
) -> Result<(), Failure> {
    let (scheme, authority) =
        settings.base.address.split_once("://").unwrap_or(("https", &settings.base.address));
    let hosts = Hosts { deployment, settings, scheme, authority };
    let mut add = |check: &str, outcome: Outcome| {
        report.add(Group::Sessions, &settings.base.address, check, outcome);
    };
    let token = deployment.mint_for_session(settings)?;
    hosts.try_to_begin(&token, &mut add)?;
    let Some(session) = hosts.begin(&token, &mut add)? else { return Ok(()) };
    deployment.interruption.check()?;
    if hosts.reads(&session, &mut add)? {
        hosts.attack(&session, impersonation, &mut add)?;
        hosts.misdirect(&session, &mut add)?;
    }
    hosts.end(&session, &mut add)
}

impl Hosts<'_> {
    fn host(&self, label: &str) -> String {
        format!("{label}.{}", self.authority)
    }

    /// Opens a client for a host. A browser takes `*.localhost` for this machine, and not every
    /// resolver does.
    fn open(&self, host: &str) -> Result<At, Failure> {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        let address = match name.ends_with(".localhost") || name == "localhost" {
            true if port.is_empty() => format!("{}://127.0.0.1", self.scheme),
            true => format!("{}://127.0.0.1:{port}", self.scheme),
            false => format!("{}://{host}", self.scheme),
        };
        let base = Base { address, in_clear: false };
        At::new(&base, self.deployment.settings.cacert.as_deref(), None)
    }

    fn send(
        &self,
        at: &At,
        host: &str,
        (method, path): (Method, &str),
        fields: &Fields<'_>,
        body: Option<(&SubjectToken, &str)>,
    ) -> Result<Answer, Failure> {
        let uri = format!("{}{path}", at.address);
        let mut request: Builder = Request::builder().method(method).uri(uri).header("host", host);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        match body {
            None => self.deployment.send(at, &built(at, request, ())?, Reading::Whole),
            Some((token, landing)) => {
                let (request, form) = self.deployment.begin_session(request, self.settings, token);
                let request = built(at, request, format!("{form}&landing={landing}"))?;
                self.deployment.send(at, &request, Reading::Whole)
            }
        }
    }

    fn post_begin(
        &self,
        host: &str,
        fields: &Fields<'_>,
        token: &SubjectToken,
    ) -> Result<Answer, Failure> {
        let at = self.open(host)?;
        let begin = (Method::POST, "/.impersonation/begin");
        self.send(&at, host, begin, fields, Some((token, "%2F")))
    }

    /// Tries to begin a session from where nobody may. None of it spends the token.
    fn try_to_begin(
        &self,
        token: &SubjectToken,
        add: &mut impl FnMut(&str, Outcome),
    ) -> Result<(), Failure> {
        let own = self.host(&token.id);
        let other = self.host("0000000000000000000000000000");
        let console = ("origin", &*self.settings.origin);
        let tab = |origin| [origin].into_iter().chain(OF_A_TAB).collect::<Fields<'_>>();
        let [mode, dest] = OF_A_TAB;
        #[rustfmt::skip]
        let attempts = [
            ("a stranger's page begins no session",      &own,   tab(("origin", STRANGER)),                    403),
            ("a sandboxed page begins no session",       &own,   tab(("origin", "null")),                      403),
            ("a page without an origin begins none",     &own,   OF_A_TAB.to_vec(),                            403),
            ("a frame begins no session",                &own,   vec![console, mode, ("sec-fetch-dest", "iframe")], 403),
            ("a script begins no session",               &own,   vec![console, ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")], 403),
            ("a session begins on its own host alone",   &other, vec![console, mode, dest],                    400),
        ];
        for (check, host, fields, status) in attempts {
            let answer = self.post_begin(host, &fields, token)?;
            add(check, has_status(&answer, &[status]));
        }
        let answer = self.deployment.exchange_for_session(self.settings, token)?;
        let error = answer.member("error");
        let is_refused = answer.status == 400 && error.as_deref() == Some("invalid_target");
        add("no exchange gets the token of a session", holds(is_refused, &answer));
        Ok(())
    }

    /// Begins a session.
    fn begin(
        &self,
        token: &SubjectToken,
        add: &mut impl FnMut(&str, Outcome),
    ) -> Result<Option<Session>, Failure> {
        let host = self.host(&token.id);
        let fields: Fields<'_> =
            [("origin", &*self.settings.origin)].into_iter().chain(OF_A_TAB).collect();
        let answer = self.post_begin(&host, &fields, token)?;
        let set = answer.cookie.clone().unwrap_or_default();
        let mut parts = set.split("; ");
        let pair = parts.next().unwrap_or_default().to_owned();
        let value = pair.strip_prefix(COOKIE).and_then(|rest| rest.strip_prefix('='));
        let Some(value) = value.filter(|value| answer.status == 200 && !value.is_empty()) else {
            add("the console begins a session", holds(false, &answer));
            return Ok(None);
        };
        add("the console begins a session", Outcome::Holds);
        let parts: Vec<_> = parts.collect();
        let missing = ATTRIBUTES.iter().find(|attribute| !parts.contains(*attribute));
        let is_wide = parts.iter().any(|part| part.to_ascii_lowercase().starts_with("domain"));
        let outcome = match missing {
            Some(missing) => Outcome::Fails(format!("it lacks {missing}")),
            None if is_wide => Outcome::Fails("it has a Domain".to_owned()),
            None => Outcome::Holds,
        };
        add("the cookie is for one host, and for no script", outcome);
        let page = String::from_utf8_lossy(&answer.body);
        let outcome = match page.contains(value) {
            true => Outcome::Fails("the page repeats it".to_owned()),
            false => Outcome::Holds,
        };
        add("no page has the token", outcome);
        Ok(Some(Session { host, cookie: pair }))
    }

    /// Reads a page, as the session's own tab does. Returns false if it cannot.
    fn reads(
        &self,
        session: &Session,
        add: &mut impl FnMut(&str, Outcome),
    ) -> Result<bool, Failure> {
        let at = self.open(&session.host)?;
        let fields = vec![("cookie", &*session.cookie), ("sec-fetch-site", "none")];
        let answer =
            self.send(&at, &session.host, (Method::GET, &self.settings.read), &fields, None)?;
        add("a session reads", holds(answer.is_success(), &answer));
        if !answer.is_success() {
            return Ok(false);
        }
        let caching = answer.caching.unwrap_or_default();
        let outcome = match caching.split(',').any(|it| it.trim() == "no-store") {
            true => Outcome::Holds,
            false => Outcome::Fails(format!("cache-control is {caching:?}")),
        };
        add("no cache keeps a page of a session", outcome);
        Ok(true)
    }

    /// Sends what pages of other sites, and holders of other tokens, can make a browser send.
    fn attack(
        &self,
        session: &Session,
        impersonation: &Impersonation,
        add: &mut impl FnMut(&str, Outcome),
    ) -> Result<(), Failure> {
        let at = self.open(&session.host)?;
        let read = &*self.settings.read;
        let sibling = format!("{}://sibling.{}", self.scheme, self.authority);
        for (site, origin, who) in
            [("cross-site", STRANGER, "a stranger's page"), ("same-site", &*sibling, "a sibling")]
        {
            let from = |method: Method, mode: &'static str, dest: &'static str, named: bool| {
                let mut fields = vec![
                    ("sec-fetch-site", site),
                    ("sec-fetch-mode", mode),
                    ("sec-fetch-dest", dest),
                ];
                fields.extend(named.then_some(("origin", origin)));
                (method, fields)
            };
            let end = "/.impersonation/end";
            let mut socket: Fields<'_> = UPGRADE.to_vec();
            socket.push(("origin", origin));
            let from_old = (Method::POST, vec![("origin", origin)]);
            #[rustfmt::skip]
            let attacks = [
                ("posts no form",        read, from(Method::POST, "navigate", "document", true)),
                ("fetches nothing",      read, from(Method::POST, "cors", "empty", true)),
                ("shows no image",       read, from(Method::GET, "no-cors", "image", false)),
                ("frames nothing",       read, from(Method::GET, "navigate", "iframe", false)),
                ("sends no beacon",      read, from(Method::POST, "no-cors", "empty", true)),
                ("opens no WebSocket",   read, (Method::GET, socket)),
                ("posts nothing from an old browser", read, from_old),
                ("ends no session",      end,  from(Method::POST, "no-cors", "empty", true)),
            ];
            for (what, path, (method, mut fields)) in attacks {
                fields.push(("cookie", &*session.cookie));
                let answer = self.send(&at, &session.host, (method, path), &fields, None)?;
                add(&format!("{who} {what}"), has_status(&answer, &[401, 403]));
            }
        }
        let mut bare: Fields<'_> = UPGRADE.to_vec();
        bare.push(("cookie", &*session.cookie));
        let post = vec![("cookie", &*session.cookie)];
        let other_host = self.host("0000000000000000000000000000");
        let sibling_host = format!("a.{}", session.host);
        let token = session.cookie.split_once('=').map_or("", |(_, token)| token);
        let bearer = format!("Bearer {token}");
        let of_another = format!("{COOKIE}={}", impersonation.credential.token.expose());
        let mut own = post.clone();
        own.push(("sec-fetch-site", "none"));
        let with = |cookie| vec![("cookie", cookie), ("sec-fetch-site", "none")];
        let mut attempts = vec![
            ("a WebSocket without an origin is refused", &session.host, Method::GET, bare),
            ("a write without an origin is refused", &session.host, Method::POST, post),
            (
                "a token outside of the cookie does not read",
                &session.host,
                Method::GET,
                vec![("authorization", &*bearer)],
            ),
            (
                "another impersonation's token does not read",
                &session.host,
                Method::GET,
                with(&*of_another),
            ),
            ("another session's host refuses the cookie", &other_host, Method::GET, own.clone()),
            ("a host below the session's refuses the cookie", &sibling_host, Method::GET, own),
        ];
        let ordinary = self.deployment.ordinary.as_ref();
        let ordinary = ordinary.map(|token| format!("{COOKIE}={}", token.expose()));
        let check = "an ordinary token in the cookie does not read";
        match &ordinary {
            Some(cookie) => attempts.push((check, &session.host, Method::GET, with(cookie))),
            None => add(check, Outcome::NotTried("give --ordinary-token-file".to_owned())),
        }
        for (check, host, method, fields) in attempts {
            // The certificate has no name two labels below the domain.
            let answer = self.send(&at, host, (method, read), &fields, None)?;
            add(check, has_status(&answer, &[401, 403, 404]));
        }
        Ok(())
    }

    /// Sends requests of the session to the other addresses, which must not take them.
    fn misdirect(
        &self,
        session: &Session,
        add: &mut impl FnMut(&str, Outcome),
    ) -> Result<(), Failure> {
        let name = session.host.rsplit_once(':').map_or(&*session.host, |(name, _)| name);
        for at in self.deployment.filters.iter().chain(&self.deployment.apis) {
            let fields = vec![("cookie", &*session.cookie)];
            let answer = self.send(at, name, (Method::GET, &self.settings.read), &fields, None)?;
            let check = format!("{} answers 421 to the host of a session", at.address);
            add(&check, has_status(&answer, &[421]));
        }
        Ok(())
    }

    /// Looks at the session and ends it, as the banner does.
    fn end(&self, session: &Session, add: &mut impl FnMut(&str, Outcome)) -> Result<(), Failure> {
        let at = self.open(&session.host)?;
        let own = vec![("cookie", &*session.cookie), ("sec-fetch-site", "same-origin")];
        let send = |method, path| self.send(&at, &session.host, (method, path), &own, None);
        let me = send(Method::GET, "/.impersonation/me")?;
        let id = session.host.split('.').next().map(str::to_owned);
        add("the banner shows the session", holds(me.status == 200 && me.member("id") == id, &me));
        let answer = send(Method::POST, "/.impersonation/end")?;
        let location = answer.member("location");
        add("Stop ends the session", holds(answer.status == 200 && location.is_some(), &answer));
        let me = send(Method::GET, "/.impersonation/me")?;
        add("the banner learns of the end", has_status(&me, &[401]));
        let answer = send(Method::GET, &self.settings.read)?;
        add("an ended session does not read", has_status(&answer, &[401]));
        let mut tab = own.clone();
        tab.extend(OF_A_TAB);
        let answer =
            self.send(&at, &session.host, (Method::GET, &self.settings.read), &tab, None)?;
        let goes_on = answer.status == 303 && answer.location == location;
        add("the tab of an ended session goes on to `ended`", holds(goes_on, &answer));
        Ok(())
    }
}

fn holds(it: bool, answer: &Answer) -> Outcome {
    match it {
        true => Outcome::Holds,
        false => Outcome::Fails(format!("it was answered {}", answer.in_short())),
    }
}

fn has_status(answer: &Answer, statuses: &[u16]) -> Outcome {
    holds(statuses.contains(&answer.status), answer)
}
