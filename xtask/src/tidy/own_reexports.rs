//! Inside a crate, names are imported from the module that defines them: what `lib.rs` re-exports is for other crates.

use std::collections::BTreeSet;

use super::imports::Modules;
use super::{Tree, Violation};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let crates: BTreeSet<&str> = tree.sources.iter().filter_map(|source| source.krate()).collect();
    crates.into_iter().flat_map(|krate| of_crate(tree, krate)).collect()
}

fn of_crate(tree: &Tree, krate: &str) -> Vec<Violation> {
    let modules = Modules::read(tree, krate);
    let violation = |(file, name, from): (usize, String, usize)| {
        let from = modules.path(from).join("::");
        let message = format!("`crate::{name}` is a re-export of lib.rs: import it from `{from}`");
        Violation { path: modules.file(file).to_owned(), line: 0, message }
    };
    modules.through_root().into_iter().map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn names_through_the_root_are_refused() {
        let lib = ("crates/core/src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use other::O;\nfn f() {}\n");
        let a = ("crates/core/src/a.rs", "struct A;\n");
        let refused = |text| found(check, &[lib, a, ("crates/core/src/b.rs", text)]);
        let message = "crates/core/src/b.rs: `crate::A` is a re-export of lib.rs: import it from `a`";
        assert_eq!(refused("use crate::A;\n"), [message]);
        assert_eq!(refused("use crate::{a, A};\n"), [message]);
        assert_eq!(refused("fn g() -> crate::A {}\n"), [message]);
        assert_eq!(refused("use crate::a::A;\nuse crate::O;\nuse crate::f;\n"), Vec::<String>::new());
    }
}
