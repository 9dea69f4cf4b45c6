//! Programs that settings name.

use std::path::{Path, PathBuf};

use crate::environment;

/// The program at a path, or of this name on the search path. Fails where there is none that can be executed.
pub fn find(text: &str) -> Result<PathBuf, String> {
    let program = Path::new(text);
    if program.components().count() > 1 {
        return match is_executable(program) {
            true => Ok(program.to_owned()),
            false => Err(format!("`{text}` is not an executable program")),
        };
    }
    let folders = environment::variable("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let found = found.into_iter().find(|program| is_executable(program));
    found.ok_or_else(|| format!("no program `{text}` is on the search path"))
}

#[cfg(unix)]
fn is_executable(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(program: &Path) -> bool {
    program.is_file()
}
