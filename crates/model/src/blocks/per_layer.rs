//! Embeddings of each layer's own.

use mlx::{Array, Dtype, fast};

use super::{Embedding, Linear};
use crate::blueprint::PerLayerInputs;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The table, and the projection of the first layer's input.
pub(crate) struct PerLayerEmbedding {
    spec: PerLayerInputs,
    table: Embedding,
    projection: Linear,
    /// `[width]`
    norm: Param,
}

impl PerLayerEmbedding {
    pub(crate) fn load(spec: PerLayerInputs, store: &mut Store, root: &str) -> Result<Self, LoadError> {
        Ok(Self {
            spec,
            table: store.embedding(&format!("{root}.embed_tokens_per_layer"))?,
            projection: store.linear(&format!("{root}.per_layer_model_projection"))?,
            norm: store.vector(&format!("{root}.per_layer_projection_norm.weight"))?,
        })
    }

    /// Of each layer, `[layers, T, width]`: half from the tokens `[T]`, half from `embedded`, `[T, hidden]`. Contiguous, so that
    /// a layer's are a view.
    pub(crate) fn forward(&self, tokens: &Array, embedded: &Array) -> mlx::Result<Array> {
        let (width, dtype) = (self.spec.width as i32, embedded.dtype()?);
        let [rows, hidden] = embedded.dims()?;
        let known = tokens.less(&Array::from_slice(&[self.spec.vocab as i32], &[1])?)?;
        let tokens = mlx::where_(&known, tokens, &Array::zeros(&[1], Dtype::I32)?)?;
        let own = self.table.forward(&tokens, dtype)? * (width as f32).sqrt();
        let projected = self.projection.forward(embedded)? * (hidden as f32).powf(-0.5);
        let projected = projected.reshape(&[rows, -1, width])?;
        let projected = fast::rms_norm(&projected, Some(&self.norm), self.spec.norm_eps)?;
        let of_rows = (projected + own.reshape(&[rows, -1, width])?) * 0.5f32.sqrt();
        of_rows.transpose(&[1, 0, 2])?.contiguous()
    }
}
