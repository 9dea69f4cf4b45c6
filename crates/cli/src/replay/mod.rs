//! Recorded requests, played again. Start at [`play()`].
//!
//! Invariant: only reads the records. An answer is compared where its request has one right answer.

mod compare;
mod conversations;
mod play;
mod report;

use std::path::Path;

use omnibus_server::Record;

pub use compare::Outcome;
pub use play::{Pace, Server, play};
pub use report::{json, table};

use crate::error::Error;

/// The records in a folder, oldest first.
pub fn read(folder: &Path) -> Result<Vec<Record>, Error> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Error::failed(format!("cannot read {}: {why}", path.display()))
    };
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries: Vec<std::fs::DirEntry> = entries.map_err(|why| failed(folder, &why))?;
    let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    // Names begin with times, and number the records of one moment.
    paths.sort();
    let mut records: Vec<Record> = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path).map_err(|why| failed(&path, &why))?;
        records.push(serde_json::from_slice(&bytes).map_err(|why| failed(&path, &why))?);
    }
    if records.is_empty() {
        let why = "there are no records; `omnibus serve --record DIR` writes them";
        return Err(failed(folder, &why));
    }
    records.sort_by_key(|record| record.time_ms);
    Ok(records)
}
