//! Which workspace crate may depend on which: one table, and no other edge.

use toml::{Table, Value};

use super::tree::File;
use super::{Tree, Violation};

/// Every crate of the workspace, and the workspace crates it may depend on. docs/architecture.md draws them.
const EDGES: &[(&str, &[&str])] = &[
    ("omnibus-cpu-kernels", &[]),
    ("omnibus-mlx-sys", &["omnibus-cpu-kernels"]),
    ("omnibus-mlx", &["omnibus-cpu-kernels", "omnibus-mlx-sys"]),
    ("omnibus-kv", &[]),
    ("omnibus-kv-events", &[]),
    ("omnibus-kv-peer", &[]),
    ("omnibus-core", &["omnibus-kv"]),
    ("omnibus-draft", &[]),
    ("omnibus-page", &[]),
    ("omnibus-pool", &[]),
    ("omnibus-pooler", &[]),
    ("omnibus-power", &[]),
    ("omnibus-jinja", &[]),
    ("omnibus-picture", &[]),
    ("omnibus-media", &["omnibus-picture"]),
    ("omnibus-text", &["omnibus-jinja"]),
    ("omnibus-grammar", &["omnibus-text"]),
    ("omnibus-model", &["omnibus-mlx", "omnibus-kv"]),
    (
        "omnibus-engine",
        &[
            "omnibus-mlx",
            "omnibus-kv",
            "omnibus-kv-events",
            "omnibus-kv-peer",
            "omnibus-core",
            "omnibus-draft",
            "omnibus-pooler",
            "omnibus-power",
            "omnibus-text",
            "omnibus-grammar",
            "omnibus-media",
            "omnibus-model",
        ],
    ),
    (
        "omnibus-offline",
        &["omnibus-mlx", "omnibus-kv", "omnibus-core", "omnibus-text", "omnibus-model", "omnibus-engine"],
    ),
    ("omnibus-batches", &[]),
    ("omnibus-gguf", &[]),
    (
        "omnibus-server",
        &[
            "omnibus-batches",
            "omnibus-engine",
            "omnibus-kv-peer",
            "omnibus-mcp",
            "omnibus-page",
            "omnibus-pool",
        ],
    ),
    ("omnibus-hub", &[]),
    ("omnibus-mcp", &[]),
    (
        "mlx-omnibus",
        &[
            "omnibus-batches",
            "omnibus-engine",
            "omnibus-offline",
            "omnibus-server",
            "omnibus-gguf",
            "omnibus-hub",
            "omnibus-mcp",
        ],
    ),
    ("omnibus-testing", &[]),
    ("xtask", &[]),
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.files.iter().filter(|file| is_member(&file.path)).flat_map(edges).collect()
}

/// Whether it is the manifest of a crate.
pub fn is_member(path: &str) -> bool {
    path == "xtask/Cargo.toml" || (path.starts_with("crates/") && path.ends_with("/Cargo.toml"))
}

fn edges(manifest: &File) -> Vec<Violation> {
    let say = |message| Violation { path: manifest.path.clone(), line: 0, message };
    let table: Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![say(format!("is not TOML: {error}"))],
    };
    let name = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let name = name.unwrap_or_default();
    let Some((_, allowed)) = EDGES.iter().find(|(row, _)| *row == name) else {
        return vec![say(format!(
            "`{name}` has no row in the table of crate edges (xtask/src/tidy/edges.rs)"
        ))];
    };
    let wrong = |dependency: &String| {
        EDGES.iter().any(|(row, _)| row == dependency) && !allowed.contains(&dependency.as_str())
    };
    let edges = dependencies(&table).into_iter().filter(wrong);
    edges.map(|to| say(format!("`{name}` must not know `{to}` (docs/architecture.md, crates)"))).collect()
}

/// Dependencies and build dependencies of all targets. Tests may depend on any crate.
fn dependencies(table: &Table) -> Vec<String> {
    let targets =
        table.get("target").and_then(Value::as_table).into_iter().flat_map(|targets| targets.values());
    let places = std::iter::once(table).chain(targets.filter_map(Value::as_table));
    let kinds = places.flat_map(|place| [place.get("dependencies"), place.get("build-dependencies")]);
    let named = kinds.flatten().filter_map(Value::as_table).flat_map(Table::iter);
    // `alias = { package = "real" }` is the crate `real`.
    named.map(|(key, value)| value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_manifest(rest: &str, expected: &[&str]) {
        let text = format!("[package]\nname = \"omnibus-core\"\n{rest}");
        assert_eq!(found(check, &[("crates/core/Cargo.toml", &text)]), expected);
    }

    const REFUSED: &str =
        "crates/core/Cargo.toml: `omnibus-core` must not know `omnibus-mlx` (docs/architecture.md, crates)";

    #[test]
    fn an_edge_that_is_not_in_the_table_is_refused() {
        check_manifest("[dependencies]\nserde = \"1\"\n", &[]);
        check_manifest("[dependencies]\nomnibus-mlx = { workspace = true }\n", &[REFUSED]);
        check_manifest("[dependencies]\nomnibus-mlx.workspace = true\n", &[REFUSED]);
        check_manifest(
            "[dependencies]\narrays = { package = \"omnibus-mlx\", path = \"../mlx\" }\n",
            &[REFUSED],
        );
        check_manifest("[target.'cfg(unix)'.dependencies]\nomnibus-mlx.workspace = true\n", &[REFUSED]);
        check_manifest("[dev-dependencies]\nomnibus-mlx.workspace = true\n", &[]);
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        let new = [("crates/new/Cargo.toml", "[package]\nname = \"new\"\n")];
        assert_eq!(
            found(check, &new),
            ["crates/new/Cargo.toml: `new` has no row in the table of crate edges (xtask/src/tidy/edges.rs)"]
        );
    }
}
