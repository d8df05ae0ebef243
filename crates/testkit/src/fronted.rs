//! An Envoy with the filter before an identity provider of many services: one cluster for each, by its
//! name, and all that is not the filter's goes to the one called [`GATEWAY`].

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::configuration::Configuration;
use crate::envoy::{MODULE, connect_to_every_worker};
use crate::http::{Answer, Connection, Request};
use crate::idp::Service;
use crate::{repository, scratch, wait_for};

/// The cluster of the identity gateway.
pub const GATEWAY: &str = "identity_gateway";

/// How the Envoy is set up besides the filter's configuration.
#[derive(Clone, Default)]
pub struct Setup {
    /// Workers; 1 if not given.
    pub concurrency: u32,
    /// HTTP filters before ours.
    pub filters: Vec<Value>,
}

pub struct Fronted {
    pub address: SocketAddr,
    admin: SocketAddr,
    directory: PathBuf,
    envoy: Child,
    watchdog: Child,
    watchdog_input: Option<ChildStdin>,
}

impl Fronted {
    /// Starts Envoy and waits until it is ready.
    pub fn start(configuration: &Configuration, services: &[&Service], setup: &Setup) -> Self {
        let directory = fresh_directory();
        let bootstrap = directory.join("envoy.json");
        fs::write(&bootstrap, bootstrap_json(configuration, services, setup).to_string()).unwrap();
        let admin_file = directory.join("admin");
        let log = File::create(directory.join("envoy.log")).unwrap();
        let script = repository().join("scripts/envoy");
        let path = Command::new(script).arg("--path").stderr(Stdio::inherit()).output().unwrap();
        let mut envoy = Command::new(str::from_utf8(&path.stdout).unwrap().trim())
            .arg("--config-path")
            .arg(&bootstrap)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", &setup.concurrency.max(1).to_string()])
            .args(["--log-level", "info", "--component-log-level", "main:warning"])
            .arg("--disable-hot-restart")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        // Ends Envoy when this process ends, however it does.
        let mut watchdog = Command::new("sh")
            .args(["-c", "read _; kill -TERM $0 2>/dev/null", &envoy.id().to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let watchdog_input = watchdog.stdin.take();
        let log = || fs::read_to_string(directory.join("envoy.log")).unwrap_or_default();
        let admin = wait_for("Envoy to be ready", || {
            if let Some(status) = envoy.try_wait().unwrap() {
                panic!("Envoy ended, {status}: {}", log());
            }
            let address: SocketAddr = fs::read_to_string(&admin_file).ok()?.trim().parse().ok()?;
            let mut connection = Connection::try_open(address).ok()?;
            let ready = connection.try_send(&Request::get("/ready")).ok()?;
            (ready.status == 200).then_some(address)
        });
        let listeners = Connection::open(admin).send(&Request::get("/listeners?format=json"));
        let socket =
            &listeners.json()["listener_statuses"][0]["local_address"]["socket_address"].clone();
        let port = socket["port_value"].as_u64().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()));
        Self { address, admin, directory, envoy, watchdog, watchdog_input }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends a request over a connection of its own.
    pub fn send(&self, request: &Request) -> Answer {
        self.connect().send(request)
    }

    /// A counter or gauge of Envoy's; 0 if there is none of that name.
    pub fn stat(&self, name: &str) -> u64 {
        let target = format!("/stats?filter=^{name}$");
        let all = Connection::open(self.admin).send(&Request::get(&target)).text();
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// A counter or gauge of the filter; 0 if there is none of that name.
    pub fn metric(&self, name: &str) -> u64 {
        self.stat(&format!("wasmcustom.{name}"))
    }

    /// How many calls of a kind have failed.
    pub fn failures(&self, upstream: &str) -> u64 {
        self.metric(&format!("impersonation_callout_failures_total.upstream.{upstream}"))
    }

    /// One connection on each worker at least.
    pub fn connect_to_every_worker(&self) -> Vec<Connection> {
        connect_to_every_worker(self.address, self.admin)
    }

    /// Everything that Envoy has printed.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("envoy.log")).unwrap()).into_owned()
    }

    /// Still the process that was started.
    pub fn is_running(&mut self) -> bool {
        self.envoy.try_wait().unwrap().is_none()
    }
}

impl Drop for Fronted {
    fn drop(&mut self) {
        if !self.is_running() {
            // The number may be another process's by now.
            let _ = self.watchdog.kill();
        }
        drop(self.watchdog_input.take());
        let _ = self.watchdog.wait();
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

/// A fetch or a question over a service's cluster, that gives up after `timeout`.
pub fn http_uri(service: &Service, path: &str, timeout: &str) -> Value {
    let uri = format!("http://{}.example.com{path}", service.name.replace('_', "-"));
    json!({"uri": uri, "cluster": service.name, "timeout": timeout})
}

fn fresh_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let run = scratch().join("envoy").join(std::process::id().to_string());
    let directory = run.join(format!("fronted-{count}"));
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn bootstrap_json(configuration: &Configuration, services: &[&Service], setup: &Setup) -> Value {
    let clusters = services.iter().map(|service| {
        json!({
            "name": service.name,
            "connect_timeout": "2s",
            "load_assignment": {"cluster_name": service.name, "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": socket_address(service.address)}},
            ]}]},
        })
    });
    let ours = json!({
        "name": "impersonation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "impersonation",
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.Struct",
                    "value": configuration.0,
                },
                "vm_config": {
                    "vm_id": "impersonation",
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": &*MODULE}},
                },
                "allow_on_headers_stop_iteration": true,
                "failure_policy": "FAIL_RELOAD",
                "reload_config": {"backoff": {"base_interval": "1s"}},
            },
        },
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let filters: Vec<_> = setup.filters.iter().cloned().chain([ours, router]).collect();
    let listener = json!({
        "name": "gateway",
        "stat_prefix": "gateway",
        "address": socket_address("127.0.0.1:0".parse().unwrap()),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "gateway",
                "stream_idle_timeout": "15s",
                "request_timeout": "15s",
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": GATEWAY, "timeout": "3s"}},
                ]}]},
                "http_filters": filters,
            },
        }]}],
    });
    json!({
        "admin": {"address": socket_address("127.0.0.1:0".parse().unwrap())},
        "static_resources": {"listeners": [listener], "clusters": clusters.collect::<Vec<_>>()},
    })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
