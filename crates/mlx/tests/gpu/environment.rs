//! The environment variables that these tests read. An empty one counts as unset.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The C++ compiler: `CXX`, else `c++`.
pub fn compiler() -> OsString {
    env::var_os("CXX").filter(|value| !value.is_empty()).unwrap_or_else(|| "c++".into())
}

/// The folder that outlives a clone: where the build keeps libmlx, if it is named.
pub fn kept_folder() -> Option<PathBuf> {
    env::var_os("MLX_CACHE_DIR").filter(|value| !value.is_empty()).map(PathBuf::from)
}
