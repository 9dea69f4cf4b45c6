//! One pass of a draft head.

use mlx::Array;

use super::pass::{Begins, PassInput};
use super::{Model, may_have_all_logits};
use crate::batch::Batch;
use crate::blueprint::{Head, HeadStates, TokenTable};
use crate::draft_states::DraftStates;
use crate::forward::{ForwardContext, LogitRows};
use crate::kv_cache::KvCache;
use crate::ops::LayerContext;
use crate::step_graphs::GraphPass;

/// What a pass of a draft head reads beside its batch.
#[derive(Clone, Copy)]
pub(crate) struct DraftPassInput<'a> {
    /// Whose table of embeddings and output matrix are read where the head has none of its own.
    pub(crate) target: &'a Model,
    /// Of the rows; `None` for a block of tokens behind a context.
    pub(crate) states: Option<DraftStates<'a>>,
    /// For each token of the target, its row of the head's own logits, `[vocab]` i32; none that is there for tokens that it never
    /// drafts.
    pub(crate) own_rows: Option<&'a Array>,
}

/// What a pass of a draft head gives of the rows that the batch names.
pub(crate) struct DraftPass {
    /// Float32, `[n, vocab]`, of the target's tokens. The next pass may write to the same memory.
    pub(crate) logits: Array,
    /// What its next pass reads, `[n, hidden]`.
    pub(crate) states: Array,
}

impl Model {
    /// Embeddings of tokens, `[T, hidden]`, as its first layer reads them. `tokens`: `[T]` i32.
    fn embeddings(&self, tokens: &Array) -> mlx::Result<Array> {
        let embed = self.embed.as_ref().ok_or_else(|| mlx::Error::new("a model with embeddings"))?;
        self.scaled(embed.forward(tokens, self.dtype)?, self.blueprint.embed_scale)
    }

    /// The hidden states of a target model, `[T, width]`, as layers of this draft head read them, `[T, hidden]`.
    fn states_of_target(&self, states: &Array) -> mlx::Result<Array> {
        let fuse = self.fuse.as_ref().ok_or_else(|| mlx::Error::new("a draft head"))?;
        fuse.of_target(&states.astype(self.dtype)?)
    }

    /// Builds the graph of one pass of a draft head. `None` if the batch names no rows. Its tokens are those that follow the rows.
    pub(crate) fn draft_pass(
        &self,
        input: DraftPassInput<'_>,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<Option<DraftPass>> {
        let (mut ctx, _adapted) = self.context(batch, cache)?;
        let rows = batch.tokens.size() as i32;
        if let Some(graphs) = self.graphs_of(batch)
            && let Some(wanted) = ctx.logits_at.take_if(|wanted| may_have_all_logits(wanted, rows))
        {
            // Padding rows have logits, too, so that fewer shapes occur.
            ctx.logits_at = Some(LogitRows::First(rows));
            let constants = || self.constants_with(input);
            let compute = |tokens: &Array, cache: &mut KvCache| self.draft_graph(input, tokens, &ctx, cache);
            let pass = GraphPass { tokens: &batch.tokens, states: input.states, places: &[] };
            if let Some(made) = graphs.run(pass, &ctx, cache, constants, compute)? {
                let [logits, states] = made.as_slice() else {
                    return Err(mlx::Error::new("logits and states"));
                };
                return Ok(Some(DraftPass { logits: wanted.of(logits)?, states: wanted.copied(states)? }));
            }
            ctx.logits_at = Some(wanted);
        }
        self.draft_rows(input, &batch.tokens, &ctx, cache)
    }

    /// Logits and states, as a graph gives them.
    pub(super) fn draft_graph(
        &self,
        input: DraftPassInput<'_>,
        tokens: &Array,
        ctx: &ForwardContext,
        cache: &mut KvCache,
    ) -> mlx::Result<Vec<Array>> {
        let made = self.draft_rows(input, tokens, ctx, cache)?;
        Ok(made.map(|DraftPass { logits, states }| vec![logits, states]).unwrap_or_default())
    }

    /// What the rows that the pass names give; `None` if it names none.
    fn draft_rows(
        &self,
        DraftPassInput { target, states, own_rows }: DraftPassInput<'_>,
        tokens: &Array,
        ctx: &ForwardContext,
        cache: &mut KvCache,
    ) -> mlx::Result<Option<DraftPass>> {
        let input = self.blueprint.stage.draft_head();
        let (Some(input), Some(fuse)) = (input, &self.fuse) else {
            return Err(mlx::Error::new("a draft head"));
        };
        let embedded = match input.table {
            TokenTable::Own => self.embeddings(tokens)?,
            TokenTable::Target => target.embeddings(tokens)?.astype(self.dtype)?,
        };
        let states = match states {
            Some(DraftStates::OfTarget(states)) => Some(self.states_of_target(states)?),
            Some(DraftStates::OfHead(states)) => Some(states.clone()),
            None => None,
        };
        let stream = fuse.stream(&embedded, states.as_ref())?;
        let fused = PassInput::Fused { embedded: &embedded, stream: &stream };
        let made = self.hidden(fused, ctx, cache, (None, Begins::Evaluated))?;
        let Some(rows) = &ctx.logits_at else { return Ok(None) };
        let normed = self.normed(made.stream.clone(), rows)?;
        let states = match input.states {
            HeadStates::FinalNorm | HeadStates::Context(_) => normed.clone(),
            HeadStates::Streams(_) => rows.of(&made.stream.plain()?)?,
        };
        let logits = match (self.blueprint.head, own_rows) {
            (Head::Target, _) => target.logits(&normed.astype(target.dtype())?)?,
            (_, Some(rows)) => self.ops.take_columns(&self.head_rows(&normed)?, rows)?,
            (_, None) => self.logits(&normed)?,
        };
        Ok(Some(DraftPass { logits, states }))
    }

    /// Evaluated arrays that a pass reads besides its input and its caches.
    pub(super) fn constants_with(&self, input: DraftPassInput<'_>) -> Vec<Array> {
        let own_rows = input.own_rows.cloned().into_iter().collect();
        [self.constants(), input.target.constants(), own_rows].concat()
    }

    /// Writes the keys and values of rows of the context in every layer, lazily. `states`: the target's of the rows, `[T, width]`.
    pub(crate) fn write_context(
        &self,
        states: &Array,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<()> {
        let states = self.states_of_target(states)?;
        let (ctx, _adapted) = self.context(batch, cache)?;
        let mut index = 0;
        for (layer, spec) in self.layers.iter().zip(&self.blueprint.layers) {
            let _attended = layer.mixer.forward(&states, LayerContext { ctx: &ctx, index, cache })?;
            index += spec.mixer.spec().caches().len();
        }
        Ok(())
    }
}
