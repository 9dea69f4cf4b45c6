//! Every Rust file opens with `//!`: what it is, then its invariants.

use super::{Tree, Violation};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let missing = tree.sources.iter().filter(|source| {
        source
            .text
            .first()
            .is_none_or(|line| line.strip_prefix("//! ").is_none_or(|text| text.trim().is_empty()))
    });
    missing
        .map(|source| Violation {
            path: source.path.clone(),
            line: 1,
            message: "must open with `//!`: what the file is, in one sentence".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_file_without_a_header_is_refused() {
        assert_eq!(found(check, &[("a.rs", "//! What it is.\n")]), [""; 0]);
        for text in ["", "use a;\n//! Late.\n", "// Not a doc.\n", "//! \n"] {
            assert_eq!(
                found(check, &[("a.rs", text)]),
                ["a.rs:1: must open with `//!`: what the file is, in one sentence"],
                "{text}"
            );
        }
    }
}
