//! Environment variables of tests.
//!
//! Invariant: an empty variable counts as unset.

/// The value of a variable, unless it is unset, empty or not UTF-8.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
