//! Which libmlx this program computes with. It is linked without one: a command that needs it finds it, and starts the program
//! again with it ([why](../../../../docs/decisions/0027-libmlx-is-loaded-when-needed.md)).
//!
//! Invariant: whatever computes is called after [`load`] succeeded; everything else works without libmlx.

mod gpu;
mod loader;
mod places;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use omnibus_engine::DeviceChoice;

use crate::error::Error;
use crate::settings::IsolationSettings;

pub use gpu::{Gpu, has_nvidia_gpu, set_variables};
pub use loader::restore_environment;

/// The name of the library's file.
const FILE: &str = if cfg!(target_os = "macos") { "libmlx.dylib" } else { "libmlx.so" };

/// Why there is no libmlx, and what to do.
#[derive(Debug)]
pub struct Problem {
    /// What is wrong.
    pub detail: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; {}", self.detail, self.advice)
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::failed(format!("this command needs libmlx: {problem}"))
    }
}

/// Makes sure that this process has libmlx: it goes on if it has, and else starts again with the one that was found. To be
/// called before any thread is started, and before anything is done that may be done once only.
pub fn load(settings: &IsolationSettings, device: DeviceChoice) -> Result<(), Problem> {
    if omnibus_engine::library_is_loaded() {
        set_variables();
        return Ok(());
    }
    if let Some(folder) = loader::restarted_for() {
        return Err(not_loaded(folder));
    }
    let folder = find(settings, device)?;
    Err(problem(loader::restart(&folder)))
}

/// Fails where the loader did not give an engine process its libmlx.
pub fn loaded() -> Result<(), Error> {
    match omnibus_engine::library_is_loaded() {
        true => Ok(()),
        false => {
            Err(not_loaded(loader::restarted_for().unwrap_or(Path::new("the folder it was given"))).into())
        }
    }
}

/// The variables of an engine process for this device: it gets the libmlx of the settings, or this process's own.
pub fn engine_variables(settings: &IsolationSettings, device: DeviceChoice) -> Vec<(OsString, OsString)> {
    let own = || omnibus_engine::library_path()?.parent().map(Path::to_owned);
    let folder = folder(settings, device, has_nvidia_gpu()).or_else(own);
    folder.map(|folder| loader::variables(&folder)).unwrap_or_default()
}

/// The folder of the first libmlx that can be loaded.
fn find(settings: &IsolationSettings, device: DeviceChoice) -> Result<PathBuf, Problem> {
    let folders = match folder(settings, device, has_nvidia_gpu()) {
        Some(folder) => vec![folder],
        None => places::of_this_program(),
    };
    let mut refused = Vec::new();
    for folder in &folders {
        let file = folder.join(FILE);
        if !file.is_file() {
            continue;
        }
        match omnibus_engine::check_library(&file) {
            Ok(()) => return Ok(folder.clone()),
            Err(why) => refused.push(format!("{} cannot be used: {why}", file.display())),
        }
    }
    if refused.is_empty() {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        refused.push(format!("there is no {FILE} in {}", looked.join(", ")));
    }
    Err(problem(refused.join("; ")))
}

/// The folder that the settings name for the device.
fn folder(settings: &IsolationSettings, device: DeviceChoice, gpu: Gpu) -> Option<PathBuf> {
    let of_backend = match (device, gpu) {
        (DeviceChoice::Gpu, _) | (DeviceChoice::Auto, Gpu::Found) => settings.cuda_folder.as_ref(),
        (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Gpu::Missing) => settings.cpu_folder.as_ref(),
    };
    settings.folder.as_ref().or(of_backend).cloned()
}

fn not_loaded(folder: &Path) -> Problem {
    problem(format!("the system's loader did not load {}", folder.join(FILE).display()))
}

fn problem(detail: impl fmt::Display) -> Problem {
    let version = omnibus_engine::expected_library_version();
    let packages = match cfg!(target_os = "macos") {
        true => format!("`pip install mlx-metal=={version}`"),
        false => format!("`pip install mlx-cpu=={version}` (NVIDIA GPU: mlx-cuda-13=={version})"),
    };
    let advice = format!(
        "install it beside this program with {packages}, or name the folder of a libmlx {version} with --mlx-lib-dir"
    );
    Problem { detail: detail.to_string(), advice }
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
        assert_eq!(folder(&IsolationSettings::default(), device, gpu), None);
        let explicit = IsolationSettings { folder: Some("explicit".into()), ..settings };
        assert_eq!(folder(&explicit, device, gpu), Some("explicit".into()));
    }

    #[test]
    fn the_device_selects_the_library() {
        check(DeviceChoice::Gpu, Gpu::Missing, Some("cuda"));
        check(DeviceChoice::Cpu, Gpu::Found, Some("cpu"));
        check(DeviceChoice::Auto, Gpu::Found, Some("cuda"));
        check(DeviceChoice::Auto, Gpu::Missing, Some("cpu"));
    }

    #[test]
    fn a_folder_of_the_settings_is_the_only_one_that_is_searched() {
        let settings = IsolationSettings { folder: Some("/nowhere".into()), ..IsolationSettings::default() };
        let problem = find(&settings, DeviceChoice::Auto).unwrap_err();
        assert_eq!(problem.detail, format!("there is no {FILE} in /nowhere"));
        assert!(problem.advice.contains("--mlx-lib-dir"), "{problem}");
    }
}
