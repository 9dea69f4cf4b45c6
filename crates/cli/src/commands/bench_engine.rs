//! `omnibus bench engine`: the engine's steps beside what the device can do at best.

use std::process::ExitCode;

use serde::Serialize;

use crate::bench::{measure_engine, measure_recorded, profile_kernels, profile_tables};
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Measured, Output};

/// Runs the benchmark and prints its results. Exit code 1 when nothing could be measured.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    check(config)?;
    match (config.engine_bench.measured, &config.engine_bench.recorded) {
        (Measured::Steps, Some(file)) => {
            let results = measure_recorded(config, file)?;
            print(config, &results, || results.table())?;
            Ok(ExitCode::SUCCESS)
        }
        (Measured::Kernels, _) => {
            let profiles = profile_kernels(config)?;
            print(config, &profiles, || profile_tables(&profiles))?;
            Ok(ExitCode::SUCCESS)
        }
        (Measured::Steps, None) => {
            let results = measure_engine(config)?;
            print(config, &results, || results.table())?;
            Ok(ExitCode::from(u8::from(results.is_failure())))
        }
    }
}

/// Refuses settings of which one would be left out.
fn check(config: &Config) -> Result<(), Error> {
    let bench = &config.engine_bench;
    let with_acceptance = !bench.synthetic_acceptance.is_empty();
    match (bench.measured, &bench.recorded) {
        (Measured::Kernels, Some(_)) => Err(Error::usage("--profile and --recorded exclude each other")),
        (Measured::Kernels, None) if with_acceptance => {
            Err(Error::usage("--profile and --synthetic-acceptance exclude each other"))
        }
        (Measured::Steps, Some(_)) if with_acceptance => {
            Err(Error::usage("--recorded and --synthetic-acceptance exclude each other"))
        }
        _ => Ok(()),
    }
}

fn print(config: &Config, results: &impl Serialize, table: impl FnOnce() -> String) -> Result<(), Error> {
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(results).map_err(Error::failed)?),
        Output::Text => output::line(table()),
    }
    Ok(())
}
