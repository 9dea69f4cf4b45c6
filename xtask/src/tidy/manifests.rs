//! Every crate inherits edition, version, licence, toolchain and lints from the workspace.

use toml::{Table, Value};

use super::edges::is_member;
use super::tree::File;
use super::{Tree, Violation};

const INHERITED: &[&str] = &["edition", "version", "license", "rust-version", "repository"];

/// Crates with their own lints, because they contain `unsafe`.
const OWN_LINTS: &[&str] =
    &["crates/cpu-kernels/Cargo.toml", "crates/mlx-sys/Cargo.toml", "crates/mlx/Cargo.toml"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.files.iter().filter(|file| is_member(&file.path)).flat_map(fields).collect()
}

fn fields(manifest: &File) -> Vec<Violation> {
    // The check of crate edges reports invalid TOML.
    let table: Table = manifest.text.parse().unwrap_or_default();
    let say = |message| Violation { path: manifest.path.clone(), line: 0, message };
    let package = table.get("package");
    let inherits = |name: &&&str| !is_inherited(package.and_then(|package| package.get(**name)));
    let mut wrong: Vec<Violation> = INHERITED
        .iter()
        .filter(inherits)
        .map(|name| say(format!("needs `{name}.workspace = true`")))
        .collect();
    if !is_inherited(Some(&Value::Table(table.clone())).and_then(|table| table.get("lints")))
        && !OWN_LINTS.contains(&manifest.path.as_str())
    {
        wrong.push(say("needs `lints.workspace = true`".to_owned()));
    }
    wrong
}

fn is_inherited(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const WHOLE: &str = "[package]\nedition.workspace = true\nversion.workspace = true\n\
        license.workspace = true\nrust-version.workspace = true\nrepository.workspace = true\n\
        [lints]\nworkspace = true\n";

    fn check_manifest(text: &str, expected: &[&str]) {
        assert_eq!(found(check, &[("crates/core/Cargo.toml", text)]), expected);
    }

    #[test]
    fn a_field_that_is_not_inherited_is_refused() {
        check_manifest(WHOLE, &[]);
        check_manifest(
            &WHOLE.replace("license.workspace = true", "license = \"MIT\""),
            &["crates/core/Cargo.toml: needs `license.workspace = true`"],
        );
        check_manifest(
            &WHOLE.replace("[lints]\nworkspace = true\n", ""),
            &["crates/core/Cargo.toml: needs `lints.workspace = true`"],
        );
    }
}
