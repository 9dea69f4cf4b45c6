//! A sensor of energy.

use serde::{Deserialize, Serialize};

/// Counts the energy that a device used. It stays on the thread that opened it.
pub trait Sensor {
    /// What it reads.
    fn source(&self) -> EnergySource;

    /// Energy since a fixed moment, in microjoules. Never decreases.
    fn microjoules(&mut self) -> Result<u64, SensorError>;
}

/// What a number of joules comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The counter of an NVIDIA GPU.
    Nvml,
    /// The counters of a CPU.
    Rapl,
    /// The counters of a Mac's chip.
    #[serde(rename = "ioreport")]
    IoReport,
    /// A power that the user stated.
    Estimate,
}

impl EnergySource {
    /// Its name in JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Rapl => "rapl",
            Self::IoReport => "ioreport",
            Self::Estimate => "estimate",
        }
    }
}

/// Why a sensor cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SensorError {
    /// The driver has no such counter, or refuses it.
    #[error("NVML: {0}")]
    Nvml(String),
    /// The chip has no such counters, or they have changed.
    #[error("IOReport: {0}")]
    IoReport(String),
    /// A file of the kernel cannot be read. Most kernels let only root read it.
    #[error("cannot read {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// There is no package to count.
    #[error("{0} has no package")]
    NoPackage(String),
    /// There is no thread to read it.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}
