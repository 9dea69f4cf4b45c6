//! `cargo xtask tidy`: rules of the house that a compiler cannot see. Each is a file here.
//!
//! Invariant: a check reads a [`Tree`] and gives [`Violation`]s; nothing is built and nothing is changed.

mod documented;
mod edges;
mod headers;
mod length;
mod links;
mod manifests;
mod outbursts;
mod places;
pub mod source;
mod tree;
mod whitespace;
mod words;

use crate::docs;
pub use tree::Tree;

/// Something to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// From the workspace's folder.
    pub path: String,
    /// From 1; 0 is the file as a whole.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

struct Check {
    name: &'static str,
    run: fn(&Tree) -> Vec<Violation>,
}

const CHECKS: &[Check] = &[
    Check { name: "crate edges", run: edges::check },
    Check { name: "inherited manifest fields", run: manifests::check },
    Check { name: "words with a home", run: words::check },
    Check { name: "no outbursts in libraries", run: outbursts::check },
    Check { name: "files say what they are", run: headers::check },
    Check { name: "public items are documented", run: documented::check },
    Check { name: "file length", run: length::check },
    Check { name: "white space", run: whitespace::check },
    Check { name: "links", run: links::check },
    Check { name: "no machine's own places", run: places::check },
    Check { name: "pages made from source", run: docs::stale },
];

/// Runs all checks and prints what they found.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no arguments, not `{argument}`"));
    }
    let tree = Tree::read()?;
    let mut count = 0;
    for check in CHECKS {
        for violation in (check.run)(&tree) {
            println!("{violation} [{}]", check.name);
            count += 1;
        }
    }
    match count {
        0 => Ok(()),
        1 => Err("1 violation".to_owned()),
        _ => Err(format!("{count} violations")),
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// What a check finds in files that are given as paths and texts, as one prints it.
#[cfg(test)]
fn found(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(Violation::to_string).collect()
}
