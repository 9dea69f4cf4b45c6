//! `cargo xtask docs [--check]`: generated pages.
//!
//! A page is generated from source, or by a test of the crate that has the tables.

mod api;

use std::path::Path;

use crate::process::{cargo, run as finish};
use crate::tidy::{Tree, Violation};
use crate::{clippy, paths};

/// One generated page.
struct Page {
    path: &'static str,
    maker: Maker,
}

enum Maker {
    /// Needs no build.
    Source(fn(&Tree) -> Result<String, String>),
    /// A test of this name compares the page, or writes it when `UPDATE_EXPECT` is set.
    Test(&'static str),
}

const PAGES: &[Page] = &[
    Page { path: "docs/api.md", maker: Maker::Source(api::page) },
    Page { path: "docs/api-messages.md", maker: Maker::Source(api::messages_page) },
    Page { path: "docs/api-responses.md", maker: Maker::Source(api::responses_page) },
    Page { path: "docs/api-pooling.md", maker: Maker::Source(api::pooling_page) },
    Page { path: "docs/api-ollama.md", maker: Maker::Source(api::ollama_page) },
    Page { path: "docs/models.md", maker: Maker::Test("docs_of_the_architectures_are_current") },
    Page { path: "docs/cli.md", maker: Maker::Test("docs_of_the_command_line_are_current") },
    Page { path: "docs/metal.md", maker: Maker::Test("docs_of_the_macs_are_current") },
    Page { path: "docs/metrics.md", maker: Maker::Test("docs_of_the_metrics_are_current") },
];

/// Writes every page, or with `--check` compares the pages that no test compares.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => PAGES.iter().try_for_each(write),
        ["--check"] => compare(),
        _ => Err(format!("takes --check or nothing, not `{}`", words.join(" "))),
    }
}

/// Pages generated from source that are stale.
pub fn stale(tree: &Tree) -> Vec<Violation> {
    let pages = PAGES.iter().filter_map(|page| match page.maker {
        Maker::Source(make) => Some((page.path, make(tree))),
        Maker::Test(..) => None,
    });
    let wrong = pages.filter_map(|(path, made)| {
        let message = match made {
            Err(why) => why,
            Ok(text) if tree.file(path).is_some_and(|file| file.text == text) => return None,
            Ok(_) => "is stale: `cargo xtask docs` writes it".to_owned(),
        };
        Some(Violation { path: path.to_owned(), line: 0, message })
    });
    wrong.collect()
}

fn compare() -> Result<(), String> {
    let mut stale = Vec::new();
    for page in PAGES {
        let made = match page.maker {
            Maker::Source(make) => make(&Tree::read()?)?,
            Maker::Test(..) => continue,
        };
        if std::fs::read_to_string(paths::root().join(page.path)).ok() != Some(made) {
            stale.push(page.path);
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(format!("stale: {}; `cargo xtask docs` writes them", stale.join(", ")))
    }
}

fn write(page: &Page) -> Result<(), String> {
    let text = match page.maker {
        Maker::Source(make) => make(&Tree::read()?)?,
        Maker::Test(test) => {
            // A package alone would be built with other features of what it depends on.
            let mut command = cargo(&["test", "--quiet", "--workspace", test]);
            command.env("UPDATE_EXPECT", "1");
            clippy::lint_tests(&mut command)?;
            return finish(command);
        }
    };
    let path: &Path = page.path.as_ref();
    std::fs::write(paths::root().join(path), text)
        .map_err(|error| format!("cannot write {}: {error}", page.path))
}
