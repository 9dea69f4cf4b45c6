//! A comment is understood without the one before it: an editor's hover and a page of rustdoc show it alone.

use super::{Tree, Violation};

/// Languages whose comments begin with `//`.
const WRITTEN: &[&str] = &["rs", "h", "cc"];

/// Longer markers first.
const MARKERS: &[&str] = &["//!", "///", "//"];

/// Beginnings that refer to another comment.
const REFERENCES: &[&str] = &["The same", "Those", "Of those", "Of them"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        if !file.path.rsplit_once('.').is_some_and(|(_, extension)| WRITTEN.contains(&extension)) {
            continue;
        }
        let mut before = None;
        for (index, line) in file.text.lines().enumerate() {
            let comment = comment(line);
            let marker = comment.map(|(marker, _)| marker);
            let text = comment.filter(|_| marker != before).map_or("", |(_, text)| text);
            if let Some(words) = REFERENCES.iter().find(|words| begins_with(text, words)) {
                let message = format!("begins with `{words}`: name the thing, a comment is shown alone");
                found.push(Violation { path: file.path.clone(), line: index + 1, message });
            }
            before = marker;
        }
    }
    found
}

/// The marker and the text of a line that is a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    MARKERS.iter().find_map(|marker| Some((*marker, line.strip_prefix(marker)?.trim_start())))
}

fn begins_with(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_comment_that_refers_to_another_is_refused() {
        for (comment, words) in [
            ("//! The same for tests.", "The same"),
            ("/// Those of them that wait.", "Those"),
            ("// Of those, the first.", "Of those"),
            ("    /// Of them, the last.", "Of them"),
        ] {
            let text = format!("/// Sequences.\nfn a() {{}}\n{comment}\nfn b() {{}}\n");
            assert_eq!(
                found(check, &[("crates/a/src/b.rs", &text)]),
                [format!(
                    "crates/a/src/b.rs:3: begins with `{words}`: name the thing, a comment is shown alone"
                )]
            );
            assert_eq!(found(check, &[("shim/a.h", &text)]).len(), 1);
        }
    }

    #[test]
    fn later_lines_and_other_words_are_accepted() {
        let text = "/// Sequences that wait.\n/// Those that run are elsewhere.\nlet a = 1;\n// Thoseness.\n";
        assert_eq!(found(check, &[("a.rs", text), ("a.md", "// The same")]), [""; 0]);
    }
}
