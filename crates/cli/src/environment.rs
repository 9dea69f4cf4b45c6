//! Environment variables, and the user's folders that they name.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

use std::ffi::OsString;
use std::path::PathBuf;

/// The value of a variable, unless it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    set(std::env::var_os(name))
}

/// The value of a variable, unless it is unset, empty or not UTF-8.
pub fn text(name: &str) -> Option<String> {
    variable(name).and_then(|value| value.into_string().ok())
}

/// A folder of the user: the one that an XDG variable names, else the one below `$HOME`.
pub fn user_folder(variable_name: &str, below_home: &str) -> Option<PathBuf> {
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(below_home));
    variable(variable_name).map(PathBuf::from).or_else(home)
}

/// A folder of the user that is emptied when the machine starts; `None` where the system names none.
pub fn runtime_folder() -> Option<PathBuf> {
    let temporary = || cfg!(target_os = "macos").then(|| variable("TMPDIR")).flatten();
    variable("XDG_RUNTIME_DIR").or_else(temporary).map(PathBuf::from)
}

/// Treats an empty value as none.
pub fn set(value: Option<OsString>) -> Option<OsString> {
    value.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_unset() {
        assert_eq!(set(None), None);
        assert_eq!(set(Some(OsString::new())), None);
        assert_eq!(set(Some("a".into())), Some("a".into()));
    }
}
