//! Faults of the leader of etcd.

use std::time::Duration;

use testkit::etcd::Etcd;
use testkit::network::{Link, Machine};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9`. The node is started again with its data.
    Killed,
    /// `SIGSTOP`: connections stay open, and no request is answered.
    Stopped,
    /// The other nodes cannot reach it; the Envoys can.
    CutFromPeers,
    /// The Envoys cannot reach it; the other nodes can.
    CutFromEnvoys,
    /// Neither the other nodes nor the Envoys can reach it.
    CutFromAll,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] =
        [Self::Killed, Self::Stopped, Self::CutFromPeers, Self::CutFromEnvoys, Self::CutFromAll];

    /// Returns a duration of the fault: shorter than an election, or longer.
    pub(crate) fn duration(self) -> Duration {
        let millis: &[u64] = match self {
            Self::Killed => &[800],
            Self::Stopped => &[300, 600, 2500],
            Self::CutFromPeers => &[400, 2500],
            Self::CutFromEnvoys | Self::CutFromAll => &[400, 2000],
        };
        Duration::from_millis(millis[fastrand::usize(..millis.len())])
    }

    pub(crate) fn begin(self, machine: &Machine, node: &Etcd) {
        match self {
            Self::Killed => node.kill(),
            Self::Stopped => node.stop(),
            Self::CutFromPeers => machine.cut(Link::Peers),
            Self::CutFromEnvoys => machine.cut(Link::Clients),
            Self::CutFromAll => {
                [Link::Clients, Link::Peers].into_iter().for_each(|link| machine.cut(link))
            }
        }
    }

    pub(crate) fn end(self, machine: &Machine, node: &Etcd) {
        match self {
            Self::Killed => node.launch(),
            Self::Stopped => node.go_on(),
            Self::CutFromPeers => machine.join(Link::Peers),
            Self::CutFromEnvoys => machine.join(Link::Clients),
            Self::CutFromAll => {
                [Link::Clients, Link::Peers].into_iter().for_each(|link| machine.join(link))
            }
        }
    }
}
