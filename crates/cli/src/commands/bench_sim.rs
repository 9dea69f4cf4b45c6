//! `omnibus bench sim`: every scheduling policy on the same simulated load.

use std::process::ExitCode;

use crate::bench::{Simulation, simulate};
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Simulates the load under each policy and prints the results.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = simulate(config)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(Simulation::table(&results)),
    }
    Ok(ExitCode::SUCCESS)
}
