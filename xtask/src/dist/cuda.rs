//! libmlx for NVIDIA's GPUs, with the libraries that its wheel needs and those that they need.

use std::path::Path;

use super::contents::{files, is_library, relative};
use super::licences::is_licence;
use super::members::Member;
use super::{Dist, read};
use crate::macos::mlx_release;
use crate::wheel::{Wheel, installed};

/// NVIDIA's wheels. Pinned: equal sources give equal images.
const LIBRARIES: [(&str, &str); 9] = [
    ("nvidia-cublas", "13.10.0.20"),
    ("nvidia-cuda-nvrtc", "13.5.37"),
    ("nvidia-cuda-runtime", "13.5.37"),
    ("nvidia-cudnn-cu13", "9.28.1.4"),
    ("nvidia-cufft", "12.5.0.14"),
    ("nvidia-cusolver", "12.4.1.2"),
    ("nvidia-cusparse", "12.9.4.2"),
    ("nvidia-nccl-cu13", "2.32.3"),
    ("nvidia-nvjitlink", "13.5.37"),
];
/// What no program of an image reads.
const LEFT_OUT: [&str; 4] = ["a", "py", "pyi", "cmake"];

/// The files of the wheels, by their paths in them: libmlx finds the others from where it lies.
pub fn libraries(dist: &Dist) -> Result<Vec<Member>, String> {
    let version = mlx_release()?;
    let libmlx = [Wheel { name: "mlx-cuda-13", version: &version, platform: None }];
    let libraries = LIBRARIES.map(|(name, version)| Wheel { name, version, platform: None });
    let missing = || "NVIDIA's wheels are needed".to_owned();
    let [libmlx] = installed(libmlx, &dist.work)?.ok_or_else(missing)?;
    let libraries = installed(libraries, &dist.work)?.ok_or_else(missing)?;
    let mut members = Vec::new();
    for folder in [libmlx].iter().chain(&libraries) {
        for file in files(folder)?.iter().filter(|file| is_needed(file)) {
            let (path, bytes) = (relative(file, folder), read(file)?);
            members.push(if is_library(file) {
                Member::program(path, bytes)
            } else {
                Member::data(path, bytes)
            });
        }
    }
    Ok(members)
}

/// Libraries, headers and licences.
fn is_needed(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy()).unwrap_or_default();
    let is_about_the_wheel =
        file.components().any(|part| part.as_os_str().to_string_lossy().ends_with(".dist-info"));
    if is_about_the_wheel { is_licence(file) } else { !LEFT_OUT.contains(&extension.as_ref()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_headers_are_needed_and_what_is_for_python_is_not() {
        for needed in [
            "mlx/lib/libmlx.so",
            "nvidia/cu13/lib/libcublas.so.13",
            "mlx/include/mlx/mlx.h",
            "mlx/include/cute",
        ] {
            assert!(is_needed(Path::new(needed)), "{needed}");
        }
        for other in ["mlx/core.pyi", "nvidia/__init__.py", "mlx/lib/libx.a", "mlx.dist-info/METADATA"] {
            assert!(!is_needed(Path::new(other)), "{other}");
        }
        assert!(is_library(Path::new("libcublas.so.13")) && !is_library(Path::new("so.h")));
    }
}
