//! The runner that holds the model, its KV cache and the sampling state of all sequences.

mod answers;
mod stages;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlx::{Array, Dtype};
use omnibus_core::Padding;
use omnibus_kv::BlockId;
use omnibus_model::{
    AdapterId, Batch, BlockBytes, Blueprint, KernelChoice, KvCache, KvPath, KvStorage, Model, MultimodalRows,
    PassOutput, PromptCache, RotaryAxes, Segment, take_rows,
};

use super::alignment::PendingAlignment;
use super::capacity::{Capacity, padding};
use super::device_call::StepResult;
use super::drafting::{DraftRounds, Drafter, full_attention_group};
use super::hidden::HiddenRequest;
use super::media::MediaEncoding;
use super::model_traits::{KvLayout, ModelTraits};
use super::prompt_logprobs::PromptLogprobs;
use super::prompt_output::PromptOutput;
use super::step_input::{InputSegment, InputToken, StepInput};
use super::token_logits::PendingTokenLogits;
use crate::logits_processor::LogitsProcessors;
use crate::sampler::{Chooser, PendingSample, SampleRow, Sampler, SamplingChanges};
use crate::settings::{AsyncScheduling, Settings};

/// The model, its KV cache and its sampler.
pub(super) struct ModelRunner {
    model: Model,
    cache: KvCache,
    sampler: Sampler,
    media: Option<MediaEncoding>,
    draft: Option<Drafter>,
    /// Draft tokens that rows of the next step take.
    drafted: Option<DraftRounds>,
    blocks: Vec<usize>,
    allocation: Allocation,
    block_size: usize,
    storage: KvStorage,
    padding: Padding,
    async_scheduling: AsyncScheduling,
    dispatching: Duration,
    /// Steps in flight, oldest first.
    steps: VecDeque<(u64, Computation)>,
    /// Blocks that are being copied out.
    copy: Option<Vec<BlockBytes>>,
    /// The prompt cache file that every prompt continues.
    prompt_cache: Option<Rc<PromptCache>>,
    /// Kernels and graphs that were built when the last step was read.
    built: (u64, u64),
}

#[allow(clippy::large_enum_variant, reason = "one a step in flight")]
enum Computation {
    /// Later stages have not computed it yet. What its reports and samples need of the input.
    Open(Box<StepInput>),
    /// Its sampling has to wait.
    Forward(ForwardOutput),
    Sampled(StepOutput),
}

/// A forward pass, before sampling.
pub(super) struct ForwardOutput {
    /// `[n, vocab]` f32: the rows of `logits_at`; `None` if there are none.
    logits: Option<Array>,
    samples: Vec<SampleRow>,
    prompts: Vec<PromptOutput>,
    /// Hidden states that a draft head reads.
    states: Option<Array>,
    /// Draft tokens that its rows verify, where they were not read.
    drafts: Option<DraftRounds>,
}

/// A step that computes.
#[derive(Default)]
pub(super) struct StepOutput {
    /// `None` when nothing is sampled, or on a rank behind the first.
    sample: Option<PendingSample>,
    /// `[n]` i32: the sampled tokens, if the next step may be launched before they are read.
    tokens: Option<Array>,
    prompts: Vec<PromptOutput>,
    /// Draft tokens that its rows verified, where they were not read.
    drafts: Option<DraftRounds>,
    /// An array of the KV cache; evaluated to learn of failures when nothing is sampled.
    tail: Option<Array>,
}

/// Whether the KV cache has its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allocation {
    Done,
    /// They could not be allocated after a failure; no step runs before they are.
    Missing,
}

impl ModelRunner {
    /// `blocks`: of each layer group of what it computes of the network.
    pub(super) fn new(
        model: Model,
        blocks: Vec<usize>,
        capacity: &Capacity,
        settings: &Settings,
    ) -> mlx::Result<Self> {
        let cache = KvCache::new(model.blueprint(), &blocks, capacity.block_size, capacity.storage)?;
        let padding = padding(&model);
        Ok(Self {
            cache,
            sampler: Sampler::new(chooser(&model)),
            media: None,
            draft: None,
            drafted: None,
            model,
            blocks,
            allocation: Allocation::Done,
            built: (0, 0),
            block_size: capacity.block_size,
            storage: capacity.storage,
            padding,
            async_scheduling: settings.async_scheduling,
            dispatching: Duration::ZERO,
            steps: VecDeque::new(),
            copy: None,
            prompt_cache: None,
        })
    }

    /// Code that sequences may name to change their logits.
    pub(super) fn set_processors(&mut self, processors: LogitsProcessors) {
        self.sampler.set_processors(processors);
    }

    /// The encoders of a model that has any.
    pub(super) fn set_media(&mut self, media: Option<MediaEncoding>) {
        self.media = media;
    }

    /// A network that drafts what the model verifies.
    pub(super) fn set_draft(&mut self, draft: Option<Drafter>) {
        self.draft = draft;
    }

    /// A prompt cache file whose blocks sequences are filled with.
    pub(super) fn set_prompt_cache(&mut self, cache: Option<Rc<PromptCache>>) {
        self.prompt_cache = cache;
    }

    /// What the loop needs to know of the model.
    pub(super) fn traits(&self) -> ModelTraits {
        let groups = 0..self.cache.groups().len();
        let network = self.model.network();
        let of_network = network.kv_cache_groups(self.storage);
        ModelTraits {
            depth: self.depth(),
            has_axis_positions: network.rotary_axes() == RotaryAxes::Three,
            spans: network.span_rule(),
            keeps_states: self.draft.as_ref().is_some_and(|draft| !draft.places().is_empty()),
            encodes: self.media.is_some(),
            kv: KvLayout {
                block_size: self.block_size,
                specs: of_network.iter().map(|group| group.spec).collect(),
                block_bytes: groups.map(|group| self.cache.block_bytes(group)).collect(),
                full_attention_group: full_attention_group(&of_network),
                words: self.cache.layout(),
            },
        }
    }

    /// Most steps in flight.
    fn depth(&self) -> usize {
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

    /// The KV cache.
    pub(super) fn cache(&self) -> &KvCache {
        &self.cache
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

    /// Which GPU kernels are used.
    pub(super) fn kernel_choice(&self) -> KernelChoice {
        self.model.kernel_choice()
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
            let is_whole = full_attention_group(self.cache.groups()) == Some(group);
            if let Some(draft) = self.draft.as_mut().filter(|_| is_whole) {
                draft.copy_blocks(&copies)?;
            }
        }
        Ok(())
    }

    /// Every row's token, `[T]` i32, padded.
    fn input_tokens(&self, tokens: &[InputToken], before: Option<&StepOutput>) -> mlx::Result<Array> {
        let count = self.padding.of(tokens.len());
        let known = tokens.iter().map(|token| match token {
            InputToken::Known(token) => *token as i32,
            InputToken::Sampled(_) | InputToken::Drafted { .. } => 0,
        });
        let known: Vec<i32> = known.chain(std::iter::repeat(0)).take(count).collect();
        let known = Array::from_slice(&known, &[count as i32])?;
        if tokens.iter().all(|token| matches!(token, InputToken::Known(_))) {
            return Ok(known);
        }
        let sampled = before.and_then(|before| before.tokens.as_ref());
        let samples = sampled.map_or(0, Array::size);
        let rounds = self.drafted.as_ref().map_or(&[][..], DraftRounds::rounds);
        let drafted = |segment: usize, round: usize| {
            let row = self.drafted.as_ref()?.row(segment, round)?;
            let before: usize = rounds.iter().take(round).map(Array::size).sum();
            Some(count + samples + before + row)
        };
        let missing = |what: &str| mlx::Error::new(format!("a row's token comes from a missing {what}"));
        let place = |(row, token): (usize, &InputToken)| match token {
            InputToken::Known(_) => Ok(row as i32),
            InputToken::Sampled(sample) if *sample < samples => Ok((count + sample) as i32),
            InputToken::Sampled(_) => Err(missing("sample")),
            InputToken::Drafted { segment, round } => {
                drafted(*segment, *round).map(|place| place as i32).ok_or_else(|| missing("draft"))
            }
        };
        let mut places = tokens.iter().enumerate().map(place).collect::<mlx::Result<Vec<i32>>>()?;
        places.extend((tokens.len()..count).map(|row| row as i32));
        // A decode step usually takes exactly the samples of the last one, in their order.
        if let Some(sampled) = sampled
            && count == samples
            && places.iter().enumerate().all(|(row, place)| *place as usize == count + row)
        {
            return Ok(sampled.clone());
        }
        let places = Array::from_slice(&places, &[count as i32])?;
        let sampled = sampled.map(|sampled| sampled.astype(Dtype::I32)).transpose()?;
        let sources: Vec<&Array> = [&known].into_iter().chain(&sampled).chain(rounds).collect();
        take_rows(&mlx::concatenate(&sources, 0)?, &places)
    }

    /// What media change in a pass of `rows` rows, padding included.
    fn multimodal(&mut self, input: &StepInput, rows: usize) -> mlx::Result<Option<MultimodalRows>> {
        if input.media.is_empty()
            && input.positions.is_none()
            && input.crossed.is_empty()
            && input.spans.is_empty()
            && input.unattended.is_empty()
        {
            return Ok(None);
        }
        let (features, cross) = match &mut self.media {
            Some(media) => (media.rows(&input.media)?, media.crossed(&input.crossed, &self.model)?),
            None if input.media.is_empty() && input.crossed.is_empty() => (None, Vec::new()),
            None => return Err(mlx::Error::new("a step has features, and the model no encoder")),
        };
        let padded = |axes: &Vec<[i32; 3]>| {
            let padding = std::iter::repeat([0; 3]);
            axes.iter().copied().chain(padding).take(rows).collect()
        };
        let positions = input.positions.as_ref().map(padded);
        let bidirectional = input.spans.clone();
        let unattended = input.unattended.clone();
        Ok(Some(MultimodalRows { features, positions, bidirectional, cross, unattended }))
    }

    fn build_sample(&mut self, forward: &ForwardOutput) -> mlx::Result<Option<PendingSample>> {
        let (Some(logits), false) = (&forward.logits, forward.samples.is_empty()) else { return Ok(None) };
        if self.model.shard().is_some_and(|shard| shard.rank() > 0) {
            return Ok(None);
        }
        let at: Vec<i32> = forward.samples.iter().map(|row| row.logits as i32).collect();
        let [rows, _] = logits.dims()?;
        let logits = match at.iter().copied().eq(0..rows) {
            true => logits,
            false => &take_rows(logits, &Array::from_slice(&at, &[at.len() as i32])?)?,
        };
        self.sampler.sample(logits, &forward.samples).map(Some)
    }

    /// The sampled tokens, for a step that is launched before they are read.
    fn tokens_in_flight(
        &self,
        forward: &ForwardOutput,
        sample: Option<&PendingSample>,
    ) -> mlx::Result<Option<Array>> {
        let own = sample.map(|sample| &sample.tokens);
        match (self.model.shard(), &forward.logits, forward.samples.len()) {
            _ if self.depth() == 1 => Ok(None),
            (Some(shard), Some(logits), count @ 1..) => {
                shard.first_ranks_tokens(own, count, logits).map(Some)
            }
            _ => Ok(own.cloned()),
        }
    }

    /// Applies the changes of sampling state and builds the forward pass of a step. `before`: the step in flight before
    /// it, if any.
    pub(super) fn forward(
        &mut self,
        input: &StepInput,
        before: Option<&StepOutput>,
    ) -> mlx::Result<ForwardOutput> {
        let (pass, multimodal) = self.run_pass(input, before)?;
        self.forward_output(input, pass, multimodal.as_ref())
    }

    /// Builds the pass of a step, from its tokens or from what the stage before gave, after changes and copies.
    fn run_pass(
        &mut self,
        input: &StepInput,
        before: Option<&StepOutput>,
    ) -> mlx::Result<(PassOutput, Option<MultimodalRows>)> {
        self.allocate_missing()?;
        self.sampler.apply(&input.changes);
        if let Some(draft) = &mut self.draft {
            input.changes.removed.iter().for_each(|sequence| draft.remove(*sequence));
        }
        self.copy_blocks(input)?;
        let tokens = self.input_tokens(&input.tokens, before)?;
        let segments = input.segments.iter().map(segment).collect();
        let multimodal = self.multimodal(input, tokens.size())?;
        // The final norm is behind the last layer.
        let gives_logits = self.model.blueprint().stage.gives_logits();
        let hidden = self.hidden_request(input).rows().filter(|_| gives_logits);
        let batch = Batch { tokens, segments, logits_at: input.logits_at.clone(), multimodal, hidden };
        let pass = match &input.stream {
            Some(stream) => self.model.forward_from(&stream.array()?, &batch, &mut self.cache)?,
            None => self.model.forward(&batch, &mut self.cache)?,
        };
        if let Some(problem) = self.model.take_launch_problem() {
            tracing::warn!("{problem}");
        }
        Ok((pass, batch.multimodal))
    }

    fn hidden_request<'a>(&'a self, input: &'a StepInput) -> HiddenRequest<'a> {
        HiddenRequest::of(input, self.draft.as_ref().map_or(&[], Drafter::places))
    }

    /// What a step reports and samples of a pass. `multimodal`: rows of the pass.
    fn forward_output(
        &mut self,
        input: &StepInput,
        pass: PassOutput,
        multimodal: Option<&MultimodalRows>,
    ) -> mlx::Result<ForwardOutput> {
        let logits = pass.logits.map(|logits| logits.0);
        let mut prompts = prompt_outputs(input, logits.as_ref(), multimodal)?;
        let hidden = self.hidden_request(input);
        let reported = hidden.reported(&pass.hidden, &self.model)?;
        prompts.extend(reported.into_iter().map(PromptOutput::Hidden));
        let kept = hidden.kept(&pass.hidden)?;
        let states = kept.as_ref().map(|kept| kept.states.clone());
        if let (Some(draft), Some(kept)) = (&mut self.draft, kept) {
            draft.keep(kept);
        }
        // What was drafted for an earlier step is of no use.
        let takes_drafts = input.tokens.iter().any(|token| matches!(token, InputToken::Drafted { .. }));
        let drafts = self.drafted.take().filter(|_| takes_drafts);
        Ok(ForwardOutput { logits, samples: input.samples.clone(), prompts, states, drafts })
    }

    /// Starts a forward pass whose sampling has to wait.
    fn dispatch(&mut self, forward: &ForwardOutput) -> mlx::Result<()> {
        let prompts = forward.prompts.iter().flat_map(PromptOutput::arrays);
        let arrays = forward.logits.iter().chain(prompts).chain(&forward.states).chain(self.cache.arrays());
        dispatch(&mut self.dispatching, arrays)
    }

    /// Applies more changes, builds the step's sampling and starts all of it.
    pub(super) fn sample(
        &mut self,
        forward: ForwardOutput,
        changes: &SamplingChanges,
    ) -> mlx::Result<StepOutput> {
        self.sampler.apply(changes);
        let sample = self.build_sample(&forward)?;
        let tokens = self.tokens_in_flight(&forward, sample.as_ref())?;
        let prompts = &forward.prompts;
        // A follower samples nothing, and the first rank waits for its part of the logits.
        let exchanged = forward.logits.iter().filter(|_| sample.is_none());
        let arrays = sample.iter().flat_map(PendingSample::arrays).chain(&tokens).chain(exchanged);
        let arrays = arrays.chain(prompts.iter().flat_map(PromptOutput::arrays)).chain(&forward.states);
        let arrays = arrays.chain(self.cache.arrays());
        dispatch(&mut self.dispatching, arrays)?;
        let ForwardOutput { prompts, drafts, .. } = forward;
        Ok(StepOutput { sample, tokens, prompts, drafts, tail: self.cache.arrays().last().cloned() })
    }

    /// Waits for a step.
    pub(super) fn read(&mut self, output: &StepOutput) -> mlx::Result<StepResult> {
        let sampled = match &output.sample {
            Some(sample) => sample.read()?,
            None => {
                mlx::eval(output.tail.iter())?;
                Vec::new()
            }
        };
        let prompts = output.prompts.iter().map(PromptOutput::read).collect::<mlx::Result<Vec<_>>>()?;
        if let Some(why) = self.model.expert_memory().and_then(mlx::cpu::ExpertMemory::take_failure) {
            return Err(mlx::Error::new(why));
        }
        let built = built(&self.model);
        let built_before = std::mem::replace(&mut self.built, built);
        let drafts = output.drafts.as_ref().map(DraftRounds::of_sequences).transpose()?.unwrap_or_default();
        Ok(StepResult { sampled, prompts: prompts.concat(), drafts, built: built != built_before })
    }

    /// Drops all steps and sequences and allocates the KV cache again, after a failure.
    pub(super) fn reset(&mut self) -> mlx::Result<()> {
        self.steps.clear();
        self.drafted = None;
        self.copy = None;
        let _what_failed = mlx::recover();
        self.sampler.clear();
        if let Some(media) = &mut self.media {
            media.clear();
        }
        // The old pools are freed first: a device rarely has room for both.
        self.allocation = Allocation::Missing;
        self.cache = self.allocate(&vec![0; self.blocks.len()])?;
        mlx::memory::clear_cache();
        if let (Some(draft), Some(group)) = (&mut self.draft, full_attention_group(self.cache.groups())) {
            let blocks = self.blocks.get(group).copied().unwrap_or(0);
            if let Err(error) = draft.reset(blocks) {
                tracing::warn!(%error, "the KV cache of the draft model or head cannot be allocated again: it is switched off");
                let _what_failed = mlx::recover();
                self.draft = None;
            }
        }
        self.allocate_missing()
    }
}

/// Kernels that were compiled so far, and the network's graphs.
fn built(network: &Model) -> (u64, u64) {
    let launches = network.launches();
    (launches.compiled_kernels_total, launches.step_graphs_total)
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
    let of_tokens = logits.into_iter().flat_map(|logits| {
        let rows = input.token_logits.iter();
        rows.map(|row| Ok(PromptOutput::TokenLogits(PendingTokenLogits::new(logits, row)?)))
    });
    logprobs.chain(aligned).chain(of_tokens).collect()
}

/// Dispatches a graph to MLX, and adds the time that takes to `time`.
fn dispatch<'a>(time: &mut Duration, arrays: impl IntoIterator<Item = &'a Array>) -> mlx::Result<()> {
    let started = Instant::now();
    let launched = mlx::async_eval(arrays);
    *time += started.elapsed();
    launched
}
