//! `cargo xtask cuda-kernels`: compiles the CUDA kernels with NVIDIA's compiler, which needs no GPU. It links and runs nothing.
//!
//! The texts are those of the kernels that `crates/mlx/tests/gpu` runs in the emulator: run its tests first. The compiler's
//! wheels stay in `target/cuda-kernels`.

use std::path::{Path, PathBuf};

use crate::paths;
use crate::process::{python, run as finish};
use crate::wheel::{self, Wheel};

/// The wheels' version: a release of CUDA 13, which MLX's wheel for Linux is built for.
const VERSION: &str = "13.5.37";
const WHEELS: [&str; 3] = ["nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"];
const COMPILER: &str = include_str!("cuda_kernels.py");
/// Every text is compiled for Hopper, and for one of the others, which take turns: a kernel has several texts.
const HOPPER: &str = "sm_90a";
/// Ampere and Blackwell.
const OTHERS: [&str; 2] = ["sm_80", "sm_120a"];
/// Kernels with warpgroups' instructions, which Hopper alone has.
const OF_HOPPER: [&str; 6] =
    ["attn_chunk_wide", "wmm_dense", "wmm_grouped", "wmm_grouped_packed", "wmm_tiled", "wmm_wide"];

/// Gets the wheels, if they are not there, and compiles every text.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no arguments, not `{argument}`"));
    }
    if !cfg!(target_os = "linux") {
        println!("skipped: NVIDIA's compiler comes for Linux");
        return Ok(());
    }
    let texts = texts(&written()?)?;
    let folder = paths::target()?.join("cuda-kernels");
    let wheels = WHEELS.map(|name| Wheel { name, version: VERSION, platform: None });
    let Some([compiler, runtime, crt]) = wheel::installed(wheels, &folder)? else { return Ok(()) };
    let inside = |wheel: &Path, name: &str| wheel.join("nvidia/cu13").join(name);
    let mut compile = python();
    compile.args(["-c", COMPILER]).arg(inside(&compiler, "lib/libnvrtc.so.13"));
    let includes = [inside(&runtime, "include"), inside(&crt, "include")];
    compile.arg(std::env::join_paths(includes).map_err(|error| error.to_string())?);
    for (at, text) in texts.iter().enumerate() {
        compile
            .args(architectures(at, text).map(|architecture| format!("{architecture}={}", text.display())));
    }
    finish(compile).map_err(|_| "CUDA kernels do not compile, see above".to_owned())?;
    println!("{} CUDA kernels compile for {HOPPER}, and each for {}", texts.len(), OTHERS.join(" or "));
    Ok(())
}

/// Removes the texts, so that those of tests that are no more are not compiled.
pub fn forget() -> Result<(), String> {
    match std::fs::remove_dir_all(written()?) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Where the tests write them.
fn written() -> Result<PathBuf, String> {
    Ok(paths::target()?.join("tmp/cuda"))
}

fn texts(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot_read = |error: std::io::Error| {
        format!("{}: {error}; run `cargo test --workspace --test gpu` first", folder.display())
    };
    let entries = std::fs::read_dir(folder).map_err(cannot_read)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.map_err(cannot_read)?;
    paths.sort();
    Ok(paths)
}

/// Architectures that a text is compiled for; its kernel is what its name begins with.
fn architectures(at: usize, text: &Path) -> impl Iterator<Item = &'static str> {
    let name = text.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let of_hopper = OF_HOPPER.iter().any(|kernel| name.split('.').next() == Some(*kernel));
    let other = OTHERS.get(at % OTHERS.len()).copied().filter(|_| !of_hopper);
    [HOPPER].into_iter().chain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warpgroups_are_hoppers_alone() {
        let of = |at, name: &str| architectures(at, Path::new(name)).collect::<Vec<_>>();
        assert_eq!(of(0, "/t/wmm_wide.linear.0.cu"), ["sm_90a"]);
        assert_eq!(of(2, "/t/wmm.linear.0.cu"), ["sm_90a", "sm_80"]);
        assert_eq!(of(3, "/t/wmm.linear.1.cu"), ["sm_90a", "sm_120a"]);
    }
}
