//! The folder of compiled GPU programs, which MLX loads by their names.
//!
//! Invariant: what is loaded from it was written by this user. A folder that others can write to, or that is another user's,
//! is not used.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, symlink_metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::device;
use crate::environment::{self, variable};

/// Names the folder for MLX, which reads it once.
const VARIABLE: &str = "MLX_PTX_CACHE_DIR";
/// What only the owner may read, write and search.
const PRIVATE: u32 = 0o700;
/// Others than the owner may do something.
const OTHERS: u32 = 0o077;
/// Others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

unsafe extern "C" {
    safe fn geteuid() -> u32;
}

/// Sets the folder for this process and those that it starts, unless the user has: below the user's caches, or a new one if
/// that is not private, so that everything is compiled again. For programs that have started no thread yet; later it does
/// nothing.
pub fn set_program_folder() {
    if variable(VARIABLE).is_some() {
        return;
    }
    let cached = caches(variable).map(|caches| caches.join("omnibus/ptx").join(device::version()));
    let folder = cached.filter(|folder| is_private(folder));
    if let Some(folder) = folder.or_else(|| new_folder(&std::env::temp_dir())) {
        environment::set_default(VARIABLE, folder.as_os_str());
    }
}

/// Whether programs may be loaded from MLX's folder: the user has named it, or it is the user's own.
pub(super) fn is_trusted() -> bool {
    if variable(VARIABLE).is_some() {
        return true;
    }
    // MLX's own default.
    let shared = std::env::temp_dir().join("mlx");
    let folders =
        [shared.clone(), shared.join(device::version()), shared.join(device::version()).join("ptx")];
    _ = created(&folders[2]);
    folders.iter().all(|folder| is_owned(folder, OTHERS_WRITE))
}

/// The user's caches.
fn caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let below_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let named = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    named.or_else(|| Some(PathBuf::from(variable("HOME")?).join(below_home)))
}

/// Creates the folder if it is not there. True if it is this user's, and no other may read, write or search it.
fn is_private(folder: &Path) -> bool {
    created(folder).is_ok() && is_owned(folder, OTHERS)
}

fn created(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(folder)
}

/// Whether a folder, and no link to one, is this user's, and others have none of these rights.
fn is_owned(folder: &Path, rights: u32) -> bool {
    symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == geteuid() && found.mode() & rights == 0)
}

/// A private folder that did not exist before.
fn new_folder(parent: &Path) -> Option<PathBuf> {
    let named =
        |number: u32| parent.join(OsStr::new(&format!("omnibus-ptx-{}-{number}", std::process::id())));
    let is_new = |folder: &PathBuf| DirBuilder::new().mode(PRIVATE).create(folder).is_ok();
    (0..100).map(named).find(is_new)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// Removed at the end of a test.
    struct Parent(PathBuf);

    impl Parent {
        fn new() -> Self {
            Self(new_folder(&std::env::temp_dir()).unwrap())
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_of_programs_is_the_users_alone() {
        let parent = Parent::new();
        let folder = parent.0.join("a/b");
        assert!(is_private(&folder), "it is made");
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, PRIVATE);
        for mode in [0o701, 0o710, 0o720, 0o777] {
            set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            assert!(!is_private(&folder), "{mode:o}");
        }
        set_permissions(&folder, Permissions::from_mode(PRIVATE)).unwrap();
        assert!(is_private(&folder));
        let link = parent.0.join("link");
        symlink(&folder, &link).unwrap();
        assert!(!is_private(&link), "another may have made the link");
        // Only root can give a folder away.
        if geteuid() == 0 {
            chown(&folder, Some(12_345), None).unwrap();
            assert!(!is_private(&folder), "another user's");
        }
    }

    #[test]
    fn a_folder_that_others_prepared_is_not_taken() {
        let parent = Parent::new();
        let first = new_folder(&parent.0).unwrap();
        let second = new_folder(&parent.0).unwrap();
        assert_ne!(first, second);
        assert!(is_private(&first) && is_private(&second));
    }

    #[test]
    fn caches_are_those_of_the_environment() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> =
                set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            caches(|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.into()))
        };
        let home = if cfg!(target_os = "macos") { "/u/Library/Caches" } else { "/u/.cache" };
        assert_eq!(of(&[("HOME", "/u")]), Some(home.into()));
        assert_eq!(of(&[("HOME", "/u"), ("XDG_CACHE_HOME", "/caches")]), Some("/caches".into()));
        assert_eq!(of(&[("HOME", "/u"), ("XDG_CACHE_HOME", "caches")]), Some(home.into()));
        assert_eq!(of(&[]), None);
    }
}
