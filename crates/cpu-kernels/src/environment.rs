//! Environment variables of a running program.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

/// The value of a variable, unless it is unset, empty or not UTF-8.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
