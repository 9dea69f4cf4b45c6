//! One server of a configuration: where it is, and what it may do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::approval::Approval;
use crate::sandbox::SandboxRules;
use crate::secrets::Secrets;

/// A server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name in the configuration.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Which of its tools run without an approval.
    pub approval: Approval,
    /// The tools that are offered; `None` is all.
    pub allowed: Option<BTreeSet<String>>,
    /// Longest time of a call.
    pub timeout: Duration,
    /// Longest time until it has listed its tools.
    pub start_timeout: Duration,
    /// Most bytes of a result that the model gets.
    pub result_bytes: usize,
}

/// Where a server is.
#[derive(Clone)]
pub enum Place {
    /// A program, which is started.
    Process {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, beside the few variables that every server gets.
        env: BTreeMap<String, String>,
        /// Its working folder; without one it gets an empty folder of its own.
        folder: Option<PathBuf>,
        /// What it may take.
        limits: ProcessLimits,
        /// What it may reach.
        sandbox: SandboxRules,
    },
    /// At a URL, by streamable HTTP.
    Http {
        /// The URL.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

/// Headers and environments have secrets.
impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process { command, .. } => write!(formatter, "Process({command})"),
            Self::Http { .. } => write!(formatter, "Http"),
        }
    }
}

impl Place {
    /// The name of the transport.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Process { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }

    /// What no message may hold.
    pub fn secrets(&self) -> Secrets {
        match self {
            Self::Process { env, .. } => Secrets::new(env.values()),
            // The URL may have a key in it.
            Self::Http { url, headers } => Secrets::new(headers.values().chain([url])),
        }
    }
}

/// What a process may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Most bytes of memory that it writes to.
    pub memory_bytes: u64,
    /// Most seconds of CPU time, after which it is ended, and started again.
    pub cpu_seconds: u64,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, cpu_seconds: 3600 }
    }
}
