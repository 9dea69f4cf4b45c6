//! No file has more than 800 lines.

use super::{Tree, Violation};

const LINES_MAX: usize = 800;

/// Hand-written files.
const WRITTEN: &[&str] = &["rs", "py", "cc", "h", "sh", "md"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let written = tree
        .files
        .iter()
        .filter(|file| file.path.rsplit_once('.').is_some_and(|(_, extension)| WRITTEN.contains(&extension)));
    let mut found = Vec::new();
    for file in written {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            let message = format!("has {lines} lines, over {LINES_MAX}: split it by subject");
            found.push(Violation { path: file.path.clone(), line: 0, message });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_long_file_is_refused() {
        assert_eq!(found(check, &[("a.rs", &"x\n".repeat(800))]), [""; 0]);
        assert_eq!(
            found(check, &[("a.rs", &"x\n".repeat(801))]),
            ["a.rs: has 801 lines, over 800: split it by subject"]
        );
        assert_eq!(found(check, &[("a.json", &"x\n".repeat(801))]), [""; 0]);
    }
}
