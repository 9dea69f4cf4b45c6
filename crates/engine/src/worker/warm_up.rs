//! First steps, before anybody waits for any: a GPU's kernels are compiled when they are first met.
//!
//! Invariant: nothing is left of them. They write to blocks that nobody has, the scheduler never hears of them, and so
//! the cost model does not learn from times in which kernels were compiled.

use std::collections::BTreeMap;
use std::time::Instant;

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{KvCacheGroup, Segment};

use super::catch_panic::catch_panic;
use super::runner::Runner;
use super::step_input::{Feed, Rows, SampleRow};
use crate::Sampling;
use crate::sampler::{self, History};
use crate::settings::{Settings, WarmUp};

/// Tokens of each sequence. Kernels differ by the rows of a step, up to some hundred, and where prompts meet answers.
const STEPS: [&[usize]; 14] = [
    &[512],
    &[256],
    &[128],
    &[64],
    &[32],
    &[16],
    &[8],
    &[1],
    &[1; 2],
    &[1; 4],
    &[1; 8],
    &[1; 16],
    &[1; 32],
    &[40, 1, 17, 1, 3, 1, 1, 24, 1],
];

/// Takes the first steps of a model, if it is to be. What fails is for requests to find: they may fit where this does
/// not.
pub(super) fn warm_up(runner: &mut Runner, settings: &Settings) -> mlx::Result<()> {
    let wanted = match settings.warm_up {
        WarmUp::Auto => runner.compiles(),
        WarmUp::On => true,
        WarmUp::Off => false,
    };
    if !wanted {
        return Ok(());
    }
    tracing::info!("taking the first steps; on a GPU they take a minute once, while kernels are compiled");
    let started = Instant::now();
    if let Err(error) = catch_panic(|| take_steps(runner, settings)) {
        tracing::warn!(%error, "the first steps failed");
        return runner.reset();
    }
    tracing::info!(seconds = started.elapsed().as_secs_f64(), "the first steps were taken");
    Ok(())
}

fn take_steps(runner: &mut Runner, settings: &Settings) -> mlx::Result<()> {
    let blocks = runner.least_blocks();
    let context = runner.blueprint().context.unwrap_or(usize::MAX);
    for step in STEPS {
        let sequences = step.len().min(settings.max_num_seqs).min(blocks).max(1);
        // Each sequence has as many blocks, and no step is larger than the plan for memory reckons with.
        let room = (blocks / sequences).max(1);
        let most = (settings.max_num_batched_tokens / sequences).min(context);
        let most = most.clamp(1, room * settings.block_size);
        let tokens: Vec<usize> = step.iter().take(sequences).map(|tokens| (*tokens).min(most)).collect();
        let rows = rows(runner, settings.block_size, room, &tokens);
        let launched = runner.launch(rows, &[], None, &BTreeMap::new(), |_| Vec::new())?;
        launched.read()?;
        draw(runner, sequences)?;
    }
    Ok(())
}

/// Rows of sequences that begin, of so many tokens each, over the first blocks.
fn rows(runner: &Runner, block_size: usize, room: usize, tokens: &[usize]) -> Rows {
    let groups = runner.state().groups();
    let mut rows = Rows::default();
    for (sequence, tokens) in tokens.iter().copied().enumerate() {
        let table = |group: &KvCacheGroup| {
            let blocks = match group.spec.kind.is_state() {
                true => sequence..sequence + 1,
                false => sequence * room..sequence * room + tokens.div_ceil(block_size),
            };
            let blocks = blocks.map(|block| BlockId(block as u32)).collect();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, block_size) }
        };
        let tables = groups.iter().map(table).collect();
        let first = rows.tokens.len();
        rows.tokens.extend((0..tokens).map(|_| Feed::Token(0)));
        rows.segments.push(Segment { first, len: tokens, context: 0, prompt: tokens, tables });
        // Beside answers, prompts are not read to their end yet.
        if tokens == 1 || sequence == 0 {
            let sequence = SequenceId(sequence as u64);
            let logits = rows.logits_at.len();
            rows.samples.push(SampleRow { sequence, logits, position: tokens, deferred: false, fault: None });
            rows.logits_at.push(first + tokens - 1);
        }
    }
    rows
}

/// Draws as requests with a temperature and with filters do; the steps themselves take the likeliest.
fn draw(runner: &Runner, sequences: usize) -> mlx::Result<()> {
    let vocab = runner.blueprint().vocab;
    let warm = Sampling { temperature: 0.8, ..Sampling::default() };
    let filtered = Sampling { top_k: 40, top_p: 0.9, min_p: 0.05, ..warm.clone() };
    for sampling in [&warm, &filtered] {
        let row = |position| sampler::Row {
            sampling,
            seed: 0,
            position,
            history: History { tokens: &[], prompt: 0 },
            logprobs: None,
            fault: None,
        };
        let logits = vec![0f32; sequences * vocab];
        let logits = Array::from_slice(&logits, &[sequences as i32, vocab as i32])?;
        let rows: Vec<_> = (0..sequences).map(row).collect();
        sampler::sample(&logits, &rows)?.read(&vec![None; sequences])?;
    }
    Ok(())
}
