//! Building blocks of layers: linear layers, norms, and the residual stream. A block owns its weights and the operations
//! that compute with them; mixers and MLPs are blocks, too.
//!
//! Invariant: rows are independent here and in `mlps`, so decode rows, prefill chunks and padding share every matmul.

mod adapted;
mod alternating;
mod finish;
mod fuse;
mod hadamard;
mod history;
mod hyper;
mod laurel;
mod linear;
mod masked_head;
mod media_vocabulary;
mod norm;
mod per_layer;
mod projection;
mod residual;

use mlx::Array;

use crate::mixers::AttentionSpan;
use crate::ops::LayerContext;
pub(crate) use adapted::{AdaptedPass, AdaptedWeight, Adapters};
pub(crate) use alternating::{AlternatingBlock, CopiesBlock};
pub(crate) use finish::{FinishBlock, TokenInputs};
pub(crate) use fuse::FuseBlock;
pub(crate) use hadamard::HadamardRotation;
pub(crate) use history::HistoryBlock;
pub(crate) use hyper::HyperBlock;
pub(crate) use laurel::LaurelBlock;
pub(crate) use linear::{Embedding, ExpertLinear, Fused, LIMITS, Limits, Linear};
pub(crate) use masked_head::MaskedHeadBlock;
pub(crate) use media_vocabulary::MediaVocabularyBlock;
pub(crate) use norm::{NormBlock, ResidualStream};
pub(crate) use per_layer::PerLayerEmbedding;
pub(crate) use projection::Projection;
pub(crate) use residual::ResidualBlock;

/// One layer's mixer with its weights.
pub(crate) trait MixerBlock {
    /// `[T, hidden]` → `[T, hidden]`. Keys and values, or states, are written to the layer's cache.
    fn forward(&self, x: &Array, layer: LayerContext) -> mlx::Result<Array>;

    /// Of cross attention: keys and values of a picture's rows, `[n, hidden]`, both `[1, kv_heads, n, head_dim]`.
    fn cross_keys(&self, _rows: &Array) -> mlx::Result<Option<[Array; 2]>> {
        Ok(None)
    }

    /// Whether rows without a picture skip its layer.
    fn attends_to_pictures(&self) -> bool {
        false
    }

    /// Changes which earlier positions a query attends to.
    fn set_span(&mut self, _span: AttentionSpan) {}
}

/// One layer's MLP with its weights.
pub(crate) trait MlpBlock {
    /// `[T, hidden]` → `[T, hidden]`.
    fn forward(&self, x: &Array) -> mlx::Result<Array>;
}
