//! No file of a crate imports itself through others, and no folder does: a module with the modules inside it counts as one
//! beside its siblings. A module and the modules inside it may use each other.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Modules;
use super::{Tree, Violation};

/// Names that a file takes from others of its crate, by the index of both.
type Edges = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// Crates in which folders may import each other: in `model` the specification of a mixer, which blueprints name, stands
/// beside its forward pass, which calls operations.
const FOLDERS_EXEMPT: &[&str] = &["model"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let crates: BTreeSet<&str> = tree.sources.iter().filter_map(|source| source.krate()).collect();
    crates.into_iter().flat_map(|krate| cycles_of(tree, krate)).collect()
}

fn cycles_of(tree: &Tree, krate: &str) -> Vec<Violation> {
    let modules = Modules::read(tree, krate);
    let edges = edges(&modules);
    let cycles = components(modules.len(), &edges).into_iter().filter(|files| files.len() > 1);
    let of_files = cycles.map(|files| violation(&modules, &edges, &files));
    let of_folders =
        if FOLDERS_EXEMPT.contains(&krate) { Vec::new() } else { folder_cycles(&modules, &edges) };
    of_files.chain(of_folders).collect()
}

/// Cycles between siblings that are not cycles of files.
fn folder_cycles(modules: &Modules, edges: &Edges) -> Vec<Violation> {
    let parents: BTreeSet<&[String]> =
        (0..modules.len()).filter_map(|module| modules.path(module).split_last()).map(|(_, p)| p).collect();
    parents.into_iter().flat_map(|parent| sibling_cycles(modules, edges, parent)).collect()
}

fn sibling_cycles(modules: &Modules, edges: &Edges, parent: &[String]) -> Vec<Violation> {
    let sibling = |module: usize| modules.path(module).strip_prefix(parent)?.first();
    let names: BTreeSet<&String> = (0..modules.len()).filter_map(sibling).collect();
    let names: Vec<&String> = names.into_iter().collect();
    let number = |module: usize| names.binary_search(&sibling(module)?).ok();
    let mut between = Edges::new();
    for (from, to, taken) in flat(edges) {
        let (Some(a), Some(b)) = (number(from), number(to)) else { continue };
        if a != b {
            between.entry(a).or_default().entry(b).or_default().insert(taken.clone());
        }
    }
    let cycles = components(names.len(), &between).into_iter().filter(|siblings| siblings.len() > 1);
    // Cycles of single files are cycles of files.
    let of_folders = |siblings: Vec<usize>| {
        let members: Vec<usize> = (0..modules.len())
            .filter(|module| number(*module).is_some_and(|n| siblings.contains(&n)))
            .collect();
        (members.len() > siblings.len()).then(|| folder_violation(modules, edges, &members, &number))
    };
    cycles.filter_map(of_folders).collect()
}

/// Each import as importer, imported and name.
fn flat(edges: &Edges) -> impl Iterator<Item = (usize, usize, &String)> {
    edges.iter().flat_map(|(from, targets)| {
        targets.iter().flat_map(move |(to, names)| names.iter().map(move |name| (*from, *to, name)))
    })
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

/// Names the imports between the siblings that `members` belong to.
fn folder_violation(
    modules: &Modules,
    edges: &Edges,
    members: &[usize],
    sibling: &impl Fn(usize) -> Option<usize>,
) -> Violation {
    let siblings: BTreeSet<usize> = members.iter().filter_map(|module| sibling(*module)).collect();
    let mut message = format!("{} folders import each other in a cycle", siblings.len());
    for (from, to, name) in flat(edges) {
        let crossing = sibling(from) != sibling(to) && members.contains(&from) && members.contains(&to);
        if crossing {
            let (from, to) = (modules.path(from).join("::"), modules.path(to).join("::"));
            message += &format!("\n    {from} takes {name} from {to}");
        }
    }
    Violation { path: modules.file(members[0]).to_owned(), line: 0, message }
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
    fn folders_that_import_each_other_are_refused() {
        let down = ("a/x.rs", "use crate::b::y::Y;\n");
        let up = ("b/z.rs", "use crate::a::w::W;\n");
        check_files(
            &[down, up, ("a/w.rs", "struct W;\n"), ("b/y.rs", "struct Y;\n"), ("a.rs", ""), ("b.rs", "")],
            &["crates/core/src/a/x.rs: 2 folders import each other in a cycle\
               \n    a::x takes Y from b::y\n    b::z takes W from a::w"],
        );
        check_files(&[down, ("a/w.rs", "struct W;\n"), ("b/y.rs", "struct Y;\n")], &[]);
        let nested = |path: &str| format!("crates/model/src/{path}");
        let (x, y) = (nested("a/x.rs"), nested("b/z.rs"));
        assert_eq!(found(check, &[(&x, down.1), (&y, up.1)]), Vec::<String>::new(), "an exempt crate");
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
