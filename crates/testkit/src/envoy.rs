//! One Envoy process, from its start to its end: what it answers, says, counts and uses.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::artifacts::ENVOY;
use crate::bootstrap::{Bootstrap, Listener, VERSION_PATH, access_log_file, listeners_file};
use crate::clock::Clock;
use crate::http::{Answer, Connection, Request};
use crate::process::{Ending, Process};
use crate::{scratch, wait_for};

pub struct Envoy {
    /// The listeners by name, in the order of the bootstrap.
    listeners: Vec<(String, SocketAddr)>,
    admin: SocketAddr,
    bootstrap: Mutex<Bootstrap>,
    version: Mutex<u32>,
    directory: PathBuf,
    process: Mutex<Process>,
    clock: Option<Arc<Clock>>,
    /// The facts from before this test, if several tests use the process, one after the other.
    before: Option<Before>,
}

/// The facts about a process that other tests have left.
#[derive(Default)]
struct Before {
    /// The length of the log in bytes.
    log: usize,
    /// The number of lines in the access log.
    access_log: usize,
    /// The filter's counters.
    counters: Vec<(String, u64)>,
}

/// Why Envoy did not come up.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    pub log: String,
}

impl Bootstrap {
    /// Starts Envoy and waits until it is ready.
    pub fn start(&self) -> Envoy {
        self.try_start().unwrap_or_else(|exit| panic!("Envoy did not come up: {exit:?}"))
    }

    /// Starts Envoy, which may refuse its configuration.
    pub fn try_start(&self) -> Result<Envoy, Exit> {
        Envoy::start(self)
    }
}

impl Envoy {
    fn start(bootstrap: &Bootstrap) -> Result<Self, Exit> {
        let directory = fresh_directory();
        publish(&directory, &bootstrap.watched_listeners(1, &directory));
        let configuration = directory.join("envoy.json");
        fs::write(&configuration, bootstrap.to_json(&directory).to_string()).unwrap();
        let admin_file = directory.join("admin");
        let mut process = Process::spawn(&mut command(bootstrap, &directory), Ending::Asked);
        count_start();

        let read_log = || fs::read_to_string(directory.join("envoy.log")).unwrap_or_default();
        let ready = wait_for("Envoy to be ready", || {
            if let Some(status) = process.ended() {
                return Some(Err(Exit { code: status.code(), log: read_log() }));
            }
            let address: SocketAddr = fs::read_to_string(&admin_file).ok()?.trim().parse().ok()?;
            let answer =
                Connection::try_open(address).ok()?.try_send(&Request::get("/ready")).ok()?;
            (answer.status == 200).then_some(Ok(address))
        });
        let admin = ready?;

        let listening =
            Connection::open(admin).send(&Request::get("/listeners?format=json")).json();
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
        let listeners = bootstrap.listeners.iter();
        Ok(Self {
            listeners: listeners.map(|one| (one.name.clone(), address(&one.name))).collect(),
            admin,
            bootstrap: Mutex::new(bootstrap.clone()),
            version: Mutex::new(1),
            process: Mutex::new(process),
            directory,
            clock: bootstrap.clock.clone(),
            before: None,
        })
    }

    /// Lends the process to a test. The test sees only what is logged and counted from now on.
    pub(crate) fn lend(&mut self) {
        self.before = None;
        let log = self.log().len();
        let access_log = self.access_log().len();
        self.before =
            Some(Before { log, access_log, counters: self.filter_stats("&type=Counters") });
    }

    /// Lends the process to a test that needs these listeners. The plugins get VMs and shared data
    /// of their own, and those of the test before are gone.
    pub(crate) fn lend_with(&mut self, listeners: impl IntoIterator<Item = Listener>) {
        self.bootstrap.lock().unwrap().vm_id = Some(fresh_vm_id());
        self.replace(listeners).unwrap();
        wait_for("the replaced listeners to go", || {
            (self.read_stat("listener_manager.total_listeners_draining") == 0).then_some(())
        });
        self.lend();
    }

    /// Returns the clock that [`Bootstrap::with_clock`] has given.
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("this Envoy has no clock of its own")
    }

    /// Fails a test that looks at another test's metrics or memory.
    fn assert_is_not_lent(&self) {
        let is_lent = self.before.is_some();
        assert!(!is_lent, "other tests used this Envoy before: start one for this test");
    }

    /// Returns the address of a listener of the bootstrap.
    pub fn address(&self, listener: &str) -> SocketAddr {
        let found = self.listeners.iter().find(|(name, _)| name == listener);
        found.unwrap_or_else(|| panic!("there is no listener {listener}")).1
    }

    /// Connects to the first listener.
    pub fn connect(&self) -> Connection {
        Connection::open(self.listeners[0].1)
    }

    /// Sends a request to the first listener, over a connection of its own.
    pub fn send(&self, request: &Request) -> Answer {
        self.connect().send(request)
    }

    /// Closes a connection whose request waits. Returns when Envoy has seen that the caller is
    /// gone.
    pub fn hang_up(&self, connection: Connection) {
        let gone = || self.read_stat("http.gateway.downstream_cx_destroy_remote_active_rq");
        let before = gone();
        drop(connection);
        wait_for("Envoy to see the caller gone", || (gone() > before).then_some(()));
    }

    /// Replaces the watched listener with the same name. Returns when every worker uses the new
    /// listener, or the reason why Envoy refused it and kept the old one.
    pub fn update(&self, listener: Listener) -> Result<(), String> {
        self.replace([listener])
    }

    fn replace(&self, listeners: impl IntoIterator<Item = Listener>) -> Result<(), String> {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        let outcomes = || {
            let outcome =
                |name: &str| self.read_stat(&format!("listener_manager.lds.update_{name}"));
            (outcome("success"), outcome("rejected"))
        };
        let (accepted, refused) = outcomes();
        let logged = self.read_log().len();
        let (addresses, workers) = {
            let mut bootstrap = self.bootstrap.lock().unwrap();
            let mut addresses = Vec::new();
            for listener in listeners {
                addresses.push(self.address(&listener.name));
                let old = bootstrap.listeners.iter_mut().find(|old| old.name == listener.name);
                *old.unwrap() = listener.watched();
            }
            publish(&self.directory, &bootstrap.watched_listeners(*version, &self.directory));
            (addresses, bootstrap.workers)
        };
        let (_, refused_now) = wait_for("Envoy to read its listeners", || {
            let now = outcomes();
            (now != (accepted, refused)).then_some(now)
        });
        if refused_now > refused {
            return Err(self.read_log().split_off(logged));
        }
        // Each worker takes a listener over in its own time, so ask until all of them have.
        for address in addresses {
            let mut in_a_row = 0;
            wait_for("the workers to use the new listener", || {
                let answer = Connection::open(address).send(&Request::get(VERSION_PATH));
                in_a_row = if answer.text() == version.to_string() { in_a_row + 1 } else { 0 };
                (in_a_row == 16 * workers).then_some(())
            });
        }
        Ok(())
    }

    /// Returns the directory with Envoy's configuration and logs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the answer of the admin interface at this path.
    pub fn admin(&self, target: &str) -> String {
        Connection::open(self.admin).send(&Request::get(target)).text()
    }

    /// Returns a counter or gauge; 0 if there is none of that name.
    pub fn stat(&self, name: &str) -> u64 {
        self.assert_is_not_lent();
        self.read_stat(name)
    }

    fn read_stat(&self, name: &str) -> u64 {
        let all = self.admin(&format!("/stats?filter=^{name}$"));
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Returns all counters and gauges of the filter. A lent Envoy has counted from zero; its
    /// gauges are those of the process.
    pub fn metrics(&self) -> Vec<(String, u64)> {
        let before = self.before.iter().flat_map(|before| &before.counters);
        let before: HashMap<_, _> = before.map(|(name, value)| (name.as_str(), *value)).collect();
        let since = |(name, value): (String, u64)| {
            let since = value - before.get(name.as_str()).copied().unwrap_or(0);
            (name, since)
        };
        self.filter_stats("").into_iter().map(since).collect()
    }

    /// Returns the counters and gauges of the filter. `which` are further parameters of the query.
    fn filter_stats(&self, which: &str) -> Vec<(String, u64)> {
        let parse = |line: &str| {
            let (name, value) = line.strip_prefix("wasmcustom.")?.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let all = self.admin(&format!("/stats?filter=impersonation{which}"));
        all.lines().filter_map(parse).collect()
    }

    /// Returns a counter or gauge of the filter; `None` if there is none of that name.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.metrics().into_iter().find_map(|(have, value)| (have == name).then_some(value))
    }

    /// Returns the number of failed calls of a kind.
    pub fn failures(&self, upstream: &str) -> u64 {
        let name = format!("impersonation_callout_failures_total.upstream.{upstream}");
        self.metric(&name).unwrap_or(0)
    }

    /// Returns all metrics in the format of Prometheus.
    pub fn prometheus(&self) -> String {
        self.assert_is_not_lent();
        self.admin("/stats/prometheus")
    }

    /// Returns the number of connections that each worker has open on the first listener.
    pub fn connections_by_worker(&self) -> Vec<u64> {
        let listener = &self.listeners[0].0;
        let open = self
            .admin(&format!("/stats?filter=^listener.{listener}.worker_.*downstream_cx_active"));
        open.lines().map(|line| line.rsplit_once(": ").unwrap().1.parse().unwrap()).collect()
    }

    /// Opens at least one connection on each worker. Connections that others have just closed do
    /// not count.
    pub fn connect_to_every_worker(&self) -> Vec<Connection> {
        let mut connections = Vec::new();
        wait_for("every worker to have a connection", || {
            let open = self.connections_by_worker();
            if open.iter().sum::<u64>() != connections.len() as u64 {
                return None;
            }
            let all = !open.is_empty() && open.iter().all(|&count| count > 0);
            if !all {
                connections.push(self.connect());
            }
            all.then_some(())
        });
        connections
    }

    /// Returns everything that Envoy has printed; a lent Envoy, since it was lent.
    pub fn log(&self) -> String {
        let mut log = self.read_log();
        log.split_off(self.before.as_ref().map_or(0, |before| before.log))
    }

    fn read_log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("envoy.log")).unwrap()).into_owned()
    }

    /// Returns the complete lines of the access log so far, without the requests of
    /// [`Envoy::update`]: see [`Listener::access_log`].
    pub fn access_log(&self) -> Vec<Value> {
        let text = fs::read_to_string(access_log_file(&self.directory)).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let before = self.before.as_ref().map_or(0, |before| before.access_log);
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["path"] != VERSION_PATH).skip(before).collect()
    }

    /// Sets the level of one of Envoy's loggers.
    pub fn set_log_level(&self, logger: &str, level: &str) {
        let request = Request::post(&format!("/logging?{logger}={level}"));
        assert_eq!(Connection::open(self.admin).send(&request).status, 200);
    }

    /// Returns the CPU time of all threads of the process.
    pub fn cpu_time(&self) -> Duration {
        let threads = format!("/proc/{}/task", self.pid());
        let nanoseconds = fs::read_dir(threads).unwrap().filter_map(|thread| {
            let stat = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// Returns true if the process that was started still runs.
    pub fn is_running(&self) -> bool {
        self.process.lock().unwrap().ended().is_none()
    }

    /// Returns the resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.assert_is_not_lent();
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// A `vm_id` that no other test has.
fn fresh_vm_id() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("impersonation-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Adds a line to the file in which `make test` counts the starts of Envoy.
fn count_start() {
    if let Some(file) = std::env::var_os("ENVOYS_STARTED") {
        let mut file = File::options().create(true).append(true).open(file).unwrap();
        file.write_all(b"testkit\n").unwrap();
    }
}

fn command(bootstrap: &Bootstrap, directory: &Path) -> Command {
    let log = File::create(directory.join("envoy.log")).unwrap();
    let mut command = match bootstrap.command_prefix.split_first() {
        Some((program, words)) => {
            let mut command = Command::new(program);
            command.args(words).arg(&*ENVOY);
            command
        }
        None => Command::new(&*ENVOY),
    };
    command
        .arg("--config-path")
        .arg(directory.join("envoy.json"))
        .arg("--admin-address-path")
        .arg(directory.join("admin"))
        .args(["--concurrency", &bootstrap.workers.to_string()])
        .args(["--drain-time-s", &bootstrap.drain_seconds.to_string()])
        // The level info, as in production, except for the two pages about Envoy's build.
        .args(["--log-level", "info", "--component-log-level", "main:warning"])
        .args(["--file-flush-interval-msec", "20"])
        .args(["--service-node", "test", "--service-cluster", "test"])
        // Without this, Envoy ends with the thread that started it, and two Envoys cannot run at
        // once.
        .arg("--disable-hot-restart")
        .envs(bootstrap.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command
}

/// Creates a directory for one Envoy.
fn fresh_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = scratch().join(format!("envoy/{count}"));
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn publish(directory: &Path, listeners: &Value) {
    // Envoy notices a file that is moved into place.
    let draft = directory.join("listeners.draft");
    fs::write(&draft, listeners.to_string()).unwrap();
    let watched = listeners_file(directory);
    fs::create_dir_all(watched.parent().unwrap()).unwrap();
    fs::rename(draft, watched).unwrap();
}
