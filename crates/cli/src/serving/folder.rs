//! The models in a directory.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Each directory with a `config.json`, or of static embeddings with a `modules.json`, by its name, and by `org/name` one level
/// deeper, in the order of their names.
pub fn models(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let wrong = |error| Error::usage(format!("--models-dir: cannot read {}: {error}", folder.display()));
    let mut found = Vec::new();
    for (name, path) in directories(folder).map_err(wrong)? {
        if is_model(&path) {
            found.push((name, path));
            continue;
        }
        // One that cannot be read is not there.
        for (inner, path) in directories(&path).unwrap_or_default() {
            if is_model(&path) {
                found.push((format!("{name}/{inner}"), path));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_model(path: &Path) -> bool {
    ["config.json", "modules.json"].iter().any(|file| path.join(file).is_file())
}

/// The directories in a folder, hidden ones left out, links followed.
fn directories(folder: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        (path.is_dir() && !name.starts_with('.')).then_some((name, path))
    };
    Ok(entries.filter_map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_on_two_levels_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b", "org/a", "org/deep/er", ".hidden", "empty"] {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["b", "org/a", "org/deep/er", ".hidden"] {
            std::fs::write(folder.path().join(path).join("config.json"), "{}").unwrap();
        }
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let names: Vec<String> = models(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "org/a"]);
        let error = models(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(error.starts_with("--models-dir: cannot read "), "{error}");
    }
}
