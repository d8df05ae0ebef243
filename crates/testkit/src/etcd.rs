//! Nodes of a real etcd that can be killed, stopped, and started again with their data: one or
//! three, on loopback or on machines of their own.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::artifacts::ETCD;
use crate::bootstrap::Cluster;
use crate::http::{Connection, Request};
use crate::network::{Link, Machine};
use crate::process::{Ending, Process};
use crate::{scratch, wait_for};

/// A node of etcd. Dropping the value ends the process and removes its data.
pub struct Etcd {
    /// The address for clients.
    pub address: SocketAddr,
    /// The address for health and metrics, without TLS.
    pub health: SocketAddr,
    settings: Settings,
    command: Vec<String>,
    directory: PathBuf,
    process: Mutex<Option<Process>>,
}

/// The settings of a node.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// More arguments for the command line.
    pub flags: Vec<String>,
    /// The flags with which `etcdctl` authenticates. If there are any, clients must use TLS.
    pub ctl_flags: Vec<String>,
}

impl Settings {
    fn scheme(&self) -> &'static str {
        if self.ctl_flags.is_empty() { "http" } else { "https" }
    }
}

/// The addresses of a node.
struct Place {
    name: String,
    clients: SocketAddr,
    peers: SocketAddr,
    health: SocketAddr,
    command_prefix: Vec<String>,
}

impl Place {
    fn on_loopback(name: &str) -> Self {
        let [clients, peers, health] = free_addresses();
        Self { name: name.into(), clients, peers, health, command_prefix: Vec::new() }
    }

    fn on(machine: &Machine, name: &str) -> Self {
        Self {
            name: name.into(),
            clients: machine.address(Link::Clients, 2379),
            peers: machine.address(Link::Peers, 2380),
            health: machine.address(Link::Clients, 2381),
            command_prefix: machine.command_prefix(),
        }
    }
}

impl Etcd {
    /// Starts a node and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// Starts a node with these settings and waits until it answers.
    pub fn start_with(settings: Settings) -> Self {
        let [node] = Self::start_all([Place::on_loopback("one")], settings);
        node
    }

    /// Starts three nodes of one etcd, and waits until they agree.
    pub fn start_three() -> [Self; 3] {
        Self::start_all(["one", "two", "three"].map(Place::on_loopback), Settings::default())
    }

    /// Starts three nodes of one etcd, each on a machine of its own.
    pub fn start_on(machines: &[Machine; 3]) -> [Self; 3] {
        let names = ["one", "two", "three"];
        let places = [0, 1, 2].map(|index| Place::on(&machines[index], names[index]));
        Self::start_all(places, Settings::default())
    }

    fn start_all<const N: usize>(places: [Place; N], settings: Settings) -> [Self; N] {
        let members =
            places.each_ref().map(|Place { name, peers, .. }| format!("{name}=http://{peers}"));
        let nodes = places.map(|place| Self::new(place, &members.join(","), settings.clone()));
        // None of the nodes answers before most of them run.
        nodes.iter().for_each(Self::launch);
        nodes.iter().for_each(Self::wait_until_healthy);
        nodes
    }

    fn new(place: Place, members: &str, settings: Settings) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = scratch().join(format!("etcd/{count}"));
        fs::create_dir_all(&directory).unwrap();

        let Place { name, clients, peers, health, command_prefix } = place;
        let (scheme, data) = (settings.scheme(), directory.join("data"));
        let mut command = command_prefix;
        command.push(ETCD.join("etcd").to_str().unwrap().into());
        let flags = [
            ("--name", name),
            ("--data-dir", data.to_str().unwrap().into()),
            ("--listen-client-urls", format!("{scheme}://{clients}")),
            ("--advertise-client-urls", format!("{scheme}://{clients}")),
            ("--listen-peer-urls", format!("http://{peers}")),
            ("--initial-advertise-peer-urls", format!("http://{peers}")),
            ("--listen-metrics-urls", format!("http://{health}")),
            ("--initial-cluster", members.into()),
            ("--log-level", "warn".into()),
            ("--logger", "zap".into()),
        ];
        command.extend(flags.into_iter().flat_map(|(flag, value)| [flag.into(), value]));
        // No test is about a machine that fails, so etcd need not sync to disk.
        command.extend(["--pre-vote=true".into(), "--unsafe-no-fsync".into()]);
        command.extend(settings.flags.iter().cloned());
        let process = Mutex::default();
        Self { address: clients, health, settings, command, directory, process }
    }

    /// Kills the process, as a power failure would.
    pub fn kill(&self) {
        drop(self.process.lock().unwrap().take());
    }

    /// Starts the node again with its data, and waits until it answers.
    pub fn restart(&self) {
        self.kill();
        self.wait_until_healthy();
    }

    /// Starts the node again with its data, and does not wait.
    pub fn launch(&self) {
        let mut process = self.process.lock().unwrap();
        if process.as_mut().is_none_or(|process| process.ended().is_some()) {
            *process = Some(Process::spawn(&mut self.command(), Ending::Killed));
        }
    }

    fn wait_until_healthy(&self) {
        wait_for("etcd to answer", || {
            // For a moment the node's ports may belong to another program. Then the node has ended.
            self.launch();
            let health = Connection::try_open(self.health).ok()?.try_send(&Request::get("/health"));
            (health.ok()?.status == 200).then_some(())
        });
    }

    /// Stops the process: it accepts connections and answers nothing.
    pub fn stop(&self) {
        let id = self.signal("STOP");
        // Each thread of the process finishes its current work, and may answer until then.
        wait_for("etcd to stop", || {
            let mut threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
            let stopped = |thread: fs::DirEntry| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
            };
            threads.all(|thread| stopped(thread.unwrap())).then_some(())
        });
    }

    /// Continues the process, which then answers what has arrived.
    pub fn go_on(&self) {
        let _ = self.signal("CONT");
    }

    /// Returns the output of `etcdctl` with these arguments.
    pub fn ctl(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.try_ctl(arguments);
        output.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// Returns the output of `etcdctl`, or its error.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let endpoint = format!("{}://{}", self.settings.scheme(), self.address);
        let output = Command::new(ETCD.join("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint])
            .args(&self.settings.ctl_flags)
            .args(arguments)
            .output()
            .unwrap();
        let error = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(output.stdout) } else { Err(error()) }
    }

    /// Sends a request to the HTTP API of a node without TLS.
    pub fn api(&self, path: &str, body: &Value) -> Value {
        let answer = Connection::open(self.address).send(&Request::post(path).json(body));
        assert_eq!(answer.status, 200, "{path} {body}: {answer:?}");
        answer.json()
    }

    /// Returns all keys.
    pub fn keys(&self) -> Vec<String> {
        let keys = String::from_utf8(self.ctl(&["get", "", "--from-key", "--keys-only"])).unwrap();
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the keys of subject tokens.
    pub fn tokens(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.starts_with("/impersonation/tokens/"));
        keys
    }

    /// Returns the number of writes to each key.
    pub fn versions(&self) -> Vec<(String, u64)> {
        let all: Value =
            serde_json::from_slice(&self.ctl(&["get", "", "--from-key", "-w", "json"])).unwrap();
        let version = |kv: &Value| {
            let key = BASE64_STANDARD.decode(kv["key"].as_str().unwrap()).unwrap();
            (String::from_utf8(key).unwrap(), kv["version"].as_u64().unwrap())
        };
        all["kvs"].as_array().map(|kvs| kvs.iter().map(version).collect()).unwrap_or_default()
    }

    fn signal(&self, signal: &str) -> u32 {
        let mut process = self.process.lock().unwrap();
        let process = process.as_mut().unwrap();
        process.signal(signal);
        process.id()
    }

    fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.directory.join("log"));
        let log = log.unwrap();
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }
}

/// The cluster `etcd` as in envoy.yaml, with these nodes and without TLS.
pub fn cluster(nodes: &[Etcd]) -> Cluster {
    let health_check = json!({
        "timeout": "1s",
        "interval": "1s",
        "no_traffic_interval": "1s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {
            "path": "/health",
            "codec_client_type": "HTTP1",
            "retriable_statuses": [{"start": 503, "end": 504}],
        },
    });
    let outlier_detection = json!({
        "split_external_local_origin_errors": true,
        "consecutive_local_origin_failure": 2,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "interval": "1s",
        "base_ejection_time": "2s",
        "max_ejection_percent": 34,
    });
    let cluster = Cluster::without_endpoints("etcd")
        .with("connect_timeout", "0.25s")
        .with("common_lb_config", json!({"healthy_panic_threshold": {"value": 30}}))
        .with("close_connections_on_host_health_failure", true)
        .with("health_checks", json!([health_check]))
        .with("outlier_detection", outlier_detection)
        .http2_with(json!({"connection_keepalive": {"interval": "2s", "timeout": "1s"}}));
    nodes.iter().fold(cluster, |cluster, node| {
        cluster.endpoint_with_health_at(node.address, node.health.port())
    })
}

/// The last part of the key of a subject token.
pub fn record_name(subject_token: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(digest(subject_token))
}

/// The id of a subject token in the audit log.
pub fn audited_id(subject_token: &str) -> String {
    digest(subject_token)[..12].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(subject_token: &str) -> Vec<u8> {
    let secret = subject_token.strip_prefix("sub_").unwrap();
    let secret = BASE64_URL_SAFE_NO_PAD.decode(secret).unwrap();
    // The rest of the token names the revision that created its record.
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &secret[..32]).as_ref().to_vec()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(self.directory.join("data"));
    }
}

/// Three free addresses, because etcd must be given its own.
fn free_addresses() -> [SocketAddr; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}
