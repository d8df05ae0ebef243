//! The impersonation flow as its three parties see it: a backend that mints, a support client that
//! exchanges, and the APIs that verify access tokens.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, Cluster, Filter, Listener, buffer, disabled};
use crate::configuration::{
    CLIENT_SECRET, Configuration, ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, SUPPORT,
};
use crate::envoy::{Envoy, Exit};
use crate::etcd::Etcd;
use crate::http::{Answer, Connection, Form, Request};
use crate::keys::Key;
use crate::lent::{Idle, Lent};
use crate::server::{Server, as_asked};

pub const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The name of the cluster that gets all requests that are not the filter's.
pub const IDENTITY_GATEWAY: &str = "identity_gateway";

/// The filter before these servers. Each server has a cluster with its name. The one called
/// [`IDENTITY_GATEWAY`] gets all requests that are not the filter's.
pub fn in_front_of(servers: &[&Server], configuration: &Configuration) -> Bootstrap {
    let listener = Listener::new("gateway").filter(Filter::from(configuration));
    Bootstrap::default().listener(listener.route_to(IDENTITY_GATEWAY, "3s")).servers(servers)
}

/// Options of [`Gateway`] apart from the filter.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of workers (`--concurrency`).
    pub concurrency: u32,
    pub listeners: Listeners,
    /// Pins Envoy to this core.
    pub core: Option<usize>,
    /// The paths that the `direct` listener answers, and its answers.
    pub direct_responses: Vec<(&'static str, String)>,
    /// The time for which a replaced listener drains.
    pub drain_seconds: u32,
    /// Adds a listener `disabled`, in whose chain the filter is disabled.
    pub disabled: bool,
    /// More clusters than that of the upstream.
    pub clusters: Vec<Cluster>,
    /// Gives Envoy a clock of its own.
    pub clock: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 1,
            listeners: Listeners::Watched,
            core: None,
            direct_responses: Vec::new(),
            // Envoy's own.
            drain_seconds: 600,
            disabled: false,
            clusters: Vec::new(),
            clock: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// The listener is in the bootstrap: a filter that refuses its configuration ends the process.
    Static,
    /// The listener is in a file that Envoy watches: [`Gateway::update`] changes it.
    Watched,
}

/// An Envoy that serves the impersonation flow before an upstream that answers [`as_asked`].
///
/// Three listeners share the process: `gateway` runs the filter; `bare` routes to the same upstream
/// without the filter, as the standard of an unchanged request; and `direct` reads a whole POST and
/// answers from the configuration, as the standard of speed.
pub struct Gateway {
    pub envoy: Envoy,
    pub upstream: Server,
    /// The servers that a lent gateway knows besides its upstream.
    servers: Vec<Server>,
}

/// The servers that the filter of a lent gateway may ask, each with a cluster of its name.
pub const SERVERS: [&str; 6] =
    ["introspection", "userinfo", "users", "keys", "decision_point", "hooks"];

impl Gateway {
    /// The gateway with the default configuration and two workers that tests share if they do not
    /// change it.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Gateway> = LazyLock::new(|| {
            let options = Options { concurrency: 2, ..Options::default() };
            Gateway::try_start(&Configuration::default(), &options).unwrap()
        });
        &SHARED
    }

    pub fn start(configuration: &Configuration) -> Self {
        Self::try_start(configuration, &Options::default()).unwrap()
    }

    /// Lends a gateway to a test. The filter has a VM and shared data of its own, but the Envoy may
    /// have served other tests before. The test sees only its own part of log and counters. Gauges
    /// and memory are those of the process.
    pub fn lent(configuration: &Configuration) -> Lent<Self> {
        static IDLE: Idle<Gateway> = Idle::new(Vec::new());
        Self::lent_from(&IDLE, configuration, None)
    }

    /// Lends a gateway as [`Gateway::lent`] does. The cluster `etcd` leads to an etcd that other
    /// tests use, too: see [`store_in_etcd`].
    pub fn lent_with_etcd(configuration: &Configuration) -> Lent<Self> {
        static IDLE: Idle<Gateway> = Idle::new(Vec::new());
        static ETCD: LazyLock<Etcd> = LazyLock::new(Etcd::start);
        let cluster = Cluster::new("etcd", ETCD.address).http2();
        Self::lent_from(&IDLE, configuration, Some(cluster))
    }

    fn lent_from(
        idle: &'static Idle<Self>,
        configuration: &Configuration,
        store: Option<Cluster>,
    ) -> Lent<Self> {
        let filter = Filter::from(configuration);
        let start = || {
            let servers: Vec<_> = SERVERS.map(Server::start).into();
            let cluster = |server: &Server| Cluster::new(&server.name, server.address);
            let options = Options {
                clusters: servers.iter().map(cluster).chain(store).collect(),
                clock: true,
                drain_seconds: 0,
                ..Options::default()
            };
            let mut gateway = Self::try_start(filter.clone(), &options).unwrap();
            gateway.envoy.lend();
            Self { servers, ..gateway }
        };
        let renew = |gateway: &mut Self| {
            gateway.upstream.heal();
            gateway.upstream.answer(as_asked);
            gateway.servers.iter().for_each(Server::reset);
            gateway.envoy.clock().set(0);
            gateway.envoy.lend_with([listener("gateway", Some(filter.clone().into()))]);
        };
        Lent::new(idle, start, renew)
    }

    pub fn try_start(filter: impl Into<Filter>, options: &Options) -> Result<Self, Exit> {
        Self::start_with(Some(filter.into()), options)
    }

    /// The `gateway` listener has no filter either.
    pub fn without_filter(options: &Options) -> Self {
        Self::start_with(None, options).unwrap()
    }

    fn start_with(filter: Option<Filter>, options: &Options) -> Result<Self, Exit> {
        let upstream = Server::start(IDENTITY_GATEWAY);
        upstream.answer(as_asked);
        let direct = Listener::new("direct").filter(buffer());
        let answers = options.direct_responses.iter();
        let direct = answers.fold(direct, |direct, (prefix, body)| direct.answer(prefix, body));
        let gateway = listener("gateway", filter.clone().map(Value::from));
        let mut bootstrap = Bootstrap::default()
            .listener(match options.listeners {
                Listeners::Static => gateway,
                Listeners::Watched => gateway.watched(),
            })
            .listener(listener("bare", None))
            .listener(direct)
            .cluster(Cluster::new(IDENTITY_GATEWAY, upstream.address).as_downstream())
            .workers(options.concurrency)
            .drain_seconds(options.drain_seconds);
        bootstrap = options.clusters.iter().cloned().fold(bootstrap, Bootstrap::cluster);
        if options.disabled {
            bootstrap = bootstrap.listener(listener("disabled", filter.map(disabled)));
        }
        if let Some(core) = options.core {
            bootstrap = bootstrap.core(core);
        }
        if options.clock {
            bootstrap = bootstrap.with_clock();
        }
        let envoy = bootstrap.try_start()?;
        Ok(Self { envoy, upstream, servers: Vec::new() })
    }

    /// Returns a server that the filter of a lent gateway may ask, by the name of its cluster.
    pub fn server(&self, name: &str) -> &Server {
        let all = self.servers.iter().chain([&self.upstream]);
        let found = all.into_iter().find(|server| server.name == name);
        found.unwrap_or_else(|| panic!("no server {name}"))
    }

    /// Gives the running listener another filter. Returns when every worker uses it, or the reason
    /// why Envoy refused it and kept the old one.
    pub fn update(&self, filter: impl Into<Filter>) -> Result<(), String> {
        self.envoy.update(listener("gateway", Some(filter.into().into())))
    }

    /// Returns the address at which the filter listens.
    pub fn address(&self) -> SocketAddr {
        self.envoy.address("gateway")
    }

    pub fn connect(&self) -> Connection {
        self.envoy.connect()
    }

    /// Sends a request over a connection of its own.
    pub fn send(&self, request: &Request) -> Answer {
        self.envoy.send(request)
    }

    /// Mints a subject token for `user`.
    pub fn mint(&self, user: &str) -> String {
        minted(&self.send(&mint_request(user)))
    }

    pub fn exchange(&self, form: &Form) -> Answer {
        self.send(&exchange_request(form))
    }

    /// Asserts that a mint and an exchange succeed.
    pub fn assert_serves(&self, case: &str) {
        let answer = self.exchange(&exchange_form(&self.mint("u-after")));
        assert_eq!(answer.status, 200, "{case}: the flow no longer works: {answer:?}");
    }

    /// Asserts that a mint and an exchange succeed on every worker: tries many connections, until
    /// each worker has had one.
    pub fn assert_every_worker_serves(&self, case: &str) {
        for connection in &mut self.envoy.connect_to_every_worker() {
            let token = minted(&connection.send(&mint_request("u-after")));
            let answer = connection.send(&exchange_request(&exchange_form(&token)));
            assert_eq!(answer.status, 200, "{case}: {answer:?}");
        }
    }

    /// Asserts that a refused request left the token unspent: the correct request still gets its
    /// access token.
    pub fn assert_spendable(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.status, 200, "{case}: the subject token is spent: {answer:?}");
    }

    pub fn assert_spent(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{case}: {answer:?}");
    }

    /// Returns true if the upstream saw the request of this answer.
    pub fn passed_on(&self, answer: &Answer) -> bool {
        self.upstream.received_for(answer).is_some()
    }
}

/// A store in etcd, with keys that no other test has.
pub fn store_in_etcd() -> Value {
    json!({"etcd": {"cluster": "etcd", "prefix": format!("/{:016x}/", fastrand::u64(..))}})
}

/// A listener before the upstream of a [`Gateway`].
pub fn listener(name: &str, filter: Option<Value>) -> Listener {
    let listener = Listener::new(name).route_to(IDENTITY_GATEWAY, "15s");
    filter.into_iter().fold(listener, Listener::filter)
}

/// An `http_uri` that reaches a server by its cluster, with this `timeout`.
pub fn http_uri(server: &Server, path: &str, timeout: &str) -> Value {
    let uri = format!("http://{}.example.com{path}", server.name.replace('_', "-"));
    json!({"uri": uri, "cluster": server.name, "timeout": timeout})
}

/// Returns the subject token of an answer that must be a success.
pub fn minted(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.member("subjectToken")
}

pub fn mint_request(user: &str) -> Request {
    mint_body_request(&json!({"userId": user}))
}

pub fn mint_body_request(body: &Value) -> Request {
    Request::post("/api/subject-tokens").bearer(&BEARER).json(body)
}

/// A mint for a user, by the caller with this token.
pub fn mint_by(bearer: &str, user: &str) -> Request {
    Request::post("/api/subject-tokens").bearer(bearer).json(&json!({"userId": user}))
}

/// A valid machine-to-machine token of the integrator's backend.
pub static BEARER: LazyLock<String> = LazyLock::new(|| PROVIDER_KEY.sign(&backend_claims()));

pub fn backend_claims() -> Value {
    json!({
        "iss": ISSUER,
        "sub": "support-backend",
        "client_id": "support-backend",
        "aud": MANAGEMENT,
        "scope": "impersonate",
        "iat": now(),
        "exp": now() + 3600,
        "jti": fastrand::u64(..).to_string(),
    })
}

/// The claims of a good actor token.
pub fn actor_claims(actor: &str) -> Value {
    json!({
        "iss": ISSUER,
        "sub": actor,
        "client_id": "support-console",
        "aud": SUPPORT,
        "scope": "openid profile",
        "iat": now(),
        "exp": now() + 3600,
    })
}

/// A request of the public client `support-console` for `orders:read` at the orders API.
pub fn exchange_form(subject_token: &str) -> Form {
    Form::default()
        .set("grant_type", EXCHANGE_GRANT)
        .set("client_id", "support-console")
        .set("scope", "orders:read")
        .set("subject_token", subject_token)
        .set("subject_token_type", ACCESS_TOKEN)
        .set("resource", ORDERS)
}

pub fn with_actor(form: Form, actor_token: &str) -> Form {
    form.set("actor_token", actor_token).set("actor_token_type", ACCESS_TOKEN)
}

/// An exchange for the actor with this token.
pub fn exchange_by(subject_token: &str, actor_token: &str) -> Request {
    exchange_request(&with_actor(exchange_form(subject_token), actor_token))
}

pub fn exchange_request(form: &Form) -> Request {
    raw_exchange_request(&form.encode())
}

pub fn raw_exchange_request(body: &str) -> Request {
    Request::post("/oidc/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

/// A token request by the confidential client `support-portal`.
pub fn portal_request(subject_token: &str) -> Request {
    exchange_request(&exchange_form(subject_token).without("client_id"))
        .basic("support-portal", &CLIENT_SECRET)
}

/// Returns the header and the claims of an access token, after its signature was verified with the
/// public key in `jwks`.
pub fn verify(access_token: &str, jwks: &Value) -> (Value, Value) {
    let jwks: jsonwebtoken::jwk::JwkSet = serde_json::from_value(jwks.clone()).unwrap();
    let header = jsonwebtoken::decode_header(access_token).unwrap();
    let key = jwks.find(header.kid.as_deref().unwrap()).expect("the token's kid in the key set");
    let mut validation = jsonwebtoken::Validation::new(header.alg);
    validation.set_issuer(&[ISSUER]);
    validation.validate_aud = false;
    let key = jsonwebtoken::DecodingKey::from_jwk(key).unwrap();
    let claims = jsonwebtoken::decode::<Value>(access_token, &key, &validation)
        .unwrap_or_else(|error| panic!("{error}: {access_token}"));
    (raw_part(access_token, 0), claims.claims)
}

/// Returns the header (0) or the claims (1) of a JWT without verifying its signature.
pub fn raw_part(jwt: &str, index: usize) -> Value {
    use base64::Engine;
    let part = jwt.split('.').nth(index).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap())
        .unwrap()
}

/// A key set with the public half of `key`, for [`verify`].
pub fn key_set(key: &Key) -> Value {
    json!({"keys": [key.public_jwk()]})
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
