//! `cargo xtask dist`: what is published, made from this clone: packages with the binary, and what describes them.
//!
//! Invariant: equal sources give equal files. Times are the commit's, members are sorted, owners are root, and no path of this
//! machine is in a file.

mod binary;
mod checksums;
mod contents;
mod cuda;
mod dependencies;
mod environment;
mod formula;
mod licences;
mod manual;
mod members;
mod oci;
mod packages;
mod sbom;

use std::path::{Path, PathBuf};

use crate::paths;
use binary::Binary;
use dependencies::Crate;

/// One row of the table below.
struct Artefact {
    name: &'static str,
    about: &'static str,
    make: fn(&Dist) -> Result<(), String>,
}

/// In the order in which they are made.
const ARTEFACTS: &[Artefact] = &[
    Artefact { name: "wheel", about: "the Python package, for this system", make: binary::copy_wheel },
    Artefact { name: "archive", about: "a tar.xz with libmlx for CPUs", make: packages::archive },
    Artefact { name: "deb", about: "a Debian package with libmlx for CPUs", make: packages::debian },
    Artefact { name: "oci", about: "an image of a container, with libmlx for CPUs", make: oci::write_cpu },
    Artefact {
        name: "oci-cuda",
        about: "an image of a container, with libmlx for NVIDIA's GPUs",
        make: oci::write_cuda,
    },
    Artefact {
        name: "formula",
        about: "a formula of Homebrew, and the sources that it builds",
        make: formula::write,
    },
    Artefact { name: "sbom", about: "what the binary is made of, as CycloneDX", make: sbom::write },
    Artefact { name: "checksums", about: "of everything that was made", make: checksums::write },
];

/// What artefacts are made from.
pub struct Dist {
    /// The built binary.
    pub binary: Binary,
    /// Where artefacts go.
    pub out: PathBuf,
    /// Where things are made.
    pub work: PathBuf,
    /// The crates in the binary.
    pub crates: Vec<Crate>,
    /// The version of the binary.
    pub version: String,
}

impl Dist {
    /// Writes an artefact.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.out.join(name);
        std::fs::write(&path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("{:>10.1} MB  {name}", bytes.len() as f64 / 1e6);
        Ok(())
    }
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
    let crates = dependencies::crates()?;
    let version = crates.iter().find(|found| found.name == "mlx-omnibus").map(|found| found.version.clone());
    let dist = Dist {
        binary: Binary::build(&folder)?,
        out,
        work: folder,
        crates,
        version: version.ok_or("there is no package mlx-omnibus")?,
    };
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
