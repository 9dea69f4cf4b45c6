//! Where a model's files come from: a directory, bytes compiled into the binary, or random numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype};
use safetensors::SafeTensors;
use serde_json::{Map, Value};

use super::RandomWeights;
use super::adapter::{self, Adapter};
use super::header::{check_header, problem};
use super::json::as_json;
use super::static_table;
use crate::quantization::Quantization;
use crate::weights::{LoadError, Weights};

/// Larger configs and indexes are not read.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// Where a head that predicts further tokens is, if it is apart from the model: other loaders do not read this file.
pub(crate) const MTP_FILE: &str = "mtp.safetensors";

/// Whether a file of an embedded model has weights of the model itself.
fn is_weights(name: &str) -> bool {
    name.ends_with(".safetensors") && name != MTP_FILE
}

/// A model's files.
#[derive(Debug, Clone)]
pub enum Source {
    /// A directory as mlx-lm or Hugging Face writes it.
    Directory(PathBuf),
    /// File names and contents.
    Embedded(&'static [(&'static str, &'static [u8])]),
    /// A config alone, with random weights: for benchmarks.
    Random(RandomWeights),
    /// Other files with an adapter merged into their weights.
    Adapted {
        /// The model.
        base: Box<Source>,
        /// The adapter's directory.
        adapter: PathBuf,
    },
}

impl Source {
    /// This model with an adapter.
    pub fn with_adapter(self, adapter: Option<&Path>) -> Self {
        match adapter {
            Some(adapter) => Self::Adapted { base: Box::new(self), adapter: adapter.to_owned() },
            None => self,
        }
    }

    /// The path an error message names.
    pub fn path(&self, file: &str) -> PathBuf {
        match self {
            Self::Directory(directory) => directory.join(file),
            Self::Embedded(_) => PathBuf::from("embedded").join(file),
            Self::Random(random) => PathBuf::from(random.name()),
            Self::Adapted { base, .. } => base.path(file),
        }
    }

    /// The bytes of a small file; `None` when there is no such file.
    pub fn bytes(&self, file: &str) -> Result<Option<Vec<u8>>, LoadError> {
        match self {
            Self::Embedded(files) => {
                Ok(files.iter().find(|(name, _)| *name == file).map(|(_, bytes)| bytes.to_vec()))
            }
            Self::Adapted { base, .. } => base.bytes(file),
            Self::Random(random) => {
                let config = || Value::Object(random.config().clone()).to_string().into_bytes();
                Ok((file == "config.json").then(config))
            }
            Self::Directory(directory) => {
                let path = directory.join(file);
                match fs::metadata(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(problem(&path, error.to_string())),
                    Ok(found) if found.len() > JSON_BYTES_MAX => Err(problem(
                        &path,
                        format!("{} bytes is too large for this kind of file", found.len()),
                    )),
                    Ok(_) => fs::read(&path).map(Some).map_err(|error| problem(&path, error.to_string())),
                }
            }
        }
    }

    /// A JSON object that must be there.
    pub fn json(&self, file: &str) -> Result<Map<String, Value>, LoadError> {
        let path = self.path(file);
        let bytes = self.bytes(file)?.ok_or_else(|| {
            problem(
                &path,
                "no such file; a model directory holds config.json, *.safetensors and tokenizer.json"
                    .to_owned(),
            )
        })?;
        serde_json::from_str(&as_json(&String::from_utf8_lossy(&bytes)))
            .map_err(|error| problem(&path, format!("not a JSON object: {error}")))
    }

    /// The config, with the quantization that ModelOpt writes beside it.
    pub fn config(&self) -> Result<Map<String, Value>, LoadError> {
        const MODELOPT: &str = "hf_quant_config.json";
        let mut config = match self.static_table() {
            Some(folder) => self.static_config(&folder)?,
            None => self.json("config.json")?,
        };
        let says = |field: &str| config.get(field).is_some_and(|value| !value.is_null());
        if !says("quantization") && !says("quantization_config") && self.bytes(MODELOPT)?.is_some() {
            config.insert("quantization_config".to_owned(), Value::Object(self.json(MODELOPT)?));
        }
        match self {
            Self::Adapted { adapter, .. } => {
                Ok(adapter::without_packing(config, &Adapter::read(adapter)?.paths()))
            }
            _ => Ok(config),
        }
    }

    /// The folder of a table of static embeddings, if the model is one.
    fn static_table(&self) -> Option<PathBuf> {
        let Self::Directory(directory) = self else { return None };
        let is_model2vec = || {
            let config = self.json("config.json").ok();
            config.is_some_and(|config| config.get("model_type") == Some(&Value::from("model2vec")))
        };
        static_table::folder(directory).or_else(|| is_model2vec().then(|| directory.clone()))
    }

    /// The config of static embeddings, which may lack sizes or be absent.
    fn static_config(&self, folder: &Path) -> Result<Map<String, Value>, LoadError> {
        let config = match self.bytes("config.json")? {
            Some(_) => self.json("config.json")?,
            None => Map::new(),
        };
        match self.shards(folder)?.as_slice() {
            [file] => static_table::with_sizes(config, file),
            _ => Err(problem(
                folder,
                "holds several files of weights, and static embeddings have one".to_owned(),
            )),
        }
    }

    /// The folder with the tokenizer's files; a table of static embeddings has its own.
    pub fn tokenizer_folder(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(directory) => Some(self.static_table().unwrap_or_else(|| directory.clone())),
            Self::Adapted { base, .. } => base.tokenizer_folder(),
            Self::Embedded(_) | Self::Random(_) => None,
        }
    }

    /// Every tensor of the checkpoint, lazy where it comes from files.
    pub fn weights(&self) -> Result<Weights, LoadError> {
        match self {
            Self::Embedded(files) => {
                let mut weights = Weights::new();
                for (name, bytes) in files.iter().filter(|(name, _)| is_weights(name)) {
                    weights.extend(from_memory(&self.path(name), bytes)?);
                }
                Ok(weights)
            }
            Self::Random(random) => Ok(random.weights()?),
            Self::Adapted { base, adapter } => adapted(base, adapter),
            Self::Directory(directory) => {
                let mut weights = Weights::new();
                for file in self.weight_files(directory)? {
                    check_header(&file)?;
                    for (name, tensor) in mlx::io::load_safetensors(&file)? {
                        if weights.insert(name.clone(), tensor).is_some() {
                            return Err(problem(&file, format!("`{name}` is in another shard, too")));
                        }
                    }
                }
                Ok(weights)
            }
        }
    }

    /// The tensors of a head that predicts further tokens and has a file of its own, lazy where they come from a file.
    pub fn mtp_weights(&self) -> Result<Option<Weights>, LoadError> {
        match self {
            Self::Embedded(files) => {
                let file = files.iter().find(|(name, _)| *name == MTP_FILE);
                file.map(|(name, bytes)| from_memory(&self.path(name), bytes)).transpose()
            }
            Self::Random(_) => Ok(None),
            Self::Adapted { base, .. } => base.mtp_weights(),
            Self::Directory(directory) => {
                let file = directory.join(MTP_FILE);
                if !file.is_file() {
                    return Ok(None);
                }
                check_header(&file)?;
                Ok(Some(mlx::io::load_safetensors(&file)?))
            }
        }
    }

    /// Bytes of the file of such a head; none without one.
    pub fn mtp_bytes(&self) -> Result<u64, LoadError> {
        match self {
            Self::Embedded(files) => {
                let file = files.iter().find(|(name, _)| *name == MTP_FILE);
                Ok(file.map_or(0, |(_, bytes)| bytes.len() as u64))
            }
            Self::Random(_) => Ok(0),
            Self::Adapted { base, .. } => base.mtp_bytes(),
            Self::Directory(directory) => {
                let file = directory.join(MTP_FILE);
                match fs::metadata(&file) {
                    Ok(metadata) => Ok(metadata.len()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
                    Err(error) => Err(problem(&file, error.to_string())),
                }
            }
        }
    }

    /// Bytes of all other weight files together.
    pub fn weight_bytes(&self) -> Result<u64, LoadError> {
        match self {
            Self::Embedded(files) => {
                let weights = files.iter().filter(|(name, _)| is_weights(name));
                Ok(weights.map(|(_, bytes)| bytes.len() as u64).sum())
            }
            Self::Random(random) => Ok(random.bytes()),
            Self::Adapted { base, .. } => base.weight_bytes(),
            Self::Directory(directory) => {
                let size =
                    |path: PathBuf| fs::metadata(&path).map_err(|error| problem(&path, error.to_string()));
                self.weight_files(directory)?.into_iter().map(|path| Ok(size(path)?.len())).sum()
            }
        }
    }

    /// The files with the weights of a directory.
    pub(super) fn weight_files(&self, directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
        self.shards(self.static_table().as_deref().unwrap_or(directory))
    }

    /// The files the index names, else every `model*.safetensors`, else every `*.safetensors`.
    fn shards(&self, directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
        const INDEX: &str = "model.safetensors.index.json";
        if self.bytes(INDEX)?.is_some() {
            let index = self.json(INDEX)?;
            let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
                return Err(problem(&self.path(INDEX), "has no `weight_map`".to_owned()));
            };
            let file = |(tensor, file): (&'_ String, &'_ Value)| match file {
                Value::String(file) => Ok(file.clone()),
                other => Err(problem(
                    &self.path(INDEX),
                    format!("`weight_map` should map `{tensor}` to a file name, not to {other}"),
                )),
            };
            let files: BTreeSet<String> = map.iter().map(file).collect::<Result<_, _>>()?;
            let inside = |name: &str| {
                let mut parts = Path::new(name).components();
                matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(_)), None))
            };
            return files
                .into_iter()
                .map(|name| match (inside(&name), directory.join(&name)) {
                    (false, _) => {
                        Err(problem(&self.path(INDEX), format!("`{name}` is not a file of this directory")))
                    }
                    (true, path) if !path.is_file() => Err(problem(
                        &path,
                        "the index names this shard, but it is not there; download it again".to_owned(),
                    )),
                    (true, path) => Ok(path),
                })
                .collect();
        }
        let entries = fs::read_dir(directory).map_err(|error| problem(directory, error.to_string()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
            .filter(|path| path.file_name().is_none_or(|name| name != MTP_FILE))
            .collect();
        let is_model = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("model"))
        };
        if files.iter().any(is_model) {
            files.retain(is_model);
        }
        files.sort();
        if files.is_empty() {
            return Err(problem(directory, "holds no *.safetensors; convert the weights first".to_owned()));
        }
        Ok(files)
    }
}

/// Weights with an adapter merged into them.
fn adapted(base: &Source, adapter: &Path) -> Result<Weights, LoadError> {
    let config = base.config()?;
    let quantization =
        Quantization::read(&config).map_err(|error| problem(&base.path("config.json"), error.to_string()))?;
    if quantization.foreign.is_some() {
        return Err(problem(
            adapter,
            "needs a model that is not packed by another library; run `omnibus convert` first".to_owned(),
        ));
    }
    let mut weights = base.weights()?;
    Adapter::read(adapter)?.merge(&mut weights, &quantization)?;
    Ok(weights)
}

fn from_memory(path: &Path, bytes: &[u8]) -> Result<Weights, LoadError> {
    let broken = |why: String| problem(path, format!("not a sound safetensors file: {why}"));
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| broken(error.to_string()))?;
    let mut weights = Weights::new();
    for (name, view) in tensors.tensors() {
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => Dtype::F32,
            safetensors::Dtype::F16 => Dtype::F16,
            safetensors::Dtype::BF16 => Dtype::Bf16,
            safetensors::Dtype::U32 => Dtype::U32,
            safetensors::Dtype::U8 => Dtype::U8,
            other => return Err(broken(format!("`{name}` is {other:?}, which the embedded model never is"))),
        };
        let shape: Vec<i32> = view.shape().iter().map(|axis| *axis as i32).collect();
        weights.insert(name, Array::from_bytes(view.data(), &shape, dtype)?);
    }
    Ok(weights)
}
