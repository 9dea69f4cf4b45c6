//! Mamba-2's recurrence with what is written, read and stepped computed from the convolved channels, as in Mamba (PLaMo 2).

use mlx::{Array, Dtype};

use super::{Mamba2, Recurrence};
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::ops::{LayerContext, Mamba2Weights};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// The recurrence of a Mamba-2 layer over the convolved heads alone; `bcdt_proj` gives the rest, each part normed.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveMamba2 {
    /// Its recurrence.
    pub recurrence: Mamba2,
    /// Width of the vector that steps come from.
    pub step_rank: usize,
    /// Of the norms.
    pub norm_eps: f32,
}

impl SelectiveMamba2 {
    /// Names and widths of the norms, in the order of the parts: writes, reads, steps.
    fn norms(&self) -> [(&'static str, usize); 3] {
        let state = self.recurrence.state_dim;
        [("B_norm", state), ("C_norm", state), ("dt_norm", self.step_rank)]
    }
}

impl Rules for SelectiveMamba2 {
    fn check_rules(&self, broken: &mut Broken) {
        self.recurrence.check_rules(broken);
        broken.size(&[("the rank of steps", self.step_rank)]);
    }
}

impl Tensors for SelectiveMamba2 {
    fn name_tensors(&self, at: &mut Scope) {
        let (inner, heads) = (self.recurrence.inner(), self.recurrence.heads);
        at.heads("in_proj", at.hidden, 2 * inner, false);
        at.conv("conv1d", inner, self.recurrence.conv_kernel_size, false);
        at.row("bcdt_proj", inner, self.step_rank + 2 * self.recurrence.state_dim, false);
        for (name, width) in self.norms() {
            at.norm(name, Norm::Rms { eps: self.norm_eps }, width);
        }
        at.heads("dt_proj", self.step_rank, heads, false);
        for per_head in ["A_log", "D", "dt_bias"] {
            at.tensor(per_head, &[heads], TensorRole::Heads);
        }
        at.row("out_proj", inner, at.hidden, false);
    }
}

impl Recurrence for SelectiveMamba2 {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let Mamba2 { heads, head_dim, state_dim, conv_kernel_size, .. } = self.recurrence;
        [vec![conv_kernel_size - 1, heads * head_dim], vec![heads, head_dim, state_dim]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Footprint for SelectiveMamba2 {
    fn row_elements(&self, hidden: usize) -> usize {
        5 * self.recurrence.inner() + 2 * (self.step_rank + 2 * self.recurrence.state_dim) + hidden
    }
}

/// One layer.
pub(super) struct SelectiveMamba2Block {
    spec: SelectiveMamba2,
    /// Gates, then channels.
    input: Linear,
    weights: Mamba2Weights,
    select: Linear,
    norms: Vec<NormBlock>,
    step: Linear,
    out: Linear,
}

impl SelectiveMamba2Block {
    pub(super) fn load(spec: &SelectiveMamba2, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let at = |name: &str| format!("{path}.{name}");
        let norm = Norm::Rms { eps: spec.norm_eps };
        let norms = spec.norms().into_iter().map(|(name, width)| store.norm(&at(name), norm, width));
        Ok(Self {
            spec: spec.clone(),
            norms: norms.collect::<Result<_, _>>()?,
            input: store.linear(&at("in_proj"))?,
            weights: Mamba2Weights {
                conv: store.conv(&at("conv1d"))?,
                a_log: store.float(&at("A_log"))?,
                dt_bias: store.float(&at("dt_bias"))?,
                skip: store.float(&at("D"))?,
            },
            // Their rows are those of one run.
            select: store.linear(&at("bcdt_proj"))?.without_adapters()?,
            step: store.linear(&at("dt_proj"))?.without_adapters()?,
            out: store.linear(&at("out_proj"))?,
        })
    }

    /// Of convolved channels `[n, len, inner]` f32: channels, writes and reads side by side, and steps.
    fn rows(&self, mixed: &Array) -> mlx::Result<[Array; 2]> {
        let state = self.spec.recurrence.state_dim as i32;
        let mut parts = self.select.forward(mixed)?.split(&[state, 2 * state], -1)?;
        for (part, norm) in parts.iter_mut().zip(&self.norms) {
            *part = norm.forward(&part.contiguous()?)?;
        }
        let [write, read, step] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        let steps = (self.step.forward(step)?.astype(Dtype::F32)? + &self.weights.dt_bias).softplus()?;
        let [low, high] = self.spec.recurrence.step_limits;
        let steps =
            steps.clip(Some(&Array::scalar(low, Dtype::F32)?), Some(&Array::scalar(high, Dtype::F32)?))?;
        let (write, read) = (write.astype(Dtype::F32)?, read.astype(Dtype::F32)?);
        Ok([mlx::concatenate(&[mixed, &write, &read], -1)?, steps])
    }
}

impl MixerBlock for SelectiveMamba2Block {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let parts = self.input.forward(x)?.split(&[self.spec.recurrence.inner() as i32], -1)?;
        let [gate, channels] = parts.as_slice() else { return Err(mlx::Error::new("gates and channels")) };
        let channels = channels.astype(Dtype::F32)?;
        let y = layer.advance(|run, [last, memory]| {
            let (mixed, last) = self.weights.conv.forward(&run.rows(&channels)?, last)?;
            let [mixed, steps] = self.rows(&mixed.silu()?)?;
            let (y, memory) = self.weights.scan(&self.spec.recurrence, [&mixed, &steps], memory)?;
            Ok((y, [last, memory]))
        })?;
        self.out.forward(&(gate.silu()? * y.astype(x.dtype()?)?))
    }
}
