//! What a pass launches: kernels of ours and operations of MLX, without a launch of any.

use mlx::gpu::{OtherArrays, StepArrays, StepTrace, TracedLaunch};
use mlx::{Array, Dtype};

use super::Model;
use crate::batch::Batch;
use crate::forward::{LogitRows, Numbers};
use crate::kv_cache::KvCache;
use crate::step_graphs::SEGMENTS_MAX;

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
        let pools: Vec<Array> = cache.arrays().cloned().collect();
        let pools: Vec<&Array> = pools.iter().collect();
        let (mut ctx, _adapted) = self.context(batch, cache)?;
        // As steps that are graphs, padding rows included.
        let rows = batch.tokens.size() as i32;
        ctx.logits_at = Some(LogitRows::First(rows));
        let tokens = batch.tokens.view(Dtype::I32)?;
        let places = batch.hidden.as_ref().map(|hidden| hidden.places.as_slice()).unwrap_or_default();
        let computed = self.of_all_rows(&tokens, &ctx, cache, places);
        cache.restore(&pools);
        let computed = computed?;
        let numbers: Option<Vec<&Numbers>> = ctx.numbers_of_decode();
        let held = self.params.arrays();
        // A graph gets tokens and numbers copied to their place; other passes upload them with a kernel.
        let given = numbers.iter().flatten().map(|numbers| &numbers.device).chain([&tokens]);
        let inputs: Vec<&Array> = held.iter().chain(given).collect();
        let arrays =
            StepArrays { inputs: &inputs, constants: &[], borrowed: &pools, others: OtherArrays::Held };
        let trace = StepTrace::new(&computed.iter().collect::<Vec<_>>(), &arrays)?;
        let graphs = Some(trace.graphs()).filter(|graphs| (1..=SEGMENTS_MAX).contains(graphs));
        Ok(StepLaunches {
            pass: trace.launches(),
            choice: self.choice_launches(rows)?,
            graphs: graphs.filter(|_| numbers.is_some()),
        })
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
