//! An Envoy that is looked at as its operator does: its log, an access log that prints what the filter
//! says of a request, its metrics. Beside the upstream there is one that accepts and never answers, one
//! that is not there, and one that says yes to everything and remembers what it was asked.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use testkit::configuration::Configuration;
use testkit::envoy::MODULE;
use testkit::gateway::minted;
use testkit::http::{Answer, Connection, Request};
use testkit::upstream::Upstream;
use testkit::wait_for;

/// Clusters that a configuration can name beside `identity_gateway`.
pub const SILENT: &str = "silent";
pub const ABSENT: &str = "absent";
pub const AGREEABLE: &str = "agreeable";

/// What the filter sets for access logs.
pub const FILTER_STATE: [&str; 11] = [
    "event",
    "subject_token_id",
    "user_id",
    "actor_id",
    "client_id",
    "caller",
    "resource",
    "scope",
    "jti",
    "error",
    "reason",
];

pub struct Rig {
    pub gateway: SocketAddr,
    admin: SocketAddr,
    directory: PathBuf,
    _upstream: Upstream,
    /// Connections wait in its backlog for ever.
    _silent: TcpListener,
    asked: Arc<Mutex<Vec<String>>>,
    _process: Process,
}

impl Rig {
    pub fn start(configuration: &Configuration, concurrency: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("audit")
            .join(std::process::id().to_string())
            .join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir_all(&directory).unwrap();
        let upstream = Upstream::start();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let agreeable = TcpListener::bind("127.0.0.1:0").unwrap();
        let agreeable_address = agreeable.local_addr().unwrap();
        let asked = agree(agreeable);
        let bootstrap = json!({
            "admin": {"address": address("127.0.0.1:0".parse().unwrap())},
            "static_resources": {
                "listeners": [listener(configuration, &directory)],
                "clusters": [
                    cluster("identity_gateway", upstream.address),
                    cluster(SILENT, silent.local_addr().unwrap()),
                    cluster(AGREEABLE, agreeable_address),
                    // Nobody listens on the discard port.
                    cluster(ABSENT, "127.0.0.1:9".parse().unwrap()),
                ],
            },
        });
        fs::write(directory.join("envoy.json"), bootstrap.to_string()).unwrap();

        let process = Process::start(&directory, concurrency);
        let admin: SocketAddr = wait_for("Envoy's admin interface", || {
            fs::read_to_string(directory.join("admin")).ok()?.trim().parse().ok()
        });
        wait_for("Envoy to be ready", || {
            let answer =
                Connection::try_open(admin).ok()?.try_send(&Request::get("/ready")).ok()?;
            (answer.status == 200).then_some(())
        });
        let listening =
            Connection::open(admin).send(&Request::get("/listeners?format=json")).json();
        let socket = &listening["listener_statuses"][0]["local_address"]["socket_address"];
        let gateway = format!("127.0.0.1:{}", socket["port_value"]).parse().unwrap();
        Self {
            gateway,
            admin,
            directory,
            _upstream: upstream,
            _silent: silent,
            asked,
            _process: process,
        }
    }

    pub fn send(&self, request: &Request) -> Answer {
        Connection::open(self.gateway).send(request)
    }

    pub fn mint(&self, request: &Request) -> String {
        minted(&self.send(request))
    }

    pub fn log(&self) -> String {
        String::from_utf8(fs::read(self.directory.join("envoy.log")).unwrap()).unwrap()
    }

    /// The heads of the requests that the agreeable upstream got.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The audit log.
    pub fn events(&self) -> Vec<Value> {
        json_lines(&self.log(), "info", "event")
    }

    /// The alarms about spent tokens.
    pub fn alarms(&self) -> Vec<Value> {
        json_lines(&self.log(), "warning", "alarm")
    }

    /// The access log, once it has `count` lines.
    pub fn access_log(&self, count: usize) -> Vec<Value> {
        access_log(&self.directory.join("access.log"), count)
    }

    /// A counter or gauge of the filter; `None` if there is none of that name.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.metrics().into_iter().find_map(|(have, value)| (have == name).then_some(value))
    }

    /// All counters and gauges of the filter.
    pub fn metrics(&self) -> Vec<(String, u64)> {
        let all = Connection::open(self.admin).send(&Request::get("/stats?filter=impersonation"));
        let parse = |line: &str| {
            let (name, value) = line.strip_prefix("wasmcustom.")?.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        all.text().lines().filter_map(parse).collect()
    }

    /// A counter or gauge of Envoy's; 0 if there is none of that name.
    pub fn stat(&self, name: &str) -> u64 {
        let target = format!("/stats?filter=^{name}$");
        let all = Connection::open(self.admin).send(&Request::get(&target)).text();
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.parse().unwrap())
    }

    pub fn prometheus(&self) -> String {
        Connection::open(self.admin).send(&Request::get("/stats/prometheus")).text()
    }
}

/// The access log in a file, once it has `count` lines.
pub fn access_log(path: &Path, count: usize) -> Vec<Value> {
    wait_for("the access log", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> =
            text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
        assert!(lines.len() <= count, "more than {count} requests:\n{text}");
        (lines.len() == count)
            .then(|| lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect())
    })
}

/// What the filter wrote at this level, where it has this member. Anything else that it wrote as JSON
/// is looked at too: it must be JSON to its end.
pub fn json_lines(log: &str, level: &str, member: &str) -> Vec<Value> {
    let mark = format!("][{level}][wasm]");
    let json = |line: &str| {
        let (_, message) = line.split_once("wasm log")?;
        let json = &message[message.find(": {")? + 2..];
        Some(serde_json::from_str::<Value>(json).unwrap_or_else(|error| panic!("{error}: {line}")))
    };
    let lines = log.lines().filter(|line| line.contains(&mark));
    lines.filter_map(json).filter(|value| value.get(member).is_some()).collect()
}

/// An access log that prints what the filter sets, and what an answer of its own looks like.
pub fn access_log_to(path: &Path) -> Value {
    let state = FILTER_STATE.map(|name| {
        (name.to_owned(), json!(format!("%FILTER_STATE(wasm.impersonation.{name}:PLAIN)%")))
    });
    json!([{
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": path,
            "log_format": {"omit_empty_values": true, "json_format": {
                "request_id": "%REQ(X-REQUEST-ID)%",
                "path": "%REQ(:PATH)%",
                "status": "%RESPONSE_CODE%",
                "details": "%RESPONSE_CODE_DETAILS%",
                "flags": "%RESPONSE_FLAGS%",
                "pragma": "%RESP(PRAGMA)%",
                "upstream": "%UPSTREAM_HOST%",
                "impersonation": serde_json::Map::from_iter(state),
            }},
        },
    }])
}

/// A child that ends with this, and with the test if that never drops it: see `support/envoy.rs`.
struct Process {
    envoy: Child,
    watchdog: Child,
}

impl Process {
    fn start(directory: &Path, concurrency: u32) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/envoy");
        let path = Command::new(script).arg("--path").stderr(Stdio::inherit()).output().unwrap();
        let log = File::create(directory.join("envoy.log")).unwrap();
        let envoy = Command::new(String::from_utf8(path.stdout).unwrap().trim())
            .arg("--config-path")
            .arg(directory.join("envoy.json"))
            .arg("--admin-address-path")
            .arg(directory.join("admin"))
            .args(["--concurrency", &concurrency.to_string(), "--disable-hot-restart"])
            .args(["--log-level", "info", "--component-log-level", "main:warning"])
            .args(["--file-flush-interval-msec", "20"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
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
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Answers one request after another so that every kind of callout is content.
fn agree(listener: TcpListener) -> Arc<Mutex<Vec<String>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            if head.is_empty() {
                continue;
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map_or(0, |length| length.parse().unwrap());
            reader.take(length).read_to_end(&mut Vec::new()).unwrap();
            noted.lock().unwrap().push(head);
            let body = json!({
                "active": true,
                "scope": "impersonate",
                "client_id": "opaque-backend",
                "sub": "opaque-agent",
            })
            .to_string();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                 connection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    asked
}

fn listener(configuration: &Configuration, directory: &Path) -> Value {
    json!({
        "name": "gateway",
        "address": address("127.0.0.1:0".parse().unwrap()),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "gateway",
                "access_log": access_log_to(&directory.join("access.log")),
                "route_config": {"virtual_hosts": [{
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "identity_gateway"}}],
                }]},
                "http_filters": [
                    {
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
                            },
                        },
                    },
                    {
                        "name": "envoy.filters.http.router",
                        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
                    },
                ],
            },
        }]}],
    })
}

fn cluster(name: &str, endpoint: SocketAddr) -> Value {
    json!({
        "name": name,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": address(endpoint)}},
        ]}]},
    })
}

fn address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
