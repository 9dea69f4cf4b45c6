//! What libmlx needs beside an NVIDIA GPU.

use std::path::Path;

/// Whether there is an NVIDIA GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpu {
    Found,
    Missing,
}

/// Variables that libmlx reads once, for an NVIDIA GPU, with their values unless the user sets them.
const CUDA_VARIABLES: [(&str, &str); 2] = [
    // MLX ends a CUDA graph after so many megabytes of inputs, and a pool of keys counts whole for each kernel that reads
    // it: without a limit a step is a few graphs, not one for every kernel.
    ("MLX_MAX_MB_PER_BUFFER", "1000000"),
    // MLX fails when too many steps in a row have new shapes. A server's steps have many.
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

/// Sets libmlx's variables for this process and those it starts. To be called where libmlx is loaded, before any thread is
/// started.
pub fn set_variables() {
    if has_nvidia_gpu() == Gpu::Missing {
        return;
    }
    for (name, value) in CUDA_VARIABLES {
        omnibus_engine::set_library_variable(name, value);
    }
    omnibus_engine::set_program_folder();
}

/// Detects the driver by its device files, without loading a library.
pub fn has_nvidia_gpu() -> Gpu {
    if Path::new("/dev/nvidiactl").exists() { Gpu::Found } else { Gpu::Missing }
}
