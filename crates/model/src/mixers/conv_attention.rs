//! Attention over keys and values that are convolved with those of the row before (Baichuan M1).

use mlx::{Array, Dtype};

use super::attention::{AttentionBlock, CallSpec};
use super::{Attention, AttentionSpan, MixerCache, MixerSpec, Recurrence};
use crate::blocks::MixerBlock;
use crate::manifest::{Scope, TensorRole};
use crate::ops::{CausalConv, LayerContext, Ops};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Attention, and the convolution of its keys and values before they rotate: two weights for each head.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct ConvAttention {
    pub conv: KeyConv,
    pub attention: Attention,
}

/// The keys and values of the row before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyConv {
    /// Width of keys and values together.
    pub width: usize,
}

/// Rows that a key is made from.
const ROWS: usize = 2;

impl ConvAttention {
    /// Of this attention, whose keys are as wide as its values.
    pub fn new(attention: Attention) -> Self {
        Self { conv: KeyConv { width: 2 * attention.kv_heads * attention.head_dim }, attention }
    }
}

impl Recurrence for KeyConv {
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![ROWS - 1, self.width], vec![1]]
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

impl Rules for ConvAttention {
    fn check_rules(&self, broken: &mut Broken) {
        self.attention.check_rules(broken);
    }
}

impl Tensors for ConvAttention {
    fn name_tensors(&self, at: &mut Scope) {
        for name in ["conv_k", "conv_v"] {
            at.tensor(name, &[1, 1, self.attention.kv_heads, 1, ROWS], TensorRole::Heads);
        }
        self.attention.name_tensors(at);
    }
}

impl Footprint for ConvAttention {
    fn row_elements(&self, hidden: usize) -> usize {
        2 * self.conv.width + self.attention.row_elements(hidden)
    }
}

impl MixerSpec for ConvAttention {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        vec![&self.conv, &self.attention]
    }
}

/// The attention with its weights and those of the convolution.
pub(super) struct ConvAttentionBlock {
    ops: Ops,
    conv: CausalConv,
    spec: CallSpec,
    attention: AttentionBlock,
    /// Width of the queries.
    queries: i32,
}

impl ConvAttentionBlock {
    pub(super) fn load(spec: &ConvAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut weights = |name: &str| -> Result<Array, LoadError> {
            let by_head = store.float(&format!("{path}.{name}"))?.reshape(&[-1, ROWS as i32])?;
            Ok(by_head.repeat(spec.attention.head_dim as i32, 0)?.t()?)
        };
        let weight = mlx::concatenate(&[&weights("conv_k")?, &weights("conv_v")?], -1)?.astype(Dtype::F32)?;
        Ok(Self {
            ops: store.ops(),
            conv: CausalConv { weight: store.params().hold(weight), bias: None },
            spec: CallSpec::new(&spec.attention),
            attention: AttentionBlock::load(&spec.attention, store, path)?,
            queries: (spec.attention.heads * spec.attention.head_dim) as i32,
        })
    }
}

impl MixerBlock for ConvAttentionBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let parts = self.attention.project(x)?.split(&[self.queries], -1)?;
        let [queries, keys] = parts.as_slice() else { return Err(mlx::Error::new("queries and keys")) };
        let mixed = self.ops.convolve(&self.conv, keys, layer.part(0))?;
        let qkv = mlx::concatenate(&[queries, &mixed], -1)?;
        let attended = self.attention.attended(&self.spec, qkv, None, layer.part(1))?;
        self.attention.output(x, attended)
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.spec.set_span(span);
    }
}
