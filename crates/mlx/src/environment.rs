//! Environment variables that libmlx reads.

use std::ffi::{OsStr, OsString};

/// Sets a variable of this process, for libmlx and for processes that it starts, unless it is set to something. Does
/// nothing where the process may have other threads, which could read the environment meanwhile.
pub fn set_default(name: &str, value: impl AsRef<OsStr>) {
    if variable(name).is_some() || !has_one_thread() {
        return;
    }
    // SAFETY: no other thread runs.
    unsafe {
        std::env::set_var(name, value.as_ref());
    }
}

/// Gives a variable of this process a value, or none. Does nothing where the process may have other threads.
pub fn replace(name: &str, value: Option<&OsStr>) {
    if !has_one_thread() {
        return;
    }
    // SAFETY: no other thread runs.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

/// The value of a variable, unless it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// False where the system cannot tell.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_beside_other_threads() {
        let name = "OMNIBUS_TEST_SET_DEFAULT";
        // The test harness has a thread of its own.
        std::thread::spawn(move || set_default(name, "1")).join().unwrap();
        std::thread::spawn(move || replace(name, Some("1".as_ref()))).join().unwrap();
        assert_eq!(std::env::var_os(name), None);
    }
}
