//! Which libmlx this process has. Programs may start without it, and call nothing that computes then.

use std::path::{Path, PathBuf};

/// Whether this process has libmlx.
pub fn library_is_loaded() -> bool {
    mlx::library::is_loaded()
}

/// The file of this process's libmlx.
pub fn library_path() -> Option<PathBuf> {
    mlx::library::path()
}

/// Whether the libmlx in a file can be loaded, and is the release that this program is built for. The error says why not. To
/// be called where the process has no libmlx.
pub fn check_library(file: &Path) -> Result<(), String> {
    let (found, expected) = (mlx::library::version_of(file)?, mlx::library::expected_version());
    match is_release(&found, &expected) {
        true => Ok(()),
        false => Err(format!("it is MLX {found}, and this program needs {expected}")),
    }
}

/// The release of MLX that this program is built for.
pub fn expected_library_version() -> String {
    mlx::library::expected_version()
}

/// Whether a version is a build of a release.
fn is_release(found: &str, release: &str) -> bool {
    found.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_the_release_is_accepted_and_another_release_is_not() {
        for found in ["0.32.4", "0.32.4.dev20261101+abc", "0.32.4+cuda"] {
            assert!(is_release(found, "0.32.4"), "{found}");
        }
        for found in ["0.32.40", "0.32.3", "0.3", "of an unknown version", ""] {
            assert!(!is_release(found, "0.32.4"), "{found}");
        }
    }
}
