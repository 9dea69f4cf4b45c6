//! Which libmlx the engine process loads: the one this binary was linked to, or another backend's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use omnibus_engine::DeviceChoice;

use crate::environment;
use crate::settings::IsolationSettings;

/// Search path of dynamic libraries, before a binary's own paths.
const VARIABLE: &str = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// The variable to set for the process; `None` keeps the library it was linked to.
pub fn variable(settings: &IsolationSettings, device: DeviceChoice) -> Option<(OsString, OsString)> {
    let folder = folder(settings, device, has_nvidia_gpu())?;
    Some((VARIABLE.into(), search_path(folder, environment::variable(VARIABLE))?))
}

/// Variables that libmlx reads once, for an NVIDIA GPU, with their values unless the user sets them.
const CUDA_VARIABLES: [(&str, &str); 2] = [
    // MLX ends a CUDA graph after so many megabytes of inputs, and a pool of keys counts whole for each kernel that reads
    // it: without a limit a step is a few graphs, not one for every kernel.
    ("MLX_MAX_MB_PER_BUFFER", "1000000"),
    // MLX fails when too many steps in a row have new shapes. A server's steps have many.
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

/// Sets libmlx's variables for this process and those it starts. To be called before any thread is started.
pub fn set_cuda_variables() {
    if has_nvidia_gpu() == Gpu::Missing {
        return;
    }
    for (name, value) in CUDA_VARIABLES {
        omnibus_engine::set_library_variable(name, value);
    }
    omnibus_engine::set_program_folder();
}

/// The folder before those of the variable. An empty entry would stand for the working directory.
fn search_path(folder: PathBuf, others: Option<OsString>) -> Option<OsString> {
    let others = others.map(|all| std::env::split_paths(&all).collect::<Vec<PathBuf>>()).unwrap_or_default();
    let others = others.into_iter().filter(|other| !other.as_os_str().is_empty());
    std::env::join_paths(std::iter::once(folder).chain(others)).ok()
}

/// The folder of the backend that fits the device.
fn folder(settings: &IsolationSettings, device: DeviceChoice, gpu: Gpu) -> Option<PathBuf> {
    let of_backend = match (device, gpu) {
        (DeviceChoice::Gpu, _) | (DeviceChoice::Auto, Gpu::Found) => settings.cuda_folder.as_ref(),
        (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Gpu::Missing) => settings.cpu_folder.as_ref(),
    };
    settings.folder.as_ref().or(of_backend).cloned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gpu {
    Found,
    Missing,
}

/// Detects the driver by its device files, without loading a library.
fn has_nvidia_gpu() -> Gpu {
    if Path::new("/dev/nvidiactl").exists() { Gpu::Found } else { Gpu::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(device: DeviceChoice, gpu: Gpu, expected: Option<&str>) {
        let settings = IsolationSettings {
            cpu_folder: Some("cpu".into()),
            cuda_folder: Some("cuda".into()),
            ..IsolationSettings::default()
        };
        assert_eq!(folder(&settings, device, gpu).as_deref(), expected.map(Path::new), "{device:?} {gpu:?}");
        let linked = IsolationSettings::default();
        assert_eq!(folder(&linked, device, gpu), None);
        let explicit = IsolationSettings { folder: Some("explicit".into()), ..settings };
        assert_eq!(folder(&explicit, device, gpu), Some("explicit".into()));
    }

    #[test]
    fn an_empty_search_path_adds_no_folder() {
        let path = |others: &str| search_path("cuda".into(), Some(others.into()));
        assert_eq!(path(""), Some("cuda".into()));
        assert_eq!(path("/a::/b"), Some("cuda:/a:/b".into()));
        assert_eq!(search_path("cuda".into(), None), Some("cuda".into()));
    }

    #[test]
    fn the_device_selects_the_library() {
        check(DeviceChoice::Gpu, Gpu::Missing, Some("cuda"));
        check(DeviceChoice::Cpu, Gpu::Found, Some("cpu"));
        check(DeviceChoice::Auto, Gpu::Found, Some("cuda"));
        check(DeviceChoice::Auto, Gpu::Missing, Some("cpu"));
    }
}
