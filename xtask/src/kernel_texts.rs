//! Texts of GPU kernels for other compilers: those of the kernels that `crates/mlx/tests/gpu` runs in the emulator.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::paths;

/// Folders of texts: `cuda` and `metal`.
const DIALECTS: [&str; 2] = ["cuda", "metal"];

/// The texts of a dialect, in the order of their names. The error names the command that writes them.
pub fn of(dialect: &str) -> Result<Vec<PathBuf>, String> {
    let folder = folder(dialect)?;
    let cannot_read = |error: std::io::Error| {
        format!("{}: {error}; run `cargo test --workspace --test gpu` first", folder.display())
    };
    let entries = std::fs::read_dir(&folder).map_err(cannot_read)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.map_err(cannot_read)?;
    paths.sort();
    Ok(paths)
}

/// Removes all texts, so that those of tests that are no more are not compiled.
pub fn forget() -> Result<(), String> {
    for dialect in DIALECTS {
        match std::fs::remove_dir_all(folder(dialect)?) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.to_string()),
            _ => {}
        }
    }
    Ok(())
}

/// Where the tests write them.
fn folder(dialect: &str) -> Result<PathBuf, String> {
    Ok(paths::target()?.join("tmp").join(dialect))
}
