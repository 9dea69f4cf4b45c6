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

/// The variable by which CUDA chooses the GPUs that a process sees, and their order.
const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// The variable for a process that begins with the GPU at place `first` of those that this process sees, and sees the others, too, so
/// that it reaches their memory. `count`: how many this process sees, if no variable says so. `None` where it is to see none.
pub fn gpus_from(first: usize, count: usize) -> Option<(OsString, OsString)> {
    let visible = std::env::var_os(VISIBLE_GPUS).map(|gpus| gpus.to_string_lossy().into_owned());
    Some((VISIBLE_GPUS.into(), rotated(visible.as_deref(), first, count)?.into()))
}

/// `visible`: the variable of this process, if it has it.
fn rotated(visible: Option<&str>, first: usize, count: usize) -> Option<String> {
    let mut gpus: Vec<String> = match visible {
        Some(gpus) => gpus.split(',').map(|gpu| gpu.trim().to_owned()).collect(),
        None => (0..count).map(|gpu| gpu.to_string()).collect(),
    };
    let first = first.min(gpus.len());
    gpus.rotate_left(first);
    Some(gpus.join(",")).filter(|gpus| !gpus.is_empty())
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
    fn a_process_sees_its_own_gpu_first_and_all_others() {
        let rotated = |visible, first, count| rotated(visible, first, count).unwrap_or_default();
        assert_eq!(rotated(None, 0, 4), "0,1,2,3");
        assert_eq!(rotated(None, 3, 4), "3,0,1,2");
        assert_eq!(rotated(Some("GPU-a, GPU-b"), 1, 2), "GPU-b,GPU-a");
        assert_eq!(rotated(Some(""), 1, 2), "", "a process that may see none starts none that does");
    }

    #[test]
    fn nothing_is_set_beside_other_threads() {
        let name = "OMNIBUS_TEST_SET_DEFAULT";
        // The test harness has a thread of its own.
        std::thread::spawn(move || set_default(name, "1")).join().unwrap();
        std::thread::spawn(move || replace(name, Some("1".as_ref()))).join().unwrap();
        assert_eq!(std::env::var_os(name), None);
    }
}
