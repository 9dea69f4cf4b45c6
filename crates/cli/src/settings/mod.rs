//! Settings: their table, the places they come from, and the typed configuration.
//!
//! Invariant: a flag overrides an `OMNIBUS_*` variable, which overrides `omnibus.toml`, which overrides the default.

pub mod ablation;
mod config;
mod file;
pub mod load_kind;
mod mcp;
mod model_settings;
mod model_table;
pub mod program;
pub mod report;
mod resolve;
mod shown;
mod table;
mod value;

pub use config::{
    Action, Arrivals, BenchSettings, ClientSettings, Config, ConversionSettings, Dataset, DoctorSubject,
    Endpoint, EngineBenchSettings, EngineIsolation, IsolationSettings, LaunchAction, Listen, Log, LogFormat,
    Measured, MetricsCompat, ModelsSubject, Output, Page, PromptFormat, PullPolicy, SimSettings,
    SpeculationBenchSettings, Verbosity, WeightChange,
};
pub use mcp::{McpSettings, Pinning};
pub use model_settings::config_of;
pub use model_table::{ModelTable, Residency};
pub use resolve::{Inputs, Resolved, resolve};
pub use table::{all, runs_on_device};
pub use value::{Kind, Value, choice, texts};

use crate::command_name::CommandName;

/// One row of the table.
pub struct Setting {
    /// The flag without its dashes, which is also the key in `omnibus.toml`, and in capitals the variable.
    pub name: &'static str,
    /// The flag's short form.
    pub short: Option<char>,
    /// The type of its value.
    pub kind: Kind,
    /// The default; empty is unset.
    pub default: &'static str,
    /// The section of `--help`.
    pub section: &'static str,
    /// The commands that have it.
    pub commands: &'static [CommandName],
    /// Where it can be set.
    pub scope: Scope,
    /// One sentence or two.
    pub help: &'static str,
    /// Applies a value to the configuration. Fails with a description of valid values.
    pub set: fn(&mut Config, &Value) -> Result<(), String>,
}

/// Where a setting can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// By flag, variable and file.
    Everywhere,
    /// By flag only, because it concerns a single run.
    FlagOnly,
}

impl Setting {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("OMNIBUS_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// Whether a command has it.
    pub fn is_for(&self, command: CommandName) -> bool {
        self.commands.contains(&command)
    }
}

/// The settings of a command, in the table's order.
pub fn of(command: CommandName) -> impl Iterator<Item = &'static Setting> {
    all().filter(move |setting| setting.is_for(command))
}

#[cfg(test)]
mod tests;
