//! The environment variables that these tests read. An empty one counts as unset.

use std::env;
use std::ffi::OsString;

/// The C++ compiler: `CXX`, else `c++`.
pub fn compiler() -> OsString {
    env::var_os("CXX").filter(|value| !value.is_empty()).unwrap_or_else(|| "c++".into())
}
