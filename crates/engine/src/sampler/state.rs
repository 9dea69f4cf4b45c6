//! What sampling keeps of each sequence, and how the loop changes it.

use std::borrow::Cow;

use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;
use serde::{Deserialize, Serialize};

use super::adjustments::LogitAdjustments;
use super::shaping::Shaping;
use crate::message::Job;
use crate::request::Sampling;

/// Changes of the sequences' sampling state since the last step. Applied in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SamplingChanges {
    /// Sequences that have ended.
    pub(crate) removed: Vec<SequenceId>,
    /// New sequences.
    pub(crate) added: Vec<NewSequence>,
    /// Tokens added to known sequences, in order.
    pub(crate) appended: Vec<(SequenceId, Vec<u32>)>,
    /// The tokens that sequences with a grammar may sample in the step at hand: in each of their rows, the first ones. What
    /// later rows sample is dropped.
    pub(crate) masks: Vec<(SequenceId, Vec<TokenMask>)>,
    /// The draft tokens of the step at hand, of sequences whose logits depend on the tokens before them.
    pub(crate) drafts: Vec<(SequenceId, Vec<u32>)>,
}

/// A sequence that the runner does not know yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewSequence {
    pub(crate) sequence: SequenceId,
    /// Its parameters; the seed is set.
    pub(crate) sampling: Sampling,
    /// As in [`crate::Request::logprobs`].
    pub(crate) logprobs: Option<usize>,
    /// As in [`crate::Request::logprob_token_ids`].
    pub(crate) logprob_token_ids: Vec<u32>,
    /// Its prompt and the answer so far.
    pub(crate) tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub(crate) prompt: usize,
    /// Tokens that it samples from some position on.
    pub(crate) late_stops: LateStops,
    /// Tokens that `xtc` never excludes.
    pub(crate) xtc_kept: Vec<u32>,
    /// The tokens of each of its breakers of repetitions.
    pub(crate) dry_breakers: Vec<Vec<u32>>,
}

/// End tokens that a sequence may sample from a position on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LateStops {
    /// None where the position is at its beginning.
    tokens: Vec<u32>,
    from: usize,
}

impl LateStops {
    /// The end tokens of a job that has a least number of tokens.
    pub(crate) fn of(job: &Job) -> Self {
        match job.min_tokens {
            0 => Self::default(),
            least => Self { tokens: job.stop_tokens.clone(), from: job.prompt + least },
        }
    }

    /// The tokens that may not be sampled at a position.
    pub(super) fn forbidden(&self, position: usize) -> &[u32] {
        if position < self.from { &self.tokens } else { &[] }
    }
}

fn keeps_tokens(sampling: &Sampling) -> bool {
    sampling.dry.is_on() || !sampling.processors.is_empty() || !sampling.bad_words.tokens.is_empty()
}

/// What sampling keeps of one sequence.
pub(super) struct SequenceState {
    sequence: SequenceId,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<usize>,
    pub(super) logprob_token_ids: Vec<u32>,
    pub(super) adjustments: LogitAdjustments,
    pub(super) late_stops: LateStops,
    pub(super) xtc_kept: Vec<u32>,
    /// What shapes its logits, if the kernels alone do not.
    pub(super) shaping: Option<Shaping>,
    /// Its tokens, if something looks at them.
    tokens: Vec<u32>,
    prompt: usize,
    /// Its update panicked: its rows yield no token.
    pub(super) failed: bool,
}

impl SequenceState {
    pub(super) fn new(new: &NewSequence) -> Self {
        let adjustments = LogitAdjustments::new(&new.sampling);
        let (sampling, logprobs) = (new.sampling.clone(), new.logprobs);
        let sequence = new.sequence;
        let late_stops = new.late_stops.clone();
        let tokens = if keeps_tokens(&sampling) { new.tokens.clone() } else { Vec::new() };
        let shaping = Shaping::new(&sampling, &new.dry_breakers);
        let (prompt, xtc_kept) = (new.prompt, new.xtc_kept.clone());
        let mut state = Self {
            sequence,
            sampling,
            logprobs,
            logprob_token_ids: new.logprob_token_ids.clone(),
            adjustments,
            late_stops,
            xtc_kept,
            shaping,
            tokens,
            prompt,
            failed: false,
        };
        state.update(|state| state.adjustments.start(&new.tokens, new.prompt));
        state
    }

    /// The sequence has got these tokens.
    pub(super) fn append(&mut self, tokens: &[u32]) {
        self.update(|state| tokens.iter().for_each(|token| state.adjustments.push(*token)));
        if keeps_tokens(&self.sampling) {
            self.tokens.extend_from_slice(tokens);
        }
    }

    /// The tokens that it may not sample at a position, behind these draft tokens.
    pub(super) fn forbidden(&self, position: usize, drafts: &[u32]) -> Cow<'_, [u32]> {
        let late = self.late_stops.forbidden(position);
        let words = &self.sampling.bad_words.tokens;
        if words.is_empty() {
            return Cow::Borrowed(late);
        }
        let (_, answer) = self.history(drafts);
        let last = words.iter().filter_map(|word| {
            let (last, before) = word.split_last()?;
            answer.ends_with(before).then_some(*last)
        });
        Cow::Owned(late.iter().copied().chain(last).collect())
    }

    /// The prompt and the answer of a sequence with processors, with draft tokens behind it.
    pub(super) fn history(&self, drafts: &[u32]) -> (&[u32], Cow<'_, [u32]>) {
        let (prompt, answer) = self.tokens.split_at(self.prompt.min(self.tokens.len()));
        (
            prompt,
            if drafts.is_empty() { Cow::Borrowed(answer) } else { Cow::Owned([answer, drafts].concat()) },
        )
    }

    /// The prompt and the answer of a sequence with [`Shaping`] that looks at them.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Its parameters, as far as what draws from its logits has something left to do.
    pub(super) fn drawn(&self) -> Cow<'_, Sampling> {
        match &self.shaping {
            None => Cow::Borrowed(&self.sampling),
            Some(_) => Cow::Owned(Sampling { seed: self.sampling.seed, ..Sampling::default() }),
        }
    }

    /// Changes the state. A panic fails this sequence alone: no other shares its state.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut Self)) {
        if let Err(panic) = omnibus_text::catch_panic(|| change(self)) {
            tracing::error!(%panic, sequence = self.sequence.0, "a sequence's sampling state failed");
            self.failed = true;
        }
    }
}
