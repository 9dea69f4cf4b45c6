//! `cargo xtask tidy`: repository rules that a compiler cannot check. Each is a file here.
//!
//! Invariant: a check reads a [`Tree`] and returns [`Violation`]s; it builds nothing and changes nothing.

mod comments;
mod cycles;
mod documented;
mod edges;
mod environment;
mod glossary;
mod headers;
mod imports;
mod keywords;
mod length;
mod links;
mod local_paths;
mod manifests;
mod metal_words;
mod no_panics;
mod own_reexports;
pub mod source;
mod tree;
mod variables;
mod vocabulary;
mod whitespace;

use crate::docs;
pub use tree::Tree;

/// Something to fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// From the workspace's folder.
    pub path: String,
    /// From 1; 0 stands for the whole file.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub message: String,
}

struct Check {
    name: &'static str,
    run: fn(&Tree) -> Vec<Violation>,
}

const CHECKS: &[Check] = &[
    Check { name: "crate edges", run: edges::check },
    Check { name: "import cycles", run: cycles::check },
    Check { name: "own re-exports", run: own_reexports::check },
    Check { name: "inherited manifest fields", run: manifests::check },
    Check { name: "restricted keywords", run: keywords::check },
    Check { name: "environment variables", run: environment::check },
    Check { name: "listed variables", run: variables::check },
    Check { name: "no panics in libraries", run: no_panics::check },
    Check { name: "file headers", run: headers::check },
    Check { name: "documented public items", run: documented::check },
    Check { name: "comments", run: comments::check },
    Check { name: "length", run: length::check },
    Check { name: "words of Metal", run: metal_words::check },
    Check { name: "glossary", run: glossary::check },
    Check { name: "vocabulary", run: vocabulary::check },
    Check { name: "white space", run: whitespace::check },
    Check { name: "links", run: links::check },
    Check { name: "local paths", run: local_paths::check },
    Check { name: "generated pages", run: docs::stale },
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

/// The violations of a check in files given as paths and texts, as they are printed.
#[cfg(test)]
fn found(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(Violation::to_string).collect()
}
