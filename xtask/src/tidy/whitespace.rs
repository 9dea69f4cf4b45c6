//! No trailing white space, and one line break at the end of a file. Rust string literals are exempt.

use super::{Tree, Violation};

/// Hand-written files. Captured text, such as fixtures, is exempt.
const WRITTEN: &[&str] = &["rs", "py", "cc", "h", "sh", "md", "toml", "svg"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let written = tree.files.iter().filter(|file| {
        file.path == ".ci/run"
            || file.path.rsplit_once('.').is_some_and(|(_, extension)| WRITTEN.contains(&extension))
    });
    let mut found = Vec::new();
    for file in written {
        let say =
            |line, message: &str| Violation { path: file.path.clone(), line, message: message.to_owned() };
        let lines: Vec<&str> = match tree.sources.iter().find(|source| source.path == file.path) {
            Some(source) => source.text.iter().zip(&source.code).map(outside_strings).collect(),
            None => file.text.split('\n').collect(),
        };
        let trailing = lines.iter().enumerate().filter(|(_, line)| line.ends_with([' ', '\t', '\r']));
        found.extend(trailing.map(|(index, _)| say(index + 1, "ends with white space")));
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            found.push(say(0, "must end with one line break"));
        }
    }
    found
}

/// The line, or its covered form where it ends inside a string.
fn outside_strings<'a>((text, code): (&'a String, &'a String)) -> &'a str {
    if code.ends_with('_') { code } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn trailing_white_space_is_refused() {
        assert_eq!(found(check, &[("a.rs", "a\n\nb\n"), ("b.json", "a ")]), [""; 0]);
        assert_eq!(
            found(check, &[("a.rs", "a \nb\t\n")]),
            ["a.rs:1: ends with white space", "a.rs:2: ends with white space"]
        );
        assert_eq!(found(check, &[("a.rs", "a(\"b \nc\");\n")]), [""; 0]);
        for end in ["a", "a\n\n"] {
            assert_eq!(found(check, &[("a.md", end)]), ["a.md: must end with one line break"]);
        }
    }
}
