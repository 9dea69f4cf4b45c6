//! The runner that holds the model, its KV cache and the sampling state of all sequences.

use std::path::Path;
use std::time::{Duration, Instant};

use mlx::{Array, Dtype};
use omnibus_core::Token;
use omnibus_kv::BlockId;
use omnibus_model::{
    AdapterId, Batch, BlockBytes, BlockExport, BlockImport, Blueprint, KvCache, KvPath, KvStorage, Model,
    MultimodalRows, PromptCache, RotaryAxes, Segment, SpanRuns, take_rows,
};

use super::alignment::PendingAlignment;
use super::capacity::Capacity;
use super::kv_store::KvStore;
use super::media_encoding::{EncodingParts, MediaEncoding, MediaHit};
use super::prompt_logprobs::PromptLogprobs;
use super::prompt_output::PromptOutput;
use super::runner::{ForwardOutput, Runner, StepOutput, StepResult};
use super::step_input::{InputSegment, InputToken, StepInput};
use super::vision::Vision;
use crate::logits_processor::LogitsProcessors;
use crate::media::{JobMedia, MediaKey, picture_runs};
use crate::sampler::{Chooser, PendingSample, Sampler, SamplingChanges};
use crate::settings::{AsyncScheduling, Settings};
use crate::{LaunchStats, MediaStats};

/// The model, its KV cache and its sampler.
pub(super) struct ModelRunner {
    model: Model,
    cache: KvCache,
    sampler: Sampler,
    vision: Option<Vision>,
    blocks: Vec<usize>,
    allocation: Allocation,
    block_size: usize,
    storage: KvStorage,
    padding: Padding,
    async_scheduling: AsyncScheduling,
    dispatching: Duration,
}

/// Whether the KV cache has its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allocation {
    Done,
    /// They could not be allocated after a failure; no step runs before they are.
    Missing,
}

/// How the number of rows is rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    /// Not at all: the CPU kernels take any number equally well.
    None,
    /// To 1, 2, 4, … 64 and then multiples of 64, so that a GPU compiles for few shapes.
    Buckets,
}

impl ModelRunner {
    pub(super) fn new(model: Model, capacity: &Capacity, settings: &Settings) -> mlx::Result<Self> {
        let cache = KvCache::new(model.blueprint(), &capacity.blocks, capacity.block_size, capacity.storage)?;
        let padding = if model.kernels().on_cpu() { Padding::None } else { Padding::Buckets };
        Ok(Self {
            cache,
            sampler: Sampler::new(chooser(&model)),
            vision: None,
            model,
            blocks: capacity.blocks.clone(),
            allocation: Allocation::Done,
            block_size: capacity.block_size,
            storage: capacity.storage,
            padding,
            async_scheduling: settings.async_scheduling,
            dispatching: Duration::ZERO,
        })
    }

    /// Code that sequences may name to change their logits.
    pub(super) fn set_processors(&mut self, processors: LogitsProcessors) {
        self.sampler.set_processors(processors);
    }

    /// The encoder of a model that sees.
    pub(super) fn set_vision(&mut self, vision: Option<Vision>) {
        self.vision = vision;
    }

    /// Layer groups of the model.
    pub(super) fn groups(&self) -> usize {
        self.blocks.len()
    }

    /// True where kernels are compiled on first use.
    pub(super) fn compiles(&self) -> bool {
        !self.model.kernels().on_cpu()
    }

    /// True where decode steps are launched as graphs.
    pub(super) fn uses_step_graphs(&self) -> bool {
        self.model.kernels().uses_step_graphs()
    }

    /// What chooses tokens.
    pub(super) fn chooser(&self) -> Chooser {
        chooser(&self.model)
    }

    fn kv_path(&self) -> KvPath {
        self.model.kv_path(self.storage, self.block_size)
    }

    /// Blocks of the smallest group.
    pub(super) fn least_blocks(&self) -> usize {
        self.blocks.iter().copied().min().unwrap_or(0)
    }

    /// The model's blueprint.
    pub(super) fn blueprint(&self) -> &Blueprint {
        self.model.blueprint()
    }

    /// Allocates the KV cache, if the last attempt failed.
    fn allocate_missing(&mut self) -> mlx::Result<()> {
        if self.allocation == Allocation::Missing {
            self.cache = self.allocate(&self.blocks)?;
            self.allocation = Allocation::Done;
        }
        Ok(())
    }

    fn allocate(&self, blocks: &[usize]) -> mlx::Result<KvCache> {
        KvCache::new(self.model.blueprint(), blocks, self.block_size, self.storage)
    }

    fn copy_blocks(&mut self, input: &StepInput) -> mlx::Result<()> {
        for group in 0..self.groups() {
            let copies = input.copies.iter().filter(|copy| copy.group == group);
            let copies: Vec<(BlockId, BlockId)> = copies.map(|copy| (copy.from, copy.to)).collect();
            self.cache.copy_blocks(group, &copies)?;
        }
        Ok(())
    }

    /// Every row's token, `[T]` i32, padded.
    fn input_tokens(&self, tokens: &[InputToken], before: Option<&StepOutput>) -> mlx::Result<Array> {
        let count = self.padding.of(tokens.len());
        let known = tokens.iter().map(|token| match token {
            InputToken::Known(token) => *token as i32,
            InputToken::Sampled(_) => 0,
        });
        let known: Vec<i32> = known.chain(std::iter::repeat(0)).take(count).collect();
        let known = Array::from_slice(&known, &[count as i32])?;
        if !tokens.iter().any(|token| matches!(token, InputToken::Sampled(_))) {
            return Ok(known);
        }
        let sample = before.and_then(|before| before.sample.as_ref());
        let sample =
            sample.ok_or_else(|| mlx::Error::new("a row's token comes from a step without samples"))?;
        let samples = sample.tokens.size();
        let place = |(row, token): (usize, &InputToken)| match token {
            InputToken::Known(_) => Ok(row as i32),
            InputToken::Sampled(sample) if *sample < samples => Ok((count + sample) as i32),
            InputToken::Sampled(_) => Err(mlx::Error::new("a row's token comes from a missing sample")),
        };
        let mut places = tokens.iter().enumerate().map(place).collect::<mlx::Result<Vec<i32>>>()?;
        places.extend((tokens.len()..count).map(|row| row as i32));
        // A decode step usually takes exactly the samples of the last one, in their order.
        if count == samples && places.iter().enumerate().all(|(row, place)| *place as usize == count + row) {
            return Ok(sample.tokens.clone());
        }
        let places = Array::from_slice(&places, &[count as i32])?;
        take_rows(&mlx::concatenate(&[&known, &sample.tokens.astype(Dtype::I32)?], 0)?, &places)
    }

    /// What media change in a pass of `rows` rows, padding included.
    fn multimodal(&mut self, input: &StepInput, rows: usize) -> mlx::Result<Option<MultimodalRows>> {
        if input.media.is_empty()
            && input.positions.is_none()
            && input.crossed.is_empty()
            && input.spans.is_empty()
        {
            return Ok(None);
        }
        let (features, cross) = match &mut self.vision {
            Some(vision) => (vision.rows(&input.media)?, vision.crossed(&input.crossed, &self.model)?),
            None if input.media.is_empty() && input.crossed.is_empty() => (None, Vec::new()),
            None => return Err(mlx::Error::new("a step has features, and the model no encoder")),
        };
        let padded = |axes: &Vec<[i32; 3]>| {
            let padding = std::iter::repeat([0; 3]);
            axes.iter().copied().chain(padding).take(rows).collect()
        };
        let positions = input.positions.as_ref().map(padded);
        let bidirectional = input.spans.clone();
        Ok(Some(MultimodalRows { features, positions, bidirectional, cross }))
    }

    fn allocated(&self) -> mlx::Result<&KvCache> {
        match self.allocation {
            Allocation::Missing => Err(mlx::Error::new("the KV cache is not allocated")),
            Allocation::Done => Ok(&self.cache),
        }
    }

    /// Starts computing what is read of the pools.
    fn start<'a>(&self, arrays: impl IntoIterator<Item = &'a Array>) -> mlx::Result<()> {
        match self.kv_path() {
            KvPath::Paged => mlx::async_eval(arrays),
            // While a pool is read, the next step would copy all of it.
            KvPath::Gather => mlx::eval(arrays),
        }
    }

    fn build_sample(&mut self, forward: &ForwardOutput) -> mlx::Result<Option<PendingSample>> {
        let (Some(logits), false) = (&forward.logits, forward.samples.is_empty()) else { return Ok(None) };
        let at: Vec<i32> = forward.samples.iter().map(|row| row.logits as i32).collect();
        let [rows, _] = logits.dims()?;
        let logits = match at.iter().copied().eq(0..rows) {
            true => logits,
            false => &take_rows(logits, &Array::from_slice(&at, &[at.len() as i32])?)?,
        };
        self.sampler.sample(logits, &forward.samples).map(Some)
    }
}

impl KvStore for ModelRunner {
    fn cache(&self) -> &KvCache {
        &self.cache
    }

    fn finish(&self) -> mlx::Result<()> {
        mlx::eval(self.cache.arrays())
    }

    fn read_blocks(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockExport> {
        let export = self.allocated()?.read_blocks(group, blocks)?;
        self.start(export.arrays())?;
        Ok(export)
    }

    fn read_bytes(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockBytes> {
        let bytes = self.allocated()?.read_bytes(group, blocks)?;
        self.start([bytes.array()])?;
        Ok(bytes)
    }

    fn write_blocks(&mut self, group: usize, blocks: &[BlockId], contents: &[&[u8]]) -> mlx::Result<()> {
        self.allocate_missing()?;
        self.cache.write_blocks(group, blocks, contents)
    }

    fn fill(&mut self, cache: &PromptCache, blocks: &[BlockImport]) -> mlx::Result<()> {
        self.allocate_missing()?;
        cache.fill(&mut self.cache, blocks)
    }
}

impl MediaEncoding for ModelRunner {
    fn has_features(&mut self, media: &JobMedia) -> bool {
        self.vision.as_mut().is_some_and(|vision| vision.has(media.key))
    }

    fn is_reading_features(&mut self, media: &JobMedia) -> bool {
        self.vision.as_mut().is_some_and(|vision| vision.is_reading(media))
    }

    fn has_stored_features(&self, media: &JobMedia) -> bool {
        self.vision.as_ref().is_some_and(|vision| vision.is_stored(media.key))
    }

    fn awaits_features(&self) -> bool {
        self.vision.as_ref().is_some_and(Vision::awaits_disk)
    }

    fn encode(&mut self, media: &JobMedia) -> mlx::Result<()> {
        let vision = self.vision.as_mut();
        vision.ok_or_else(|| mlx::Error::new("the model has no encoder"))?.encode(media)
    }

    fn parts_left(&mut self, media: &JobMedia) -> mlx::Result<EncodingParts> {
        let vision = self.vision.as_mut();
        vision.ok_or_else(|| mlx::Error::new("the model has no encoder"))?.parts_left(media)
    }

    fn encode_parts(&mut self, media: &JobMedia, parts: usize) -> mlx::Result<()> {
        let vision = self.vision.as_mut();
        vision.ok_or_else(|| mlx::Error::new("the model has no encoder"))?.encode_parts(media, parts)
    }

    fn count_media_hit(&mut self, hit: MediaHit) {
        if let Some(vision) = &mut self.vision {
            vision.count_hit(hit);
        }
    }

    fn evict_features(&mut self, needed: &[MediaKey]) {
        if let Some(vision) = &mut self.vision {
            vision.evict(needed);
        }
    }

    fn media_stats(&self) -> MediaStats {
        self.vision.as_ref().map(Vision::stats).unwrap_or_default()
    }
}

impl Runner for ModelRunner {
    fn kv(&self) -> &dyn KvStore {
        self
    }

    fn kv_mut(&mut self) -> &mut dyn KvStore {
        self
    }

    fn take_dispatching(&mut self) -> Duration {
        std::mem::take(&mut self.dispatching)
    }

    fn launches(&self) -> LaunchStats {
        let launches = self.model.launches();
        LaunchStats {
            compiled_kernels_total: launches.compiled_kernels_total,
            step_graphs_total: launches.step_graphs_total,
            step_launches: launches.step_launches,
        }
    }

    fn depth(&mut self) -> usize {
        let overlaps = match self.async_scheduling {
            AsyncScheduling::Auto => !self.model.kernels().on_cpu(),
            AsyncScheduling::On => true,
            AsyncScheduling::Off => false,
        };
        match self.kv_path() {
            KvPath::Paged if overlaps => 2,
            KvPath::Paged | KvPath::Gather => 1,
        }
    }

    fn forward(&mut self, input: &StepInput, before: Option<&StepOutput>) -> mlx::Result<ForwardOutput> {
        self.allocate_missing()?;
        self.sampler.apply(&input.changes);
        self.copy_blocks(input)?;
        let tokens = self.input_tokens(&input.tokens, before)?;
        let segments = input.segments.iter().map(segment).collect();
        let multimodal = self.multimodal(input, tokens.size())?;
        let batch = Batch { tokens, segments, logits_at: input.logits_at.clone(), multimodal, hidden: None };
        let logits = self.model.forward(&batch, &mut self.cache)?.logits.map(|logits| logits.0);
        if let Some(problem) = self.model.take_launch_problem() {
            tracing::warn!("{problem}");
        }
        let prompts = prompt_outputs(input, logits.as_ref(), batch.multimodal.as_ref())?;
        Ok(ForwardOutput { logits, samples: input.samples.clone(), prompts })
    }

    fn dispatch(&mut self, forward: &ForwardOutput) -> mlx::Result<()> {
        let prompts = forward.prompts.iter().flat_map(PromptOutput::arrays);
        let arrays = forward.logits.iter().chain(prompts).chain(self.cache.arrays());
        dispatch(&mut self.dispatching, arrays)
    }

    fn sample(&mut self, forward: ForwardOutput, changes: &SamplingChanges) -> mlx::Result<StepOutput> {
        self.sampler.apply(changes);
        let sample = self.build_sample(&forward)?;
        let prompts = forward.prompts;
        let arrays = sample.iter().flat_map(PendingSample::arrays);
        let arrays = arrays.chain(prompts.iter().flat_map(PromptOutput::arrays)).chain(self.cache.arrays());
        dispatch(&mut self.dispatching, arrays)?;
        Ok(StepOutput { sample, prompts, tail: self.cache.arrays().last().cloned() })
    }

    fn read(&mut self, output: &StepOutput) -> mlx::Result<StepResult> {
        let sampled = match &output.sample {
            Some(sample) => sample.read()?,
            None => {
                mlx::eval(output.tail.iter())?;
                Vec::new()
            }
        };
        let prompts = output.prompts.iter().map(PromptOutput::read);
        Ok(StepResult { sampled, prompts: prompts.collect::<mlx::Result<_>>()? })
    }

    fn reset(&mut self) -> mlx::Result<()> {
        let _what_failed = mlx::recover();
        self.sampler.clear();
        if let Some(vision) = &mut self.vision {
            vision.clear();
        }
        // The old pools are freed first: a device rarely has room for both.
        self.allocation = Allocation::Missing;
        self.cache = self.allocate(&vec![0; self.blocks.len()])?;
        mlx::memory::clear_cache();
        self.allocate_missing()
    }

    fn set_blocks(&mut self, blocks: &[usize]) {
        self.blocks = blocks.to_vec();
    }

    fn has_axis_positions(&self) -> bool {
        self.model.blueprint().rotary_axes() == RotaryAxes::Three
    }

    fn bidirectional_spans(&self, prompt: &[Token], media: &[JobMedia]) -> Vec<SpanRuns> {
        self.model.blueprint().bidirectional_spans(prompt, &picture_runs(media))
    }

    fn media(&self) -> &dyn MediaEncoding {
        self
    }

    fn media_mut(&mut self) -> &mut dyn MediaEncoding {
        self
    }

    fn load_adapter(&mut self, directory: &Path) -> Result<u128, String> {
        let loaded = self.model.load_adapter(directory);
        loaded.map(|id| id.0).map_err(|error| error.to_string().replace('\n', " "))
    }

    fn unload_adapter(&mut self, adapter: u128) -> Result<(), String> {
        self.model.unload_adapter(AdapterId(adapter)).map_err(|error| error.to_string())
    }

    fn has_adapter(&self, adapter: u128) -> bool {
        self.model.has_adapter(AdapterId(adapter))
    }
}

fn chooser(model: &Model) -> Chooser {
    if model.has_choice_kernel() { Chooser::Kernel } else { Chooser::Operations }
}

fn segment(segment: &InputSegment) -> Segment {
    Segment {
        first: segment.first,
        len: segment.len,
        context: segment.context,
        prompt: segment.prompt,
        samples: segment.samples,
        adapter: (segment.adapter != 0).then_some(AdapterId(segment.adapter)),
        tables: segment.tables.clone(),
    }
}

/// What a step reports of prompts beside samples. `rows`: those of the pass, which is built.
fn prompt_outputs(
    input: &StepInput,
    logits: Option<&Array>,
    rows: Option<&MultimodalRows>,
) -> mlx::Result<Vec<PromptOutput>> {
    let logprobs = logits.into_iter().flat_map(|logits| {
        input.prompts.iter().map(|rows| Ok(PromptOutput::Logprobs(PromptLogprobs::new(logits, rows)?)))
    });
    let crossed = input.crossed.iter().zip(rows.into_iter().flat_map(|rows| &rows.cross));
    let aligned = crossed.filter_map(|(of, rows)| Some((of.aligned.as_ref()?, rows.weights.as_ref()?)));
    let aligned =
        aligned.map(|(rows, weights)| Ok(PromptOutput::Alignment(PendingAlignment::new(rows, weights)?)));
    logprobs.chain(aligned).collect()
}

/// Dispatches a graph to MLX, and adds the time that takes to `time`.
fn dispatch<'a>(time: &mut Duration, arrays: impl IntoIterator<Item = &'a Array>) -> mlx::Result<()> {
    let started = Instant::now();
    let launched = mlx::async_eval(arrays);
    *time += started.elapsed();
    launched
}

impl Padding {
    pub(super) fn of(self, rows: usize) -> usize {
        match self {
            Self::None => rows,
            Self::Buckets if rows <= 64 => rows.next_power_of_two(),
            Self::Buckets => rows.next_multiple_of(64),
        }
    }
}
