//! Our own kernels for the CPU: what MLX computes there with scalar code or many small ops.
//!
//! All are lazy like other ops, run on the CPU stream of the calling thread, compute in f32 whatever the
//! dtypes, and give results in the dtype of their first argument. A row's result is the same, bit for bit,
//! whichever rows share the call and however many there are: batching never changes a text.
//!
//! Ids, slots and tables are checked while computing: an invalid one gives zeros or is not written.

use mlx_sys as sys;
use omnibus_cpu_kernels::{
    self as kernels, Center, Embed, Float, Gated, Gates, Kernel, Layout, Linear, Norm, Rows, Weights,
};
use sys::kernels::{Node, kernel_arrays};

use crate::array::{Array, list, unlist};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::quant::{QuantMode, Quantized};

mod adjust;
mod attention;
mod choose;
mod latent;
mod low_rank;
mod recurrent;
mod route;
mod stored;
mod wkv;

pub use adjust::{LogitEntries, adjust_logits};
pub use attention::{AttentionMetadata, AttentionOutput, HeadNorm, PagedAttention, Rope};
pub use choose::{TokenMasks, XtcRows, choose_tokens};
pub use latent::{LatentOutput, PagedLatentAttention};
pub use low_rank::LowRank;
pub use omnibus_cpu_kernels::{
    Act, Activations, Ends, Isa, Packing, Projected, RotaryAxes, Unit, has_matrix_unit, isa, limit_isa,
    threads,
};
pub use recurrent::{CausalConv, Recurrence, Rule};
pub use route::{Route, weighted_sum};
pub use stored::{
    ExpertMemory, ExpertMemoryStats, ExpertRange, FileRange, StoredExperts, StoredFile, StoredFormat,
    gather_stored,
};
pub use wkv::{TokenShift, Wkv};

/// Whether ops of this thread go to the CPU, so that these kernels can stand in for them.
pub fn available() -> bool {
    matches!(crate::device::default(), Ok(crate::device::Device::Cpu))
}

/// `x @ w.T + bias` with quantized weights: `[…, in]` to `[…, out]`, bias `[out]`. Formats other than affine go to MLX.
pub fn qmm(x: &Array, w: &Quantized, bias: Option<&Array>, activations: Activations) -> Result<Array> {
    if w.mode != QuantMode::Affine {
        let product = x.quantized_matmul(w)?;
        return Ok(bias.map_or(product.clone(), |bias| product + bias));
    }
    let op = Op { name: "cpu::qmm", inputs: &[x, &w.weight, &w.scales] };
    let packed = Packed::check(&op, w)?;
    op.require(packed.experts.is_none(), "the weights have two axes")?;
    let (outer, rows) = op.rows(x, packed.k)?;
    let float = op.float(x)?;
    let shape = with_last(&outer, packed.n)?;
    let kernel = Linear {
        weights: packed.weights,
        activations,
        unit: Unit::Vector,
        float,
        n: packed.n,
        k: packed.k,
        rows: Rows::All(rows),
        bias: op.bias(bias, packed.n)?,
    };
    let inputs = [x, &w.weight, &w.scales, packed.biases].into_iter().chain(bias);
    one(&op, Kernel::Linear(kernel), &inputs.collect::<Vec<_>>(), &shape, x.dtype()?)
}

/// `x @ w.T + bias` with floats of any of three types: `[…, in]`, `[out, in]` and `[out]` to `[…, out]`.
pub fn matmul_t(x: &Array, w: &Array, bias: Option<&Array>, unit: Unit) -> Result<Array> {
    let op = Op { name: "cpu::matmul_t", inputs: &[x, w] };
    let &[n, k] = w.shape() else { return Err(op.fail("the weights have two axes")) };
    let (outer, rows) = op.rows(x, k as usize)?;
    let weights = Weights::Dense(op.float(w)?);
    let kernel = Linear {
        weights,
        activations: Activations::Exact,
        unit,
        float: op.float(x)?,
        n: n as usize,
        k: k as usize,
        rows: Rows::All(rows),
        bias: op.bias(bias, n as usize)?,
    };
    let inputs: Vec<&Array> = [x, w].into_iter().chain(bias).collect();
    one(&op, Kernel::Linear(kernel), &inputs, &with_last(&outer, n as usize)?, x.dtype()?)
}

/// [`qmm`] for a mixture of experts: x `[rows, in]`, or `[rows, chosen, in]` for a row per choice, experts
/// `[rows, chosen]` (i32 or u32), weights `[experts, out, in]`; gives `[rows, chosen, out]`.
pub fn gather_qmm(x: &Array, experts: &Array, w: &Quantized, activations: Activations) -> Result<Array> {
    let op = Op { name: "cpu::gather_qmm", inputs: &[x, experts, &w.weight, &w.scales] };
    op.require(w.mode == QuantMode::Affine, "only the affine format has a kernel")?;
    let packed = Packed::check(&op, w)?;
    let count = packed.experts.ok_or_else(|| op.fail("the weights have three axes"))?;
    let (kernel, shape) = op.chosen(x, experts, packed.weights, (count, packed.n, packed.k))?;
    let kernel = Linear { activations, ..kernel };
    let inputs = [x, &w.weight, &w.scales, packed.biases, experts];
    one(&op, Kernel::Linear(kernel), &inputs, &shape, x.dtype()?)
}

/// [`matmul_t`] for a mixture of experts; see [`gather_qmm`].
pub fn gather_mm(x: &Array, experts: &Array, w: &Array) -> Result<Array> {
    let op = Op { name: "cpu::gather_mm", inputs: &[x, experts, w] };
    let &[count, n, k] = w.shape() else { return Err(op.fail("the weights have three axes")) };
    let sizes = (count as usize, n as usize, k as usize);
    let (kernel, shape) = op.chosen(x, experts, Weights::Dense(op.float(w)?), sizes)?;
    one(&op, Kernel::Linear(kernel), &[x, w, experts], &shape, x.dtype()?)
}

/// Rows of a quantized table `[words, width]` for tokens `[n]` (i32 or u32), as f32 `[n, width]`.
pub fn embedding(tokens: &Array, table: &Quantized) -> Result<Array> {
    let op = Op { name: "cpu::embedding", inputs: &[tokens, &table.weight, &table.scales] };
    op.require(table.mode == QuantMode::Affine, "only the affine format has a kernel")?;
    let packed = Packed::check(&op, table)?;
    op.require(packed.experts.is_none(), "the table has two axes")?;
    let &[rows] = tokens.shape() else { return Err(op.fail("the tokens have one axis")) };
    op.ids(tokens)?;
    let Weights::Affine { bits, group, scales } = packed.weights else {
        return Err(op.fail("only the affine format has a kernel"));
    };
    let (n, k) = (packed.n, packed.k);
    let kernel = Embed { rows: rows as usize, n, k, bits, group, scales, float: Float::F32 };
    let inputs = [tokens, &table.weight, &table.scales, packed.biases];
    one(&op, Kernel::Embed(kernel), &inputs, &[rows, size(k)?], Dtype::F32)
}

/// `x / sqrt(mean(x²) + eps) * weight` over the last axis.
pub fn rms_norm<'a>(x: &'a Array, weight: impl Into<Option<&'a Array>>, eps: f32) -> Result<Array> {
    norm("cpu::rms_norm", Center::Zero, (x, None), (weight.into(), None), eps).map(|(_, normed)| normed)
}

/// `x + residual`, and its [`rms_norm`].
pub fn add_rms_norm<'a>(
    x: &'a Array,
    residual: &'a Array,
    weight: impl Into<Option<&'a Array>>,
    eps: f32,
) -> Result<(Array, Array)> {
    norm("cpu::add_rms_norm", Center::Zero, (x, Some(residual)), (weight.into(), None), eps)
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis.
pub fn layer_norm<'a>(
    x: &'a Array,
    weight: impl Into<Option<&'a Array>>,
    bias: impl Into<Option<&'a Array>>,
    eps: f32,
) -> Result<Array> {
    norm("cpu::layer_norm", Center::Mean, (x, None), (weight.into(), bias.into()), eps)
        .map(|(_, normed)| normed)
}

/// `x + residual`, and the layer norm of that.
pub fn add_layer_norm<'a>(
    x: &'a Array,
    residual: &'a Array,
    weight: impl Into<Option<&'a Array>>,
    bias: impl Into<Option<&'a Array>>,
    eps: f32,
) -> Result<(Array, Array)> {
    norm("cpu::add_layer_norm", Center::Mean, (x, Some(residual)), (weight.into(), bias.into()), eps)
}

fn norm(
    name: &'static str,
    center: Center,
    (x, residual): (&Array, Option<&Array>),
    (weight, bias): (Option<&Array>, Option<&Array>),
    eps: f32,
) -> Result<(Array, Array)> {
    let inputs: Vec<_> = [Some(x), residual, weight, bias].into_iter().flatten().collect();
    let op = Op { name, inputs: &inputs };
    let Some((&width, outer)) = x.shape().split_last() else { return Err(op.fail("a scalar has no rows")) };
    if let Some(residual) = residual {
        let same = residual.shape() == x.shape() && residual.dtype()? == x.dtype()?;
        op.require(same, "x and the residual have the same shape and dtype")?;
    }
    for part in [weight, bias].into_iter().flatten() {
        op.require(part.shape() == [width], "weight and bias have the length of a row")?;
    }
    let kernel = Kernel::Norm(Norm {
        center,
        float: op.float(x)?,
        rows: count(outer),
        width: width as usize,
        eps,
        residual: residual.is_some(),
        weight: weight.map(|w| op.float(w)).transpose()?,
        bias: bias.map(|b| op.float(b)).transpose()?,
    });
    let output = Output { shape: x.shape(), dtype: x.dtype()?, shares: None };
    let outputs = vec![output; 1 + usize::from(residual.is_some())];
    let mut made = node(&op, kernel, &inputs, &outputs)?.into_iter();
    match (made.next(), made.next()) {
        (Some(sum), Some(normed)) => Ok((sum, normed)),
        (Some(normed), None) => Ok((normed.clone(), normed)),
        _ => Err(op.fail("MLX made no array")),
    }
}

/// `act(gate) * up` for `[…, 2 * width]` whose first half is the gate: `[…, width]`.
pub fn gated(gate_up: &Array, act: Act) -> Result<Array> {
    let op = Op { name: "cpu::gated", inputs: &[gate_up] };
    let Some((&both, outer)) = gate_up.shape().split_last() else {
        return Err(op.fail("a scalar has no rows"));
    };
    op.require(both % 2 == 0, "the last axis holds gate and up")?;
    let (rows, width) = (count(outer), both as usize / 2);
    let kernel = Gated { act, float: op.float(gate_up)?, rows, width, inputs: Gates::Joined };
    one(&op, Kernel::Gated(kernel), &[gate_up], &with_last(outer, width)?, gate_up.dtype()?)
}

/// `act(x)`.
pub fn activated(x: &Array, act: Act) -> Result<Array> {
    let op = Op { name: "cpu::activated", inputs: &[x] };
    let Some((&width, outer)) = x.shape().split_last() else {
        return Err(op.fail("a scalar has no rows"));
    };
    let (rows, width) = (count(outer), width as usize);
    let kernel = Gated { act, float: op.float(x)?, rows, width, inputs: Gates::Alone };
    one(&op, Kernel::Gated(kernel), &[x], x.shape(), x.dtype()?)
}

/// `act(gate) * up` for arrays of the same shape.
pub fn gated2(gate: &Array, up: &Array, act: Act) -> Result<Array> {
    let op = Op { name: "cpu::gated2", inputs: &[gate, up] };
    let same = gate.shape() == up.shape() && gate.dtype()? == up.dtype()?;
    op.require(same, "gate and up have the same shape and dtype")?;
    let Some((&width, outer)) = gate.shape().split_last() else {
        return Err(op.fail("a scalar has no rows"));
    };
    let (rows, width) = (count(outer), width as usize);
    let kernel = Gated { act, float: op.float(gate)?, rows, width, inputs: Gates::Apart };
    one(&op, Kernel::Gated(kernel), &[gate, up], gate.shape(), gate.dtype()?)
}

/// Copies entries of the first axis, `(from, to)`, all read before any is written, in place: even if a step that
/// reads `pool` is still running, so only the array returned may be used afterwards.
pub fn copy_blocks(pool: Array, pairs: &[(u32, u32)]) -> Result<Array> {
    let op = Op { name: "cpu::copy_blocks", inputs: &[&pool] };
    let Some((&blocks, _)) = pool.shape().split_first() else {
        return Err(op.fail("a scalar has no blocks"));
    };
    op.require(
        pairs.iter().all(|(from, to)| (*from).max(*to) < blocks as u32),
        "pairs name blocks of the pool",
    )?;
    let numbers: Vec<i32> = pairs.iter().flat_map(|(from, to)| [*from as i32, *to as i32]).collect();
    let numbers = Array::from_slice(&numbers, &[size(pairs.len())?, 2])?;
    let bytes = pool.nbytes() / (blocks as usize).max(1);
    let kernel = kernels::Copy { blocks: blocks as usize, bytes, pairs: pairs.len() };
    let output = Output { shape: pool.shape(), dtype: pool.dtype()?, shares: Some(0) };
    let made = node(&op, Kernel::Copy(kernel), &[&pool, &numbers], &[output])?;
    made.into_iter().next().ok_or_else(|| op.fail("MLX made no array"))
}

/// An op that is being checked.
struct Op<'a> {
    name: &'static str,
    inputs: &'a [&'a Array],
}

impl Op<'_> {
    fn fail(&self, message: &str) -> Error {
        Error::op(self.name, self.inputs.iter().copied(), message)
    }

    /// `what` should be true.
    fn require(&self, holds: bool, what: &str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.fail(&format!("does not hold: {what}"))) }
    }

    fn float(&self, a: &Array) -> Result<Float> {
        match a.dtype()? {
            Dtype::F32 => Ok(Float::F32),
            Dtype::F16 => Ok(Float::F16),
            Dtype::Bf16 => Ok(Float::Bf16),
            other => Err(self.fail(&format!("{other} where float32, float16 or bfloat16 is needed"))),
        }
    }

    fn ids(&self, a: &Array) -> Result<()> {
        match a.dtype()? {
            Dtype::I32 | Dtype::U32 => Ok(()),
            other => Err(self.fail(&format!("{other} where int32 or uint32 is needed"))),
        }
    }

    /// The type of a bias with `n` elements.
    fn bias(&self, bias: Option<&Array>, n: usize) -> Result<Option<Float>> {
        let Some(bias) = bias else { return Ok(None) };
        self.require(
            matches!(bias.shape(), [width] if *width as usize == n),
            "the bias is as long as a result",
        )?;
        self.float(bias).map(Some)
    }

    /// All axes of x but the last, which must be `k`; and their product.
    fn rows(&self, x: &Array, k: usize) -> Result<(Vec<i32>, usize)> {
        match x.shape().split_last() {
            Some((last, outer)) if *last as usize == k => Ok((outer.to_vec(), count(outer))),
            _ => Err(self.fail(&format!("the rows of x need {k} elements, as those of the weights have"))),
        }
    }

    /// A product whose rows chose their experts, and the shape of its result.
    fn chosen(
        &self,
        x: &Array,
        ids: &Array,
        weights: Weights,
        (experts, n, k): (usize, usize, usize),
    ) -> Result<(Linear, [i32; 3])> {
        self.ids(ids)?;
        let &[rows, choices] = ids.shape() else { return Err(self.fail("expert ids have two axes")) };
        let sharing = match *x.shape() {
            [r, last] if r == rows && last as usize == k => choices as usize,
            [r, c, last] if (r, c) == (rows, choices) && last as usize == k => 1,
            _ => return Err(self.fail("x is [rows, in] or [rows, chosen, in], as ids and weights say")),
        };
        let rows_chosen = Rows::Chosen {
            results: rows as usize * choices as usize,
            sharing,
            experts,
            layout: Layout::Stacked,
        };
        let kernel = Linear {
            weights,
            activations: Activations::Exact,
            unit: Unit::Vector,
            float: self.float(x)?,
            n,
            k,
            rows: rows_chosen,
            bias: None,
        };
        Ok((kernel, [rows, choices, size(n)?]))
    }
}

/// Checked affine weights.
struct Packed<'a> {
    weights: Weights,
    biases: &'a Array,
    experts: Option<usize>,
    n: usize,
    k: usize,
}

impl<'a> Packed<'a> {
    fn check(op: &Op, w: &'a Quantized) -> Result<Self> {
        let biases = w.biases.as_ref().ok_or_else(|| op.fail("the affine format has biases"))?;
        let known = matches!(w.bits, 2..=6 | 8) && matches!(w.group, 32 | 64 | 128);
        op.require(known, "2 to 6 or 8 bits in groups of 32, 64 or 128")?;
        op.require(w.weight.dtype()? == Dtype::U32, "the weights are uint32 words")?;
        let scales = op.float(&w.scales)?;
        let alike = biases.shape() == w.scales.shape() && biases.dtype()? == w.scales.dtype()?;
        op.require(alike, "scales and biases have the same shape and dtype")?;
        let (outer, groups) = match w.scales.shape() {
            [outer @ .., groups] if matches!(outer.len(), 1 | 2) => (outer, *groups),
            _ => return Err(op.fail("the weights have two or three axes")),
        };
        let k = i64::from(groups) * i64::from(w.group);
        let words = with_last(outer, usize::try_from(k * i64::from(w.bits) / 32).unwrap_or(0))?;
        op.require(w.weight.shape() == words, "words and scales have the same rows and groups")?;
        let experts = (outer.len() == 2).then(|| outer[0] as usize);
        let weights = Weights::Affine { bits: w.bits as usize, group: w.group as usize, scales };
        let n = outer[outer.len() - 1] as usize;
        Ok(Self { weights, biases, experts, n, k: k as usize })
    }
}

fn count(axes: &[i32]) -> usize {
    axes.iter().map(|n| *n as usize).product()
}

fn size(n: usize) -> Result<i32> {
    i32::try_from(n).map_err(|_| Error::new(format!("{n} is too long for an axis")))
}

fn with_last(outer: &[i32], last: usize) -> Result<Vec<i32>> {
    Ok(outer.iter().copied().chain([size(last)?]).collect())
}

/// An output of a kernel; with `shares` it is that input's buffer.
#[derive(Clone, Copy)]
struct Output<'a> {
    shape: &'a [i32],
    dtype: Dtype,
    shares: Option<usize>,
}

fn one(op: &Op, kernel: Kernel, inputs: &[&Array], shape: &[i32], dtype: Dtype) -> Result<Array> {
    one_of(op, Node::Resident(kernel), inputs, shape, dtype)
}

fn one_of(op: &Op, node: Node, inputs: &[&Array], shape: &[i32], dtype: Dtype) -> Result<Array> {
    let made = node_arrays(op, node, inputs, &[Output { shape, dtype, shares: None }])?;
    made.into_iter().next().ok_or_else(|| op.fail("MLX made no array"))
}

/// The graph node that runs `kernel`, which the caller has checked against the inputs' shapes.
fn node(op: &Op, kernel: Kernel, inputs: &[&Array], outputs: &[Output]) -> Result<Vec<Array>> {
    node_arrays(op, Node::Resident(kernel), inputs, outputs)
}

fn node_arrays(op: &Op, kernel: Node, inputs: &[&Array], outputs: &[Output]) -> Result<Vec<Array>> {
    let (mut shapes, mut ranks) = (Vec::new(), Vec::new());
    for output in outputs {
        shapes.extend_from_slice(output.shape);
        ranks.push(size(output.shape.len())?);
    }
    let dtypes: Vec<u8> = outputs.iter().map(|o| o.dtype as u8).collect();
    let shares: Vec<i32> = outputs.iter().map(|o| o.shares.map_or(-1, |i| i as i32)).collect();
    let inputs = list(inputs.iter().copied())?;
    let made = kernel_arrays(Box::new(kernel), &inputs, &shapes, &ranks, &dtypes, &shares);
    Ok(unlist(&*made.map_err(|e| op.fail(e.what()))?))
}
