//! Computes plans: builds the graph of a step, launches it, and reads it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mlx::{Array, Dtype};
use omnibus_core::{BlockCopy, CachedBlock, SequenceId};
use omnibus_kv::BlockId;
use omnibus_model::{
    Batch, BlockExport, BlockImport, Blueprint, Kernels, KvCache, KvPath, KvStorage, Model, PromptCache,
};

use super::capacity::Capacity;
use super::prompt_logprobs::PromptLogprobs;
use super::step_input::{Feed, Rows, SampleRow};
use crate::message::{Job, JobUpdate};
use crate::sampler::{self, History, PendingSample, SampledToken};
use crate::settings::{AsyncScheduling, Settings};

/// The model, its memory, and the way steps are built.
pub(super) struct Runner {
    model: Model,
    state: KvCache,
    blocks: Vec<usize>,
    block_size: usize,
    storage: KvStorage,
    padding: Padding,
    async_scheduling: AsyncScheduling,
    dispatching: Duration,
}

/// How the number of rows is rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    /// Not at all: our CPU kernels take any number equally well.
    None,
    /// To 1, 2, 4, … 64 and then multiples of 64, so that a GPU meets few shapes.
    Buckets,
}

/// A step that was launched and not yet read.
pub(super) struct Launched {
    samples: Vec<SampleRow>,
    logprobs_requested: Vec<Option<usize>>,
    /// `None` while rows wait for a token in flight, or when nothing is sampled.
    drawn: Option<PendingSample>,
    /// Supervised until the late rows can be drawn.
    logits: Option<Array>,
    prompts: Vec<PromptLogprobs>,
    /// What else was launched; read to learn of failures when nothing is sampled.
    tail: Option<Array>,
}

impl Runner {
    pub(super) fn new(model: Model, capacity: &Capacity, settings: &Settings) -> mlx::Result<Self> {
        let state = KvCache::new(model.blueprint(), &capacity.blocks, capacity.block_size, capacity.storage)?;
        let padding = if model.kernels() == Kernels::Cpu { Padding::None } else { Padding::Buckets };
        Ok(Self {
            model,
            state,
            blocks: capacity.blocks.clone(),
            block_size: capacity.block_size,
            storage: capacity.storage,
            padding,
            async_scheduling: settings.async_scheduling,
            dispatching: Duration::ZERO,
        })
    }

    /// Layer groups of the model.
    pub(super) fn groups(&self) -> usize {
        self.blocks.len()
    }

    /// True where kernels are compiled as they are met.
    pub(super) fn compiles(&self) -> bool {
        self.model.kernels() != Kernels::Cpu
    }

    /// Blocks of the group that has fewest.
    pub(super) fn least_blocks(&self) -> usize {
        self.blocks.iter().copied().min().unwrap_or(0)
    }

    /// Steps that may be in flight.
    pub(super) fn depth(&self) -> usize {
        match (self.async_scheduling, self.model.kv_path()) {
            (AsyncScheduling::On, KvPath::Paged) => 2,
            (AsyncScheduling::Off, _) | (_, KvPath::Gather) => 1,
        }
    }

    /// Launches a step: its forward pass, and its sampling unless a row has to wait for a token of
    /// the step before.
    pub(super) fn launch(
        &mut self,
        rows: Rows,
        copies: &[BlockCopy],
        before: Option<&Launched>,
        jobs: &BTreeMap<SequenceId, Job>,
        tokens_of: impl Fn(SequenceId) -> Vec<u32>,
    ) -> mlx::Result<Launched> {
        for group in 0..self.groups() {
            let copies: Vec<(BlockId, BlockId)> =
                copies.iter().filter(|copy| copy.group == group).map(|copy| (copy.from, copy.to)).collect();
            self.state.copy_blocks(group, &copies)?;
        }
        let tokens = self.feed(&rows.tokens, before)?;
        let Rows { segments, logits_at, samples, prompts, .. } = rows;
        let logits = self.model.forward(&Batch { tokens, segments, logits_at }, &mut self.state)?;
        let logits = logits.map(|logits| logits.0);
        let scored = match &logits {
            Some(logits) => {
                prompts.iter().map(|rows| PromptLogprobs::of(logits, rows)).collect::<mlx::Result<_>>()?
            }
            None => Vec::new(),
        };
        let logprobs_requested =
            samples.iter().map(|row| jobs.get(&row.sequence).and_then(|job| job.logprobs)).collect();
        let tail = self.state.arrays().last().cloned();
        let mut launched =
            Launched { samples, logprobs_requested, drawn: None, logits, prompts: scored, tail };
        if launched.samples.iter().any(|row| row.deferred) {
            let waiting = launched.logits.iter().chain(launched.prompt_arrays()).chain(self.state.arrays());
            dispatch(&mut self.dispatching, waiting)?;
            return Ok(launched);
        }
        self.draw(&mut launched, jobs, tokens_of)?;
        Ok(launched)
    }

    /// Launches the sampling of a step whose rows waited for tokens that are now known.
    pub(super) fn draw(
        &mut self,
        launched: &mut Launched,
        jobs: &BTreeMap<SequenceId, Job>,
        tokens_of: impl Fn(SequenceId) -> Vec<u32>,
    ) -> mlx::Result<()> {
        let logits = launched.logits.take();
        if let (Some(logits), false) = (&logits, launched.samples.is_empty()) {
            let at: Vec<i32> = launched.samples.iter().map(|row| row.logits as i32).collect();
            let [rows, _] = logits.dims()?;
            let all = at.iter().copied().eq(0..rows);
            let logits = if all {
                logits.clone()
            } else {
                logits.take(&Array::from_slice(&at, &[at.len() as i32])?, 0)?
            };
            launched.drawn = Some(draw_rows(&logits, &launched.samples, jobs, tokens_of)?);
        }
        let drawn = launched.drawn.iter().flat_map(PendingSample::arrays);
        dispatch(&mut self.dispatching, drawn.chain(launched.prompt_arrays()).chain(self.state.arrays()))
    }

    /// Time spent in handing graphs to MLX since this was last asked.
    pub(super) fn take_dispatching(&mut self) -> Duration {
        std::mem::take(&mut self.dispatching)
    }

    /// Every row's token, `[T]` i32, padded.
    fn feed(&self, feeds: &[Feed], before: Option<&Launched>) -> mlx::Result<Array> {
        let count = self.padding.of(feeds.len());
        let drawn = before.and_then(|before| before.drawn.as_ref());
        let known: Vec<i32> = feeds
            .iter()
            .map(|feed| match feed {
                Feed::Token(token) => *token as i32,
                Feed::Sample(_) => 0,
            })
            .chain(std::iter::repeat(0))
            .take(count)
            .collect();
        let known = Array::from_slice(&known, &[count as i32])?;
        if !feeds.iter().any(|feed| matches!(feed, Feed::Sample(_))) {
            return Ok(known);
        }
        let drawn = drawn.ok_or_else(|| mlx::Error::new("a row waits for a sample that nobody draws"))?;
        let samples = drawn.tokens.size();
        let place = |(row, feed): (usize, &Feed)| match feed {
            Feed::Token(_) => Ok(row as i32),
            Feed::Sample(sample) if *sample < samples => Ok((count + sample) as i32),
            Feed::Sample(_) => Err(mlx::Error::new("a row waits for a sample that is not there")),
        };
        let mut places = feeds.iter().enumerate().map(place).collect::<mlx::Result<Vec<i32>>>()?;
        places.extend((feeds.len()..count).map(|row| row as i32));
        // A decode step usually feeds exactly the samples of the last one, in their order.
        if count == samples && places.iter().enumerate().all(|(row, place)| *place as usize == count + row) {
            return Ok(drawn.tokens.clone());
        }
        let places = Array::from_slice(&places, &[count as i32])?;
        mlx::concatenate(&[&known, &drawn.tokens.astype(Dtype::I32)?], 0)?.take(&places, 0)
    }

    /// What layers remember.
    pub(super) fn state(&self) -> &KvCache {
        &self.state
    }

    /// Waits for everything that has been launched.
    pub(super) fn settle(&self) -> mlx::Result<()> {
        mlx::eval(self.state.arrays())
    }

    /// Starts copying blocks of a group out, after what has been launched and before what will be.
    pub(super) fn read_blocks(
        &self,
        group: usize,
        blocks: impl Iterator<Item = BlockId>,
    ) -> mlx::Result<BlockExport> {
        let blocks: Vec<BlockId> = blocks.collect();
        let outgoing = self.state.read_blocks(group, &blocks)?;
        match self.model.kv_path() {
            KvPath::Paged => mlx::async_eval(outgoing.arrays())?,
            // The next step would copy a pool that is still being read.
            KvPath::Gather => mlx::eval(outgoing.arrays())?,
        }
        Ok(outgoing)
    }

    /// Writes blocks that nobody uses yet.
    pub(super) fn write_blocks(&mut self, blocks: &[CachedBlock], contents: &[&[u8]]) -> mlx::Result<()> {
        for group in 0..self.groups() {
            let of_group = blocks.iter().zip(contents).filter(|(block, _)| block.group == group);
            let (blocks, contents): (Vec<BlockId>, Vec<&[u8]>) =
                of_group.map(|(block, content)| (block.block, *content)).unzip();
            self.state.write_blocks(group, &blocks, &contents)?;
        }
        Ok(())
    }

    /// Fills blocks that nobody uses yet from a computed prompt.
    pub(super) fn fill(&mut self, cache: &PromptCache, blocks: &[BlockImport]) -> mlx::Result<()> {
        cache.fill(&mut self.state, blocks)
    }

    /// What the model is.
    pub(super) fn blueprint(&self) -> &Blueprint {
        self.model.blueprint()
    }

    /// Makes the memory anew after a failure, when nothing in it can be trusted.
    pub(super) fn reset(&mut self) -> mlx::Result<()> {
        let _whatever_failed = mlx::recover();
        self.state = KvCache::new(self.model.blueprint(), &self.blocks, self.block_size, self.storage)?;
        mlx::memory::clear_cache();
        Ok(())
    }
}

/// What came of a step.
pub(super) struct Read {
    /// One for each sampled row, in order.
    pub(super) sampled: Vec<SampledToken>,
    /// TokenLogprobs prompt tokens of some sequences.
    pub(super) prompts: Vec<(SequenceId, JobUpdate)>,
}

impl Launched {
    /// True when its sampling has not been launched.
    pub(super) fn is_deferred(&self) -> bool {
        self.logits.is_some()
    }

    /// Waits for the step.
    pub(super) fn read(&self) -> mlx::Result<Read> {
        let sampled = match &self.drawn {
            Some(drawn) => drawn.read(&self.logprobs_requested)?,
            None => {
                mlx::eval(self.tail.iter())?;
                Vec::new()
            }
        };
        let prompts = self.prompts.iter().map(|scores| Ok((scores.sequence, scores.read()?)));
        Ok(Read { sampled, prompts: prompts.collect::<mlx::Result<_>>()? })
    }

    fn prompt_arrays(&self) -> impl Iterator<Item = &Array> {
        self.prompts.iter().flat_map(PromptLogprobs::arrays)
    }
}

/// Hands a graph to MLX, and notes how long that took.
fn dispatch<'a>(time: &mut Duration, arrays: impl IntoIterator<Item = &'a Array>) -> mlx::Result<()> {
    let started = Instant::now();
    let launched = mlx::async_eval(arrays);
    *time += started.elapsed();
    launched
}

fn draw_rows(
    logits: &Array,
    samples: &[SampleRow],
    jobs: &BTreeMap<SequenceId, Job>,
    tokens_of: impl Fn(SequenceId) -> Vec<u32>,
) -> mlx::Result<PendingSample> {
    let greedy = crate::Sampling::greedy();
    let histories: Vec<Vec<u32>> = samples
        .iter()
        .map(|row| match jobs.get(&row.sequence) {
            Some(job) if sampler::needs_history(&job.sampling) => tokens_of(row.sequence),
            _ => Vec::new(),
        })
        .collect();
    let rows: Vec<sampler::Row<'_>> = samples
        .iter()
        .zip(&histories)
        .map(|(row, history)| match jobs.get(&row.sequence) {
            Some(job) => sampler::Row {
                sampling: &job.sampling,
                seed: job.sampling.seed.unwrap_or(0),
                position: row.position,
                history: History { tokens: history, prompt: job.prompt.len() },
                logprobs: job.logprobs,
                fault: row.fault,
            },
            // Its client has gone; the row's outcome is dropped.
            None => sampler::Row {
                sampling: &greedy,
                seed: 0,
                position: row.position,
                history: History { tokens: history, prompt: 0 },
                logprobs: None,
                fault: None,
            },
        })
        .collect();
    sampler::sample(logits, &rows)
}

impl Padding {
    fn of(self, rows: usize) -> usize {
        match self {
            Self::None => rows,
            Self::Buckets if rows <= 64 => rows.next_power_of_two(),
            Self::Buckets => rows.next_multiple_of(64),
        }
    }
}
