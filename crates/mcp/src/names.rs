//! The names by which a model knows tools: the server's, two underscores, and the tool's own.
//!
//! Invariant: a name matches `^[A-Za-z0-9_-]{1,64}$`, which all APIs accept, and different tools have different names.

use sha2::{Digest, Sha256};

/// Most bytes of a name.
const LENGTH_MAX: usize = 64;
/// Hexadecimal digits that make a name that was changed unique.
const DIGITS: usize = 8;

/// The name of a server's tool.
pub fn offered(server: &str, tool: &str) -> String {
    let whole = format!("{server}__{tool}");
    let plain: String = whole.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    // `a__b` of the server `c` would else be `b` of `c__a`.
    let is_ambiguous = server.contains("__") || server.ends_with('_') || tool.starts_with('_');
    if plain == whole && plain.len() <= LENGTH_MAX && !is_ambiguous {
        return plain;
    }
    let digest = Sha256::digest([server, "\0", tool].concat());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let start: String = plain.chars().take(LENGTH_MAX - DIGITS - 1).collect();
    format!("{start}_{}", hex.get(..DIGITS).unwrap_or_default())
}

fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "_-".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_all_apis_accept_and_differ() {
        assert_eq!(offered("files", "read_file"), "files__read_file");
        let long = offered("files", &"x".repeat(90));
        assert_eq!(long.len(), LENGTH_MAX);
        assert_ne!(long, offered("files", &"x".repeat(91)));
        assert_ne!(offered("files", "a.b"), offered("files", "a_b"));
        assert_ne!(offered("a", "b__c"), offered("a__b", "c"));
        assert_ne!(offered("a_", "b"), offered("a", "_b"));
        for name in [long, offered("über", "größe ☃"), offered("", "")] {
            assert!(name.chars().all(is_plain) && (1..=LENGTH_MAX).contains(&name.len()), "{name}");
        }
    }
}
