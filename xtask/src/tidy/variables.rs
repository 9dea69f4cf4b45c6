//! Environment variables of ours and of libmlx that the sources name are on docs/environment.md, or beside a flag of docs/cli.md.

use super::{Tree, Violation};

const PAGE: &str = "docs/environment.md";
const FLAGS: &str = "docs/cli.md";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let (Some(page), Some(flags)) = (tree.file(PAGE), tree.file(FLAGS)) else { return Vec::new() };
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        for (index, line) in source.text.iter().enumerate() {
            let unlisted = variables(line).filter(|name| {
                let quoted = format!("`{name}`");
                !page.text.contains(&quoted) && !flags.text.contains(&quoted)
            });
            found.extend(unlisted.map(|name| {
                let message = format!("`{name}` is not in {PAGE}: add what it does");
                Violation { path: source.path.clone(), line: index + 1, message }
            }));
        }
    }
    found
}

/// String literals that are a variable's whole name.
fn variables(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2).filter(|text| {
        let rest = text.strip_prefix("OMNIBUS_").or_else(|| text.strip_prefix("MLX_"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_of_a_name))
    })
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_variable_that_no_page_lists_is_refused() {
        let text = "variable(\"MLX_A\");\nvariable(\"OMNIBUS_B\");\n(\"OMNIBUS_C\", \"MLX_ is\")\n";
        let pages = [("crates/a/src/b.rs", text), (PAGE, "| `MLX_A` |"), (FLAGS, "`OMNIBUS_C`")];
        assert_eq!(
            found(check, &pages),
            ["crates/a/src/b.rs:2: `OMNIBUS_B` is not in docs/environment.md: add what it does"]
        );
    }
}
