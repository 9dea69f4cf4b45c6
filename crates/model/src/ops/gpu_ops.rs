//! Our GPU kernels, and MLX's operations for what has none: rotations that depend on a sequence's length, values of
//! another width than keys, recurrences, odd sizes.

mod activation;
mod attention;
mod experts;
mod latent;
mod linear;
mod norm;
mod recurrent;

use std::cell::RefCell;
use std::rc::Rc;

use mlx::gpu::{
    AddTerm, Embed, GateLayout, JoinRows, MatrixUnit, Operand, TableFormat, TakeColumns, Term as TermKind,
    parts_of,
};
use mlx::{Array, Dtype, QuantMode, Quantized};
use omnibus_kv::KvFormat;

use super::mlx_ops::HeadProducts;
use super::operations::KernelSet;
use super::{
    AttentionCall, AttentionNeeds, ByLength, ChosenExperts, ExpertVectors, GroupNormWeights, LatentCall,
    LayerContext, Term, Weight,
};
use crate::forward::{AttentionPath, StatePath};
use crate::kernel_choice::{GpuKernel, KernelChoice};
use crate::mixers::{DeltaAttention, GatedDelta, HeadGate, LatentAttention, Mamba2, Mixer};
use crate::mlps::Router;
use crate::ops::{CausalConv, DeltaRows, GatedDeltaWeights, Mamba1Rows, Mamba2Weights};
use crate::{Activation, kv_format};
use latent::Products;
pub(super) use linear::ManyRows;

/// GPU kernels.
pub(super) struct GpuKernels {
    /// The kernels that are used.
    pub(super) choice: Rc<RefCell<KernelChoice>>,
    pub(super) many_rows: ManyRows,
}

/// What a kernel made, if it applies.
type Made<T = Array> = mlx::Result<Option<T>>;

impl GpuKernels {
    fn uses(&self, kernel: GpuKernel) -> bool {
        self.choice.borrow().uses(kernel)
    }

    /// What a kernel makes, if it is used.
    fn by<T>(&self, kernel: GpuKernel, make: impl FnOnce() -> Made<T>) -> Made<T> {
        if self.uses(kernel) { make() } else { Ok(None) }
    }

    /// What multiplies matrices of prompt chunks.
    fn unit(&self) -> MatrixUnit {
        match self.uses(GpuKernel::WarpgroupAttention) {
            true => MatrixUnit::of_device(),
            false => MatrixUnit::SimdGroup,
        }
    }
}

impl KernelSet for GpuKernels {
    fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath {
        // Activations have a type of their own, which kernels support where they do this one.
        let format = needs.storage.format;
        let dtype = match format {
            KvFormat::Float(_) => kv_format::dtype_of(format),
            KvFormat::Packed { .. } => Dtype::Bf16,
        };
        let (size, unit) = (needs.block_size as i32, self.unit());
        let supported = needs.layers.iter().all(|spec| {
            attention::paged(spec, dtype, format, (size, unit)).is_some_and(|kernels| kernels.is_supported())
        });
        let latents = |spec: &&LatentAttention| {
            latent::paged(spec, dtype, format, size).is_some_and(|kernels| kernels.is_supported())
        };
        // Rows of chunks of latents are computed by one pool.
        let one_pool = needs.storage.unquantized_prefix.is_none() || needs.latents.is_empty();
        let supported = supported && one_pool && needs.latents.iter().all(latents);
        match (needs.by_length, supported && !needs.gathers && self.uses(GpuKernel::Attention)) {
            (ByLength::No, true) => AttentionPath::Items,
            (ByLength::Yes, _) | (_, false) => AttentionPath::Gather,
        }
    }

    fn state_path(&self, mixers: &[&Mixer]) -> StatePath {
        let is_supported = |mixer: &&Mixer| recurrent::is_supported(mixer);
        match self.uses(GpuKernel::Recurrence) && mixers.iter().all(is_supported) {
            true => StatePath::DeviceRuns,
            false => StatePath::Gather,
        }
    }

    fn head_products(&self) -> HeadProducts {
        latent::PRODUCTS
    }

    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> Made {
        self.by(GpuKernel::Embed, || embedded(tokens, table, dtype))
    }

    fn join(&self, a: &Array, b: &Array) -> Made {
        self.by(GpuKernel::Embed, || side_by_side(a, b))
    }

    fn take_columns(&self, x: &Array, columns: &Array) -> Made {
        self.by(GpuKernel::Embed, || columns_of(x, columns))
    }

    fn linear(&self, x: &Array, weight: &Weight) -> Made {
        self.by(GpuKernel::Linear, || linear::product(x, weight, None, self.many_rows))
    }

    fn biased_linear(&self, x: &Array, weight: &Weight, bias: &Array) -> Made {
        self.by(GpuKernel::Linear, || linear::product(x, weight, Some(bias), self.many_rows))
    }

    fn add_bias(&self, x: &Array, bias: &Array) -> Made {
        self.by(GpuKernel::Gated, || joined(x, bias, None, TermKind::Bias))
    }

    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> Made {
        self.by(GpuKernel::Experts, || experts::product(x, experts, weight))
    }

    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize,
    ) -> Made<(ChosenExperts, Array)> {
        self.by(GpuKernel::Experts, || experts::route(logits, router, vectors, top_k))
    }

    fn weighted_sum(&self, parts: &Array, weights: &Array) -> Made {
        self.by(GpuKernel::Experts, || experts::weighted_sum(parts, weights))
    }

    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> Made {
        let kind = if gate.is_some() { TermKind::Gated } else { TermKind::Plain };
        self.by(GpuKernel::Gated, || joined(sum, term, gate, kind))
    }

    fn add_scaled(&self, sum: &Array, term: &Array, factor: &Array) -> Made {
        self.by(GpuKernel::Gated, || joined(sum, term, Some(factor), TermKind::Scaled))
    }

    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> Made {
        self.by(GpuKernel::AddNorm, || norm::rms(x, weight, 1, eps))
    }

    fn grouped_rms_norm(&self, x: &Array, weights: &GroupNormWeights, eps: f32) -> Made {
        self.by(GpuKernel::AddNorm, || norm::rms(x, &weights.weight, weights.groups, eps))
    }

    fn add_rms_norm(&self, sum: &Array, term: &Term, weight: &Array, eps: f32) -> Made<(Array, Array)> {
        self.by(GpuKernel::AddNorm, || norm::add(sum, term, weight, eps))
    }

    fn add(&self, sum: &Array, term: &Term) -> Made {
        self.by(GpuKernel::AddNorm, || norm::add_normed(sum, term))
    }

    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> Made {
        self.by(GpuKernel::AddNorm, || norm::layer(x, weight, bias, eps))
    }

    fn norm_columns(&self, x: &Array, weights: [&Array; 2], eps: f32) -> Made {
        self.by(GpuKernel::AddNorm, || norm::columns(x, weights, eps))
    }

    fn add_expert_bias(&self, x: &Array, bias: &Array, experts: &ChosenExperts) -> Made {
        self.by(GpuKernel::Experts, || experts::add_bias(x, bias, experts))
    }

    fn scaled(&self, x: &Array, factor: f32) -> Made {
        let function = Activation::Scaled { factor };
        self.by(GpuKernel::Gated, || activation::gated([x, x], function, GateLayout::Alone))
    }

    fn act(&self, x: &Array, act: Activation) -> Made {
        self.by(GpuKernel::Gated, || activation::gated([x, x], act, GateLayout::Alone))
    }

    fn xielu(&self, x: &Array, learned: [&Array; 4]) -> Made {
        self.by(GpuKernel::Gated, || activation::xielu(x, learned))
    }

    fn head_gate(&self, gate: &Array, x: &Array, function: HeadGate) -> Made {
        self.by(GpuKernel::Gated, || activation::head_gate(gate, x, function))
    }

    fn gated_act(&self, gate_up: &Array, act: Activation) -> Made {
        self.by(GpuKernel::Gated, || activation::gated([gate_up, gate_up], act, GateLayout::Joined))
    }

    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> Made {
        self.by(GpuKernel::Gated, || activation::gated([gate, up], act, GateLayout::Apart))
    }

    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> Made {
        self.by(GpuKernel::Gated, || activation::gated([gate, x], Activation::Sigmoid, GateLayout::Apart))
    }

    fn attend(&self, call: &mut AttentionCall) -> Made {
        match call.layer.reads()? {
            AttentionPath::Items => attention::attend(call, self.unit()).map(Some),
            AttentionPath::Segments | AttentionPath::Gather => Ok(None),
        }
    }

    fn attend_latent(&self, call: &mut LatentCall) -> Made {
        match call.layer.reads()? {
            AttentionPath::Items => {
                let weights = if self.uses(GpuKernel::Linear) { Products::Kernel } else { Products::Mlx };
                latent::attend(call, weights).map(Some)
            }
            AttentionPath::Segments | AttentionPath::Gather => Ok(None),
        }
    }

    fn mamba1(
        &self,
        channels: &Array,
        conv: &CausalConv,
        select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
        weights: Mamba1Rows<'_>,
        layer: &mut LayerContext,
    ) -> Made {
        on_device(layer, |layer| recurrent::mamba1(channels, conv, select, weights, layer))
    }

    fn mamba2(
        &self,
        spec: &Mamba2,
        weights: &Mamba2Weights,
        projected: &Array,
        layer: &mut LayerContext,
    ) -> Made {
        on_device(layer, |layer| recurrent::mamba2(spec, weights, projected, layer))
    }

    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array,
        layer: &mut LayerContext,
    ) -> Made {
        on_device(layer, |layer| recurrent::gated_delta(spec, weights, projected, layer))
    }

    fn delta_attention(
        &self,
        spec: &DeltaAttention,
        weights: &GatedDeltaWeights,
        rows: &DeltaRows<'_>,
        layer: &mut LayerContext,
    ) -> Made {
        on_device(layer, |layer| recurrent::delta_attention(spec, weights, rows, layer))
    }

    fn convolve(&self, conv: &CausalConv, x: &Array, layer: &mut LayerContext) -> Made {
        on_device(layer, |layer| recurrent::convolve(conv, x, layer))
    }

    fn short_conv(&self, conv: &CausalConv, projected: &Array, layer: &mut LayerContext) -> Made {
        on_device(layer, |layer| recurrent::short_conv(conv, projected, layer))
    }
}

/// What kernels make of a layer's states, where they find them on the device.
fn on_device(layer: &mut LayerContext, make: impl FnOnce(LayerContext) -> mlx::Result<Array>) -> Made {
    if layer.has_device_runs()? { make(layer.part(0)).map(Some) } else { Ok(None) }
}

/// Rows of an embedding by our kernel.
fn embedded(tokens: &Array, table: &Weight, dtype: Dtype) -> mlx::Result<Option<Array>> {
    let (format, [table, scales, biases], width) = match table {
        Weight::Dense(table) => (TableFormat::Float, [table, table, table], table.dim(-1)?),
        Weight::Packed(packed) => match (packed.mode, &packed.biases) {
            (QuantMode::Affine, Some(biases)) => {
                let Quantized { weight, scales, group, bits, .. } = packed;
                let width = scales.dim(-1)? * group;
                (TableFormat::Packed { bits: *bits, group: *group }, [weight, scales, biases], width)
            }
            _ => return Ok(None),
        },
    };
    let rows = tokens.size() as i32;
    let plan = Embed { dtype, rows, width, format }.plan();
    let Some(plan) = plan.filter(|_| tokens.ndim() == 1 && rows > 0) else {
        return Ok(None);
    };
    let made = plan.call(&[&tokens.view(Dtype::I32)?, table, scales, biases])?.pop();
    made.map(Some).ok_or_else(|| mlx::Error::new("rows of an embedding"))
}

fn side_by_side(a: &Array, b: &Array) -> mlx::Result<Option<Array>> {
    let ([rows, first], [others, second]) = (a.dims()?, b.dims()?);
    let plan = JoinRows { dtype: a.dtype()?, rows, widths: [first, second] }.plan();
    let Some(plan) = plan.filter(|_| rows == others && rows > 0) else { return Ok(None) };
    plan.call(&[a, b]).map(|mut made| made.pop())
}

fn columns_of(x: &Array, columns: &Array) -> mlx::Result<Option<Array>> {
    let [rows, width] = x.dims()?;
    let count = columns.size() as i32;
    let plan = TakeColumns { rows, width, count, other: f32::NEG_INFINITY }.plan();
    let Some(plan) = plan.filter(|_| rows > 0 && count > 0) else { return Ok(None) };
    plan.call(&[x, columns]).map(|mut made| made.pop())
}

/// An array as a kernel reads it that adds up the parts of a product.
fn operand_of(x: &Array) -> (Array, Operand) {
    match parts_of(x) {
        Some(parts) => (parts, Operand::Parts),
        None => (x.clone(), Operand::Whole),
    }
}

/// The sum of rows and a term by our kernel.
fn joined(sum: &Array, term: &Array, gate: Option<&Array>, kind: TermKind) -> mlx::Result<Option<Array>> {
    let (dtype, width) = (sum.dtype()?, sum.dim(-1)?);
    let rows = sum.size() as i32 / width.max(1);
    let is_alike = term.dtype()? == dtype && gate.map_or(Ok(dtype), Array::dtype)? == dtype;
    let plan = AddTerm { dtype, rows, width, term: kind }.plan();
    let Some(plan) = plan.filter(|_| is_alike && rows > 0) else {
        return Ok(None);
    };
    let y = plan.call(&[sum, term, gate.unwrap_or(term)])?.pop().ok_or_else(|| mlx::Error::new("a sum"))?;
    if sum.ndim() == 2 { Ok(Some(y)) } else { y.reshape(sum.shape()).map(Some) }
}
