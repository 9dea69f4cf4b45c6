//! One pass of a draft head.

use mlx::Array;

use super::Model;
use super::pass::{Begins, PassInput};
use crate::batch::Batch;
use crate::blueprint::HeadStates;
use crate::kv_cache::KvCache;
use crate::ops::LayerContext;

/// What a pass of a draft head gives of the rows that the batch names.
pub(crate) struct DraftPass {
    /// Behind its final norm, `[n, hidden]`.
    pub(crate) normed: Array,
    /// What its next pass reads, `[n, hidden]`.
    pub(crate) states: Array,
}

impl Model {
    /// Embeddings of tokens, `[T, hidden]`, as its first layer reads them. `tokens`: `[T]` i32.
    pub(crate) fn embeddings(&self, tokens: &Array) -> mlx::Result<Array> {
        let embed = self.embed.as_ref().ok_or_else(|| mlx::Error::new("a model with embeddings"))?;
        self.scaled(embed.forward(tokens, self.dtype)?, self.blueprint.embed_scale)
    }

    /// The hidden states of a target model, `[T, width]`, as passes of this draft head read them, `[T, hidden]`.
    pub(crate) fn states_of_target(&self, states: &Array) -> mlx::Result<Array> {
        let fuse = self.fuse.as_ref().ok_or_else(|| mlx::Error::new("a draft head"))?;
        fuse.of_target(&states.astype(self.dtype)?)
    }

    /// Builds the graph of one pass of a draft head. `None` if the batch names no rows.
    ///
    /// `embedded`: of the tokens that follow the rows, `[T, hidden]`. `states`: of the rows, `[T, hidden]`.
    pub(crate) fn draft_pass(
        &self,
        embedded: &Array,
        states: &Array,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<Option<DraftPass>> {
        let input = self.blueprint.stage.draft_head();
        let (Some(input), Some(fuse)) = (input, &self.fuse) else {
            return Err(mlx::Error::new("a draft head"));
        };
        let (ctx, _adapted) = self.context(batch, cache)?;
        let stream = fuse.stream(embedded, states)?;
        let fused = PassInput::Fused { embedded, stream: &stream };
        let made = self.hidden(fused, &ctx, cache, (None, Begins::Evaluated))?;
        let Some(rows) = &ctx.logits_at else { return Ok(None) };
        let normed = self.normed(made.stream.clone(), rows)?;
        let states = match input.states {
            HeadStates::FinalNorm => normed.clone(),
            HeadStates::Streams(_) => rows.of(&made.stream.plain()?)?,
            HeadStates::Context(_) => normed.clone(),
        };
        Ok(Some(DraftPass { normed, states }))
    }

    /// Writes the keys and values of rows of the context in every layer, lazily. `states`: of the rows, `[T, hidden]`.
    pub(crate) fn write_context(
        &self,
        states: &Array,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<()> {
        let (ctx, _adapted) = self.context(batch, cache)?;
        let mut index = 0;
        for (layer, spec) in self.layers.iter().zip(&self.blueprint.layers) {
            let _attended = layer.mixer.forward(states, LayerContext { ctx: &ctx, index, cache })?;
            index += spec.mixer.spec().caches().len();
        }
        Ok(())
    }
}
