//! Words of Metal's language in the Metal dialect are listed in docs/metal.md, with their sections of the specification.

use super::{Tree, Violation};

const DIALECTS: [&str; 2] =
    ["crates/mlx/src/gpu/dialect/metal.h", "crates/mlx/src/gpu/dialect/metal_matrix.h"];
const PAGE: &str = "docs/metal.md";

/// C++ and the preprocessor.
const CPP: &[&str] = &[
    "const",
    "define",
    "endif",
    "float",
    "for",
    "ifndef",
    "include",
    "int",
    "of",
    "return",
    "static",
    "static_cast",
    "struct",
    "template",
    "typedef",
    "typename",
    "void",
];

/// Names of parameters and variables.
const NAMES: &[&str] = &[
    "T", "V", "a", "b", "bits", "c", "h", "i", "lane", "left", "mask", "n", "name", "p", "pitch", "right",
    "sum", "v", "x", "y", "z",
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let listed: Vec<&str> =
        page.text.lines().filter(|line| line.starts_with("| ")).flat_map(quoted).collect();
    let mut found = Vec::new();
    for dialect in DIALECTS.into_iter().filter_map(|path| tree.file(path)) {
        for (index, line) in dialect.text.lines().enumerate() {
            let code = line.split_once("//").map_or(line, |(code, _)| code);
            for word in words(code).filter(|word| !is_known(word) && !listed.contains(word)) {
                let message = format!("`{word}` is not in a table of {PAGE}: add it with its section");
                found.push(Violation { path: dialect.path.to_owned(), line: index + 1, message });
            }
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

/// Not Metal's. `GK_METAL` says which dialect it is, `GK_EMU` that it is emulated; functions of ours end in the words that they use.
fn is_known(word: &str) -> bool {
    CPP.contains(&word)
        || NAMES.contains(&word)
        || matches!(word, "GK_EMU" | "GK_METAL")
        || word.starts_with("gk_")
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
            found(check, &[(DIALECTS[0], dialect), (PAGE, page)]),
            [format!(
                "{}:3: `atomic_add` is not in a table of docs/metal.md: add it with its section",
                DIALECTS[0]
            )]
        );
        let listed = format!("{page}| `metal::atomic_add(p)` |\n");
        assert_eq!(found(check, &[(DIALECTS[0], dialect), (PAGE, &listed)]), [""; 0]);
    }
}
