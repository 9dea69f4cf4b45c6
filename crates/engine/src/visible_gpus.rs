//! Which GPU a process computes on: the first one that it sees.
//!
//! Invariant: processes of one model see the same GPUs, in an order that begins with their own, so that they reach each other's memory.

use std::ffi::OsString;

/// The variable by which CUDA chooses the GPUs that a process sees, and their order.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// For a process that begins with the GPU at place `first` of those that this process sees. `count`: how many it sees at least.
pub(crate) fn visible_from(first: usize, count: usize) -> (OsString, OsString) {
    let visible = std::env::var(VISIBLE).ok();
    (VISIBLE.into(), rotated(visible.as_deref(), first, count).into())
}

/// `visible`: the variable of this process, if it has it.
fn rotated(visible: Option<&str>, first: usize, count: usize) -> String {
    let mut gpus: Vec<String> = match visible {
        Some(gpus) => gpus.split(',').map(|gpu| gpu.trim().to_owned()).collect(),
        None => (0..count).map(|gpu| gpu.to_string()).collect(),
    };
    let first = first.min(gpus.len());
    gpus.rotate_left(first);
    gpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_its_own_gpu_first_and_all_others() {
        assert_eq!(rotated(None, 0, 4), "0,1,2,3");
        assert_eq!(rotated(None, 3, 4), "3,0,1,2");
        assert_eq!(rotated(Some("GPU-a, GPU-b"), 1, 2), "GPU-b,GPU-a");
        assert_eq!(rotated(Some(""), 1, 2), "");
    }
}
