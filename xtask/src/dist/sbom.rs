//! What the binary is made of, for programs: CycloneDX.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Dist;
use super::dependencies::Crate;
use crate::macos::mlx_release;
use crate::paths;

/// Writes `omnibus.cdx.json`.
pub fn write(dist: &Dist) -> Result<(), String> {
    let lock = super::read(&paths::root().join("Cargo.lock"))?;
    let sums = checksums(&String::from_utf8_lossy(&lock))?;
    let text = document(&dist.crates, &sums, &mlx_release()?, &dist.version);
    let text = serde_json::to_string_pretty(&text).map_err(|error| error.to_string())?;
    dist.write("omnibus.cdx.json", text.as_bytes())
}

fn document(crates: &[Crate], sums: &BTreeMap<(String, String), String>, mlx: &str, version: &str) -> Value {
    let component = |found: &Crate| {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(&found.name, &found.version),
            "name": found.name,
            "version": found.version,
            "licenses": [{"expression": found.licence.replace('/', " OR ")}],
        });
        if found.is_foreign {
            component["purl"] = reference(&found.name, &found.version).into();
        }
        if let Some(sum) = sums.get(&(found.name.clone(), found.version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    };
    let uses = |found: &Crate| {
        let uses: Vec<String> = found.uses.iter().map(|(name, version)| reference(name, version)).collect();
        json!({"ref": reference(&found.name, &found.version), "dependsOn": uses})
    };
    let libmlx = json!({
        "type": "library", "bom-ref": format!("pkg:pypi/mlx-cpu@{mlx}"), "purl": format!("pkg:pypi/mlx-cpu@{mlx}"),
        "name": "mlx-cpu", "version": mlx, "licenses": [{"expression": "MIT"}],
        "scope": "optional", "description": "libmlx, which is loaded when it is needed; others are mlx-cuda-13 and mlx-metal",
    });
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": "omnibus", "name": "omnibus", "version": version,
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }},
        "components": crates.iter().map(component).chain([libmlx]).collect::<Vec<_>>(),
        "dependencies": crates.iter().map(uses).collect::<Vec<_>>(),
    })
}

fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// The checksums of a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let lock: toml::Table = lock.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let packages = lock.get("package").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let sum = |package: &toml::Value| {
        let text = |field| package.get(field).and_then(toml::Value::as_str).map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(sum).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_have_their_checksums_and_what_they_use() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock).unwrap();
        let found = |name: &str, version: &str, uses: &[(&str, &str)]| Crate {
            name: name.into(),
            version: version.into(),
            licence: "MIT/Apache-2.0".into(),
            folder: "/".into(),
            is_foreign: name != "own",
            uses: uses.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect(),
        };
        let crates = [found("a", "1.0.0", &[]), found("own", "0.1.0", &[("a", "1.0.0")])];
        let document = document(&crates, &sums, "0.32.4", "0.1.0");
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.len(), 3);
        assert_eq!(components[0]["hashes"][0]["content"], "00ff");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(components[1].get("purl").is_none());
        assert_eq!(document["dependencies"][1]["dependsOn"][0], "pkg:cargo/a@1.0.0");
    }
}
