//! Environment variables are read in files called `environment.rs` only, where an empty variable counts as unset.
//!
//! Invariant: a build script may read what cargo sets (`CARGO_…`, `DEP_…`): cargo never sets those to an empty text
//! that means something.

use super::source::{Source, has_word};
use super::{Tree, Violation};

const READS: &[&str] = &["env::var", "env::var_os"];
const SET_BY_CARGO: &[&str] = &["\"CARGO_", "\"DEP_"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().filter(|source| file_name(source) != "environment.rs").flat_map(reads).collect()
}

fn reads(source: &Source) -> Vec<Violation> {
    let is_cargos = |line: &str| {
        file_name(source) == "build.rs" && SET_BY_CARGO.iter().any(|prefix| line.contains(prefix))
    };
    let mut found = Vec::new();
    for (index, (code, text)) in source.code.iter().zip(&source.text).enumerate() {
        let read = READS.iter().find(|read| has_word(code, read));
        if let Some(read) = read.filter(|_| !is_cargos(text)) {
            let message =
                format!("`{read}`: read it in a file called environment.rs, where empty counts as unset");
            found.push(Violation { path: source.path.clone(), line: index + 1, message });
        }
    }
    found
}

fn file_name(source: &Source) -> &str {
    source.path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_variable_that_is_read_elsewhere_is_refused() {
        let text = "fn a() {\n    std::env::var(\"A\");\n    env::var_os(\"CARGO_B\");\n}\n";
        for path in ["crates/a/src/b.rs", "crates/a/tests/b.rs", "fuzz/b.rs"] {
            assert_eq!(
                found(check, &[(path, text)]),
                [
                    format!(
                        "{path}:2: `env::var`: read it in a file called environment.rs, where empty counts as unset"
                    ),
                    format!(
                        "{path}:3: `env::var_os`: read it in a file called environment.rs, where empty counts as unset"
                    ),
                ]
            );
        }
        assert_eq!(found(check, &[("crates/a/src/environment.rs", text)]), [""; 0]);
        assert_eq!(found(check, &[("a.rs", "// env::var(\"A\")\nenv::vars(); env!(\"A\");\n")]), [""; 0]);
    }

    #[test]
    fn a_build_script_reads_what_cargo_sets() {
        let text = "env::var(\"CARGO_CFG_TARGET_OS\");\nenv::var(\"DEP_A_B\");\nenv::var(\"A\");\n";
        assert_eq!(
            found(check, &[("crates/a/build.rs", text)]),
            [
                "crates/a/build.rs:3: `env::var`: read it in a file called environment.rs, where empty counts as unset"
            ]
        );
    }
}
