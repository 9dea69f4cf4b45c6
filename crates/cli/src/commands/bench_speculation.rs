//! `omnibus bench speculation`: answers with and without draft tokens.

use std::process::ExitCode;

use crate::bench::measure_speculation;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Runs the benchmark and prints its results. Exit code 1 when draft tokens changed an answer.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let results = measure_speculation(config)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&results).map_err(Error::failed)?),
        Output::Text => output::line(results.table()),
    }
    Ok(ExitCode::from(u8::from(results.different_answers > 0)))
}
