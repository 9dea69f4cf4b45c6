//! What libmlx needs beside a GPU: variables, and whether there is an NVIDIA GPU.

use std::path::Path;

/// Whether there is an NVIDIA GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpu {
    Found,
    Missing,
}

/// Variables that libmlx reads once, with their values unless the user sets them.
type Variables = &'static [(&'static str, &'static str)];

/// MLX ends a CUDA graph, and on a Mac a command buffer, after so many megabytes of inputs, and a pool of keys counts whole for each
/// kernel that reads it: without a limit a step is a few of them, not one for every kernel. On a Mac a command buffer still ends
/// after MLX's number of operations, so that the display is not kept waiting.
const INPUT_BYTES: (&str, &str) = ("MLX_MAX_MB_PER_BUFFER", "1000000");

const CUDA: Variables = &[
    INPUT_BYTES,
    // MLX fails when too many steps in a row have new shapes. A server's steps have many.
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

const METAL: Variables = &[INPUT_BYTES];

/// Sets libmlx's variables for this process and those it starts. To be called where libmlx is loaded, before any thread is
/// started.
pub fn set_variables() {
    let variables = variables(std::env::consts::OS, has_nvidia_gpu());
    for (name, value) in variables {
        omnibus_engine::set_library_variable(name, value);
    }
    if variables == CUDA {
        omnibus_engine::set_program_folder();
    }
}

/// The variables of an operating system, by Rust's name of it.
fn variables(system: &str, nvidia: Gpu) -> Variables {
    match (system, nvidia) {
        (_, Gpu::Found) => CUDA,
        ("macos", Gpu::Missing) => METAL,
        (_, Gpu::Missing) => &[],
    }
}

/// Detects the driver by its device files, without loading a library.
pub fn has_nvidia_gpu() -> Gpu {
    if Path::new("/dev/nvidiactl").exists() { Gpu::Found } else { Gpu::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_end_no_command_buffer_on_any_gpu() {
        let has_limit = |system, nvidia| variables(system, nvidia).contains(&INPUT_BYTES);
        assert!(has_limit("linux", Gpu::Found) && has_limit("macos", Gpu::Missing));
        assert!(variables("linux", Gpu::Missing).is_empty());
    }
}
