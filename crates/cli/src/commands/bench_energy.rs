//! `omnibus bench energy`: tokens per joule.

use std::process::ExitCode;

use crate::bench::measure_energy;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Runs the benchmark and prints its results.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = measure_energy(config)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(results.table()),
    }
    Ok(ExitCode::SUCCESS)
}
