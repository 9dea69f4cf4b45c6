//! `omnibus bench serve`: benchmarks any server with an OpenAI API.

use std::process::ExitCode;

use crate::bench::{Summary, measure};
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Runs the benchmark and prints its summary. Exit code 1 when no request succeeded.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::failed)?;
    let run = runtime.block_on(measure(&config.bench, config.model.as_deref()))?;
    let summary = Summary::of(&config.bench, &run);
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&summary).map_err(Error::failed)?),
        Output::Text => output::line(summary.table()),
    }
    if let Some(failure) = &summary.first_failure {
        output::note(format!("{} requests failed, the first with: {failure}", summary.failed));
    }
    Ok(ExitCode::from(u8::from(summary.completed == 0)))
}
