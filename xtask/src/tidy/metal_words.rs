//! Words of Metal's language in the Metal dialect are listed in docs/metal.md, with their sections of the specification.

use super::{Tree, Violation};

const DIALECT: &str = "crates/mlx/src/gpu/dialect/metal.h";
const PAGE: &str = "docs/metal.md";

/// C++ and the preprocessor.
const CPP: &[&str] = &[
    "const",
    "define",
    "endif",
    "float",
    "ifndef",
    "int",
    "of",
    "return",
    "static",
    "static_cast",
    "struct",
    "template",
    "typedef",
    "typename",
];

/// Names of parameters.
const PARAMETERS: &[&str] = &["T", "bits", "lane", "mask", "n", "name", "p", "x", "y", "z"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let (Some(dialect), Some(page)) = (tree.file(DIALECT), tree.file(PAGE)) else { return Vec::new() };
    let listed: Vec<&str> =
        page.text.lines().filter(|line| line.starts_with("| ")).flat_map(quoted).collect();
    let mut found = Vec::new();
    for (index, line) in dialect.text.lines().enumerate() {
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        for word in words(code).filter(|word| !is_known(word) && !listed.contains(word)) {
            let message = format!("`{word}` is not in a table of {PAGE}: add it with its section");
            found.push(Violation { path: DIALECT.to_owned(), line: index + 1, message });
        }
    }
    found
}

/// Words between backticks, each of a longer text.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).flat_map(words)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Not Metal's. `GK_METAL` says which dialect it is; functions of ours end in the words that they use.
fn is_known(word: &str) -> bool {
    CPP.contains(&word) || PARAMETERS.contains(&word) || word == "GK_METAL" || word.starts_with("gk_")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_word_that_the_page_does_not_list_is_refused() {
        let dialect = "// atomic\n#define GK_DEV device\n#define GK_ADD(p, x) atomic_add(p, x)\n";
        let page = "`atomic_add`\n\n| `device` | `GK_DEV`, `GK_ADD` |\n";
        assert_eq!(
            found(check, &[(DIALECT, dialect), (PAGE, page)]),
            [format!(
                "{DIALECT}:3: `atomic_add` is not in a table of docs/metal.md: add it with its section"
            )]
        );
        let listed = format!("{page}| `metal::atomic_add(p)` |\n");
        assert_eq!(found(check, &[(DIALECT, dialect), (PAGE, &listed)]), [""; 0]);
    }
}
