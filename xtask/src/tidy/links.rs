//! Links between pages have targets.

use super::{Tree, Violation};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in page.text.lines().enumerate() {
            for target in targets(line).filter(|target| !exists(tree, &page.path, target)) {
                let message = format!("links to `{target}`, which does not exist");
                found.push(Violation { path: page.path.clone(), line: index + 1, message });
            }
        }
    }
    found
}

/// Targets of `](…)`, without URLs.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

fn exists(tree: &Tree, page: &str, target: &str) -> bool {
    let mut folders: Vec<&str> = page.split('/').collect();
    folders.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." if folders.pop().is_none() => return false,
            ".." | "." => {}
            part => folders.push(part),
        }
    }
    let path = folders.join("/");
    let folder = format!("{path}/");
    tree.paths.iter().any(|file| *file == path || file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_link_without_a_target_is_refused() {
        let links = "[a](b.md#c) [d](../crates/e) [f](https://g.org/h) [i](#j)\n![k](l.svg)";
        assert_eq!(
            found(check, &[("docs/a.md", links), ("docs/b.md", ""), ("crates/e/f.rs", "")]),
            ["docs/a.md:2: links to `l.svg`, which does not exist"]
        );
        assert_eq!(found(check, &[("a.md", "[b](../b.md)"), ("b.md", "")]).len(), 1);
    }
}
