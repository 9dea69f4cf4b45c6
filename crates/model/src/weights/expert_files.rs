//! Experts whose weights stay in the checkpoint's files, and what they need of a checkpoint: stacks `[experts, out, in]` as they
//! are, that no rewrite changes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mlx::cpu::{ExpertMemory, FileRange, StoredExperts, StoredFile, StoredFormat};
use mlx::{Array, Dtype, QuantMode};

use super::files::Source;
use super::header::{problem, read_header};
use crate::blueprint::Blueprint;
use crate::error::Error;
use crate::families;
use crate::ops::Kernels;
use crate::quantization::QuantizationChoice;
use crate::shard::ModelPart;
use crate::weights::LoadError;

/// The files of a checkpoint, and the memory for experts that are read from them. A clone is the same.
#[derive(Clone)]
pub(crate) struct ExpertFiles {
    memory: ExpertMemory,
    tensors: Rc<BTreeMap<String, StoredTensor>>,
}

/// A tensor in a file.
struct StoredTensor {
    range: FileRange,
    shape: Vec<i32>,
    /// `None`: none that experts have.
    dtype: Option<Dtype>,
}

impl Source {
    /// Bytes of the weights in memory, with so many bytes of experts at most where the others stay in their files.
    pub fn resident_bytes(&self, expert_memory: Option<u64>) -> Result<u64, Error> {
        let all = self.weight_bytes()?;
        let Some(limit) = expert_memory else { return Ok(all) };
        let config = self.config()?;
        let in_config = |error| Error::Config { file: self.path("config.json"), error: Box::new(error) };
        let manifest = families::read(&config).map_err(in_config)?.manifest();
        let Some(tensors) = tensors_of(self)? else { return Ok(all) };
        let names = manifest
            .expert_modules()
            .flat_map(|path| ExpertFiles::TENSORS.map(|name| format!("{path}.{name}")));
        let experts: u64 = names.filter_map(|name| Some(tensors.get(&name)?.range.bytes)).sum();
        Ok(all.saturating_sub(experts.saturating_sub(limit)))
    }
}

impl ExpertFiles {
    /// Of a stack.
    pub(crate) const TENSORS: [&'static str; 3] = ["weight", "scales", "biases"];

    /// Refuses what cannot keep its experts in files.
    pub(crate) fn open(
        source: &Source,
        blueprint: &Blueprint,
        (kernels, part): (Kernels, &ModelPart),
        limit_bytes: u64,
    ) -> Result<Self, LoadError> {
        let refused = |why: &str| LoadError::ExpertMemory(why.to_owned());
        if !kernels.on_cpu() {
            return Err(refused(
                "needs the CPU's kernels (--device cpu): a GPU computes with resident experts",
            ));
        }
        if part.stage.is_some() || part.shard.is_some() {
            return Err(refused(
                "is for one process: leave out --tensor-parallel-size and --pipeline-parallel-size",
            ));
        }
        if blueprint.manifest().expert_modules().next().is_none() {
            return Err(refused("is for mixtures of experts, and this model has no experts"));
        }
        let tensors = tensors_of(source)?.ok_or_else(|| {
            refused("needs a folder with *.safetensors, without an adapter that is merged into the weights")
        })?;
        let memory =
            ExpertMemory::new(limit_bytes).map_err(|error| refused(&format!("needs threads: {error}")))?;
        Ok(Self { memory, tensors: Rc::new(tensors) })
    }

    /// The memory for experts.
    pub(crate) fn memory(&self) -> &ExpertMemory {
        &self.memory
    }

    /// The experts at a path, by the tensors that were loaded for it and not computed.
    pub(crate) fn stack(
        &self,
        path: &str,
        loaded: [Option<Array>; 3],
        choice: Option<QuantizationChoice>,
    ) -> Result<StoredExperts, LoadError> {
        let mut found = Vec::new();
        for (name, array) in Self::TENSORS.iter().zip(&loaded) {
            let Some(array) = array else { continue };
            let tensor = self.tensors.get(&format!("{path}.{name}"));
            found.push(tensor.filter(|tensor| tensor.holds(array)).ok_or_else(|| not_stacked(path))?);
        }
        let dtype =
            |at: usize| found.get(at).and_then(|tensor| tensor.dtype).ok_or_else(|| not_stacked(path));
        let &[experts, n, words] = found.first().ok_or_else(|| not_stacked(path))?.shape.as_slice() else {
            return Err(not_stacked(path));
        };
        let (k, format) = match (found.as_slice(), choice) {
            ([_], _) => (words, StoredFormat::Dense(dtype(0)?)),
            ([_, scales, _], Some(choice)) if choice.mode == QuantMode::Affine => {
                let (bits, group) = (choice.bits as usize, choice.group as usize);
                let groups = scales.shape.last().copied().unwrap_or_default();
                (groups * choice.group, StoredFormat::Affine { bits, group, scales: dtype(1)? })
            }
            _ => {
                let problem = "is quantized in a way that no kernel reads by expert; convert the model to affine \
                               quantization with `omnibus convert -q`";
                return Err(LoadError::Format { path: path.to_owned(), problem: problem.to_owned() });
            }
        };
        let ranges = found.iter().map(|tensor| tensor.range.clone()).collect();
        let shape = [experts, n, k].map(|axis| usize::try_from(axis).unwrap_or_default());
        let layer = path.rsplit_once('.').map_or(path, |(layer, _)| layer);
        let stack = StoredExperts::new((&self.memory, layer), ranges, format, shape)?;
        let (least, limit) = (stack.expert_bytes(), self.memory.limit_bytes());
        if least > limit {
            return Err(LoadError::ExpertMemory(format!(
                "is {limit} bytes, and one expert of `{path}` takes {least}: choose at least that"
            )));
        }
        Ok(stack)
    }
}

impl StoredTensor {
    /// Whether an array that was not computed is this tensor.
    fn holds(&self, array: &Array) -> bool {
        let as_stored = array.origin().as_deref() == Some("Load");
        as_stored && array.shape() == self.shape && array.dtype().ok() == self.dtype
    }
}

fn not_stacked(path: &str) -> LoadError {
    let problem = "is not stored as one stack of experts that --expert-memory can read by expert; convert the model \
                   with `omnibus convert`";
    LoadError::Format { path: path.to_owned(), problem: problem.to_owned() }
}

/// The tensors in a folder's files, by name; `None` of other sources.
fn tensors_of(source: &Source) -> Result<Option<BTreeMap<String, StoredTensor>>, LoadError> {
    let Source::Directory(directory) = source else { return Ok(None) };
    let mut tensors = BTreeMap::new();
    for path in source.weight_files(directory)? {
        let file = Arc::new(StoredFile::open(&path).map_err(|error| problem(&path, error.to_string()))?);
        let (header, start) = read_header(&path)?;
        for (tensor, info) in header.tensors() {
            let (first, end) = info.data_offsets;
            let range = FileRange {
                file: Arc::clone(&file),
                offset: start + first as u64,
                bytes: (end - first) as u64,
            };
            let shape = info.shape.iter().map(|axis| i32::try_from(*axis).unwrap_or(i32::MAX)).collect();
            tensors.insert(tensor, StoredTensor { range, shape, dtype: dtype_of(info.dtype) });
        }
    }
    Ok(Some(tensors))
}

fn dtype_of(dtype: safetensors::Dtype) -> Option<Dtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(Dtype::F32),
        safetensors::Dtype::F16 => Some(Dtype::F16),
        safetensors::Dtype::BF16 => Some(Dtype::Bf16),
        safetensors::Dtype::U32 => Some(Dtype::U32),
        _ => None,
    }
}
