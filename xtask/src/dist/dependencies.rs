//! The crates that the binary is made of, by cargo's own list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::process::{cargo, output};

/// The package of the binary.
const BINARY: &str = "mlx-omnibus";

/// A crate in the binary.
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The expression of its licence.
    pub licence: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Whether it comes from the registry.
    pub is_foreign: bool,
    /// The names and versions of the crates that it uses.
    pub uses: BTreeSet<(String, String)>,
}

/// The crates that are linked into the binary, sorted. Those that only a build runs are none.
pub fn crates() -> Result<Vec<Crate>, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = if cfg!(target_os = "macos") { "aarch64-apple-darwin" } else { &target };
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", target];
    let metadata: Value =
        serde_json::from_str(&output(cargo(&arguments))?).map_err(|error| error.to_string())?;
    linked(&metadata).ok_or_else(|| "cargo metadata is not as expected".to_owned())
}

fn linked(metadata: &Value) -> Option<Vec<Crate>> {
    let packages =
        metadata["packages"].as_array()?.iter().map(|package| Some((package["id"].as_str()?, package)));
    let packages: BTreeMap<&str, &Value> = packages.collect::<Option<_>>()?;
    let nodes =
        metadata["resolve"]["nodes"].as_array()?.iter().map(|node| Some((node["id"].as_str()?, node)));
    let nodes: BTreeMap<&str, &Value> = nodes.collect::<Option<_>>()?;
    let (root, _) = packages.iter().find(|(_, package)| package["name"] == BINARY)?;
    let (mut found, mut open) = (BTreeMap::new(), vec![*root]);
    while let Some(id) = open.pop() {
        if found.contains_key(id) {
            continue;
        }
        let used = normal(nodes.get(id)?)?;
        open.extend(&used);
        let named = |id: &&str| {
            let package = packages.get(id)?;
            Some((package["name"].as_str()?.to_owned(), package["version"].as_str()?.to_owned()))
        };
        let package = packages.get(id)?;
        let manifest = PathBuf::from(package["manifest_path"].as_str()?);
        found.insert(
            id,
            Crate {
                name: package["name"].as_str()?.to_owned(),
                version: package["version"].as_str()?.to_owned(),
                licence: package["license"].as_str().unwrap_or("unknown").to_owned(),
                folder: manifest.parent()?.to_owned(),
                is_foreign: !package["source"].is_null(),
                uses: used.iter().map(named).collect::<Option<_>>()?,
            },
        );
    }
    let mut crates: Vec<Crate> = found.into_values().collect();
    crates.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Some(crates)
}

/// The ids of what a package links, without what its build or its tests use.
fn normal(node: &Value) -> Option<Vec<&str>> {
    let is_normal = |dependency: &&Value| {
        dependency["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    node["deps"].as_array()?.iter().filter(is_normal).map(|dependency| dependency["pkg"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_and_tests_use_is_left_out() {
        let dependency =
            |id: &str, kind: Value| serde_json::json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let package = |id: &str, name: &str| {
            serde_json::json!({"id": id, "name": name, "version": "1.0.0", "license": "MIT", "source": "registry",
                "manifest_path": "/x/Cargo.toml"})
        };
        let metadata = serde_json::json!({
            "packages": [package("0", BINARY), package("1", "used"), package("2", "builds"), package("3", "tests")],
            "resolve": {"nodes": [
                {"id": "0", "deps": [
                    dependency("1", Value::Null), dependency("2", "build".into()), dependency("3", "dev".into())
                ]},
                {"id": "1", "deps": []},
            ]},
        });
        let crates = linked(&metadata).unwrap();
        let names: Vec<&str> = crates.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, [BINARY, "used"]);
        assert_eq!(crates[0].uses, BTreeSet::from([("used".to_owned(), "1.0.0".to_owned())]));
        assert!(linked(&Value::Null).is_none());
    }
}
