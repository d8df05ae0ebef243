//! Three machines and a hub, for tests that cut them off: network namespaces, joined by two
//! networks, one for clients and one for peers.
//!
//! A namespace lives as long as a process is in it, and none has a name. However this process ends,
//! even by kill -9, its interfaces end with it, and none of them is ever in the machine's own
//! network.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;

use crate::artifacts::{ENVOY, ETCD, GIVEN_GUARD, GIVEN_MODULE, GUARD, MODULE, printed_path};
use crate::process::end_with_parent;

/// The variable that marks a process inside the hub.
const INSIDE: &str = "TESTKIT_IN_THE_HUB";

/// Runs a test in a process of its own, the hub, whose network has nothing but loopback. `name` is
/// the test's name. The test fails where the machine does not allow this, because it must not be
/// left out there.
pub fn in_a_hub(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        // The process ends with the one that started it, even if that one was killed.
        thread::spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(1);
        });
        ip(&["link", "set", "lo", "up"]);
        return test();
    }
    let mut hub = Command::new("unshare");
    hub.arg("--net");
    if !is_root() {
        hub.arg("--map-root-user");
    }
    let allowed = Command::new(hub.get_program()).args(hub.get_args()).arg("true").output();
    let allowed = allowed.unwrap_or_else(|error| panic!("{hub:?}: {error}"));
    assert!(
        allowed.status.success(),
        "this machine allows no network namespaces, for which it takes root: {allowed:?}"
    );
    // Fetches and builds everything while there is a network.
    hub.env(INSIDE, &*IP).env(GIVEN_MODULE, &*MODULE).env(GIVEN_GUARD, &*GUARD);
    let _ = (&*ENVOY, &*ETCD);
    hub.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    let mut hub = hub.stdin(Stdio::piped()).spawn().unwrap();
    end_with_parent();
    // `wait` would close the input, and the hub ends with its input.
    let input = hub.stdin.take();
    let status = hub.wait().unwrap();
    drop(input);
    assert!(status.success(), "{name}, in its hub: {status}");
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

/// One of a machine's two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Clients,
    Peers,
}

impl Link {
    const ALL: [Self; 2] = [Self::Clients, Self::Peers];

    /// The letter in the names of interfaces.
    fn letter(self) -> &'static str {
        match self {
            Self::Clients => "c",
            Self::Peers => "p",
        }
    }

    /// A test network of RFC 2544 or RFC 5737, which no machine uses.
    fn address(self, host: usize) -> Ipv4Addr {
        let third = match self {
            Self::Clients => 0,
            Self::Peers => 1,
        };
        Ipv4Addr::new(198, 18, third, u8::try_from(host).unwrap())
    }
}

/// One of the three machines.
pub struct Machine {
    number: usize,
    holder: Child,
}

impl Machine {
    /// Joins the calling process, which is the hub. `number` counts from one.
    fn start(number: usize) -> Self {
        // The process only exists until its input ends, with this value or with this process.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        let machine = Self { number, holder };
        let pid = machine.holder.id().to_string();
        machine.ip(&["link", "set", "lo", "up"]);
        for link in Link::ALL {
            let letter = link.letter();
            let (outer, bridge) = (machine.port(link), format!("br{letter}"));
            ip(&["link", "add", &outer, "type", "veth", "peer", "name", letter, "netns", &pid]);
            ip(&["link", "set", &outer, "master", &bridge, "up"]);
            let address = format!("{}/24", link.address(number));
            machine.ip(&["address", "add", &address, "dev", letter]);
            machine.ip(&["link", "set", letter, "up"]);
        }
        machine
    }

    /// The address of a server on this machine.
    pub fn address(&self, link: Link, port: u16) -> SocketAddr {
        SocketAddr::new(link.address(self.number).into(), port)
    }

    /// The words before a command that make it run on this machine.
    pub fn command_prefix(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }

    /// Cuts the link without notice: no packet arrives any more.
    pub fn cut(&self, link: Link) {
        ip(&["link", "set", &self.port(link), "down"]);
    }

    /// Restores the link.
    pub fn join(&self, link: Link) {
        ip(&["link", "set", &self.port(link), "up"]);
    }

    /// The hub's end of the machine's cable.
    fn port(&self, link: Link) -> String {
        format!("{}{}", link.letter(), self.number)
    }

    fn ip(&self, arguments: &[&str]) {
        let prefix = self.command_prefix();
        run(Command::new(&prefix[0]).args(&prefix[1..]).arg(&*IP).args(arguments));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Three machines around the hub, which is the calling process: see [`in_a_hub`].
pub fn three_machines() -> [Machine; 3] {
    for link in Link::ALL {
        let bridge = format!("br{}", link.letter());
        ip(&["link", "add", &bridge, "type", "bridge"]);
        let address = format!("{}/24", link.address(254));
        ip(&["address", "add", &address, "dev", &bridge]);
        ip(&["link", "set", &bridge, "up"]);
    }
    [1, 2, 3].map(Machine::start)
}

fn ip(arguments: &[&str]) {
    run(Command::new(&*IP).args(arguments));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

static IP: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(found) = std::env::var_os(INSIDE) {
        return found.into();
    }
    printed_path("scripts/ip", &[])
});
