//! One node of a real etcd on loopback, that can be killed, stopped, and started again with what it had.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::http::{Connection, Request};
use crate::{repository, scratch, wait_for};

/// A node. It ends when this does, and its data with it.
pub struct Etcd {
    /// Where its clients connect to.
    pub address: SocketAddr,
    /// Where its peers would.
    peers: SocketAddr,
    directory: PathBuf,
    process: Mutex<Option<Process>>,
}

impl Etcd {
    /// Starts a node and waits until it answers.
    pub fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = scratch().join(format!("etcd/{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let [address, peers] = free_addresses();
        let etcd = Self { address, peers, directory, process: Mutex::default() };
        etcd.restart();
        etcd
    }

    /// Kills it, as a power failure would.
    pub fn kill(&self) {
        drop(self.process.lock().unwrap().take());
    }

    /// Starts it again, with what it had.
    pub fn restart(&self) {
        self.kill();
        wait_for("etcd to answer", || {
            let mut process = self.process.lock().unwrap();
            let ended = process.as_mut().is_none_or(|process| !process.is_running());
            if ended {
                // Its ports may be somebody else's for a moment.
                *process = Some(Process::spawn(&mut self.command()));
            }
            let health =
                Connection::try_open(self.address).ok()?.try_send(&Request::get("/health"));
            (health.ok()?.status == 200).then_some(())
        });
    }

    /// Lets it take connections and answer none.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Lets it answer what has come meanwhile.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// What `etcdctl` prints for these arguments.
    pub fn ctl(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(FOLDER.join("etcdctl"));
        command.env("ETCDCTL_API", "3");
        command.args(["--endpoints", &self.address.to_string()]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        output.stdout
    }

    /// The keys that it holds.
    pub fn keys(&self) -> Vec<String> {
        let keys = String::from_utf8(self.ctl(&["get", "", "--from-key", "--keys-only"])).unwrap();
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn signal(&self, signal: &str) {
        let process = self.process.lock().unwrap();
        let id = process.as_ref().unwrap().etcd.id().to_string();
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success()
        );
    }

    fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.directory.join("log"));
        let log = log.unwrap();
        let [clients, peers] =
            [self.address, self.peers].map(|address| format!("http://{address}"));
        let mut command = Command::new(FOLDER.join("etcd"));
        command
            .arg("--data-dir")
            .arg(self.directory.join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(["--log-level", "warn", "--logger", "zap"])
            // What is lost when the machine itself fails is no test's subject.
            .arg("--unsafe-no-fsync")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(self.directory.join("data"));
    }
}

/// The folder of `etcd` and `etcdctl`: see `scripts/etcd`.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = repository().join("scripts/etcd");
    let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/etcd failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
});

/// Two that nobody listens at. etcd has to be told its own.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// An etcd that ends when this does, even when this is never dropped: a shell waits for the end of its
/// input, which is ours to close or the system's when we are gone, and then ends it.
struct Process {
    etcd: Child,
    watchdog: Child,
}

impl Process {
    fn spawn(command: &mut Command) -> Self {
        let etcd = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let watchdog = Command::new("sh")
            .args(["-c", "read _; kill -KILL $0 2>/dev/null", &etcd.id().to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { etcd, watchdog }
    }

    fn is_running(&mut self) -> bool {
        self.etcd.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before etcd is waited for: its number may be another process's afterwards.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}
