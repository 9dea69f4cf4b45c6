//! No hand-written file has more than 800 lines, no Rust file more than 600, and no Rust function more than 70. A page that is
//! generated from a table is as long as the table.
//! Functions of tests are exempt: tables of cases may be long.

use super::source::Source;
use super::{Tree, Violation};

const LINES_MAX: usize = 800;
const RUST_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// What a generated page says of itself in its first lines.
const GENERATED: &str = "<!-- Generated from ";
/// The lines in which it says that.
const HEAD_LINES: usize = 3;

/// Hand-written files.
const WRITTEN: &[&str] = &["rs", "py", "cc", "h", "sh", "md"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = tree.sources.iter().flat_map(functions).collect();
    for file in &tree.files {
        let extension = file.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        let most = if extension == "rs" { RUST_LINES_MAX } else { LINES_MAX };
        let lines = file.text.lines().count();
        let is_generated = file.text.lines().take(HEAD_LINES).any(|line| line.starts_with(GENERATED));
        if WRITTEN.contains(&extension) && !is_generated && lines > most {
            let message = format!("has {lines} lines, over {most}: split it by subject");
            found.push(Violation { path: file.path.clone(), line: 0, message });
        }
    }
    found
}

/// Functions that are too long, from the line of `fn` to the line of the last brace.
fn functions(source: &Source) -> Vec<Violation> {
    let code: Vec<char> = source.code.join("\n").chars().collect();
    let mut found = Vec::new();
    for (index, line) in source.code.iter().enumerate().filter(|(index, _)| !source.is_test(*index)) {
        let Some(name) = function(line) else { continue };
        let begin: usize = source.code[..index].iter().map(|line| line.chars().count() + 1).sum();
        let lines =
            code[begin..super::source::item_end(&code, begin)].iter().filter(|c| **c == '\n').count() + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("`{name}` has {lines} lines, over {FUNCTION_LINES_MAX}: name its parts");
            found.push(Violation { path: source.path.clone(), line: index + 1, message });
        }
    }
    found
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_item = before.split_whitespace().all(|word| {
        matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"_\"") || word.starts_with("pub(")
    });
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    (is_item && end > 0).then(|| &after[..end])
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_long_file_is_refused() {
        assert_eq!(found(check, &[("a.rs", &"x\n".repeat(600)), ("a.md", &"x\n".repeat(800))]), [""; 0]);
        assert_eq!(
            found(check, &[("a.rs", &"x\n".repeat(601)), ("b.md", &"x\n".repeat(801))]),
            [
                "a.rs: has 601 lines, over 600: split it by subject",
                "b.md: has 801 lines, over 800: split it by subject"
            ]
        );
        assert_eq!(found(check, &[("a.json", &"x\n".repeat(801))]), [""; 0]);
        let generated =
            |before: &str| format!("{before}<!-- Generated from a table. -->\n{}", "x\n".repeat(800));
        assert_eq!(found(check, &[("c.md", &generated("# C\n\n"))]), [""; 0]);
        assert_eq!(found(check, &[("c.md", &generated("# C\n\nx\n"))]).len(), 1);
    }

    #[test]
    fn a_long_function_is_refused() {
        let of = |lines: usize| {
            format!("mod m;\n    pub fn f(x: [u8; 2]) {{\n{}    }}\n", "x;\n".repeat(lines - 2))
        };
        assert_eq!(found(check, &[("a.rs", &of(70))]), [""; 0]);
        assert_eq!(found(check, &[("a.rs", &of(71))]), ["a.rs:2: `f` has 71 lines, over 70: name its parts"]);
        assert_eq!(found(check, &[("tests/a.rs", &of(71))]), [""; 0]);
        let declared = format!("trait A {{\n    fn f();\n{}}}\n", "// x\n".repeat(80));
        assert_eq!(found(check, &[("a.rs", &declared)]), [""; 0]);
    }
}
