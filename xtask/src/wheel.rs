//! Compilers and headers from the Python registry.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::environment;
use crate::process::python;

/// A wheel of a Python registry.
pub struct Wheel<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// Where it would be installed; `None` for this machine.
    pub platform: Option<&'a str>,
}

impl Wheel<'_> {
    /// The folder that it is unpacked in. The error is one line.
    fn install(&self, folder: &Path) -> Result<PathBuf, String> {
        let place = folder.join(format!("{}-{}", self.name, self.version));
        if place.is_dir() {
            return Ok(place);
        }
        let specification = format!("{}=={}", self.name, self.version);
        // Renamed when it is complete: the next run finds all of it or nothing.
        let partial = folder.join(format!("{}.partial-{}", self.name, std::process::id()));
        let mut pip = python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"])
            .args(["--no-deps", "--only-binary=:all:", "--retries", "1", "--target"])
            .arg(&partial);
        if let Some(platform) = self.platform {
            pip.args(["--platform", platform]);
        }
        println!("pip install {specification} into {}", place.display());
        let out = pip.arg(&specification).stdin(Stdio::null()).output();
        let out = out.map_err(|error| format!("cannot run pip: {error}"))?;
        let moved = match out.status.success() {
            // Another run may have been faster.
            true => std::fs::rename(&partial, &place).or_else(|error| match place.is_dir() {
                true => Ok(()),
                false => Err(error.to_string()),
            }),
            false => Err(last_error(&String::from_utf8_lossy(&out.stderr))),
        };
        let _ = std::fs::remove_dir_all(&partial);
        moved.map_err(|why| format!("pip cannot install {specification}: {why}"))?;
        Ok(place)
    }
}

/// The last line of pip's messages that names an error.
fn last_error(stderr: &str) -> String {
    let lines = || stderr.lines().rev();
    let error = lines().find(|line| line.starts_with("ERROR")).or_else(|| lines().next());
    error.unwrap_or("it gave no reason").to_owned()
}

/// The folders that wheels are unpacked in; `None` where the registry cannot be reached, and nothing can be compiled. In CI
/// that is an error: no step may pass that has done nothing.
pub fn installed<const N: usize>(
    wheels: [Wheel<'_>; N],
    folder: &Path,
) -> Result<Option<[PathBuf; N]>, String> {
    let found: Result<Vec<PathBuf>, String> = wheels.iter().map(|wheel| wheel.install(folder)).collect();
    match found {
        Ok(found) => found.try_into().map(Some).map_err(|_| "a folder for each wheel".to_owned()),
        Err(why) if environment::variable("CI").is_some() => Err(why),
        Err(why) => {
            println!("skipped, nothing was compiled: {why}");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_reason_is_its_last_error() {
        let stderr = "WARNING: Retrying\nERROR: no version\nERROR: No matching distribution\nnotice\n";
        assert_eq!(last_error(stderr), "ERROR: No matching distribution");
        assert_eq!(last_error(""), "it gave no reason");
    }
}
