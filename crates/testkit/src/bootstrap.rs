//! The configuration and the command line of an Envoy, built piece by piece: listeners with their
//! filters and routes, and clusters. The system chooses all ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::artifacts::MODULE;
use crate::clock::Clock;
use crate::configuration::Configuration;
use crate::server::Server;
use crate::tls::Identity;

/// A configuration of Envoy, and the options of its process.
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
    /// Stands in the place of [`VM_ID`] in all listeners.
    pub(crate) vm_id: Option<String>,
    pub(crate) clock: Option<Arc<Clock>>,
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
            vm_id: None,
            clock: None,
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

    /// Adds a cluster for each of these servers, with the server's name.
    pub fn servers(self, servers: &[&Server]) -> Self {
        servers.iter().fold(self, |bootstrap, server| {
            bootstrap.cluster(Cluster::new(&server.name, server.address))
        })
    }

    /// Sets the number of workers (`--concurrency`).
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how long a replaced listener drains.
    pub fn drain_seconds(mut self, seconds: u32) -> Self {
        self.drain_seconds = seconds;
        self
    }

    /// Sets the address of all listeners and of the admin interface. The default is loopback.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = address;
        self
    }

    /// Adds a tag of metrics: `regex` finds its value as in `stats_config.stats_tags`.
    pub fn stats_tag(mut self, name: &str, regex: &str) -> Self {
        self.stats_tags.push(json!({"tag_name": name, "regex": regex}));
        self
    }

    /// Sets a variable of the Envoy process. Plugins see it by `host_env_keys`.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets words before Envoy's command, of a program that becomes Envoy: `ip netns exec <name>`.
    pub fn command_prefix(mut self, words: &[&str]) -> Self {
        self.command_prefix.extend(words.iter().map(|&word| word.into()));
        self
    }

    /// Gives Envoy a clock of its own: see `Envoy::clock`.
    pub fn with_clock(self) -> Self {
        let clock = Clock::new();
        let set = |bootstrap: Self, (name, value)| bootstrap.environment(name, value);
        let bootstrap = clock.environment().into_iter().fold(self, set);
        Self { clock: Some(Arc::new(clock)), ..bootstrap }
    }

    /// Pins Envoy to this core.
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
        let mut listener = listener.to_json(SocketAddr::new(self.address, 0), version, directory);
        if let Some(vm_id) = &self.vm_id {
            replace_vm_id(&mut listener, vm_id);
        }
        listener
    }
}

/// The `vm_id` of filters and guards that name no other.
const VM_ID: &str = "impersonation";

/// Replaces [`VM_ID`] in all plugins of a listener.
fn replace_vm_id(value: &mut Value, by: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| replace_vm_id(value, by)),
        Value::Object(members) => {
            for (name, value) in members {
                if name == "vm_id" && value == VM_ID {
                    *value = by.into();
                }
                replace_vm_id(value, by);
            }
        }
        _ => {}
    }
}

/// One listener for HTTP/1.1 and HTTP/2, without TLS unless it has a certificate. It answers what
/// its routes say, and [`VERSION_PATH`].
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

    /// Changes the `Listener` of Envoy's configuration, for settings that have no method here.
    pub fn edited(mut self, edit: fn(&mut Value)) -> Self {
        self.edits.push(edit);
        self
    }

    /// Makes the listener speak TLS with this certificate.
    pub fn tls(mut self, identity: Identity) -> Self {
        self.tls = Some(identity);
        self
    }

    /// Adds an HTTP filter right before the router, which is the last filter.
    pub fn filter(mut self, filter: impl Into<Value>) -> Self {
        self.filters.push(filter.into());
        self
    }

    /// Adds an HTTP filter before all others.
    pub fn first_filter(mut self, filter: impl Into<Value>) -> Self {
        self.filters.insert(0, filter.into());
        self
    }

    pub fn route(mut self, route: Value) -> Self {
        self.routes.push(route);
        self
    }

    /// Sends requests that no earlier route takes to this cluster.
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

    /// Puts the listener into a file that Envoy watches, so that `Envoy::update` can change it. In
    /// the bootstrap, a filter that refuses its configuration ends the process.
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Keeps a connection of HTTP/1.1 open after an answer of 400 that did not come from the
    /// upstream.
    pub fn keeps_connections(mut self) -> Self {
        self.keeps_connections = true;
        self
    }

    /// Sets how long a stream may be idle and a request may take to arrive. The default is 15 s.
    pub fn patience(mut self, duration: &'static str) -> Self {
        self.patience = duration;
        self
    }

    /// Adds an access log of JSON lines in this format: see `Envoy::access_log`.
    pub fn access_log(mut self, json_format: Value) -> Self {
        self.access_log = Some(json_format);
        self
    }

    /// Adds an access log with this configuration of Envoy's.
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

/// The path at which every listener answers with its version. `Envoy::update` counts the version
/// up.
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

    /// Adds an endpoint.
    pub fn endpoint(mut self, address: SocketAddr) -> Self {
        self.endpoints.push(json!({"endpoint": {"address": socket_address(address)}}));
        self
    }

    /// Adds an endpoint whose health is checked at another port: see [`Cluster::with`] and
    /// `health_checks`.
    pub fn endpoint_with_health_at(mut self, address: SocketAddr, health_port: u16) -> Self {
        self.endpoints.push(json!({"endpoint": {
            "address": socket_address(address),
            "health_check_config": {"port_value": health_port},
        }}));
        self
    }

    /// Sets another member of Envoy's `Cluster`.
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(member.into(), value.into());
        self
    }

    /// Makes Envoy connect by TLS with this certificate, to servers that this authority vouches
    /// for.
    pub fn by_tls(self, Identity { certificate, key }: &Identity, authority: &Path) -> Self {
        let context = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {
                    "tls_certificates": [{
                        "certificate_chain": {"filename": certificate},
                        "private_key": {"filename": key},
                    }],
                    "validation_context": {"trusted_ca": {"filename": authority}},
                },
            },
        });
        self.with("transport_socket", context)
    }

    /// Speaks HTTP/2 without negotiation, as gRPC needs it.
    pub fn http2(self) -> Self {
        self.http2_with(json!({}))
    }

    /// Speaks HTTP/2 with these `http2_protocol_options`.
    pub fn http2_with(self, options: Value) -> Self {
        self.protocol("explicit_http_config", json!({"http2_protocol_options": options}))
    }

    /// Keeps HTTP/2 as HTTP/2, so that no translation hides trailers and framing.
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
        // A cluster may have settings of its own for its endpoints, or null for none.
        cluster.entry("load_assignment").or_insert(assignment);
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

/// A Wasm plugin as a filter. The module is this repository's unless `module` names another.
#[derive(Clone, Debug)]
pub struct Filter {
    pub plugin: Plugin,
    /// `vm_config.environment_variables.key_values`
    pub environment: Vec<(String, String)>,
    /// The name of the filter and of the plugin.
    pub name: String,
    /// Plugins with the same `vm_id` share data, whatever their modules are.
    pub vm_id: String,
    pub module: Option<PathBuf>,
}

impl From<Plugin> for Filter {
    fn from(plugin: Plugin) -> Self {
        Self {
            plugin,
            environment: Vec::new(),
            name: "impersonation".into(),
            vm_id: VM_ID.into(),
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

/// Buffers the whole request before it goes on.
pub fn buffer() -> Value {
    json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 65536,
        },
    })
}

/// The filter in the chain, but disabled.
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
