//! Environment variables.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

use std::ffi::OsString;

/// The value of a variable, unless it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The value of a variable, unless it is unset, empty or not UTF-8.
pub fn text(name: &str) -> Option<String> {
    variable(name).and_then(|value| value.into_string().ok())
}
