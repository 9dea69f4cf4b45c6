//! What a pass launches: kernels of ours and operations of MLX, without a launch of any.

use mlx::gpu::{OtherArrays, StepArrays, StepTrace, TracedLaunch};
use mlx::{Array, Dtype};

use super::{DraftPassInput, Model};
use crate::batch::Batch;
use crate::forward::{ForwardContext, LogitRows};
use crate::kv_cache::KvCache;
use crate::step_graphs::{GraphPass, SEGMENTS_MAX};

/// What a decode step launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLaunches {
    /// From tokens to logits and hidden states, in an order in which they can run.
    pub pass: Vec<TracedLaunch>,
    /// From logits to tokens; empty where no kernel of ours chooses them.
    pub choice: Vec<TracedLaunch>,
    /// CUDA graphs that the pass becomes; `None` where its kernels are launched one by one.
    pub graphs: Option<usize>,
}

impl Model {
    /// Launches of a step, for [`mlx::on_planned_gpu`]: nothing is computed, and `cache` is as before.
    pub fn step_launches(&self, batch: &Batch, cache: &mut KvCache) -> mlx::Result<StepLaunches> {
        let (mut ctx, _adapted) = self.context(batch, cache)?;
        let rows = batch.tokens.size() as i32;
        // As steps that are graphs, padding rows included.
        ctx.logits_at = Some(LogitRows::First(rows));
        let places = batch.hidden.as_ref().map(|hidden| hidden.places.as_slice()).unwrap_or_default();
        let pass = GraphPass { tokens: &batch.tokens, states: None, places };
        let compute = |tokens: &Array, cache: &mut KvCache| self.of_all_rows(tokens, &ctx, cache, places);
        let (pass, graphs) = pass_launches(pass, &ctx, cache, &self.params.arrays(), compute)?;
        Ok(StepLaunches { pass, choice: self.choice_launches(rows)?, graphs })
    }

    /// Launches of a pass of a draft head likewise, as [`draft_pass`](Self::draft_pass) builds it.
    pub(crate) fn draft_launches(
        &self,
        input: DraftPassInput<'_>,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<StepLaunches> {
        let (mut ctx, _adapted) = self.context(batch, cache)?;
        let rows = batch.tokens.size() as i32;
        ctx.logits_at = Some(LogitRows::First(rows));
        let pass = GraphPass { tokens: &batch.tokens, states: input.states, places: &[] };
        let compute = |tokens: &Array, cache: &mut KvCache| self.draft_graph(input, tokens, &ctx, cache);
        let held = self.constants_with(input);
        let (pass, graphs) = pass_launches(pass, &ctx, cache, &held, compute)?;
        Ok(StepLaunches { pass, choice: input.target.choice_launches(rows)?, graphs })
    }

    /// Launches of the choice of a token for each row.
    fn choice_launches(&self, rows: i32) -> mlx::Result<Vec<TracedLaunch>> {
        if !self.has_choice_kernel() {
            return Ok(Vec::new());
        }
        let logits = Array::zeros(&[rows, self.blueprint.vocab as i32], Dtype::F32)?;
        let (numbers, top_k) = (Array::zeros(&[rows, 4], Dtype::F32)?, Array::zeros(&[rows], Dtype::I32)?);
        let tokens = mlx::gpu::choose_tokens(&logits, &numbers, &top_k, None)?;
        let inputs = [&logits, &numbers, &top_k];
        let arrays = StepArrays { inputs: &inputs, constants: &[], borrowed: &[], others: OtherArrays::Held };
        Ok(StepTrace::new(&[&tokens], &arrays)?.launches())
    }
}

/// What a pass launches, and the graphs that it becomes, if it does. `held`: weights; `compute`: builds the pass.
fn pass_launches(
    pass: GraphPass<'_>,
    ctx: &ForwardContext,
    cache: &mut KvCache,
    held: &[Array],
    compute: impl FnOnce(&Array, &mut KvCache) -> mlx::Result<Vec<Array>>,
) -> mlx::Result<(Vec<TracedLaunch>, Option<usize>)> {
    let pools: Vec<Array> = cache.arrays().cloned().collect();
    let pools: Vec<&Array> = pools.iter().collect();
    let tokens = pass.tokens.view(Dtype::I32)?;
    let computed = compute(&tokens, cache);
    cache.restore(&pools);
    let computed = computed?;
    let numbers = ctx.numbers_of_decode();
    // A graph gets tokens and numbers copied to their place; other passes upload them with a kernel.
    let pass = GraphPass { tokens: &tokens, ..pass };
    let given = pass.inputs(numbers.as_deref().unwrap_or_default(), |numbers| &numbers.device);
    let inputs: Vec<&Array> = held.iter().chain(given).collect();
    let arrays = StepArrays { inputs: &inputs, constants: &[], borrowed: &pools, others: OtherArrays::Held };
    let trace = StepTrace::new(&computed.iter().collect::<Vec<_>>(), &arrays)?;
    let graphs = Some(trace.graphs()).filter(|graphs| (1..=SEGMENTS_MAX).contains(graphs));
    Ok((trace.launches(), graphs.filter(|_| numbers.is_some())))
}
