//! Where libmlx is looked for, unless a setting says it.
//!
//! Invariant: a folder that an environment variable names goes before those beside the program, and those before the one that
//! the program was built with, which binaries for other machines do not have.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::environment;

/// The folder of the libmlx that this program was built with.
const BUILT_WITH: Option<&str> = option_env!("LIBMLX_BUILT_WITH");
/// The oldest minor version of Python 3 that libmlx is published for.
const PYTHON_MIN: u32 = 10;

/// Where this program's libmlx may be.
pub fn of_this_program() -> Vec<PathBuf> {
    // A link to a program in an environment of Python stands for it, as tools that install programs make them.
    let program = std::env::current_exe().and_then(|program| program.canonicalize()).unwrap_or_default();
    of(&program, BUILT_WITH.map(Path::new), environment::variable)
}

fn of(
    program: &Path,
    built_with: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<PathBuf> {
    let paths = |name: &str| variable(name).map(|all| std::env::split_paths(&all).collect::<Vec<_>>());
    let named = ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"].into_iter().filter_map(paths).flatten();
    let mut folders: Vec<PathBuf> = named.filter(|folder| !folder.as_os_str().is_empty()).collect();
    if let Some(prefix) = program.parent().and_then(Path::parent) {
        folders.extend([prefix.join("mlx/lib"), prefix.join("lib")]);
        folders.extend(in_packages(prefix));
    }
    folders.extend(built_with.map(Path::to_owned));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    folders.extend(active.flat_map(|prefix| in_packages(Path::new(&prefix))));
    let mut distinct = Vec::new();
    for folder in folders {
        if !distinct.contains(&folder) {
            distinct.push(folder);
        }
    }
    distinct
}

/// The folders of libmlx in the packages of the Pythons with this prefix, newest first.
fn in_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for libraries in ["lib", "lib64"].map(|name| prefix.join(name)) {
        let Ok(entries) = libraries.read_dir() else { continue };
        for entry in entries.flatten() {
            let Some(minor) = entry.file_name().to_str().and_then(python_minor) else { continue };
            let packages = ["site-packages", "dist-packages"].map(|name| entry.path().join(name));
            found.extend(packages.map(|packages| (minor, packages.join("mlx/lib"))));
        }
    }
    found.retain(|(minor, folder)| *minor >= PYTHON_MIN && folder.is_dir());
    found.sort_by(|(one, first), (other, second)| other.cmp(one).then(first.cmp(second)));
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// The minor version that a folder of Python 3 is named for.
fn python_minor(name: &str) -> Option<u32> {
    // Of a Python without a global lock, `python3.14t`.
    name.strip_prefix("python3.")?.trim_end_matches('t').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prefix with a program and these folders.
    fn prefix(folders: &[&str]) -> tempfile::TempDir {
        let prefix = tempfile::tempdir().unwrap();
        for folder in folders {
            std::fs::create_dir_all(prefix.path().join(folder)).unwrap();
        }
        prefix
    }

    fn check(folders: &[&str], expected: &[&str]) {
        let prefix = prefix(folders);
        let found = of(&prefix.path().join("bin/omnibus"), None, |_| None);
        let found: Vec<&Path> =
            found.iter().map(|folder| folder.strip_prefix(prefix.path()).unwrap()).collect();
        let expected: Vec<&Path> = ["mlx/lib", "lib"].iter().chain(expected).map(Path::new).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_python_of_the_prefix_is_searched_newest_first() {
        check(&[], &[]);
        for minor in 10..=15 {
            let folder = format!("lib/python3.{minor}/site-packages/mlx/lib");
            check(&[&folder], &[&folder]);
        }
        check(
            &["lib/python3.9/site-packages/mlx/lib", "lib/python3.12/dist-packages/mlx/lib"],
            &["lib/python3.12/dist-packages/mlx/lib"],
        );
        check(
            &[
                "lib64/python3.10/site-packages/mlx/lib",
                "lib/python3.14t/site-packages/mlx/lib",
                "lib/python3",
            ],
            &["lib/python3.14t/site-packages/mlx/lib", "lib64/python3.10/site-packages/mlx/lib"],
        );
    }

    #[test]
    fn variables_go_first_and_the_folder_of_the_build_before_an_active_environment() {
        let active = prefix(&["lib/python3.11/site-packages/mlx/lib"]);
        let variable = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some("/named::/other".into()),
            "VIRTUAL_ENV" => Some(active.path().into()),
            _ => None,
        };
        let found = of(Path::new("/p/bin/omnibus"), Some(Path::new("/built")), variable);
        let of_environment = active.path().join("lib/python3.11/site-packages/mlx/lib");
        let expected = ["/named", "/other", "/p/mlx/lib", "/p/lib", "/built"].map(PathBuf::from);
        assert_eq!(found, expected.into_iter().chain([of_environment]).collect::<Vec<_>>());
    }
}
