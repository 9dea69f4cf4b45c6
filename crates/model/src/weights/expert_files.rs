//! Experts whose weights stay in the checkpoint's files, and what they need of a checkpoint: stacks `[experts, out, in]`, or a
//! tensor for each expert that a rewrite stacks, whose numbers no rewrite changes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use mlx::cpu::{ExpertMemory, ExpertRange, FileRange, StoredExperts, StoredFile, StoredFormat};
use mlx::{Array, Dtype, QuantMode};

use super::files::Source;
use super::header::{problem, read_header};
use crate::blueprint::Blueprint;
use crate::error::Error;
use crate::families;
use crate::ops::Kernels;
use crate::quantization::QuantizationChoice;
use crate::rewrite::WeightRewrite;
use crate::shard::ModelPart;
use crate::weights::{LoadError, Weights};

/// The files of a checkpoint, and the memory for experts that are read from them. A clone is the same.
#[derive(Clone)]
pub(crate) struct ExpertFiles {
    memory: ExpertMemory,
    /// By the number of the array that was loaded for it.
    tensors: Rc<BTreeMap<usize, StoredTensor>>,
    /// They live as long as the numbers are used, so that no other array gets one.
    _arrays: Rc<Vec<Array>>,
}

/// A tensor in a file.
#[derive(Clone)]
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
        let blueprint = families::read(&config).map_err(in_config)?;
        let Some(tensors) = tensors_of(self)? else { return Ok(all) };
        let of_experts = ExpertNames::of(&blueprint);
        let experts = tensors.iter().filter(|(name, _)| of_experts.contains(name));
        let experts: u64 = experts.map(|(_, tensor)| tensor.range.bytes).sum();
        Ok(all.saturating_sub(experts.saturating_sub(limit)))
    }
}

impl ExpertFiles {
    /// Of a stack.
    pub(crate) const TENSORS: [&'static str; 3] = ["weight", "scales", "biases"];

    /// Refuses what cannot keep its experts in files. `weights`: the tensors of the source, as they were loaded and not computed.
    pub(crate) fn open(
        (source, weights): (&Source, &Weights),
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
        let of_experts = ExpertNames::of(blueprint);
        let (mut by_id, mut arrays) = (BTreeMap::new(), Vec::new());
        for (name, array) in weights.iter().filter(|(name, _)| of_experts.contains(name)) {
            let tensor = tensors.get(name).filter(|tensor| tensor.holds(array));
            if let (Some(tensor), Some(id)) = (tensor, array.id()) {
                by_id.insert(id, tensor.clone());
                arrays.push(array.clone());
            }
        }
        Ok(Self { memory, tensors: Rc::new(by_id), _arrays: Rc::new(arrays) })
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
        let found = loaded.iter().flatten().map(|array| self.tensor(array));
        let found: Vec<ExpertTensor> = found.collect::<Option<_>>().ok_or_else(|| not_by_expert(path))?;
        let dtype =
            |at: usize| found.get(at).and_then(|tensor| tensor.dtype).ok_or_else(|| not_by_expert(path));
        let &[experts, n, words] = found.first().ok_or_else(|| not_by_expert(path))?.shape.as_slice() else {
            return Err(not_by_expert(path));
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
        let ranges = found.into_iter().map(|tensor| tensor.range).collect();
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

    /// Where the numbers of an array of all experts are. `None` where they are not as they were loaded.
    fn tensor(&self, array: &Array) -> Option<ExpertTensor> {
        if let Some(tensor) = self.tensors.get(&array.id()?) {
            let range = ExpertRange::Stacked(tensor.range.clone());
            return Some(ExpertTensor { range, shape: tensor.shape.clone(), dtype: tensor.dtype });
        }
        let singles = array.stacked_ids()?;
        let singles: Vec<&StoredTensor> =
            singles.iter().map(|id| self.tensors.get(id)).collect::<Option<_>>()?;
        let dtype = singles.first()?.dtype;
        let alike = singles.iter().all(|single| single.dtype == dtype);
        let ranges = singles.iter().map(|single| single.range.clone()).collect();
        let range = ExpertRange::Single(ranges);
        alike.then(|| ExpertTensor { range, shape: array.shape().to_vec(), dtype })
    }
}

/// A tensor of all experts of a layer.
struct ExpertTensor {
    range: ExpertRange,
    /// Experts first.
    shape: Vec<i32>,
    dtype: Option<Dtype>,
}

/// The names of a checkpoint's tensors that become weights of experts.
struct ExpertNames<'a> {
    rewrites: &'a [WeightRewrite],
    modules: BTreeSet<String>,
}

impl<'a> ExpertNames<'a> {
    fn of(blueprint: &'a Blueprint) -> Self {
        let modules = blueprint.manifest().expert_modules().map(str::to_owned).collect();
        Self { rewrites: &blueprint.rewrites, modules }
    }

    fn contains(&self, published: &str) -> bool {
        let mut name = published.to_owned();
        for rewrite in self.rewrites {
            if let WeightRewrite::Rename { from, to } | WeightRewrite::StackExperts { from, to, .. } = rewrite
                && let Some(captures) = from.captures(&name)
            {
                name = to.fill(&captures);
            }
        }
        let path = name.rsplit_once('.').filter(|(_, tensor)| ExpertFiles::TENSORS.contains(tensor));
        path.is_some_and(|(path, _)| self.modules.contains(path))
    }
}

impl StoredTensor {
    /// Whether an array that was not computed is this tensor.
    fn holds(&self, array: &Array) -> bool {
        let as_stored = array.origin().as_deref() == Some("Load");
        as_stored && array.shape() == self.shape && array.dtype().ok() == self.dtype
    }
}

fn not_by_expert(path: &str) -> LoadError {
    let problem = "is not stored as numbers that --expert-memory can read by expert; convert the model with \
                   `omnibus convert`";
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
        // Scales of other quantizations than affine.
        safetensors::Dtype::U8 => Some(Dtype::U8),
        _ => None,
    }
}
