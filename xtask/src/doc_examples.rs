//! The examples in documentation. Looking for them costs as much as compiling a crate, so only crates that have a block of code in
//! their documentation are looked at.

use std::collections::BTreeSet;

use crate::clippy;
use crate::jobs::Job;
use crate::process::cargo;
use crate::test_programs::TEST_LIMIT;
use crate::tidy::Tree;

/// Compiles and runs them.
pub fn job(arguments: &[String]) -> Result<Job, String> {
    let mut command = cargo(&["test", "--doc"]);
    for package in packages(&Tree::read()?) {
        command.args(["--package", &package]);
    }
    command.arg("--").args(arguments);
    clippy::lint(&mut command)?;
    Ok(Job::cargo("examples in documentation", command).limited(TEST_LIMIT))
}

/// The packages whose documentation has blocks of code, of whatever language.
fn packages(tree: &Tree) -> BTreeSet<String> {
    let is_block = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        text.is_some_and(|text| text.trim_start().starts_with("```"))
    };
    let documented =
        tree.files.iter().filter(|file| file.path.ends_with(".rs") && file.text.lines().any(is_block));
    documented.filter_map(|file| name(tree, &file.path)).collect()
}

/// The name of the package that has a file.
fn name(tree: &Tree, path: &str) -> Option<String> {
    let manifest = tree.file(&format!("{}/Cargo.toml", path.split_once("/src/")?.0))?;
    let line = manifest.text.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_with_blocks_of_code_are_found() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", "[package]\nname = \"of-a\"\n"),
            ("crates/a/src/deep/b.rs", "    /// ```no_run\n    /// b();\n"),
            ("crates/c/Cargo.toml", "[package]\nname = \"of-c\"\n"),
            ("crates/c/src/lib.rs", "//! C.\n// ```\n"),
            ("crates/d/Cargo.toml", "[package]\nname = \"of-d\"\n"),
            ("crates/d/src/lib.rs", "//! D.\n//!\n//!```\n//! d();\n"),
        ]);
        assert_eq!(packages(&tree).into_iter().collect::<Vec<_>>(), ["of-a", "of-d"]);
    }
}
