//! One Envoy process with the filter in it, from bootstrap to `/stats`.
//!
//! Three listeners share the process: `gateway` runs the filter, `bare` routes to the same upstream
//! without it (the standard for what "untouched" means), and `direct` reads a POST whole and answers
//! it from the configuration (the standard for speed). All ports are the system's choice.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Connection, Request};
use crate::upstream::Upstream;
use crate::{repository, scratch, wait_for};

/// How the plugin's configuration is given.
#[derive(Clone, Debug)]
pub enum Plugin {
    /// A `google.protobuf.Struct`: YAML or JSON in the middle of the listener.
    Struct(Value),
    /// A `google.protobuf.StringValue`.
    Text(String),
}

#[derive(Clone, Debug)]
pub struct Filter {
    pub plugin: Plugin,
    /// `vm_config.environment_variables.key_values`
    pub environment: Vec<(String, String)>,
}

impl From<Plugin> for Filter {
    fn from(plugin: Plugin) -> Self {
        Self { plugin, environment: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// In the bootstrap: a filter that refuses its configuration ends the process.
    Static,
    /// In a file that Envoy watches: [`Envoy::update`] changes it.
    Watched,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Workers, as `--concurrency` has it.
    pub concurrency: u32,
    pub listeners: Listeners,
    /// Run on this core only.
    pub core: Option<usize>,
    /// What the `direct` listener answers below which path.
    pub direct_responses: Vec<(&'static str, String)>,
    /// How long a listener that was replaced stays.
    pub drain_seconds: u32,
    /// Whether there is a listener `disabled`, which has the filter in its chain, switched off.
    pub disabled: bool,
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
        }
    }
}

pub struct Envoy {
    pub gateway: SocketAddr,
    pub bare: SocketAddr,
    pub direct: SocketAddr,
    /// If it was asked for.
    pub disabled: Option<SocketAddr>,
    pub upstream: Upstream,
    admin: SocketAddr,
    concurrency: u32,
    directory: PathBuf,
    version: Mutex<u32>,
    process: Mutex<Process>,
}

/// Why Envoy did not come up.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    pub log: String,
}

impl Envoy {
    /// Starts Envoy and waits until it is ready. Without a filter the `gateway` listener is a bare one.
    pub fn start(filter: Option<&Filter>, options: &Options) -> Result<Self, Exit> {
        let upstream = Upstream::start();
        let directory = fresh_directory();
        let gateway = listener("gateway", http_filters(filter), &routes_to_upstream(1));
        let direct = options.direct_responses.iter().map(|(prefix, body)| {
            json!({
                "match": {"prefix": prefix},
                "direct_response": {"status": 200, "body": {"inline_string": body}},
            })
        });
        let mut listeners = vec![
            listener("bare", vec![router()], &routes_to_upstream(0)),
            listener("direct", vec![buffer(), router()], &direct.collect()),
        ];
        if options.disabled {
            let mut filters = http_filters(filter);
            filters[0]["disabled"] = true.into();
            listeners.push(listener("disabled", filters, &routes_to_upstream(0)));
        }
        if options.listeners == Listeners::Static {
            listeners.push(gateway);
        } else {
            publish(&directory, gateway, 1);
        }
        let bootstrap = directory.join("envoy.json");
        fs::write(&bootstrap, bootstrap_json(&directory, &listeners, upstream.address).to_string())
            .unwrap();

        let admin_file = directory.join("admin");
        let log = File::create(directory.join("envoy.log")).unwrap();
        let mut command = match options.core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &core.to_string()]).arg(&*ENVOY);
                command
            }
            None => Command::new(&*ENVOY),
        };
        command
            .arg("--config-path")
            .arg(&bootstrap)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", &options.concurrency.to_string()])
            .args(["--drain-time-s", &options.drain_seconds.to_string()])
            // Info, as in production, but for the two pages about what Envoy was built with.
            .args(["--log-level", "info", "--component-log-level", "main:warning"])
            .args(["--service-node", "test", "--service-cluster", "test"])
            // Without it Envoy dies with the thread that started it, and two cannot run at once.
            .arg("--disable-hot-restart")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let mut process = Process::spawn(&mut command);

        let read_log = || fs::read_to_string(directory.join("envoy.log")).unwrap_or_default();
        let ready = wait_for("Envoy to be ready", || {
            if let Some(status) = process.envoy.try_wait().unwrap() {
                return Some(Err(Exit { code: status.code(), log: read_log() }));
            }
            let address: SocketAddr = fs::read_to_string(&admin_file).ok()?.trim().parse().ok()?;
            let answer =
                Connection::try_open(address).ok()?.try_send(&Request::get("/ready")).ok()?;
            (answer.status == 200).then_some(Ok(address))
        });
        let admin = ready?;

        let listening: Value = serde_json::from_str(&get(admin, "/listeners?format=json")).unwrap();
        let address = |name: &str| -> SocketAddr {
            let all = listening["listener_statuses"].as_array().unwrap();
            let Some(found) = all.iter().find(|status| status["name"] == name) else {
                panic!("no listener {name}: {}", read_log());
            };
            let socket = &found["local_address"]["socket_address"];
            format!("{}:{}", socket["address"].as_str().unwrap(), socket["port_value"])
                .parse()
                .unwrap()
        };
        Ok(Self {
            gateway: address("gateway"),
            bare: address("bare"),
            direct: address("direct"),
            disabled: options.disabled.then(|| address("disabled")),
            upstream,
            admin,
            concurrency: options.concurrency,
            version: Mutex::new(1),
            process: Mutex::new(process),
            directory,
        })
    }

    /// Gives the running listener another filter configuration. Returns once every worker uses it,
    /// or the reason why Envoy refused it and stayed with the old one.
    pub fn update(&self, filter: &Filter) -> Result<(), String> {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        let outcomes = || {
            let outcome = |name: &str| self.stat(&format!("listener_manager.lds.update_{name}"));
            (outcome("success"), outcome("rejected"))
        };
        let (accepted, refused) = outcomes();
        let logged = self.log().len();
        let gateway =
            listener("gateway", http_filters(Some(filter)), &routes_to_upstream(*version));
        publish(&self.directory, gateway, *version);
        let (_, refused_now) = wait_for("Envoy to read its listener", || {
            let now = outcomes();
            (now != (accepted, refused)).then_some(now)
        });
        if refused_now > refused {
            return Err(self.log().split_off(logged));
        }
        // Each worker takes the listener over in its own time: all must, so ask until all have.
        let mut in_a_row = 0;
        wait_for("the workers to use the new listener", || {
            let answer = Connection::open(self.gateway).send(&Request::get(VERSION_PATH));
            in_a_row = if answer.text() == version.to_string() { in_a_row + 1 } else { 0 };
            (in_a_row == 16 * self.concurrency).then_some(())
        });
        Ok(())
    }

    /// Where its configuration and its log are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A counter or gauge; 0 if there is none of that name.
    pub fn stat(&self, name: &str) -> u64 {
        let all = get(self.admin, &format!("/stats?filter=^{name}$"));
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// How many connections each worker has open on the `gateway` listener.
    pub fn connections_by_worker(&self) -> Vec<u64> {
        connections_by_worker(self.admin)
    }

    /// One connection on each worker at least.
    pub fn connect_to_every_worker(&self) -> Vec<Connection> {
        connect_to_every_worker(self.gateway, self.admin)
    }

    /// Everything that Envoy has printed.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("envoy.log")).unwrap()).into_owned()
    }

    /// How much one of Envoy's loggers says from now on.
    pub fn set_log_level(&self, logger: &str, level: &str) {
        let request = Request::post(&format!("/logging?{logger}={level}"));
        assert_eq!(Connection::open(self.admin).send(&request).status, 200);
    }

    /// What all its threads together have run so far.
    pub fn cpu_time(&self) -> Duration {
        let threads = format!("/proc/{}/task", self.pid());
        let nanoseconds = fs::read_dir(threads).unwrap().filter_map(|thread| {
            let stat = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    fn pid(&self) -> u32 {
        self.process.lock().unwrap().envoy.id()
    }

    /// Resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// An Envoy that ends when this does, even when this is never dropped: a shell waits for the end of
/// its input, which is ours to close or the system's when we are gone, and then ends Envoy.
struct Process {
    envoy: Child,
    watchdog: Child,
}

impl Process {
    fn spawn(command: &mut Command) -> Self {
        let envoy = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let watchdog = Command::new("sh")
            .args(["-c", "read _; kill -TERM $0 2>/dev/null", &envoy.id().to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { envoy, watchdog }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.envoy.try_wait().unwrap().is_some() {
            // The number may be another process's by now.
            let _ = self.watchdog.kill();
        }
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.envoy.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

/// Answered by the routes of a listener, but for `direct`, with the version of the listener.
pub const VERSION_PATH: &str = "/listener-version";

/// The Envoy to run, found the way `make run` finds it.
static ENVOY: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = repository().join("scripts/envoy");
    let output = Command::new(script).arg("--path").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/envoy --path failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
});

/// The module, built anew if its sources have changed. `IMPERSONATION_FILTER_WASM` names another.
pub static MODULE: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(path) = std::env::var_os("IMPERSONATION_FILTER_WASM") {
        return path.into();
    }
    let root = repository();
    let made = Command::new("make").current_dir(root).args(["--silent", "build"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    root.join("target/wasm32-wasip1/release/impersonation_filter.wasm")
});

/// A directory for one Envoy; what earlier runs left behind goes.
fn fresh_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let root = scratch().join("envoy");
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    fs::create_dir_all(&root).unwrap();
    if count == 0 {
        for run in fs::read_dir(&root).unwrap() {
            let run = run.unwrap().path();
            if !Path::new("/proc").join(run.file_name().unwrap()).exists() {
                let _ = fs::remove_dir_all(run);
            }
        }
    }
    let directory = root.join(std::process::id().to_string()).join(count.to_string());
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// One connection on each worker at least; those that others have just closed do not count.
pub fn connect_to_every_worker(gateway: SocketAddr, admin: SocketAddr) -> Vec<Connection> {
    let mut connections = Vec::new();
    wait_for("every worker to have a connection", || {
        let open = connections_by_worker(admin);
        if open.iter().sum::<u64>() != connections.len() as u64 {
            return None;
        }
        let all = !open.is_empty() && open.iter().all(|&count| count > 0);
        if !all {
            connections.push(Connection::open(gateway));
        }
        all.then_some(())
    });
    connections
}

fn connections_by_worker(admin: SocketAddr) -> Vec<u64> {
    let open = get(admin, "/stats?filter=^listener.gateway.worker_.*downstream_cx_active");
    open.lines().map(|line| line.rsplit_once(": ").unwrap().1.parse().unwrap()).collect()
}

fn get(admin: SocketAddr, target: &str) -> String {
    Connection::open(admin).send(&Request::get(target)).text()
}

fn publish(directory: &Path, mut listener: Value, version: u32) {
    listener["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
    let response = json!({"version_info": version.to_string(), "resources": [listener]});
    // Envoy looks when a file is moved into place.
    let draft = directory.join("listeners.draft");
    fs::write(&draft, response.to_string()).unwrap();
    let watched = listeners_file(directory);
    fs::create_dir_all(watched.parent().unwrap()).unwrap();
    fs::rename(draft, watched).unwrap();
}

/// What Envoy watches for new listeners: alone in a directory, because Envoy watches the whole of that,
/// and would look up at every line of its own log.
pub fn listeners_file(directory: &Path) -> PathBuf {
    directory.join("watched/listeners.json")
}

fn bootstrap_json(directory: &Path, listeners: &[Value], upstream: SocketAddr) -> Value {
    let watched = listeners_file(directory);
    let dynamic = if watched.exists() {
        json!({"lds_config": {"path_config_source": {"path": watched}}})
    } else {
        json!({})
    };
    json!({
        "admin": {"address": socket_address("127.0.0.1:0".parse().unwrap())},
        "dynamic_resources": dynamic,
        "static_resources": {
            "listeners": listeners,
            "clusters": [{
                "name": "identity_gateway",
                "connect_timeout": "2s",
                "load_assignment": {"cluster_name": "identity_gateway", "endpoints": [{"lb_endpoints": [
                    {"endpoint": {"address": socket_address(upstream)}},
                ]}]},
                // HTTP/2 stays HTTP/2, so that trailers and framing have no translation to hide behind.
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "use_downstream_protocol_config": {
                            "http_protocol_options": {"enable_trailers": true},
                            "http2_protocol_options": {},
                        },
                    },
                },
            }],
        },
    })
}

fn listener(name: &str, http_filters: Vec<Value>, routes: &Value) -> Value {
    json!({
        "name": name,
        "stat_prefix": name,
        "address": socket_address("127.0.0.1:0".parse().unwrap()),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": name,
                "codec_type": "AUTO",
                "stream_idle_timeout": "15s",
                "request_timeout": "15s",
                "http_protocol_options": {"enable_trailers": true},
                "upgrade_configs": [{"upgrade_type": "websocket"}],
                "route_config": {
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
                },
                "http_filters": http_filters,
            },
        }]}],
    })
}

fn routes_to_upstream(version: u32) -> Value {
    json!([
        {
            "match": {"path": VERSION_PATH},
            "direct_response": {"status": 200, "body": {"inline_string": version.to_string()}},
        },
        {"match": {"prefix": "/"}, "route": {"cluster": "identity_gateway", "timeout": "15s"}},
    ])
}

fn http_filters(filter: Option<&Filter>) -> Vec<Value> {
    filter.map(wasm).into_iter().chain([router()]).collect()
}

fn wasm(filter: &Filter) -> Value {
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
    let environment: serde_json::Map<_, _> =
        filter.environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "name": "impersonation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "impersonation",
                "configuration": configuration,
                "vm_config": {
                    "vm_id": "impersonation",
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": &*MODULE}},
                    "environment_variables": {"key_values": environment},
                },
                "allow_on_headers_stop_iteration": true,
                "failure_policy": "FAIL_RELOAD",
                "reload_config": {"backoff": {"base_interval": "1s"}},
            },
        },
    })
}

fn buffer() -> Value {
    json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 65536,
        },
    })
}

fn router() -> Value {
    json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
