//! The file of libmlx. A program may start without it; nothing else in this crate may be called then.

use std::path::{Path, PathBuf};

use mlx_sys as sys;

/// Whether this process has libmlx.
pub fn is_loaded() -> bool {
    sys::library_is_loaded()
}

/// The file of this process's libmlx.
pub fn path() -> Option<PathBuf> {
    Some(sys::library_path()).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The version that this crate is built for, as `0.32.4`.
pub fn expected_version() -> String {
    sys::header_version()
}

/// The version of the libmlx in a file. It is loaded for that, beside what the process has; the error says why it cannot be.
pub fn version_of(file: &Path) -> Result<String, String> {
    let path = file.to_str().ok_or_else(|| format!("{} is not UTF-8", file.display()))?;
    sys::library_version(path).map_err(|error| error.what().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_this_process_has_the_version_of_the_headers() {
        assert!(is_loaded());
        let file = path().unwrap();
        assert!(
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libmlx.")),
            "{file:?}"
        );
        assert_eq!(version_of(&file), Ok(expected_version()));
        assert_eq!(crate::device::version(), expected_version());
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error_that_names_it() {
        let file = std::env::temp_dir().join(format!("omnibus-no-library-{}", std::process::id()));
        std::fs::write(&file, "text").unwrap();
        let error = version_of(&file).unwrap_err();
        assert!(error.contains("omnibus-no-library"), "{error}");
        std::fs::remove_file(&file).unwrap();
        assert!(version_of(&file).is_err());
    }
}
