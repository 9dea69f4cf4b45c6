//! What packages contain: the binary, libmlx and documents.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::members::Member;
use super::{Dist, licences, manual, read};
use crate::macos::mlx_release;
use crate::paths;
use crate::process::output;
use crate::wheel::{Wheel, installed};

/// The binary and libmlx, where the binary finds it: `bin/omnibus` beside `mlx/lib`.
pub fn program(dist: &Dist) -> Result<Vec<Member>, String> {
    let mut members = libmlx(dist, "mlx-cpu")?;
    members.push(Member::program("bin/omnibus", read(&dist.binary.file)?));
    Ok(members)
}

/// The libraries of a wheel with libmlx, by their paths in it.
pub fn libmlx(dist: &Dist, name: &str) -> Result<Vec<Member>, String> {
    let folder = wheel(dist, name)?;
    let mut members = Vec::new();
    for file in files(&folder)?.iter().filter(|file| is_library(file)) {
        members.push(Member::program(relative(file, &folder), read(file)?));
    }
    Ok(members)
}

/// Whether a file is a shared library, by its name.
pub fn is_library(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// The folder of MLX's wheel of this name.
pub fn wheel(dist: &Dist, name: &str) -> Result<PathBuf, String> {
    let version = mlx_release()?;
    let wheel = Wheel { name, version: &version, platform: None };
    let found = installed([wheel], &dist.work)?;
    found.map(|[folder]| folder).ok_or_else(|| format!("{name} is needed"))
}

/// Completions, the manual page, licences and the README.
pub fn documents(dist: &Dist) -> Result<Vec<Member>, String> {
    let completions = [
        ("bash", "share/bash-completion/completions/omnibus"),
        ("zsh", "share/zsh/site-functions/_omnibus"),
        ("fish", "share/fish/vendor_completions.d/omnibus.fish"),
    ];
    let mut members = Vec::new();
    for (shell, path) in completions {
        let mut command = Command::new(&dist.binary.file);
        command.args(["completions", shell]);
        members.push(Member::data(path, output(command)?));
    }
    members.push(Member::data("share/man/man1/omnibus.1", manual::page(dist)?));
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        members.push(Member::data(format!("share/doc/omnibus/{name}"), read(&paths::root().join(name))?));
    }
    members.push(Member::data("share/doc/omnibus/LICENSES.txt", licences::texts(dist)?));
    Ok(members)
}

/// The files below a folder, sorted.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// The path of a file in a folder.
pub fn relative(file: &Path, folder: &Path) -> String {
    file.strip_prefix(folder).unwrap_or(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_package_needs_the_libmlx_of_the_shim() {
        let text = read(&paths::root().join("pyproject.toml")).unwrap();
        let project: toml::Table = String::from_utf8(text).unwrap().parse().unwrap();
        let list = |value: &toml::Value| {
            let all = value.as_array().unwrap().iter();
            all.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let extras = project["project"]["optional-dependencies"].as_table().unwrap();
        let needed = extras.values().flat_map(list).chain(list(&project["project"]["dependencies"]));
        let needed: Vec<String> = needed.collect();
        let version = mlx_release().unwrap();
        assert_eq!(needed.len(), 3);
        assert!(needed.iter().all(|text| text.contains(&format!("=={version};"))), "{needed:?}");
    }
}
