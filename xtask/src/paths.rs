//! Paths of the workspace.

use std::path::{Path, PathBuf};

/// The workspace's folder.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The folder of build results.
pub fn target() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program's path: {error}"))?;
    own.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| format!("{} is in no folder", own.display()))
}
