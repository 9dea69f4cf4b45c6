//! Which libmlx the engine's process loads: the one this binary was linked to, or that of another backend.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use omnibus_engine::DeviceChoice;

use crate::settings::IsolationSettings;

/// Where dynamic libraries are looked for before a binary's own paths.
const VARIABLE: &str = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// The variable to set for the process; none when the library it was linked to is right.
pub fn variable(settings: &IsolationSettings, device: DeviceChoice) -> Option<(OsString, OsString)> {
    let folder = folder(settings, device, has_nvidia_gpu())?;
    let others = std::env::var_os(VARIABLE)
        .into_iter()
        .flat_map(|all| std::env::split_paths(&all).collect::<Vec<PathBuf>>());
    let all = std::env::join_paths(std::iter::once(folder).chain(others)).ok()?;
    Some((VARIABLE.into(), all))
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

/// Without loading anything: the driver's device files.
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
        let told = IsolationSettings { folder: Some("told".into()), ..settings };
        assert_eq!(folder(&told, device, gpu), Some("told".into()));
    }

    #[test]
    fn the_device_chooses_the_library() {
        check(DeviceChoice::Gpu, Gpu::Missing, Some("cuda"));
        check(DeviceChoice::Cpu, Gpu::Found, Some("cpu"));
        check(DeviceChoice::Auto, Gpu::Found, Some("cuda"));
        check(DeviceChoice::Auto, Gpu::Missing, Some("cpu"));
    }
}
