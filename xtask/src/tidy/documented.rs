//! Public items are documented. For those that another crate can reach, rustc's `missing_docs` checks it and stays on;
//! this rule checks the rest, except methods.

use super::source::Source;
use super::{Tree, Violation};

/// Crates that only bind another library.
const RAW: &[&str] = &["mlx-sys"];

const ITEMS: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "unsafe", "async", "extern"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let ours = |source: &&Source| source.krate().is_some_and(|krate| !RAW.contains(&krate));
    tree.sources.iter().filter(ours).flat_map(undocumented).collect()
}

fn undocumented(source: &Source) -> Vec<Violation> {
    let public = source.work().filter(|(_, line)| is_public_item(line));
    let silent = public.filter(|(number, _)| !has_doc(source, number - 1));
    let switched_off =
        source.work().filter(|(_, line)| line.trim_start().starts_with("#![allow(missing_docs"));
    let switched_off = switched_off.map(|(line, _)| {
        let message = "`missing_docs` stays on".to_owned();
        Violation { path: source.path.clone(), line, message }
    });
    silent
        .map(|(line, code)| {
            let item =
                code.trim().split(['(', '{', '<', '=', ';', ':']).next().unwrap_or_default().trim_end();
            let message = format!("`{item}` needs a `///`: what a reader cannot see");
            Violation { path: source.path.clone(), line, message }
        })
        .chain(switched_off)
        .collect()
}

/// Modules are documented in their files, re-exports where they are defined; methods are indented.
fn is_public_item(line: &str) -> bool {
    let rest = line.strip_prefix("pub ");
    rest.and_then(|rest| rest.split_whitespace().next()).is_some_and(|word| ITEMS.contains(&word))
}

/// Whether a doc comment stands above the item and its attributes.
fn has_doc(source: &Source, index: usize) -> bool {
    let mut open = 0;
    for above in source.text[..index].iter().zip(&source.code[..index]).rev() {
        let (text, code) = (above.0.trim(), above.1.trim());
        if text.starts_with("///") || text.starts_with("#[doc") {
            return true;
        }
        let count = |c: char| code.matches(c).count() as isize;
        open += count(']') - count('[');
        let within_attribute = open > 0 || code.starts_with("#[");
        if !within_attribute && !text.starts_with("//") {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_text(text: &str, expected: &[&str]) {
        assert_eq!(found(check, &[("crates/core/src/a.rs", text)]), expected, "{text}");
    }

    #[test]
    fn a_public_item_without_a_doc_is_refused() {
        check_text(
            "pub fn a<T>() {}",
            &["crates/core/src/a.rs:1: `pub fn a` needs a `///`: what a reader cannot see"],
        );
        check_text(
            "/// B.\nfn b() {}\n\npub struct A;",
            &["crates/core/src/a.rs:4: `pub struct A` needs a `///`: what a reader cannot see"],
        );
    }

    #[test]
    fn a_doc_may_stand_above_attributes() {
        check_text("/// A.\npub fn a() {}", &[]);
        check_text("/// A.\n#[derive(\n    Debug,\n    Clone,\n)]\n#[x]\npub struct A;", &[]);
        check_text("/// A.\n// Why.\n#[x(a[1])]\npub enum A {}", &[]);
    }

    #[test]
    fn others_need_none() {
        check_text("fn a() {}\npub(crate) fn b() {}\npub use c::D;\npub mod e;\n", &[]);
        check_text("impl A {\n    pub fn a() {}\n}", &[]);
        check_text("#[cfg(test)]\nmod tests {\npub fn a() {}\n}", &[]);
    }

    #[test]
    fn the_lint_stays_on() {
        check_text("#![allow(missing_docs)]", &["crates/core/src/a.rs:1: `missing_docs` stays on"]);
    }
}
