//! Writes tensors to safetensors files, one tensor in memory at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use mlx::{Array, Dtype};
use serde_json::{Map, Value, json};

use super::packing::Module;
use super::{Progress, Summary, failed, write_json};
use crate::weights::LoadError;

/// The files of a checkpoint, and which weights go where.
pub(super) struct Shards {
    files: Vec<Shard>,
    bytes: u64,
    parameters: u64,
}

#[derive(Default)]
struct Shard {
    /// Names of weights; their scales and biases are beside them.
    modules: Vec<String>,
    bytes: u64,
}

impl Shards {
    /// Fills files in the order of names.
    pub(super) fn plan(modules: &BTreeMap<String, Module>, bytes_max: u64) -> Result<Self, LoadError> {
        let mut files: Vec<Shard> = Vec::new();
        for (name, module) in modules {
            let bytes = module.bytes();
            match files.last_mut() {
                Some(shard) if shard.bytes + bytes <= bytes_max => {
                    shard.modules.push(name.clone());
                    shard.bytes += bytes;
                }
                _ => files.push(Shard { modules: vec![name.clone()], bytes }),
            }
        }
        let bytes = files.iter().map(|shard| shard.bytes).sum();
        Ok(Self { files, bytes, parameters: modules.values().map(Module::parameters).sum() })
    }

    /// Writes every file that is not there, and the index.
    pub(super) fn write(
        &self,
        directory: &Path,
        mut modules: BTreeMap<String, Module>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, LoadError> {
        let (mut index, mut bytes_done, mut files_kept) = (Map::new(), 0, 0);
        for (number, shard) in self.files.iter().enumerate() {
            let name = match self.files.len() {
                1 => "model.safetensors".to_owned(),
                count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
            };
            let taken = shard.modules.iter().filter_map(|name| Some((name, modules.remove(name)?)));
            let tensors: BTreeMap<String, Array> =
                taken.flat_map(|(name, module)| module.into_named(name)).collect();
            index.extend(tensors.keys().map(|tensor| (tensor.clone(), json!(name))));
            let path = directory.join(&name);
            if path.is_file() {
                files_kept += 1;
            } else {
                write_file(&path, tensors)?;
            }
            bytes_done += shard.bytes;
            progress(Progress {
                files_done: number + 1,
                files_total: self.files.len(),
                bytes_done,
                bytes_total: self.bytes,
            });
        }
        let index: Map<String, Value> = index.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        let metadata = json!({"total_size": self.bytes, "total_parameters": self.parameters});
        let index = json!({"metadata": metadata, "weight_map": index});
        write_json(&directory.join("model.safetensors.index.json"), &index)?;
        Ok(Summary { bytes: self.bytes, parameters: self.parameters, files_kept })
    }
}

/// One file. It has its name only when it is whole.
pub(super) fn write_file(path: &Path, tensors: BTreeMap<String, Array>) -> Result<(), LoadError> {
    let part = path.with_extension("safetensors.part");
    let io = |error: std::io::Error| failed(&part, &error);
    let mut file = BufWriter::new(File::create(&part).map_err(io)?);
    let mut header = header(&tensors)?;
    // The format wants tensors to begin at a multiple of 8.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(header.as_bytes()).map_err(io)?;
    for (_, tensor) in tensors {
        file.write_all(&tensor.to_bytes()?).map_err(io)?;
        drop(tensor);
        mlx::memory::clear_cache();
    }
    let file = file.into_inner().map_err(|error| failed(&part, &error))?;
    file.sync_all().map_err(io)?;
    fs::rename(&part, path).map_err(io)
}

fn header(tensors: &BTreeMap<String, Array>) -> Result<String, LoadError> {
    let (mut header, mut end) = (Map::new(), 0);
    header.insert("__metadata__".to_owned(), json!({"format": "mlx"}));
    for (name, tensor) in tensors {
        let begin = end;
        end += tensor.nbytes();
        let (dtype, shape) = (stored_name(tensor.dtype()?), tensor.shape());
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
    }
    Ok(Value::Object(header).to_string())
}

fn stored_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "BOOL",
        Dtype::U8 => "U8",
        Dtype::U16 => "U16",
        Dtype::U32 => "U32",
        Dtype::U64 => "U64",
        Dtype::I8 => "I8",
        Dtype::I16 => "I16",
        Dtype::I32 => "I32",
        Dtype::I64 => "I64",
        Dtype::F16 => "F16",
        Dtype::F32 => "F32",
        Dtype::F64 => "F64",
        Dtype::Bf16 => "BF16",
        Dtype::Complex64 => "C64",
    }
}
