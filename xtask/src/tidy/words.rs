//! Words that have a home: `unsafe` beside MLX, `async` beside HTTP.

use super::source::{Source, has_word};
use super::{Tree, Violation};

struct Word {
    word: &'static str,
    /// Folders below `crates/`.
    home: &'static [&'static str],
}

const WORDS: &[Word] = &[
    Word { word: "unsafe", home: &["mlx-sys", "mlx"] },
    // The engine's handle gives its events to async callers.
    Word { word: "async", home: &["server", "cli", "engine"] },
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(words).collect()
}

fn words(source: &Source) -> Vec<Violation> {
    let away = |word: &&Word| source.krate().is_none_or(|krate| !word.home.contains(&krate));
    let mut found = Vec::new();
    for Word { word, home } in WORDS.iter().filter(away) {
        let lines = source.code.iter().enumerate().filter(|(_, line)| has_word(line, word));
        found.extend(lines.map(|(index, _)| Violation {
            path: source.path.clone(),
            line: index + 1,
            message: format!("`{word}` belongs in {}", home.join(", ")),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn unsafe_code_away_from_home_is_refused() {
        let text = "fn a() {}\nunsafe fn b() {}\n";
        assert_eq!(
            found(check, &[("crates/core/src/a.rs", text)]),
            ["crates/core/src/a.rs:2: `unsafe` belongs in mlx-sys, mlx"]
        );
        assert_eq!(found(check, &[("crates/core/tests/a.rs", text)]).len(), 1);
        assert_eq!(found(check, &[("crates/mlx/src/a.rs", text)]), [""; 0]);
        let speech = "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert_eq!(found(check, &[("crates/core/src/a.rs", speech)]), [""; 0]);
    }

    #[test]
    fn async_code_away_from_home_is_refused() {
        assert_eq!(found(check, &[("crates/core/src/a.rs", "async fn a() {}\n")]).len(), 1);
        assert_eq!(found(check, &[("crates/server/src/a.rs", "async fn a() {}\n")]), [""; 0]);
    }
}
