//! `cargo xtask parity`: how far every fixture's logits are from the reference's, as a table.
//!
//! `--fixtures DIR` reads another directory in the format of `tests/fixtures/README.md`, `--only NAME`
//! (repeatable) picks fixtures, `--kernels reference|cpu` picks who computes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/models/golden/mod.rs"]
mod golden;

use std::path::PathBuf;
use std::process::ExitCode;

use golden::{Fixture, fixtures, ways};
use omnibus_model::Kernels;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    match run() {
        Ok((table, true)) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Ok((table, false)) => {
            print!("{table}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("parity: {error}");
            ExitCode::from(2)
        }
    }
}

/// The table, and whether every distance is within its bound.
fn run() -> Result<(String, bool), String> {
    let mut directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"));
    let (mut only, mut kernels) = (Vec::new(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} takes a value"))?;
        match (argument.as_str(), value.as_str()) {
            ("--fixtures", _) => directory = PathBuf::from(value),
            ("--only", _) => only.push(value),
            ("--kernels", "reference") => kernels = Some(Kernels::Mlx),
            ("--kernels", "cpu") => kernels = Some(Kernels::Cpu),
            _ => return Err(format!("unknown argument {argument} {value}")),
        }
    }
    let kernels = kernels.unwrap_or_else(Kernels::fastest);
    let mut table =
        format!("{:24} {:>9}  furthest logit, by way ({kernels:?} kernels)\n", "fixture", "bound");
    let mut sound = true;
    for path in fixtures(&directory, &only)? {
        let fixture = Fixture::read(&path)?;
        let line = match fixture.model(kernels) {
            Err(error) => {
                sound = false;
                format!("refused: {error}")
            }
            Ok(model) => {
                let distances = ways::distances(&fixture, &model).map_err(|error| error.to_string())?;
                sound &= distances.iter().all(|found| found.distance <= fixture.bound);
                let cells = distances.iter().map(|found| {
                    let mark = if found.distance <= fixture.bound { "" } else { " FAR" };
                    format!("{} {:.1e}{mark}", found.way, found.distance)
                });
                cells.collect::<Vec<_>>().join("  ")
            }
        };
        table.push_str(&format!("{:24} {:>9.0e}  {line}\n", fixture.name, fixture.bound));
    }
    Ok((table, sound))
}
