//! `cargo xtask dist`: what is published, made from this clone: packages with the binary, and what describes them.
//!
//! Invariant: equal sources give equal files. Times are the commit's, members are sorted, owners are root, and no path of this
//! machine is in a file.

mod binary;
mod environment;

use std::path::{Path, PathBuf};

use crate::paths;
use binary::Binary;

/// One row of the table below.
struct Artefact {
    name: &'static str,
    about: &'static str,
    make: fn(&Dist) -> Result<(), String>,
}

/// In the order in which they are made.
const ARTEFACTS: &[Artefact] =
    &[Artefact { name: "wheel", about: "the Python package, for this system", make: binary::copy_wheel }];

/// What artefacts are made from.
pub struct Dist {
    /// The built binary.
    pub binary: Binary,
    /// Where artefacts go.
    pub out: PathBuf,
}

/// Makes every artefact, or the named ones.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut names, mut rest) = (Vec::new(), arguments.iter());
    while let Some(argument) = rest.next() {
        match (argument.as_str(), rest.next()) {
            ("--only", Some(name)) => names.push(name.as_str()),
            _ => return Err(format!("unknown argument `{argument}`: [--only {}]…", all().join("|"))),
        }
    }
    if let Some(unknown) = names.iter().find(|name| !all().contains(name)) {
        return Err(format!("there is no `{unknown}`; there are {}", all().join(", ")));
    }
    let folder = paths::target()?.join("dist");
    let out = folder.join("out");
    create(&out)?;
    let dist = Dist { binary: Binary::build(&folder)?, out };
    for artefact in ARTEFACTS.iter().filter(|row| names.is_empty() || names.contains(&row.name)) {
        println!("== {}: {}", artefact.name, artefact.about);
        (artefact.make)(&dist).map_err(|why| format!("{}: {why}", artefact.name))?;
    }
    println!("made {}", dist.out.display());
    Ok(())
}

fn all() -> Vec<&'static str> {
    ARTEFACTS.iter().map(|artefact| artefact.name).collect()
}

/// Creates a folder and those above it.
pub fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))
}

/// The bytes of a file.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}
