//! Energy in the usage of a response, where it was requested.

use omnibus_engine::Usage;
use serde::Serialize;

use super::fields::Fields;
use crate::error::ApiError;

/// Whether the usage has the energy of the response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShownEnergy {
    /// It does not.
    #[default]
    Omit,
    /// It does, where a sensor counts it.
    Include,
}

impl ShownEnergy {
    /// Reads `include_energy`.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(match fields.flag("include_energy")? {
            Some(true) => Self::Include,
            Some(false) | None => Self::Omit,
        })
    }

    /// The energy that a response shows of its usage.
    pub fn of(self, usage: &Usage) -> Option<Energy> {
        let energy = usage.energy.filter(|_| self == Self::Include)?;
        Some(Energy {
            prompt_joules: energy.prompt_microjoules as f64 / 1e6,
            completion_joules: energy.completion_microjoules as f64 / 1e6,
            source: energy.source.name(),
        })
    }
}

/// Energy of a response. Steps are shared with other requests; this is the response's part of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Energy {
    /// For tokens of the prompts that were not cached.
    pub prompt_joules: f64,
    /// For tokens of the completions.
    pub completion_joules: f64,
    /// `nvml`, `rapl`, or `estimate` with `--power-model`.
    pub source: &'static str,
}
