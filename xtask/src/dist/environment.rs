//! The environment of a build for other machines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::environment::variable;
use crate::paths;

/// The folders of this machine that a build could name, with what stands for each in messages of the binary.
pub fn folders(build: &Path) -> Vec<(PathBuf, &'static str)> {
    let home = || variable("HOME").map(PathBuf::from);
    let cargo = variable("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home()?.join(".cargo")));
    let mlx = variable("MLX_CACHE_DIR").map(PathBuf::from);
    let mlx = mlx.or_else(|| Some(variable("XDG_CACHE_HOME").map_or(home()?.join(".cache"), PathBuf::from)));
    let mut folders = vec![(paths::root().to_owned(), "/omnibus"), (build.to_owned(), "/build")];
    folders.extend(cargo.map(|folder| (folder, "/cargo")));
    folders.extend(mlx.map(|folder| (folder, "/mlx")));
    folders
}

/// Sets the variables of a build. `epoch`: the time that is written where one has to be.
pub fn variables(build: &Path, epoch: u64) -> Vec<(&'static str, OsString)> {
    // Of several that apply to a path, the compilers take the last.
    let folders = folders(build);
    let rust =
        folders.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    let c = folders.iter().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()));
    let c = c.collect::<Vec<_>>().join(" ");
    vec![
        ("CARGO_TARGET_DIR", build.into()),
        ("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\x1f").into()),
        ("CFLAGS", c.clone().into()),
        ("CXXFLAGS", c.into()),
        ("CARGO_INCREMENTAL", "0".into()),
        ("CARGO_PROFILE_RELEASE_DEBUG", "0".into()),
        ("CARGO_PROFILE_RELEASE_STRIP", "symbols".into()),
        ("MLX_BACKEND", if cfg!(target_os = "macos") { "metal" } else { "cpu" }.into()),
        // A package that this machine happens to have is not what others get.
        ("MLX_SKIP_PYTHON", "1".into()),
        ("MLX_DIR", "".into()),
        ("OMNIBUS_RELOCATABLE", "1".into()),
        ("SOURCE_DATE_EPOCH", epoch.to_string().into()),
    ]
}
