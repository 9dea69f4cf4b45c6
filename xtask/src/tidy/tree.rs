//! The files that git tracks or would track, read once.

use std::process::Command;

use super::source::Source;
use crate::{paths, process};

/// Every file, and Rust files also as code.
pub struct Tree {
    /// Text files, in the order of their paths.
    pub files: Vec<File>,
    /// Files that end in `.rs`, as code.
    pub sources: Vec<Source>,
    /// Every path, also of binary files.
    pub paths: Vec<String>,
}

/// A text file.
pub struct File {
    /// From the workspace's folder.
    pub path: String,
    /// Its contents.
    pub text: String,
}

impl Tree {
    /// Reads the workspace. Files that are not UTF-8 are left out.
    pub fn read() -> Result<Self, String> {
        let mut list = Command::new("git");
        list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(paths::root());
        let mut paths: Vec<String> = process::output(list)?.lines().map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        // A file whose deletion is not committed is listed, but does not exist.
        paths.retain(|path| paths::root().join(path).exists());
        let files: Vec<File> = paths.iter().filter_map(|path| read(path)).collect();
        Ok(Self { paths, ..Self::from(files) })
    }

    /// For tests: files as paths and texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        Self::from(files.iter().map(file).collect::<Vec<_>>())
    }

    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl From<Vec<File>> for Tree {
    fn from(files: Vec<File>) -> Self {
        let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
        let mut sources: Vec<Source> = rust.map(|file| Source::new(&file.path, &file.text)).collect();
        let tests: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
        for source in &mut sources {
            if tests.iter().any(|module| source.is_module(module)) {
                source.mark_as_test();
            }
        }
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Self { files, sources, paths }
    }
}

fn read(path: &str) -> Option<File> {
    let text = std::fs::read_to_string(paths::root().join(path)).ok()?;
    Some(File { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_module_in_its_own_file_is_test_code() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\nmod tests;\nmod b;\n"),
            ("crates/a/src/tests.rs", "//! T.\n"),
            ("crates/a/src/b.rs", "//! B.\n#[cfg(test)]\nmod deep;\n"),
            ("crates/a/src/b/deep.rs", "//! D.\n"),
        ]);
        let tests: Vec<(&str, bool)> =
            tree.sources.iter().map(|source| (source.path.as_str(), source.is_test(0))).collect();
        assert_eq!(
            tests,
            [
                ("crates/a/src/lib.rs", false),
                ("crates/a/src/tests.rs", true),
                ("crates/a/src/b.rs", false),
                ("crates/a/src/b/deep.rs", true)
            ]
        );
    }
}
