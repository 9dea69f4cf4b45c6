//! Names in the first column of docs/glossary.md exist in the code.

use super::source::has_word;
use super::{Tree, Violation};

const GLOSSARY: &str = "docs/glossary.md";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let lines = tree.file(GLOSSARY).into_iter().flat_map(|file| file.text.lines().enumerate());
    let names = lines.flat_map(|(index, line)| names(line).map(move |name| (index + 1, name)));
    let unknown = names.filter(|(_, name)| {
        !tree.sources.iter().any(|source| source.code.iter().any(|line| has_word(line, name)))
    });
    unknown
        .map(|(line, name)| {
            let message = format!("`{name}` is in no code: write what it is called now");
            Violation { path: GLOSSARY.to_owned(), line, message }
        })
        .collect()
}

/// Between backticks, in the first cell of a table's row.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next()).unwrap_or_default();
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_name_that_is_in_no_code_is_refused() {
        let page = "# Glossary\n\n| `A`, `b_c` | `D` |\n| `E` or e | f |\n";
        let code = ("crates/core/src/a.rs", "struct A;\nfn b_c() {}\n// E\n");
        assert_eq!(
            found(check, &[(GLOSSARY, page), code]),
            ["docs/glossary.md:4: `E` is in no code: write what it is called now"]
        );
        assert_eq!(found(check, &[("docs/other.md", page), code]), [""; 0]);
    }
}
