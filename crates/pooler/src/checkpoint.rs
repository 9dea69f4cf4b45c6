//! Small tensors of a checkpoint, as float32, read from their files alone.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata};
use serde_json::Value;

use crate::activation::Activation;
use crate::error::{PoolerError, json};
use crate::step::Dense;

/// Most bytes of a file's header, as the format has it.
const HEADER_MAX: u64 = 100 << 20;

/// Most bytes of a head's tensor.
const TENSOR_MAX: usize = 1 << 30;

/// The files of a folder with weights.
pub(crate) struct Checkpoint {
    folder: PathBuf,
    /// Relative to the model directory, for errors.
    name: String,
}

/// A tensor.
pub(crate) struct SmallTensor {
    shape: Vec<usize>,
    pub(crate) numbers: Vec<f32>,
}

impl Checkpoint {
    /// Of a folder below the model directory; empty is the directory itself.
    pub(crate) fn new(directory: &Path, below: &str) -> Self {
        Self { folder: directory.join(below), name: below.to_owned() }
    }

    fn error(&self, file: &str, reason: impl ToString) -> PoolerError {
        let name = if self.name.is_empty() { file.to_owned() } else { format!("{}/{file}", self.name) };
        PoolerError::new(name, reason)
    }

    /// The file that has a tensor.
    fn file_of(&self, tensor: &str) -> Result<String, PoolerError> {
        let index = json(&self.folder, "model.safetensors.index.json")?;
        let Some(index) = index else { return Ok("model.safetensors".to_owned()) };
        let file = index.get("weight_map").and_then(|map| map.get(tensor)).and_then(Value::as_str);
        let file = file.filter(|file| !file.contains(['/', '\\']));
        Ok(file.unwrap_or("model.safetensors").to_owned())
    }

    /// A tensor; `None` where there is none of that name.
    pub(crate) fn tensor(&self, tensor: &str) -> Result<Option<SmallTensor>, PoolerError> {
        let name = self.file_of(tensor)?;
        let fail = |reason: String| self.error(&name, reason);
        let mut file = File::open(self.folder.join(&name)).map_err(|error| fail(error.to_string()))?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|error| fail(error.to_string()))?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_MAX {
            return Err(fail("is no safetensors file".to_owned()));
        }
        let mut header = Vec::new();
        file.by_ref().take(length).read_to_end(&mut header).map_err(|error| fail(error.to_string()))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| fail(format!("broken header: {error}")))?;
        let Some(info) = metadata.info(tensor) else { return Ok(None) };
        let (start, end) = info.data_offsets;
        let bytes = end.checked_sub(start).filter(|bytes| *bytes <= TENSOR_MAX);
        let bytes = bytes.ok_or_else(|| fail(format!("`{tensor}` is too large for a head")))?;
        let at = length.checked_add(8).and_then(|begin| begin.checked_add(start as u64));
        let at = at.ok_or_else(|| fail(format!("`{tensor}` lies outside")))?;
        file.seek(SeekFrom::Start(at)).map_err(|error| fail(error.to_string()))?;
        let mut data = Vec::new();
        file.take(bytes as u64).read_to_end(&mut data).map_err(|error| fail(error.to_string()))?;
        let numbers = numbers(&data, info.dtype)
            .ok_or_else(|| fail(format!("`{tensor}` has no floats ({:?})", info.dtype)))?;
        if numbers.len() != info.shape.iter().product::<usize>() {
            return Err(fail(format!("`{tensor}` ends before its last number")));
        }
        Ok(Some(SmallTensor { shape: info.shape.clone(), numbers }))
    }

    /// A vector that must be there.
    pub(crate) fn vector(&self, tensor: &str) -> Result<Vec<f32>, PoolerError> {
        let found = self.tensor(tensor)?;
        found.map(|tensor| tensor.numbers).ok_or_else(|| self.missing(tensor))
    }

    fn missing(&self, tensor: &str) -> PoolerError {
        self.error("model.safetensors", format!("has no tensor `{tensor}`"))
    }

    /// The linear layer at a path, which may have no bias.
    pub(crate) fn dense(&self, path: &str, act: Activation) -> Result<Dense, PoolerError> {
        let weight = format!("{path}.weight");
        let SmallTensor { shape, numbers } = self.tensor(&weight)?.ok_or_else(|| self.missing(&weight))?;
        let [_, inputs] = *shape.as_slice() else {
            return Err(self.error("model.safetensors", format!("`{path}.weight` is no matrix")));
        };
        let bias = self.tensor(&format!("{path}.bias"))?.map(|bias| bias.numbers).unwrap_or_default();
        Ok(Dense { weight: numbers.into(), inputs, bias: bias.into(), act })
    }
}

pub(crate) fn numbers(data: &[u8], dtype: Dtype) -> Option<Vec<f32>> {
    let halves =
        |number: fn([u8; 2]) -> f32| data.as_chunks::<2>().0.iter().map(|bytes| number(*bytes)).collect();
    Some(match dtype {
        Dtype::F32 => data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => halves(|bytes| half::f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => halves(|bytes| half::bf16::from_le_bytes(bytes).to_f32()),
        _ => return None,
    })
}
