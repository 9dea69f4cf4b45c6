//! One report over several servers: this one, this one with a part switched off, and peers.
//!
//! Invariant: load is sent by the generator of `bench serve`. In each round every server gets every load, in turns, so that what
//! changes on the machine meets all of them.

mod comparison;
mod contender;
mod generator;
mod interval;
mod page;
mod published;
mod results;
mod round;

pub use comparison::compare;
pub use results::Report;

use std::path::Path;

use crate::error::Error;
use crate::output;
use crate::settings::Config;
use results::Collected;

/// Requests at once in closed loops, unless a flag says otherwise.
const CONCURRENCY: usize = 8;
/// Requests per second in open loops, unless a flag says otherwise.
const REQUEST_RATE: f64 = 4.0;

/// Starts the servers, sends the loads in turns, and puts the results together.
pub async fn run(config: &Config) -> Result<Report, Error> {
    let config = &with_load(config);
    let settings = &config.report;
    let contenders = contender::all(config)?;
    let mut collected = Collected::default();
    for round in 0..settings.rounds {
        // The order turns, so that none is always the first.
        for at in 0..contenders.len() {
            let Some(contender) = contenders.get((at + round) % contenders.len()) else { continue };
            for load in &settings.loads {
                let metrics = round::run(config, contender, *load, round).await?;
                output::note(format!("round {}: {}, {}", round + 1, contender.name, load.name()));
                collected.add(&contender.name, *load, metrics);
            }
        }
    }
    Ok(Report::new(config, &contenders, collected))
}

/// The settings, with a load where none is set.
fn with_load(config: &Config) -> Config {
    let mut config = config.clone();
    config.bench.arrivals.concurrency.get_or_insert(CONCURRENCY);
    config.bench.arrivals.rate.get_or_insert(REQUEST_RATE);
    config
}

/// Writes `report.json` and `report.html` into a folder, which is created.
pub fn write(report: &Report, folder: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let json = serde_json::to_string_pretty(report).map_err(Error::failed)?;
    std::fs::write(folder.join("report.json"), json + "\n").map_err(failed)?;
    std::fs::write(folder.join("report.html"), page::page(report)).map_err(failed)
}

/// The report in a file that an earlier run wrote.
pub fn read(path: &Path) -> Result<Report, Error> {
    let failed = |why: &dyn std::fmt::Display| Error::failed(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&format!("is not a report: {error}")))
}
