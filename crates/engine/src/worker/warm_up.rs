//! Warm-up steps before the first request: a GPU's kernels are compiled on first use.
//!
//! Invariant: they leave no trace. They write to blocks that no sequence has, and the scheduler and its cost model never
//! see them.

use std::time::Instant;

use mlx::Array;
use omnibus_core::{BlockCopy, Padding, SequenceId};
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{KvCacheGroup, Model, PassShape};

use super::capacity::Capacity;
use super::catch_panic::catch_panic;
use super::device_call::{Device, DeviceCall};
use super::drafting::LoadedDrafter;
use super::model_runner::ModelRunner;
use super::step_input::{InputSegment, InputToken, StepInput};
use crate::command_buffers::first_step_tokens;
use crate::request::Sampling;
use crate::sampler::{Chooser, LateStops, NewSequence, SampleRow, Sampler, SamplingChanges};
use crate::settings::{Settings, WarmUp};

/// Tokens of each sequence in each step. Kernels differ by the number of rows, up to some hundred, and where prefill and
/// decode share a batch.
const STEPS: [&[usize]; 19] = [
    &[512],
    &[256],
    &[128],
    &[96],
    &[80],
    &[64],
    &[48],
    &[32],
    &[16],
    &[8],
    &[1],
    &[1; 2],
    &[1; 4],
    &[1; 8],
    &[1; 16],
    &[1; 32],
    &[1; 64],
    &[1; 128],
    &[160, 1, 17, 1, 3, 1, 1, 24, 1],
];

/// Steps that are run in any case where one process launches decode steps as graphs (no recurrent model has ranks). They start
/// from no state, so they can be computed twice: decode steps of recurrent models trust graphs once the graph of such a step was
/// compared with its kernels.
const COMPARED_STEPS: [&[usize]; 1] = [&[1]];

/// Compiles the kernels of the warm-up steps on all cores, and those of what drafts, before anything else needs them. A failure
/// costs only time.
pub(super) fn compile_ahead(
    model: &Model,
    draft: Option<&LoadedDrafter>,
    capacity: &Capacity,
    settings: &Settings,
) {
    if settings.warm_up == WarmUp::Off {
        return;
    }
    let started = Instant::now();
    let most = first_tokens(settings).min(model.blueprint().context.unwrap_or(usize::MAX));
    let shape = |step: &&[usize]| {
        let sequences: Vec<usize> = step.iter().map(|tokens| (*tokens).min(most)).collect();
        PassShape { rows: Padding::Buckets.of(sequences.iter().sum()), sequences }
    };
    let shapes: Vec<PassShape> = STEPS.iter().map(shape).collect();
    let compile = || {
        let kernels = model.compile_ahead(capacity.storage, capacity.block_size, &shapes)?;
        let cache = (capacity.storage, capacity.block_size);
        let of_drafts = draft.map(|draft| draft.compile_ahead(model, cache, &shapes)).transpose()?;
        Ok(kernels + of_drafts.unwrap_or(0))
    };
    match catch_panic(compile) {
        Ok(0) => return,
        Ok(kernels) => {
            tracing::info!(kernels, seconds = started.elapsed().as_secs_f64(), "kernels are compiled");
        }
        Err(error) => {
            // What failed with it must not reach the next evaluation.
            let _failures = mlx::recover();
            tracing::warn!(%error, "kernels are compiled when they are first used");
        }
    }
    mlx::memory::clear_cache();
}

/// What warm-up steps need to know of a model.
pub(super) struct WarmUpModel {
    /// Of the smallest layer group.
    blocks: usize,
    context: usize,
    groups: Vec<KvCacheGroup>,
    vocab: usize,
    chooser: Chooser,
    compiles: bool,
    uses_step_graphs: bool,
}

impl WarmUpModel {
    pub(super) fn of(runner: &ModelRunner) -> Self {
        Self {
            blocks: runner.least_blocks(),
            context: runner.blueprint().context.unwrap_or(usize::MAX),
            groups: runner.cache().groups().to_vec(),
            vocab: runner.blueprint().vocab,
            chooser: runner.chooser(),
            compiles: runner.compiles(),
            uses_step_graphs: runner.uses_step_graphs(),
        }
    }
}

/// Runs warm-up steps, if the settings say so. A failure is no error: requests may fit where these steps do not.
pub(super) fn warm_up(device: &mut dyn Device, model: &WarmUpModel, settings: &Settings) -> mlx::Result<()> {
    let steps: &[&[usize]] = match settings.warm_up {
        WarmUp::Auto if model.compiles => &STEPS,
        WarmUp::On => &STEPS,
        WarmUp::Off if model.uses_step_graphs && settings.tensor_parallel_size <= 1 => &COMPARED_STEPS,
        WarmUp::Auto | WarmUp::Off => return Ok(()),
    };
    tracing::info!("warming up (the first start on a GPU also compiles kernels)");
    let started = Instant::now();
    if let Err(error) = catch_panic(|| run_steps(device, model, settings, steps)) {
        tracing::warn!(%error, "the warm-up failed");
        return device.call(DeviceCall::Reset).map(drop);
    }
    tracing::info!(seconds = started.elapsed().as_secs_f64(), "warmed up");
    Ok(())
}

fn run_steps(
    device: &mut dyn Device,
    model: &WarmUpModel,
    settings: &Settings,
    steps: &[&[usize]],
) -> mlx::Result<()> {
    let WarmUpModel { blocks, context, .. } = *model;
    for (step, number) in steps.iter().zip(0..) {
        let sequences = step.len().min(settings.max_num_seqs).min(blocks).max(1);
        // Each sequence has as many blocks, and no step is larger than the memory plan allows.
        let room = (blocks / sequences).max(1);
        let most = (first_tokens(settings) / sequences).min(context);
        let most = most.clamp(1, room * settings.block_size);
        let tokens: Vec<usize> = step.iter().take(sequences).map(|tokens| (*tokens).min(most)).collect();
        let input = Box::new(step_input(model, settings.block_size, room, &tokens));
        device.call(DeviceCall::Forward { step: number, after: None, input })?;
        device.call(DeviceCall::Sample { step: number, changes: Box::default() })?;
        device.call(DeviceCall::Read { step: number })?;
        sample(model, sequences)?;
    }
    Ok(())
}

/// Tokens of a step before any is measured.
fn first_tokens(settings: &Settings) -> usize {
    first_step_tokens(settings.tuning.step_time, settings.step_tokens())
}

/// Rows of new sequences with these token counts, over the first blocks. Unknown to the sampler, they are greedy.
fn step_input(model: &WarmUpModel, block_size: usize, room: usize, tokens: &[usize]) -> StepInput {
    let mut input = StepInput::default();
    if tokens.len() > 1 {
        // Prompts that share part of a block copy it, of states the whole.
        let copy = |group| BlockCopy { group, from: BlockId(0), to: BlockId(1) };
        input.copies = (0..model.groups.len()).map(copy).collect();
    }
    for (at, tokens) in tokens.iter().copied().enumerate() {
        let table = |group: &KvCacheGroup| {
            let blocks = match group.spec.kind.is_state() {
                true => at..at + 1,
                false => at * room..at * room + tokens.div_ceil(block_size),
            };
            let blocks = blocks.map(|block| BlockId(block as u32)).collect();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, block_size) }
        };
        let (first, sequence) = (input.tokens.len(), SequenceId(at as u64));
        input.tokens.extend((0..tokens).map(|_| InputToken::Known(0)));
        // Beside decodes, prompts are chunks that are not sampled.
        let is_sampled = tokens == 1 || at == 0;
        input.segments.push(InputSegment {
            sequence,
            first,
            len: tokens,
            context: 0,
            prompt: tokens,
            samples: usize::from(is_sampled),
            adapter: 0,
            keeps_states: false,
            tables: model.groups.iter().map(table).collect(),
        });
        if is_sampled {
            let logits = input.logits_at.len();
            input.samples.push(SampleRow { sequence, position: tokens, logits });
            input.logits_at.push(first + tokens - 1);
        }
    }
    input
}

/// Samples with a temperature and with filters; the steps themselves are greedy.
fn sample(model: &WarmUpModel, sequences: usize) -> mlx::Result<()> {
    let vocab = model.vocab;
    let plain = Sampling { temperature: 0.8, ..Sampling::default() };
    let filtered = Sampling { top_k: 40, top_p: 0.9, min_p: 0.05, ..plain.clone() };
    for sampling in [plain, filtered] {
        let new = |id| NewSequence {
            sequence: SequenceId(id as u64),
            sampling: sampling.clone(),
            logprobs: None,
            logprob_token_ids: Vec::new(),
            tokens: Vec::new(),
            prompt: 0,
            late_stops: LateStops::default(),
            xtc_kept: Vec::new(),
            dry_breakers: Vec::new(),
        };
        let row = |id| SampleRow { sequence: SequenceId(id as u64), position: id, logits: id };
        let mut sampler = Sampler::new(model.chooser);
        let added = (0..sequences).map(new).collect();
        sampler.apply(&SamplingChanges { added, ..SamplingChanges::default() });
        let logits = vec![0f32; sequences * vocab];
        let logits = Array::from_slice(&logits, &[sequences as i32, vocab as i32])?;
        let rows: Vec<SampleRow> = (0..sequences).map(row).collect();
        sampler.sample(&logits, &rows)?.read()?;
    }
    Ok(())
}
