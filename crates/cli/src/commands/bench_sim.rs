//! `omnibus bench sim`: every schedule on the same traffic, on a machine that is only timed.

use std::process::ExitCode;

use crate::bench::{Simulation, simulate};
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Plays the traffic once for each schedule, and shows how it went.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = simulate(config)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(Simulation::table(&results)),
    }
    Ok(ExitCode::SUCCESS)
}
