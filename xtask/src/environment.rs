//! Environment variables.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

use std::ffi::OsString;

/// The value of a variable, unless it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
