//! No file of a crate imports itself through others. A module and the modules inside it may use each other.

mod imports;

use std::collections::{BTreeMap, BTreeSet};

use super::{Tree, Violation};
use imports::Modules;

/// Names that a file takes from others of its crate, by the index of both.
type Edges = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

pub fn check(tree: &Tree) -> Vec<Violation> {
    let crates: BTreeSet<&str> = tree.sources.iter().filter_map(|source| source.krate()).collect();
    crates.into_iter().flat_map(|krate| cycles_of(tree, krate)).collect()
}

fn cycles_of(tree: &Tree, krate: &str) -> Vec<Violation> {
    let modules = Modules::read(tree, krate);
    let edges = edges(&modules);
    let cycles = components(modules.len(), &edges).into_iter().filter(|files| files.len() > 1);
    cycles.map(|files| violation(&modules, &edges, &files)).collect()
}

/// Without those between a module and the modules inside it.
fn edges(modules: &Modules) -> Edges {
    let mut edges = Edges::new();
    for (from, to, name) in modules.imports() {
        let (a, b) = (modules.path(from), modules.path(to));
        if !a.starts_with(b) && !b.starts_with(a) {
            edges.entry(from).or_default().entry(to).or_default().insert(name);
        }
    }
    edges
}

/// Groups of files that reach each other, each in order.
fn components(count: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..count).map(|file| reachable(file, edges)).collect();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for file in 0..count {
        let belongs = |group: &&mut Vec<usize>| {
            group
                .first()
                .is_some_and(|first| reached[file].contains(first) && reached[*first].contains(&file))
        };
        match groups.iter_mut().find(belongs) {
            Some(group) => group.push(file),
            None => groups.push(vec![file]),
        }
    }
    groups
}

fn reachable(file: usize, edges: &Edges) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(next) = open.pop() {
        let targets = edges.get(&next).into_iter().flat_map(BTreeMap::keys).copied();
        open.extend(targets.filter(|target| found.insert(*target)));
    }
    found
}

fn violation(modules: &Modules, edges: &Edges, files: &[usize]) -> Violation {
    let mut message = format!("{} files import each other in a cycle", files.len());
    for from in files {
        for (to, names) in edges.get(from).into_iter().flatten().filter(|(to, _)| files.contains(to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (from, to) = (modules.path(*from).join("::"), modules.path(*to).join("::"));
            message += &format!("\n    {from} takes {} from {to}", names.join(", "));
        }
    }
    Violation { path: modules.file(files[0]).to_owned(), line: 0, message }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_files(files: &[(&str, &str)], expected: &[&str]) {
        let all: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/core/src/{path}"), *text)).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        assert_eq!(found(check, &all), expected, "{files:?}");
    }

    const REFUSED: &str = "crates/core/src/a.rs: 2 files import each other in a cycle\
        \n    a takes B from b\n    b takes A from a";

    #[test]
    fn files_that_import_each_other_are_refused() {
        check_files(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::a::{A};\n")], &[REFUSED]);
        check_files(&[("a.rs", "use super::b::B;\n"), ("b.rs", "fn f() { crate::a::A }\n")], &[REFUSED]);
        check_files(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::c::C;\n")], &[]);
        check_files(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "// crate::a::A\n")], &[]);
        check_files(
            &[("a.rs", "use crate::b::B;\n"), ("b.rs", "#[cfg(test)]\nmod t { use crate::a::A; }\n")],
            &[],
        );
    }

    #[test]
    fn names_are_followed_through_reexports() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B as C;\n");
        check_files(
            &[lib, ("a.rs", "use crate::C;\n"), ("b.rs", "use crate::A;\n")],
            &[
                "crates/core/src/a.rs: 2 files import each other in a cycle\n    a takes C from b\n    b takes A from a",
            ],
        );
        let glob = ("lib.rs", "mod a;\nmod b;\npub use a::*;\npub use b::*;\n");
        let (a, b) = ("use crate::B;\npub struct A;\n", "use crate::A;\npub struct B;\n");
        check_files(&[glob, ("a.rs", a), ("b.rs", b)], &[REFUSED]);
    }

    #[test]
    fn a_module_and_its_children_may_use_each_other() {
        check_files(&[("a.rs", "mod b;\nuse b::B;\n"), ("a/b.rs", "use super::A;\n")], &[]);
        check_files(&[("lib.rs", "mod a;\nuse a::A;\n"), ("a.rs", "use crate::L;\n")], &[]);
    }
}
