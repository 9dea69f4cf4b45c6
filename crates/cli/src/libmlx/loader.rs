//! The system's loader, which gives a program libmlx when the program starts: by variables that only it reads.
//!
//! Invariant: processes of other programs that are started from here get the loader's variables as the user set them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::FILE;
use crate::environment;

/// Folders that are searched for libraries before all others.
const SEARCH_PATH: &str = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
/// Libraries that a program gets beside those that it was linked with. On macOS it was linked with libmlx, which may be missing.
const PRELOAD: Option<&str> = if cfg!(target_os = "macos") { None } else { Some("LD_PRELOAD") };
/// The folder that stands first in the search path, for a process of this program.
const FOLDER: &str = "OMNIBUS_LIBMLX_FOLDER";

static RESTARTED_FOR: OnceLock<PathBuf> = OnceLock::new();

/// Gives the loader's variables the values that they had before [`variables`]. To be called first of all.
pub fn restore_environment() {
    let Some(folder) = environment::variable(FOLDER) else { return };
    let restore = |name: &str, first: &OsStr| {
        let value = environment::variable(name).and_then(|value| without_first(&value, first));
        omnibus_engine::replace_variable(name, value.as_deref());
    };
    restore(SEARCH_PATH, &folder);
    if let Some(preload) = PRELOAD {
        restore(preload, FILE.as_ref());
    }
    omnibus_engine::replace_variable(FOLDER, None);
    // It is set once, here.
    _ = RESTARTED_FOR.set(folder.into());
}

/// The folder of the libmlx that this process was started with.
pub fn restarted_for() -> Option<&'static Path> {
    RESTARTED_FOR.get().map(PathBuf::as_path)
}

/// The variables by which a process of this program gets the libmlx of a folder.
pub fn variables(folder: &Path) -> Vec<(OsString, OsString)> {
    let with =
        |name: &str, first: &OsStr| (name.into(), joined(first, environment::variable(name).as_deref()));
    let preload = PRELOAD.map(|name| with(name, FILE.as_ref()));
    let mut variables = vec![with(SEARCH_PATH, folder.as_os_str()), (FOLDER.into(), folder.into())];
    variables.extend(preload);
    variables
}

/// Starts this program again in this process, with the libmlx of a folder. Returns only where that fails.
pub fn restart(folder: &Path) -> std::io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).envs(variables(folder)).exec()
}

/// A list of the loader with another first element.
fn joined(first: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut all = first.to_owned();
    if let Some(others) = others {
        all.push(":");
        all.push(others);
    }
    all
}

/// The list that [`joined`] had; `None` if there was none.
fn without_first(all: &OsStr, first: &OsStr) -> Option<OsString> {
    let all = all.as_bytes();
    let rest = all.strip_prefix(first.as_bytes()).map_or(all, |rest| rest.strip_prefix(b":").unwrap_or(rest));
    (!rest.is_empty()).then(|| OsString::from_vec(rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_loader_is_restored() {
        for others in [None, Some("/a"), Some("/a:/b"), Some("one two"), Some("libmlx.so")] {
            let others = others.map(OsStr::new);
            let all = joined("libmlx.so".as_ref(), others);
            assert_eq!(without_first(&all, "libmlx.so".as_ref()).as_deref(), others);
        }
        assert_eq!(without_first("/other".as_ref(), "libmlx.so".as_ref()), Some("/other".into()));
    }

    #[test]
    fn a_process_gets_the_folder_first() {
        let variables = variables(Path::new("/site packages/mlx/lib"));
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned()).unwrap_or_default()
        };
        assert!(value(SEARCH_PATH).starts_with("/site packages/mlx/lib"));
        assert_eq!(value(FOLDER), "/site packages/mlx/lib");
        assert!(PRELOAD.is_none_or(|name| value(name).starts_with(FILE)));
    }
}
