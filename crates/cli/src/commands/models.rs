//! `omnibus models`: the supported model architectures.

use std::process::ExitCode;

use serde_json::json;

use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Lists the architectures.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let architectures = omnibus_engine::architectures();
    match config.output {
        Output::Json => {
            let rows =
                architectures.iter().map(|(name, about)| json!({"architecture": name, "about": about}));
            output::line(serde_json::Value::Array(rows.collect()).to_string());
        }
        Output::Text => {
            let width = architectures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, about) in architectures {
                output::line(format!("{name:<width$}  {about}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
