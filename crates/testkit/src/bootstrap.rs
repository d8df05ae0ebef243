//! The configuration and the command line of an Envoy, built piece by piece: listeners with their
//! filters and routes, and clusters. The system chooses all ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::artifacts::MODULE;
use crate::configuration::Configuration;
use crate::server::Server;
use crate::tls::Identity;

/// A configuration of Envoy, and how it is started.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub(crate) listeners: Vec<Listener>,
    clusters: Vec<Cluster>,
    stats_tags: Vec<Value>,
    address: IpAddr,
    pub(crate) workers: u32,
    pub(crate) drain_seconds: u32,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) command_prefix: Vec<String>,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            clusters: Vec::new(),
            stats_tags: Vec::new(),
            address: Ipv4Addr::LOCALHOST.into(),
            workers: 1,
            // Envoy's own.
            drain_seconds: 600,
            environment: Vec::new(),
            command_prefix: Vec::new(),
        }
    }
}

impl Bootstrap {
    /// The first listener is the one that `Envoy::send` sends to.
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Changes the first listener.
    pub fn edit_listener(mut self, edit: impl FnOnce(Listener) -> Listener) -> Self {
        let first = self.listeners.remove(0);
        self.listeners.insert(0, edit(first));
        self
    }

    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.clusters.push(cluster);
        self
    }

    /// A cluster for each of these, by its name.
    pub fn servers(self, servers: &[&Server]) -> Self {
        servers.iter().fold(self, |bootstrap, server| {
            bootstrap.cluster(Cluster::new(&server.name, server.address))
        })
    }

    /// Workers, as `--concurrency` has it.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How long a listener that was replaced stays.
    pub fn drain_seconds(mut self, seconds: u32) -> Self {
        self.drain_seconds = seconds;
        self
    }

    /// Sets the address of all listeners and of the admin interface. The default is loopback.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = address;
        self
    }

    /// Has metrics by this tag: `regex` finds its value as `stats_config.stats_tags` does.
    pub fn stats_tag(mut self, name: &str, regex: &str) -> Self {
        self.stats_tags.push(json!({"tag_name": name, "regex": regex}));
        self
    }

    /// A variable of the Envoy process, which plugins see by `host_env_keys`.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Words before the command, of a program that becomes Envoy: `ip netns exec <name>`.
    pub fn command_prefix(mut self, words: &[&str]) -> Self {
        self.command_prefix.extend(words.iter().map(|&word| word.into()));
        self
    }

    /// Runs on this core only.
    pub fn core(self, core: usize) -> Self {
        self.command_prefix(&["taskset", "--cpu-list", &core.to_string()])
    }

    pub(crate) fn to_json(&self, directory: &Path) -> Value {
        let (watched, fixed): (Vec<_>, Vec<_>) =
            self.listeners.iter().partition(|listener| listener.watched);
        let dynamic = if watched.is_empty() {
            json!({})
        } else {
            json!({"lds_config": {"path_config_source": {"path": listeners_file(directory)}}})
        };
        let fixed: Vec<_> =
            fixed.iter().map(|listener| self.render(listener, 0, directory)).collect();
        let clusters: Vec<_> = self.clusters.iter().map(Cluster::to_json).collect();
        json!({
            "admin": {"address": socket_address(SocketAddr::new(self.address, 0))},
            "stats_config": {"stats_tags": self.stats_tags},
            "dynamic_resources": dynamic,
            "static_resources": {"listeners": fixed, "clusters": clusters},
        })
    }

    /// The content of [`listeners_file`].
    pub(crate) fn watched_listeners(&self, version: u32, directory: &Path) -> Value {
        let watched = self.listeners.iter().filter(|listener| listener.watched);
        let resources = watched.map(|listener| {
            let mut rendered = self.render(listener, version, directory);
            rendered["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
            rendered
        });
        json!({"version_info": version.to_string(), "resources": resources.collect::<Vec<_>>()})
    }

    fn render(&self, listener: &Listener, version: u32, directory: &Path) -> Value {
        listener.to_json(SocketAddr::new(self.address, 0), version, directory)
    }
}

/// One listener for HTTP/1.1 and HTTP/2, without TLS unless it is given a certificate. What its
/// routes do not say it does not do, but for [`VERSION_PATH`].
#[derive(Clone, Debug)]
pub struct Listener {
    pub(crate) name: String,
    filters: Vec<Value>,
    routes: Vec<Value>,
    watched: bool,
    keeps_connections: bool,
    patience: &'static str,
    access_log: Option<Value>,
    access_loggers: Vec<Value>,
    tls: Option<Identity>,
    edits: Vec<fn(&mut Value)>,
}

impl Listener {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            filters: Vec::new(),
            routes: Vec::new(),
            watched: false,
            keeps_connections: false,
            patience: "15s",
            access_log: None,
            access_loggers: Vec::new(),
            tls: None,
            edits: Vec::new(),
        }
    }

    /// Changes what Envoy is told, for what has no method here: the whole `Listener`.
    pub fn edited(mut self, edit: fn(&mut Value)) -> Self {
        self.edits.push(edit);
        self
    }

    /// It speaks TLS, and is who this says.
    pub fn tls(mut self, identity: Identity) -> Self {
        self.tls = Some(identity);
        self
    }

    /// One more HTTP filter, before the router, which is the last.
    pub fn filter(mut self, filter: impl Into<Value>) -> Self {
        self.filters.push(filter.into());
        self
    }

    /// One more HTTP filter, before all that are there already.
    pub fn first_filter(mut self, filter: impl Into<Value>) -> Self {
        self.filters.insert(0, filter.into());
        self
    }

    pub fn route(mut self, route: Value) -> Self {
        self.routes.push(route);
        self
    }

    /// Whatever no route before took goes to this cluster.
    pub fn route_to(self, cluster: &str, timeout: &str) -> Self {
        self.route(json!({
            "match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": timeout},
        }))
    }

    /// Makes Envoy answer requests below this path itself.
    pub fn answer(self, prefix: &str, body: &str) -> Self {
        self.route(json!({
            "match": {"prefix": prefix},
            "direct_response": {"status": 200, "body": {"inline_string": body}},
        }))
    }

    /// It is in a file that Envoy watches, so that `Envoy::update` can change it. In the bootstrap
    /// a filter that refuses its configuration ends the process.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Does not close a connection of HTTP/1.1 after an answer of 400 that did not come from
    /// upstream.
    pub fn keeps_connections(mut self) -> Self {
        self.keeps_connections = true;
        self
    }

    /// How long a stream may stand still, or a request take to arrive; 15 s unless this says
    /// otherwise.
    pub fn patience(mut self, duration: &'static str) -> Self {
        self.patience = duration;
        self
    }

    /// Has an access log of JSON lines in this format: see `Envoy::access_log`.
    pub fn access_log(mut self, json_format: Value) -> Self {
        self.access_log = Some(json_format);
        self
    }

    /// Has another one, as Envoy is told of it.
    pub fn access_logger(mut self, logger: Value) -> Self {
        self.access_loggers.push(logger);
        self
    }

    fn to_json(&self, address: SocketAddr, version: u32, directory: &Path) -> Value {
        let version = json!({
            "match": {"path": VERSION_PATH},
            "direct_response": {"status": 200, "body": {"inline_string": version.to_string()}},
        });
        let routes: Vec<_> = [version].into_iter().chain(self.routes.iter().cloned()).collect();
        let filters: Vec<_> = self.filters.iter().cloned().chain([router()]).collect();
        let access_log = self.access_log.iter().map(|format| {
            json!({
                "name": "envoy.access_loggers.file",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                    "path": access_log_file(directory),
                    "log_format": {"omit_empty_values": true, "json_format": format},
                },
            })
        });
        let tls = self.tls.as_ref().map(|Identity { certificate, key }| {
            json!({
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                    "common_tls_context": {"tls_certificates": [{
                        "certificate_chain": {"filename": certificate}, "private_key": {"filename": key},
                    }]},
                },
            })
        });
        let mut listener = json!({
            "name": self.name,
            "stat_prefix": self.name,
            "address": socket_address(address),
            "filter_chains": [{"transport_socket": tls, "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": self.name,
                    "codec_type": "AUTO",
                    "stream_idle_timeout": self.patience,
                    "request_timeout": self.patience,
                    "http_protocol_options": {
                        "enable_trailers": true,
                        "override_stream_error_on_invalid_http_message": self.keeps_connections,
                    },
                    "upgrade_configs": [{"upgrade_type": "websocket"}],
                    "access_log": access_log.chain(self.access_loggers.iter().cloned()).collect::<Vec<_>>(),
                    "route_config": {
                        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
                    },
                    "http_filters": filters,
                },
            }]}],
        });
        for edit in &self.edits {
            edit(&mut listener);
        }
        listener
    }
}

/// Answered by every listener with its version, which `Envoy::update` counts up.
pub const VERSION_PATH: &str = "/listener-version";

/// A cluster: the endpoints to which a call goes.
#[derive(Clone, Debug)]
pub struct Cluster {
    name: String,
    endpoints: Vec<Value>,
    settings: Map<String, Value>,
}

impl Cluster {
    pub fn new(name: &str, endpoint: SocketAddr) -> Self {
        Self::without_endpoints(name).endpoint(endpoint)
    }

    pub fn without_endpoints(name: &str) -> Self {
        let cluster = Self { name: name.into(), endpoints: Vec::new(), settings: Map::new() };
        cluster.with("connect_timeout", "2s")
    }

    /// One more endpoint.
    pub fn endpoint(mut self, address: SocketAddr) -> Self {
        self.endpoints.push(json!({"endpoint": {"address": socket_address(address)}}));
        self
    }

    /// One more endpoint, whose health is asked for at another port: see [`Cluster::with`] and
    /// `health_checks`.
    pub fn endpoint_with_health_at(mut self, address: SocketAddr, health_port: u16) -> Self {
        self.endpoints.push(json!({"endpoint": {
            "address": socket_address(address),
            "health_check_config": {"port_value": health_port},
        }}));
        self
    }

    /// Any other member of Envoy's `Cluster`.
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(member.into(), value.into());
        self
    }

    /// HTTP/2, without asking: gRPC needs it.
    pub fn http2(self) -> Self {
        self.http2_with(json!({}))
    }

    /// Speaks HTTP/2 with these `http2_protocol_options`.
    pub fn http2_with(self, options: Value) -> Self {
        self.protocol("explicit_http_config", json!({"http2_protocol_options": options}))
    }

    /// HTTP/2 stays HTTP/2, so that trailers and framing have no translation to hide behind.
    pub fn as_downstream(self) -> Self {
        let options = json!({
            "http_protocol_options": {"enable_trailers": true},
            "http2_protocol_options": {},
        });
        self.protocol("use_downstream_protocol_config", options)
    }

    fn protocol(self, choice: &str, options: Value) -> Self {
        let mut protocol = json!({
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        });
        protocol[choice] = options;
        let member = "typed_extension_protocol_options";
        self.with(
            member,
            json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol}),
        )
    }

    fn to_json(&self) -> Value {
        let mut cluster = self.settings.clone();
        cluster.insert("name".into(), json!(self.name));
        let endpoints = json!([{"lb_endpoints": self.endpoints}]);
        let assignment = json!({"cluster_name": self.name, "endpoints": endpoints});
        cluster.insert("load_assignment".into(), assignment);
        cluster.into()
    }
}

/// The form of the plugin's configuration.
#[derive(Clone, Debug)]
pub enum Plugin {
    /// A `google.protobuf.Struct`: YAML or JSON in the middle of the listener.
    Struct(Value),
    /// A `google.protobuf.StringValue`.
    Text(String),
}

/// A Wasm plugin as a filter: the module of this repository unless `module` names another.
#[derive(Clone, Debug)]
pub struct Filter {
    pub plugin: Plugin,
    /// `vm_config.environment_variables.key_values`
    pub environment: Vec<(String, String)>,
    /// The filter's name, and the plugin's.
    pub name: String,
    /// Plugins with one of these share data, whatever their module is.
    pub vm_id: String,
    pub module: Option<PathBuf>,
}

impl From<Plugin> for Filter {
    fn from(plugin: Plugin) -> Self {
        Self {
            plugin,
            environment: Vec::new(),
            name: "impersonation".into(),
            vm_id: "impersonation".into(),
            module: None,
        }
    }
}

impl From<&Configuration> for Filter {
    fn from(configuration: &Configuration) -> Self {
        Plugin::Struct(configuration.0.clone()).into()
    }
}

impl From<&Filter> for Filter {
    fn from(filter: &Self) -> Self {
        filter.clone()
    }
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Self {
        let configuration = match &filter.plugin {
            Plugin::Struct(value) => json!({
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": value,
            }),
            Plugin::Text(text) => json!({
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": text,
            }),
        };
        let environment: Map<_, _> =
            filter.environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "name": filter.name,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": filter.name,
                    "configuration": configuration,
                    "vm_config": {
                        "vm_id": filter.vm_id,
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": {"local": {"filename": filter.module.as_ref().unwrap_or(&MODULE)}},
                        "environment_variables": {"key_values": environment},
                    },
                    "allow_on_headers_stop_iteration": true,
                    "failure_policy": "FAIL_RELOAD",
                    "reload_config": {"backoff": {"base_interval": "1s"}},
                },
            },
        })
    }
}

/// Reads a request whole before it goes on.
pub fn buffer() -> Value {
    json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 65536,
        },
    })
}

/// The filter in the chain, but switched off.
pub fn disabled(filter: impl Into<Value>) -> Value {
    let mut filter = filter.into();
    filter["disabled"] = true.into();
    filter
}

fn router() -> Value {
    json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    })
}

/// The file that Envoy watches for new listeners. It is alone in its directory, because Envoy
/// watches the whole directory and would wake up for every line of its own log.
pub(crate) fn listeners_file(directory: &Path) -> PathBuf {
    directory.join("watched/listeners.json")
}

pub(crate) fn access_log_file(directory: &Path) -> PathBuf {
    directory.join("access.log")
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
