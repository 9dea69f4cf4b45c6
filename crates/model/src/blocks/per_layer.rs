//! Embeddings of each layer's own.

use mlx::{Array, Dtype, fast};

use super::{Embedding, Linear};
use crate::blueprint::PerLayerInputs;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The table, and the projection of the first layer's input.
pub(crate) struct PerLayerEmbedding {
    spec: PerLayerInputs,
    table: Option<Embedding>,
    projection: Linear,
    /// `[width]`
    norm: Param,
}

impl PerLayerEmbedding {
    pub(crate) fn load(spec: PerLayerInputs, store: &mut Store, root: &str) -> Result<Self, LoadError> {
        Ok(Self {
            spec,
            table: spec
                .vocab
                .map(|_| store.embedding(&format!("{root}.embed_tokens_per_layer")))
                .transpose()?,
            projection: store.linear(&format!("{root}.per_layer_model_projection"))?,
            norm: store.vector(&format!("{root}.per_layer_projection_norm.weight"))?,
        })
    }

    /// Of each layer, `[layers, T, width]`: from `embedded`, `[T, hidden]`, and half from the tokens `[T]`, where there is a
    /// table. Contiguous, so that a layer's are a view.
    pub(crate) fn forward(&self, tokens: &Array, embedded: &Array) -> mlx::Result<Array> {
        let (width, dtype) = (self.spec.width as i32, embedded.dtype()?);
        let [rows, hidden] = embedded.dims()?;
        let projected = self.projection.forward(embedded)? * (hidden as f32).powf(-0.5);
        let projected = projected.reshape(&[rows, -1, width])?;
        let projected = fast::rms_norm(&projected, Some(&self.norm), self.spec.norm_eps)?;
        let of_rows = match self.of_tokens(tokens, dtype)? {
            Some(own) => (projected + own.reshape(&[rows, -1, width])?) * 0.5f32.sqrt(),
            None => projected,
        };
        of_rows.transpose(&[1, 0, 2])?.contiguous()
    }

    /// The rows of the table, `[T, layers · width]`.
    fn of_tokens(&self, tokens: &Array, dtype: Dtype) -> mlx::Result<Option<Array>> {
        let Some((table, rows)) = self.table.as_ref().zip(self.spec.vocab) else { return Ok(None) };
        let known = tokens.less(&Array::from_slice(&[rows as i32], &[1])?)?;
        let tokens = mlx::where_(&known, tokens, &Array::zeros(&[1], Dtype::I32)?)?;
        Ok(Some(table.forward(&tokens, dtype)? * (self.spec.width as f32).sqrt()))
    }
}
