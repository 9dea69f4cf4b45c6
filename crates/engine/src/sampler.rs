//! Sampling: from logits to tokens, each row by its own parameters, all rows in one graph.
//!
//! One kernel of ours chooses the tokens of all rows, without a sort. With MLX's operations rows are grouped by what they
//! need: greedy rows cost one argmax, rows with only a temperature one cumulative sum, and only rows with
//! filters a sort. The parameters are kept while the batch stays the same.
//!
//! Invariant: a token depends on its sequence's parameters, its seed, its position and its logits, on nothing else in
//! the batch. So samplers that get the same changes and logits yield the same tokens.

mod adjustments;
mod batch;
mod candidates;
mod drafted;
mod dry;
mod kernel_rows;
mod logprobs;
mod masks;
mod processed;
mod random;
mod shaped;
mod shaping;
mod state;
#[cfg(test)]
mod tests;
mod xtc;

use std::borrow::Cow;
use std::collections::BTreeMap;

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;
use serde::{Deserialize, Serialize};

use crate::logits_processor::LogitsProcessors;
use crate::message::TokenLogprobs;
use crate::request::Sampling;
use batch::{LogitsOf, SamplingBatch};
use drafted::DraftedTokens;
pub(crate) use logprobs::PendingLogprobs;
use logprobs::TokenScore;
use masks::MaskArrays;
use state::SequenceState;
pub(crate) use state::{LateStops, NewSequence, SamplingChanges};

/// What chooses tokens from logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chooser {
    /// Our kernel of the default device.
    Kernel,
    /// MLX's operations.
    Operations,
}

/// The sampling state of all sequences, and the parameter arrays of the last batch.
pub(crate) struct Sampler {
    chooser: Chooser,
    states: BTreeMap<SequenceId, SequenceState>,
    /// Of the next sampled step.
    masks: BTreeMap<SequenceId, Vec<TokenMask>>,
    /// Of the next sampled step.
    drafts: DraftedTokens,
    batch: Option<SamplingBatch>,
    processors: LogitsProcessors,
}

/// One row that is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SampleRow {
    pub(crate) sequence: SequenceId,
    /// Position of the token that is sampled.
    pub(crate) position: usize,
    /// Its row of the step's logits.
    pub(crate) logits: usize,
}

/// Sampled tokens, not yet read.
pub(crate) struct PendingSample {
    /// `[n]` i32, valid input of the next step whatever the logits were.
    pub(crate) tokens: Array,
    /// `[2, n]` i32: the tokens again, and 1 where a row's logits are not numbers.
    report: Array,
    /// Rows of sequences with failed updates.
    failed: Vec<bool>,
    logprobs: Option<PendingLogprobs>,
    requested: Vec<Option<usize>>,
    /// Tokens of each row whose log-probabilities are reported.
    named: Vec<Vec<u32>>,
}

/// A seed for a request without one: different for each, and the same after a restart with the same arrivals, so that a
/// run can be repeated.
pub(crate) fn fresh_seed(engine: u64, arrival: u64) -> u64 {
    random::mix(random::mix(engine) ^ arrival)
}

/// True when a row's logits depend on the tokens before it.
pub(crate) fn needs_history(sampling: &Sampling) -> bool {
    sampling.repetition_penalty != 1.0
        || sampling.presence_penalty != 0.0
        || sampling.frequency_penalty != 0.0
        || sampling.dry.is_on()
        || !sampling.bad_words.tokens.is_empty()
        || !sampling.processors.is_empty()
}

impl Sampler {
    /// Without sequences.
    pub(crate) fn new(chooser: Chooser) -> Self {
        Self {
            chooser,
            states: BTreeMap::new(),
            masks: BTreeMap::new(),
            drafts: DraftedTokens::default(),
            batch: None,
            processors: LogitsProcessors::default(),
        }
    }

    /// Code that sequences may name.
    pub(crate) fn set_processors(&mut self, processors: LogitsProcessors) {
        self.processors = processors;
    }

    /// Applies changes to the sequences' states. Unknown sequences are ignored.
    pub(crate) fn apply(&mut self, changes: &SamplingChanges) {
        for sequence in &changes.removed {
            self.states.remove(sequence);
        }
        for new in &changes.added {
            self.states.insert(new.sequence, SequenceState::new(new));
        }
        for (sequence, tokens) in &changes.appended {
            if let Some(state) = self.states.get_mut(sequence) {
                state.append(tokens);
            }
        }
        self.masks.extend(changes.masks.iter().cloned());
        self.drafts.extend(&changes.drafts);
        let added = |batch: &SamplingBatch| changes.added.iter().any(|new| batch.contains(new.sequence));
        if self.batch.as_ref().is_some_and(added) {
            self.batch = None;
        }
    }

    /// Removes all sequences.
    pub(crate) fn clear(&mut self) {
        let processors = std::mem::take(&mut self.processors);
        *self = Self { processors, ..Self::new(self.chooser) };
    }

    /// Builds the sampling of one token for each row of `logits`, `[n, vocab]` f32.
    pub(crate) fn sample(&mut self, logits: &Array, rows: &[SampleRow]) -> mlx::Result<PendingSample> {
        let mut batch = match self.batch.take() {
            Some(batch) if batch.is_for(rows) => batch,
            _ => SamplingBatch::new(rows, &self.states, (self.chooser, LogitsOf::Target))?,
        };
        let drafts = std::mem::take(&mut self.drafts);
        let processed = processed::processed(logits, rows, &mut self.states, (&self.processors, &drafts))?;
        let logits = processed.as_ref().unwrap_or(logits);
        let [_, vocab] = logits.dims()?;
        let grammars = std::mem::take(&mut self.masks);
        let places = drafted::places(rows).into_iter().zip(drafts.before_rows(rows));
        let masks = rows.iter().zip(places).map(|(row, (place, drafted))| {
            let state = self.states.get(&row.sequence);
            let forbidden = state.map(|state| state.forbidden(row.position, drafted)).unwrap_or_default();
            let grammar = grammars.get(&row.sequence).and_then(|masks| masks.get(place));
            masks::of_row(grammar, &forbidden, vocab as usize)
        });
        let mut masks: Vec<Option<Cow<'_, TokenMask>>> = masks.collect();
        let shaped = shaped::shaped(logits, rows, &mut self.states, (&drafts, &mut masks))?;
        let masks = MaskArrays::new(masks.into_iter(), vocab as usize)?;
        let drawn = (shaped.as_ref().unwrap_or(logits), logits);
        let sample = batch.sample(drawn, rows, &self.states, (masks.as_ref(), &drafts))?;
        self.batch = Some(batch);
        Ok(sample)
    }
}

impl Sampler {
    /// Builds the drawing of one draft token for each row of a draft model's `logits`, `[n, vocab]` f32: by the sequence's
    /// parameters and the random number of the position, as the target model draws. Masks, processors, samplers that the
    /// kernels do not have, and the draft tokens before a row are left out, which changes how many are accepted, and no token. `[n]` i32.
    pub(crate) fn draft(&self, logits: &Array, rows: &[SampleRow]) -> mlx::Result<Array> {
        let mut batch = SamplingBatch::new(rows, &self.states, (self.chooser, LogitsOf::DraftModel))?;
        let nothing = (None, &DraftedTokens::default());
        let sample = batch.sample((logits, logits), rows, &self.states, nothing)?;
        Ok(sample.tokens)
    }
}

impl PendingSample {
    /// What must be evaluated before [`PendingSample::read`].
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.tokens, &self.report].into_iter().chain(self.logprobs.iter().flat_map(PendingLogprobs::arrays))
    }

    /// Waits, and returns each row's token; `None` when its logits were not numbers, or when its sequence's update failed.
    pub(crate) fn read(&self) -> mlx::Result<Vec<Option<TokenLogprobs>>> {
        let report = self.report.to_vec::<i32>()?;
        let (tokens, invalid) = report.split_at(report.len() / 2);
        let scores = match &self.logprobs {
            Some(logprobs) => logprobs.read()?,
            None => vec![TokenScore::default(); tokens.len()],
        };
        let requested = self.requested.iter().zip(&self.named);
        let rows = tokens.iter().zip(invalid).zip(&self.failed).zip(scores).zip(requested);
        let sampled = rows.map(|((((token, invalid), failed), score), (requested, named))| {
            let valid = *invalid == 0 && *token >= 0 && !failed;
            let mut top: Vec<(u32, f32)> = score.top.into_iter().take(requested.unwrap_or(0)).collect();
            for (token, logprob) in named.iter().zip(score.named) {
                if top.iter().all(|(listed, _)| listed != token) {
                    top.push((*token, logprob));
                }
            }
            valid.then(|| TokenLogprobs { token: *token as u32, logprob: requested.and(score.logprob), top })
        });
        Ok(sampled.collect())
    }
}
