//! `omnibus bench engine`: the engine's steps beside what the device can do at best.

use std::process::ExitCode;

use crate::bench::measure_engine;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Runs the benchmark and prints its results. Exit code 1 when nothing could be measured.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = measure_engine(config)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(results.table()),
    }
    Ok(ExitCode::from(u8::from(results.is_failure())))
}
