//! Keywords that only some crates may use: `unsafe` beside MLX, `async` beside HTTP.

use super::source::{Source, has_word};
use super::{Tree, Violation};

struct Keyword {
    word: &'static str,
    /// Folders below `crates/`.
    crates: &'static [&'static str],
}

const KEYWORDS: &[Keyword] = &[
    Keyword { word: "unsafe", crates: &["cpu-kernels", "mlx-sys", "mlx"] },
    // The engine's handle returns events to async callers.
    Keyword {
        word: "async",
        crates: &["server", "cli", "engine", "hub", "kv-events", "kv-peer", "mcp", "pool"],
    },
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(keywords).collect()
}

fn keywords(source: &Source) -> Vec<Violation> {
    let refused = |row: &&Keyword| source.krate().is_none_or(|krate| !row.crates.contains(&krate));
    let mut found = Vec::new();
    for Keyword { word, crates } in KEYWORDS.iter().filter(refused) {
        let lines = source.code.iter().enumerate().filter(|(_, line)| has_word(line, word));
        found.extend(lines.map(|(index, _)| Violation {
            path: source.path.clone(),
            line: index + 1,
            message: format!("`{word}` belongs in {}", crates.join(", ")),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn unsafe_code_in_other_crates_is_refused() {
        let text = "fn a() {}\nunsafe fn b() {}\n";
        assert_eq!(
            found(check, &[("crates/core/src/a.rs", text)]),
            ["crates/core/src/a.rs:2: `unsafe` belongs in cpu-kernels, mlx-sys, mlx"]
        );
        assert_eq!(found(check, &[("crates/core/tests/a.rs", text)]).len(), 1);
        assert_eq!(found(check, &[("crates/mlx/src/a.rs", text)]), [""; 0]);
        let mentions = "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert_eq!(found(check, &[("crates/core/src/a.rs", mentions)]), [""; 0]);
    }

    #[test]
    fn async_code_in_other_crates_is_refused() {
        assert_eq!(found(check, &[("crates/core/src/a.rs", "async fn a() {}\n")]).len(), 1);
        assert_eq!(found(check, &[("crates/server/src/a.rs", "async fn a() {}\n")]), [""; 0]);
    }
}
