//! Attention of layers that compute twice (IQuest LoopCoder): the second pass mixes what it sees in a window of its own
//! keys with what it sees in all keys of the first pass.

use mlx::Array;

use super::attention::{AttentionBlock, CallSpec};
use super::{Attention, AttentionSpan, KeySource, MixerCache, MixerSpec};
use crate::blocks::MixerBlock;
use crate::manifest::{Scope, TensorRole};
use crate::ops::LayerContext;
use crate::params::Param;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Attention in one of two passes.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopAttention {
    /// With the span of this pass: everything, then a window.
    pub attention: Attention,
    /// The window of the second pass.
    pub window: usize,
    /// How many layers a pass has.
    pub layers: usize,
}

impl Rules for LoopAttention {
    fn check_rules(&self, broken: &mut Broken) {
        self.attention.check_rules(broken);
        broken.size(&[("loop_window_size", self.window)]);
    }
}

impl Tensors for LoopAttention {
    fn name_tensors(&self, at: &mut Scope) {
        self.attention.name_tensors(at);
        at.tensor("loop_gate.weight", &[self.attention.heads, self.attention.head_dim], TensorRole::Heads);
        at.tensor("loop_gate.bias", &[self.attention.heads], TensorRole::Heads);
    }
}

impl Footprint for LoopAttention {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * self.attention.row_elements(hidden)
    }
}

impl MixerSpec for LoopAttention {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.attention]
    }
}

/// The attention, and the gate that mixes what its two looks see.
pub(super) struct LoopAttentionBlock {
    spec: LoopAttention,
    /// Of the first pass.
    call: CallSpec,
    attention: AttentionBlock,
    /// `[heads, head_dim]` and `[heads]`.
    gate: [Param; 2],
}

impl LoopAttentionBlock {
    pub(super) fn load(spec: &LoopAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut gate = |part: &str| store.vector(&format!("{path}.loop_gate.{part}"));
        let gate = [gate("weight")?, gate("bias")?];
        let attention = AttentionBlock::load(&spec.attention, store, path)?;
        Ok(Self { spec: spec.clone(), call: CallSpec::new(&spec.attention), attention, gate })
    }

    /// What the second pass sees in its own window and in all of layer `first`, mixed.
    fn mixed(&self, qkv: Array, first: usize, mut layer: LayerContext) -> mlx::Result<Array> {
        let LoopAttention { attention, window, .. } = &self.spec;
        let heads = attention.heads as i32;
        let local = Attention { span: AttentionSpan::Window(*window), ..attention.clone() };
        let global = Attention { keys: KeySource::Layer(first), ..attention.clone() };
        let width = heads * attention.head_dim as i32;
        let raw = qkv.slice(&[0, 0], &[qkv.dim(0)?, width])?;
        let queries = self.attention.prepared_queries(&global, &raw, layer.ctx)?;
        let local = self.attention.attended(&CallSpec::new(&local), qkv, None, layer.part(0))?;
        let global = self.attention.attended(&CallSpec::new(&global), raw, None, layer)?;
        let [rows, width] = local.dims()?;
        let by_head = |x: &Array| x.reshape(&[rows, heads, -1]);
        let [weight, bias] = &self.gate;
        let gate = ((by_head(&queries)? * weight).sum(&[-1])? + bias).sigmoid()?.expand_dims(&[-1])?;
        let (local, global) = (by_head(&local)?, by_head(&global)?);
        (&local + gate * (global - &local)).reshape(&[rows, width])
    }
}

impl MixerBlock for LoopAttentionBlock {
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array> {
        let qkv = self.attention.project(x)?;
        let attended = match layer.number()?.checked_sub(self.spec.layers) {
            None => self.attention.attended(&self.call, qkv, None, layer)?,
            Some(first) => self.mixed(qkv, first, layer)?,
        };
        self.attention.output(x, attended)
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.attention.span = span;
        self.call.set_span(span);
        self.attention.set_span(span);
    }
}
