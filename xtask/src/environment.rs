//! Environment variables.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

use std::ffi::OsString;

/// The value of a variable, unless it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The variables by which cargo describes this package to a program that it runs. Build scripts of dependencies run again when
/// such a variable differs, so a cargo that is started from here must not have them.
pub fn set_by_cargo() -> impl Iterator<Item = OsString> {
    let is_of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_of_package)
}
