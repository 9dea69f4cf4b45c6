//! Environment variables of the build. A file of its own so that a test can include it.
//!
//! Invariant: an empty variable counts as unset.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The value of a variable, unless it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The Python interpreter that `$PYTHON` names, else `python3`.
pub fn python() -> OsString {
    variable("PYTHON").unwrap_or_else(|| "python3".into())
}

/// The folder of what this build script makes.
pub fn out_folder() -> PathBuf {
    PathBuf::from(variable("OUT_DIR").unwrap_or_default())
}

/// The machine that the program is for, where it is another one than the machine that builds.
pub fn foreign_target() -> Option<String> {
    let (host, target) = (variable("HOST"), variable("TARGET"));
    target.filter(|target| host.as_ref() != Some(target)).and_then(|target| target.into_string().ok())
}

/// The folder for downloads: `$MLX_CACHE_DIR`, else `mlx-omnibus` in the user's cache. `None` without a home folder.
pub fn cache_folder() -> Option<PathBuf> {
    let user_cache = || {
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
        variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)
    };
    variable("MLX_CACHE_DIR").map(PathBuf::from).or_else(|| Some(user_cache()?.join("mlx-omnibus")))
}
