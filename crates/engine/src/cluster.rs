//! Several machines that serve one model: which they are, and how the first one reaches a process on another.
//!
//! Invariant: nothing of a peer is read as a message before it has proved that it has the secret. A follower listens on the
//! address that the host file gives it, and on no other.

mod follower;
mod handshake;
mod hosts;
mod remote;

pub use follower::{FollowerPlace, run_follower};
pub use handshake::Secret;
pub use hosts::{Host, Reach, read_hosts, read_ring};
pub(crate) use remote::{RemoteCommand, start_remote};

use serde::{Deserialize, Serialize};

/// The machines that serve one model together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The first one is this machine.
    pub hosts: Vec<Host>,
    /// How a command is run on another machine: a program and its first arguments, which the host's name and the command follow.
    pub ssh: Vec<String>,
    /// The command that starts this program on another machine.
    pub program: String,
    /// What all processes have, where they were started already; others get one each as they are started.
    pub secret: Option<Secret>,
}

impl Cluster {
    /// The host of the process of this number.
    pub(crate) fn host(&self, number: usize) -> Option<&Host> {
        self.hosts.get(number)
    }

    /// Most processes that one machine has, by their addresses.
    pub fn processes_on_a_host(&self) -> usize {
        let on_host = |host: &Host| self.hosts.iter().filter(|other| other.address == host.address).count();
        self.hosts.iter().map(on_host).max().unwrap_or(1)
    }
}
