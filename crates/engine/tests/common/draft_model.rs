//! A draft model for the embedded one: its first layers alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// A directory with the first layers of the embedded model, with its embedding, its last norm and its tokenizer. It is removed
/// when this goes.
pub struct FirstLayers(PathBuf);

impl FirstLayers {
    pub fn new(name: &str, layers: usize) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
        let to = std::env::temp_dir().join(format!("omnibus-{name}-{}", std::process::id()));
        fs::create_dir_all(&to).unwrap();
        for file in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
        let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
        config["num_hidden_layers"] = layers.into();
        fs::write(to.join("config.json"), config.to_string()).unwrap();
        let kept = |tensor: &str| match tensor.strip_prefix("model.layers.") {
            Some(rest) => rest.split('.').next().unwrap().parse::<usize>().unwrap() < layers,
            None => true,
        };
        let weights = fs::read(from.join("model.safetensors")).unwrap();
        fs::write(to.join("model.safetensors"), filtered(&weights, kept)).unwrap();
        Self(to)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FirstLayers {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A safetensors file with some of another one's tensors.
fn filtered(file: &[u8], kept: impl Fn(&str) -> bool) -> Vec<u8> {
    let (length, rest) = file.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
    let (header, data) = rest.split_at(length);
    let header: BTreeMap<String, Map<String, Value>> = serde_json::from_slice(header).unwrap();
    let (mut tensors, mut bytes) = (Map::new(), Vec::new());
    for (name, mut tensor) in header.into_iter().filter(|(name, _)| kept(name)) {
        if let Some(range) = tensor.get("data_offsets") {
            let [start, end]: [usize; 2] = serde_json::from_value(range.clone()).unwrap();
            tensor.insert(
                "data_offsets".to_owned(),
                serde_json::json!([bytes.len(), bytes.len() + end - start]),
            );
            bytes.extend_from_slice(&data[start..end]);
        }
        tensors.insert(name, tensor.into());
    }
    let header = Value::Object(tensors).to_string().into_bytes();
    [(header.len() as u64).to_le_bytes().to_vec(), header, bytes].concat()
}
