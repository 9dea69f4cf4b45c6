//! The energy of requests and of an engine.
//!
//! Invariant: plain serializable values. Without a sensor there is no energy, which is not an energy of zero.

pub use omnibus_power::EnergySource;
use serde::{Deserialize, Serialize};

/// The energy that the steps of a request took, as far as it is its own: rows of a step share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyUsage {
    /// For tokens of its prompt, in microjoules.
    pub prompt_microjoules: u64,
    /// For tokens of its completion, in microjoules.
    pub completion_microjoules: u64,
    /// What counted it.
    pub source: EnergySource,
}

impl EnergyUsage {
    /// None yet.
    pub fn none(source: EnergySource) -> Self {
        Self { prompt_microjoules: 0, completion_microjoules: 0, source }
    }

    /// The sum of two parts of which each may have been measured.
    pub fn sum(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self {
                prompt_microjoules: one.prompt_microjoules + other.prompt_microjoules,
                completion_microjoules: one.completion_microjoules + other.completion_microjoules,
                source: one.source,
            }),
            (one, other) => one.or(other),
        }
    }
}

/// Energy of an engine. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyStats {
    /// What counts it; `None` where nothing does, and then the numbers mean nothing.
    pub source: Option<EnergySource>,
    /// Power between the last two readings, when these statistics were made.
    pub watts: f64,
    /// Energy of steps for tokens of prompts.
    pub prompt_millijoules_total: u64,
    /// Energy of steps for tokens of completions.
    pub completion_millijoules_total: u64,
    /// Energy while there was nothing to compute, until the last request came.
    pub idle_millijoules_total: u64,
}
