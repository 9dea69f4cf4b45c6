//! No paths and no registry mirrors of one machine.

use super::{Tree, Violation};

/// It contains what it refuses.
const THIS_FILE: &str = "xtask/src/tidy/local_paths.rs";

/// Folders of users.
const FOLDERS: &[&str] = &["/work/", "/root/", "/home/", "/Users/"];

/// Settings of a registry other than the public one.
const REGISTRIES: &[&str] =
    &["index-url", "find-links", "artifactory", "/nexus/", "sparse+http", ".internal/", "trusted-host"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != THIS_FILE) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(what) = foreign(line) {
                let message = format!("`{what}` is a path of one machine");
                found.push(Violation { path: file.path.clone(), line: index + 1, message });
            }
        }
    }
    found
}

fn foreign(line: &str) -> Option<&'static str> {
    let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-./~}$>".contains(c));
    let folder = FOLDERS.iter().find(|folder| line.match_indices(**folder).any(|(at, _)| begins(at)));
    let registry = REGISTRIES.iter().find(|word| line.contains(**word));
    let mirror = line.contains("registry+") && !line.contains(CRATES_IO);
    folder.or(registry).copied().or(mirror.then_some("registry+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_refused() {
        for line in [
            "cd /work/x",
            "\"/root/.cargo\"",
            "a=/home/me/x",
            "pip --index-url http://x",
            "source = \"registry+https://mirror/x\"",
        ] {
            assert!(foreign(line).is_some(), "{line}");
        }
    }

    #[test]
    fn public_paths_are_accepted() {
        let lock = format!("source = \"{CRATES_IO}\"");
        for line in ["/usr/lib", "https://a.org/home/x", "src/work/a.rs", "/workspace", lock.as_str()] {
            assert_eq!(foreign(line), None, "{line}");
        }
    }
}
