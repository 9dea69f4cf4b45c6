//! What can be set, where it is set, and what comes of it.
//!
//! Invariant: a flag beats an `OMNIBUS_*` variable, which beats `omnibus.toml`, which beats the default.

mod config;
mod file;
mod resolve;
mod table;
mod value;

pub use config::{
    BenchSettings, Config, Dataset, Endpoint, Isolate, IsolationSettings, Listen, Log, LogFormat, Output,
    PromptForm, Purpose, Report, SimSettings,
};
pub use resolve::{Given, Resolved, resolve};
pub use table::all;
pub use value::{Kind, Value};

use crate::commands::Name;

/// One row of the table.
pub struct Setting {
    /// The flag without its dashes; the key in `omnibus.toml`; `OMNIBUS_*` in capitals.
    pub name: &'static str,
    /// The flag's single letter.
    pub short: Option<char>,
    /// What it can be.
    pub kind: Kind,
    /// What it is when nobody says; empty is nothing.
    pub default: &'static str,
    /// Where help shows it.
    pub section: &'static str,
    /// Which commands have it.
    pub commands: &'static [Name],
    /// Where it can be set.
    pub reach: Reach,
    /// One sentence or two.
    pub help: &'static str,
    /// What it changes. Fails with what would have worked.
    pub set: fn(&mut Config, &Value) -> Result<(), String>,
}

/// Where a setting can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// By flag, variable and file.
    Everywhere,
    /// By flag: it belongs to one run.
    Flag,
}

impl Setting {
    /// The variable that sets it.
    pub fn variable(&self) -> String {
        format!("OMNIBUS_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// Whether a command has it.
    pub fn is_for(&self, command: Name) -> bool {
        self.commands.contains(&command)
    }
}

/// The settings of a command, in the table's order.
pub fn of(command: Name) -> impl Iterator<Item = &'static Setting> {
    all().filter(move |setting| setting.is_for(command))
}

#[cfg(test)]
mod tests;
