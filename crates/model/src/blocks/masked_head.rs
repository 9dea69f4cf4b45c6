//! The head of a masked language model.

use mlx::{Array, Dtype};

use super::{Embedding, Linear, NormBlock};
use crate::Activation;
use crate::blueprint::{MASKED_HEAD, MaskedHead};
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// A dense layer, an activation and a norm before the embedding, and a bias behind it.
pub(crate) struct MaskedHeadBlock {
    ops: Ops,
    dense: Linear,
    act: Activation,
    norm: NormBlock,
    /// `[vocab]`
    bias: Param,
}

impl MaskedHeadBlock {
    pub(crate) fn load(spec: MaskedHead, store: &mut Store) -> Result<Self, LoadError> {
        let (at, hidden) = (|name: &str| format!("{MASKED_HEAD}.{name}"), store.hidden());
        Ok(Self {
            ops: store.ops(),
            // Its rows are those of one text, not of the pass.
            dense: store.linear(&at("dense"))?.without_adapters()?,
            act: spec.act,
            norm: store.norm(&at("norm"), spec.norm, hidden)?,
            bias: store.vector(&at("bias"))?,
        })
    }

    /// Float32 logits, `[n, vocab]`, of hidden states, `[n, hidden]`.
    pub(crate) fn logits(&self, hidden: &Array, embed: &Embedding) -> mlx::Result<Array> {
        let transformed = self.norm.forward(&self.ops.act(&self.dense.forward(hidden)?, self.act)?)?;
        Ok(embed.0.forward(&transformed)?.astype(Dtype::F32)? + &self.bias)
    }
}
