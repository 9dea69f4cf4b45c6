//! Static embeddings among a model's files: where their table is, and its sizes, which configs leave out.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};

use super::header::{check_header, problem};
use crate::weights::LoadError;

/// The table's names.
const NAMES: [&str; 2] = ["embedding.weight", "embeddings"];

/// The folder of a static table, of a model whose first module it is.
pub(super) fn folder(directory: &Path) -> Option<PathBuf> {
    let modules = std::fs::read(directory.join("modules.json")).ok()?;
    let modules: Value = serde_json::from_slice(&modules).ok()?;
    let first = modules.as_array()?.first()?;
    let kind = first.get("type").and_then(Value::as_str)?;
    let path = Path::new(first.get("path").and_then(Value::as_str)?);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let is_static = kind.rsplit('.').next() == Some("StaticEmbedding");
    (is_static && is_inside).then(|| directory.join(path))
}

/// A config without the sizes of its table, with them.
pub(super) fn with_sizes(
    mut config: Map<String, Value>,
    file: &Path,
) -> Result<Map<String, Value>, LoadError> {
    let [vocab, hidden] = sizes(file)?;
    config.entry("model_type").or_insert_with(|| json!("static_embedding"));
    config.entry("vocab_size").or_insert_with(|| json!(vocab));
    config.entry("hidden_size").or_insert_with(|| json!(hidden));
    Ok(config)
}

/// The rows of a table, and numbers of a row.
fn sizes(path: &Path) -> Result<[usize; 2], LoadError> {
    check_header(path)?;
    let failed = |error: std::io::Error| problem(path, error.to_string());
    let mut file = File::open(path).map_err(failed)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(failed)?;
    let mut header = Vec::new();
    file.take(u64::from_le_bytes(length)).read_to_end(&mut header).map_err(failed)?;
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| problem(path, error.to_string()))?;
    let table = NAMES.iter().find_map(|name| header.info(name));
    match table.map(|table| table.shape.as_slice()) {
        Some([vocab, hidden]) => Ok([*vocab, *hidden]),
        _ => Err(problem(path, format!("has no table of vectors, `{}`", NAMES.join("` or `")))),
    }
}
