//! Passes a checkpoint's tensors to the blocks that compute with them, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mlx::cpu::ExpertMemory;
use mlx::{Array, Dtype, QuantMode, Quantized};

use super::check::{Difference, check, infer};
use super::deal::{Dealt, deal};
use super::expert_files::ExpertFiles;
use super::foreign::convert;
use super::stages::cut_stage;
use crate::blocks::{
    AdaptedWeight, Adapters, Embedding, ExpertLinear, HadamardRotation, LIMITS, Limits, Linear, NormBlock,
};
use crate::blueprint::{Blueprint, FUSE, Head, MASKED_HEAD};
use crate::manifest::Manifest;
use crate::norm::Norm;
use crate::ops::{CausalConv, Kernels, Ops, Weight};
use crate::params::{Param, Params};
use crate::pattern::Pattern;
use crate::quantization::Quantization;
use crate::rewrite::WeightRewrite;
use crate::shard::{ModelPart, Shard};
use crate::weights::{LoadError, Weights};

/// A checkpoint under the blueprint's names, cast for the kernels that run it.
pub(crate) struct Store {
    weights: Weights,
    manifest: Manifest,
    quantization: Quantization,
    ops: Ops,
    activations: Dtype,
    hidden: usize,
    /// Blocks of rotations, by module.
    rotated: BTreeMap<String, usize>,
    adapters: Rc<Adapters>,
    params: Params,
    /// All stages of it, of one of several.
    network: Option<Blueprint>,
    /// Of a rank of several.
    shard: Option<Shard>,
    /// Modules whose products the ranks add.
    summed: BTreeSet<String>,
    /// Where experts stay in their files.
    expert_files: Option<ExpertFiles>,
}

impl Store {
    /// Applies the blueprint's rewrites and checks that exactly the named tensors come out. Decides
    /// the blueprint's head where that depends on the checkpoint. Of a part of the network the store has the tensors, and
    /// the blueprint becomes the part's.
    pub(crate) fn new(
        blueprint: &mut Blueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
        ModelPart { stage, shard }: ModelPart,
    ) -> Result<Self, LoadError> {
        let Published { mut weights, quantization, stored, .. } =
            published(blueprint, quantization, weights, &[])?;
        let network = stage.is_some().then(|| blueprint.clone());
        if let Some(stage) = stage {
            cut_stage(blueprint, &mut weights, stage)?;
        }
        let Dealt { weights, summed } = match &shard {
            Some(shard) => deal(blueprint, &quantization, weights, shard)?,
            None => Dealt { weights, summed: BTreeSet::new() },
        };
        let ops = match shard {
            _ if blueprint.is_encoder() => kernels.encoder_ops(),
            Some(_) => kernels.rank_ops(),
            None => kernels.ops(),
        };
        let activations = ops.activations().unwrap_or(stored);
        let rotated = blueprint.rotated.iter().map(|module| (module.path.clone(), module.block)).collect();
        let (adapters, hidden) = (Rc::default(), blueprint.hidden);
        Ok(Self {
            weights,
            manifest: blueprint.manifest(),
            quantization,
            ops,
            activations,
            hidden,
            rotated,
            adapters,
            params: Params::default(),
            network,
            shard,
            summed,
            expert_files: None,
        })
    }

    /// Tensors that were checked, all of which the blocks take.
    pub(crate) fn of_encoder(
        (weights, manifest): (Weights, Manifest),
        quantization: Quantization,
        kernels: Kernels,
        activations: Dtype,
        hidden: usize,
    ) -> Self {
        let ops = kernels.encoder_ops();
        let activations = ops.activations().unwrap_or(activations);
        Self {
            weights,
            manifest,
            quantization,
            ops,
            activations,
            hidden,
            rotated: BTreeMap::new(),
            adapters: Rc::default(),
            params: Params::default(),
            network: None,
            shard: None,
            summed: BTreeSet::new(),
            expert_files: None,
        }
    }

    /// The memory for experts, where they stay in their files.
    pub(crate) fn expert_memory(&self) -> Option<ExpertMemory> {
        self.expert_files.as_ref().map(|files| files.memory().clone())
    }

    /// This store with experts that stay in their files.
    pub(crate) fn with_experts_in(self, expert_files: Option<ExpertFiles>) -> Self {
        Self { expert_files, ..self }
    }

    /// The network with the layers of all stages, of one of several. There is one once.
    pub(crate) fn take_network(&mut self) -> Option<Blueprint> {
        self.network.take()
    }

    /// True when nothing is left to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The dtype of activations: the kernels', else the embedding's.
    pub(crate) fn activations(&self) -> Dtype {
        self.activations
    }

    /// A linear layer at `path`: dense or packed.
    pub(crate) fn linear(&mut self, path: &str) -> Result<Linear, LoadError> {
        let (weight, bias) = self.weight_and_bias(path)?;
        let weight = AdaptedWeight::new(self.ops(), weight, &self.adapters, path)?;
        let linear = Linear::new(weight, bias).rotated(self.rotation(path)?)?.limited(self.limits(path)?);
        Ok(linear.summed(self.sum_of(path)))
    }

    /// The rank whose products of the module at `path` are parts of a sum, if they are.
    pub(crate) fn sum_of(&self, path: &str) -> Option<Shard> {
        self.shard.clone().filter(|_| self.summed.contains(path))
    }

    fn limits(&mut self, path: &str) -> Result<Option<Limits>, LoadError> {
        let names = LIMITS.map(|name| format!("{path}.{name}"));
        if !names.iter().all(|name| self.weights.contains_key(name)) {
            return Ok(None);
        }
        let [input_min, input_max, output_min, output_max] = names.map(|name| self.vector(&name));
        Ok(Some(Limits([input_min?, input_max?, output_min?, output_max?])))
    }

    fn rotation(&mut self, path: &str) -> Result<Option<HadamardRotation>, LoadError> {
        let Some(block) = self.rotated.get(path).map(|block| *block as i32) else { return Ok(None) };
        Ok(Some(HadamardRotation { signs: self.float(&format!("{path}.signs"))?, block }))
    }

    /// A table of rows at `path`, dense or packed, which no adapter changes.
    pub(crate) fn embedding(&mut self, path: &str) -> Result<Embedding, LoadError> {
        Ok(Embedding(self.linear(path)?.without_adapters()?))
    }

    /// The adapters of the layers that it makes.
    pub(crate) fn adapters(&self) -> &Rc<Adapters> {
        &self.adapters
    }

    /// Stacked experts at `path`: dense or packed.
    pub(crate) fn expert_linear(&mut self, path: &str) -> Result<ExpertLinear, LoadError> {
        if let Some(files) = self.expert_files.clone() {
            let bias = self.take_any(&format!("{path}.bias"));
            let bias = bias.map(|bias| self.cast(bias)).transpose()?.map(|bias| self.params.hold(bias));
            let tensors = ExpertFiles::TENSORS.map(|tensor| self.take_any(&format!("{path}.{tensor}")));
            let stored = files.stack(path, tensors, self.quantization.at(path))?;
            return Ok(ExpertLinear::stored(self.ops(), stored, bias));
        }
        let (weight, bias) = self.weight_and_bias(path)?;
        Ok(ExpertLinear::new(AdaptedWeight::new(self.ops(), weight, &self.adapters, path)?, bias))
    }

    fn weight_and_bias(&mut self, path: &str) -> Result<(Param<Weight>, Option<Param>), LoadError> {
        let bias = self.take_any(&format!("{path}.bias"));
        let bias = bias.map(|bias| self.cast(bias)).transpose()?;
        let weight = self.take(&format!("{path}.weight"))?;
        let weight = self.weight(path, weight)?;
        Ok((self.params.hold(weight), bias.map(|bias| self.params.hold(bias))))
    }

    /// A linear layer for each head at `path`: dense or packed.
    pub(crate) fn head_linear(&mut self, path: &str) -> Result<Param<Weight>, LoadError> {
        let weight = self.take(&format!("{path}.weight"))?;
        let weight = self.cast_float(weight)?;
        let weight = self.weight(path, weight)?;
        Ok(self.params.hold(weight))
    }

    /// A tensor of a recurrence, in float32 like its state.
    pub(crate) fn float(&mut self, name: &str) -> Result<Param, LoadError> {
        let tensor = self.unpacked(name, Dtype::F32)?.astype(Dtype::F32)?;
        Ok(self.params.hold(tensor))
    }

    /// A tensor whose numbers are read one by one: unpacked to `dtype` if the checkpoint has packed it, else as stored.
    fn unpacked(&mut self, name: &str, dtype: Dtype) -> Result<Array, LoadError> {
        let tensor = self.take(name)?;
        let Some(path) = name.strip_suffix(".weight") else { return Ok(tensor) };
        match self.weight(path, tensor)? {
            Weight::Dense(tensor) => Ok(tensor),
            Weight::Packed(packed) => Ok(packed.dequantize(dtype)?),
        }
    }

    /// A depthwise convolution at `path`: weights `[conv_kernel_size, channels]` and perhaps a bias `[channels]`, float32.
    pub(crate) fn conv(&mut self, path: &str) -> Result<CausalConv, LoadError> {
        let weight = self.float(&format!("{path}.weight"))?;
        let weight = weight.map(|weight| weight.squeeze(&[2])?.t()?.contiguous())?;
        let bias = self.take_any(&format!("{path}.bias"));
        let bias = bias.map(|bias| bias.astype(Dtype::F32)).transpose()?;
        Ok(CausalConv { weight, bias: bias.map(|bias| self.params.hold(bias)) })
    }

    /// A small tensor in the dtype of activations.
    pub(crate) fn vector(&mut self, name: &str) -> Result<Param, LoadError> {
        let tensor = self.unpacked(name, self.activations)?;
        Ok(self.params.hold(self.cast(tensor)?))
    }

    /// A table that rows are taken from, as floats in the dtype of activations.
    pub(crate) fn table(&mut self, path: &str) -> Result<Param, LoadError> {
        self.vector(&format!("{path}.weight"))
    }

    /// A norm of rows `width` wide at `path`. One without a weight computes with ones.
    pub(crate) fn norm(&mut self, path: &str, norm: Norm, width: usize) -> Result<NormBlock, LoadError> {
        let weight = match norm {
            Norm::Rms { .. } | Norm::ScaledRms { .. } | Norm::Layer { .. } | Norm::Gain => {
                self.vector(&format!("{path}.weight"))?
            }
            Norm::RmsUnweighted { .. } | Norm::LayerUnweighted { .. } => self.ones(width)?,
            Norm::Absent => return Ok(NormBlock::absent(self.ops())),
        };
        Ok(match norm {
            Norm::Rms { eps } | Norm::RmsUnweighted { eps } => NormBlock::rms(self.ops(), weight, eps),
            Norm::Layer { eps, bias: false } | Norm::LayerUnweighted { eps } => {
                NormBlock::layer(self.ops(), weight, None, eps)
            }
            Norm::Gain | Norm::Absent => NormBlock::gain(self.ops(), weight),
            Norm::ScaledRms { eps } => NormBlock::scaled_rms(self.ops(), weight, self.ones(width)?, eps),
            Norm::Layer { eps, bias: true } => {
                NormBlock::layer(self.ops(), weight, Some(self.vector(&format!("{path}.bias"))?), eps)
            }
        })
    }

    fn ones(&self, width: usize) -> mlx::Result<Param> {
        Ok(self.params.hold(Array::ones(&[width as i32], self.activations)?))
    }

    /// The list of what it gives out, which also takes what layers compute of their own.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// Width of the residual stream.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// The operations that blocks compute with.
    pub(crate) fn ops(&self) -> Ops {
        self.ops.clone()
    }

    /// Packed when the checkpoint has scales for `path`, else dense.
    fn weight(&mut self, path: &str, weight: Array) -> Result<Weight, LoadError> {
        let scales = self.take_any(&format!("{path}.scales"));
        let (Some(scales), Some(choice)) = (scales, self.quantization.at(path)) else {
            return Ok(Weight::Dense(self.cast_dense(weight)?));
        };
        let biases = self.take_any(&format!("{path}.biases"));
        let affine = choice.mode == QuantMode::Affine;
        let scales = if affine { self.cast(scales)? } else { scales };
        let biases = biases.map(|biases| self.cast(biases)).transpose()?;
        let (group, bits, mode) = (choice.group, choice.bits, choice.mode);
        let packed = Quantized { weight, scales, biases, group, bits, mode };
        // Gates of one output: products with packed weights compute many outputs at once.
        if packed.weight.ndim() == 2 && packed.weight.dim(0)? <= mlx::gpu::Narrow::OUTPUTS_MAX {
            let dtype = self.ops.activations().unwrap_or(packed.scales.dtype()?);
            return Ok(Weight::Dense(packed.dequantize(dtype)?));
        }
        Ok(Weight::Packed(packed))
    }

    fn take(&mut self, name: &str) -> Result<Array, LoadError> {
        let missing =
            || LoadError::Mismatch(Difference { missing: vec![name.to_owned()], ..Difference::default() });
        self.take_any(name).ok_or_else(missing)
    }

    /// A tensor, if the checkpoint has it. The only way that tensors leave the store, so that a device could take a part of
    /// each by its role.
    fn take_any(&mut self, name: &str) -> Option<Array> {
        let tensor = self.weights.remove(name)?;
        assert!(self.manifest.stored_role(name).is_some(), "{name} has a role");
        Some(tensor)
    }

    /// Small tensors take the activations' dtype; packed ones keep theirs where the kernels accept any.
    fn cast(&self, tensor: Array) -> Result<Array, LoadError> {
        match self.ops.activations() {
            Some(dtype) => Ok(tensor.astype(dtype)?),
            None => Ok(tensor),
        }
    }

    /// Casts a tensor that may hold codes, which stay.
    fn cast_float(&self, tensor: Array) -> Result<Array, LoadError> {
        if tensor.dtype()? == Dtype::U32 { Ok(tensor) } else { self.cast(tensor) }
    }

    /// Dense weights stay as stored where the kernels read them so, which halves what a step reads.
    fn cast_dense(&self, tensor: Array) -> Result<Array, LoadError> {
        if self.ops.reads_dense(tensor.dtype()?) { Ok(tensor) } else { self.cast(tensor) }
    }
}

/// A published checkpoint under the blueprint's names.
pub(crate) struct Published {
    /// Exactly the tensors that the blueprint names.
    pub(crate) weights: Weights,
    /// How they are packed.
    pub(crate) quantization: Quantization,
    /// The dtype of the embedding, which a stage may not have itself.
    pub(crate) stored: Dtype,
    /// Tensors that rewrites would have dropped.
    pub(crate) unread: Weights,
}

/// Tensors with the root's name in front, which checkpoints of the network without its head leave out.
fn rooted(weights: Weights, blueprint: &Blueprint) -> Weights {
    let names = blueprint.names;
    let is_bare = weights.contains_key(&format!("{}.weight", names.embed));
    // Draft heads have rewrites for names of their own.
    if !is_bare || blueprint.stage.draft_head().is_some() {
        return weights;
    }
    let heads = ["lm_head.", "score."];
    let rooted = |name: String| match heads.iter().any(|head| name.starts_with(head)) {
        true => name,
        false => format!("{}.{name}", names.root),
    };
    weights.into_iter().map(|(name, tensor)| (rooted(name), tensor)).collect()
}

/// Applies the blueprint's rewrites and checks the result; tensors of `unread` are kept apart instead of being dropped.
/// Decides the blueprint's head and its media vocabularies, which depend on the checkpoint.
pub(crate) fn published(
    blueprint: &mut Blueprint,
    mut quantization: Quantization,
    mut weights: Weights,
    unread: &[Pattern],
) -> Result<Published, LoadError> {
    weights = rooted(convert(weights, &mut quantization)?, blueprint);
    let published: BTreeSet<String> = weights.keys().cloned().collect();
    let mut apart = Weights::new();
    for rewrite in &blueprint.rewrites {
        if let WeightRewrite::Drop { tensors } = rewrite
            && unread.contains(tensors)
        {
            let dropped = weights.iter().filter(|(name, _)| tensors.matches(name));
            apart.extend(dropped.map(|(name, tensor)| (name.clone(), tensor.clone())));
        }
        weights = rewrite.apply(weights, &published, &quantization)?;
        rewrite.apply_to_paths(&mut quantization);
    }
    if blueprint.head == Head::OwnIfPresent {
        let present = weights.contains_key("lm_head.weight");
        blueprint.head = if present { Head::Own } else { Head::Tied };
    }
    blueprint.masked_head.take_if(|_| !weights.contains_key(&format!("{MASKED_HEAD}.dense.weight")));
    let unread = match blueprint.head {
        Head::Tied => &["lm_head.*"][..],
        Head::Absent => &["lm_head.*", "score.*"],
        Head::Own | Head::OwnIfPresent | Head::Target => &[],
    };
    for tensors in unread {
        let dropped = WeightRewrite::Drop { tensors: (*tensors).into() };
        weights = dropped.apply(weights, &published, &quantization)?;
    }
    let root = blueprint.names.root;
    let is_there = |path: &str| weights.contains_key(&format!("{root}.{path}.embedding.weight"));
    blueprint.media_vocabularies.retain(|vocabulary| is_there(&vocabulary.path));
    let stored = stored_dtype(blueprint, &weights)?;
    blueprint.retain_tensors(&mut weights);
    let manifest = blueprint.manifest();
    infer(&manifest, &mut quantization, &weights)?;
    check(&manifest, &quantization, &weights)?;
    Ok(Published { weights, quantization, stored, unread: apart })
}

/// The dtype of the embedding.
fn stored_dtype(blueprint: &Blueprint, weights: &Weights) -> Result<Dtype, LoadError> {
    let root = blueprint.names.root;
    let of_module = |module: &str| {
        let at = |part: &str| weights.get(&format!("{root}.{module}.{part}"));
        at("scales").or_else(|| at("weight"))
    };
    // A draft head may have no table.
    let projection = || of_module(&format!("{FUSE}.projection"));
    let stored = of_module(blueprint.names.embed).or_else(projection);
    match stored.map(Array::dtype).transpose()? {
        Some(dtype @ (Dtype::F16 | Dtype::Bf16 | Dtype::F32)) => Ok(dtype),
        _ => Ok(Dtype::Bf16), // Scales of the mx modes are bytes.
    }
}
