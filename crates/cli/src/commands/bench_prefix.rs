//! `omnibus bench prefix`: what the prefix cache of any server with an OpenAI API gives.

use std::process::ExitCode;

use crate::bench::measure_prefix;
use crate::completion_output::runtime;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Runs the benchmark and prints its results.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = runtime()?.block_on(measure_prefix(&config.bench, config.model.as_deref()))?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(results.table()),
    }
    Ok(ExitCode::SUCCESS)
}
