//! `omnibus models`: the supported model architectures, or the formats of messages.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::error::Error;
use crate::output;
use crate::settings::{Config, ModelsSubject, Output};

/// Lists the architectures or the formats.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    match config.models {
        ModelsSubject::Architectures => {
            let rows = omnibus_engine::architectures();
            match config.output {
                Output::Json => output::line(architectures(&rows).to_string()),
                Output::Text => table(&rows),
            }
        }
        ModelsSubject::Formats => {
            let (calls, reasoning) =
                (omnibus_engine::tool_call_formats(), omnibus_engine::reasoning_formats());
            match config.output {
                Output::Json => {
                    let of = |rows| json(rows, "format", "models");
                    output::line(json!({"tool_calls": of(&calls), "reasoning": of(&reasoning)}).to_string());
                }
                Output::Text => {
                    output::line("--tool-call-format");
                    table(&calls);
                    output::line("");
                    output::line("--reasoning-format");
                    table(&reasoning);
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A list of objects, each with what a model of the architecture takes.
fn architectures(rows: &[(&str, &str)]) -> Value {
    let (sees, hears) =
        (omnibus_engine::architectures_with_pictures(), omnibus_engine::architectures_with_audio());
    let row = |(name, about): &(&str, &str)| {
        let inputs = [("text", true), ("image", sees.contains(name)), ("audio", hears.contains(name))];
        let inputs: Vec<&str> = inputs.iter().filter(|(_, takes)| *takes).map(|(input, _)| *input).collect();
        json!({"architecture": name, "about": about, "inputs": inputs})
    };
    rows.iter().map(row).collect()
}

fn table(rows: &[(&str, &str)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in rows {
        output::line(format!("{name:<width$}  {about}"));
    }
}

/// A list of objects with these two keys.
fn json(rows: &[(&str, &str)], name: &str, about: &str) -> Value {
    rows.iter().map(|(one, other)| json!({name: one, about: other})).collect()
}
