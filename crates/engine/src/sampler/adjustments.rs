//! What a request changes about its logits before sampling: biases and penalties.
//!
//! In this order: `logit_bias`; the repetition penalty over the last `repetition_context` tokens, prompt included (arXiv
//! 1909.05858 §4.1, as mlx-lm has it); presence and frequency penalties over the whole answer, as OpenAI has them.
//!
//! Invariant: a new token costs the same however long the sequence is.

use std::collections::{BTreeMap, VecDeque};

use mlx::{Array, Dtype};

use crate::Sampling;

/// The adjusted tokens of one sequence, one column entry each.
#[derive(Debug, Default)]
pub(super) struct LogitAdjustments {
    penalties: Penalties,
    /// Each token's place in the columns.
    places: BTreeMap<u32, usize>,
    tokens: Vec<u32>,
    bias: Vec<f32>,
    /// Divides positive and multiplies negative logits.
    repetition: Vec<f32>,
    subtract: Vec<f32>,
    /// How often the token is in the answer.
    in_answer: Vec<u32>,
    /// How often the token is among the recent ones.
    in_recent: Vec<u32>,
    /// Recent tokens, as far as the repetition penalty applies to them.
    recent: VecDeque<u32>,
    /// Changes with the columns.
    version: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Penalties {
    repetition: Option<f32>,
    repetition_context: usize,
    presence: f32,
    frequency: f32,
}

impl Penalties {
    fn counts_answer(self) -> bool {
        self.presence != 0.0 || self.frequency != 0.0
    }
}

impl LogitAdjustments {
    /// The adjustments before any token.
    pub(super) fn new(sampling: &Sampling) -> Self {
        let repeats = sampling.repetition_penalty != 1.0 && sampling.repetition_context > 0;
        let penalties = Penalties {
            repetition: repeats.then_some(sampling.repetition_penalty),
            repetition_context: sampling.repetition_context,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
        };
        let mut new = Self { penalties, ..Self::default() };
        for (token, bias) in &sampling.logit_bias {
            let place = new.place(*token);
            new.bias[place] = *bias;
        }
        new
    }

    /// Adds the tokens that the sequence starts with, of which the first `prompt` are the prompt.
    pub(super) fn start(&mut self, tokens: &[u32], prompt: usize) {
        let recent = tokens.len().saturating_sub(self.penalties.repetition_context);
        tokens.iter().skip(recent).for_each(|token| self.push_recent(*token));
        tokens.iter().skip(prompt).for_each(|token| self.push_answer(*token));
    }

    /// Adds a token of the answer.
    pub(super) fn push(&mut self, token: u32) {
        self.push_recent(token);
        self.push_answer(token);
    }

    fn push_recent(&mut self, token: u32) {
        let Some(penalty) = self.penalties.repetition else { return };
        let place = self.place(token);
        self.in_recent[place] += 1;
        self.repetition[place] = penalty;
        self.recent.push_back(token);
        if self.recent.len() > self.penalties.repetition_context
            && let Some(oldest) = self.recent.pop_front()
        {
            let place = self.place(oldest);
            self.in_recent[place] -= 1;
            if self.in_recent[place] == 0 {
                self.repetition[place] = 1.0;
                self.remove_if_neutral(oldest);
            }
        }
        self.version += 1;
    }

    fn push_answer(&mut self, token: u32) {
        if !self.penalties.counts_answer() {
            return;
        }
        let place = self.place(token);
        self.in_answer[place] += 1;
        self.subtract[place] =
            self.penalties.presence + self.penalties.frequency * self.in_answer[place] as f32;
        self.version += 1;
    }

    /// The token's place in the columns; adds one without effect if it has none.
    fn place(&mut self, token: u32) -> usize {
        let next = self.tokens.len();
        let place = *self.places.entry(token).or_insert(next);
        if place == next {
            self.tokens.push(token);
            self.bias.push(0.0);
            self.repetition.push(1.0);
            self.subtract.push(0.0);
            self.in_answer.push(0);
            self.in_recent.push(0);
        }
        place
    }

    /// Removes a token that has no effect; the last one takes its place.
    fn remove_if_neutral(&mut self, token: u32) {
        let Some(place) = self.places.get(&token).copied() else { return };
        if self.bias[place] != 0.0 || self.in_answer[place] > 0 || self.in_recent[place] > 0 {
            return;
        }
        self.places.remove(&token);
        self.tokens.swap_remove(place);
        self.bias.swap_remove(place);
        self.repetition.swap_remove(place);
        self.subtract.swap_remove(place);
        self.in_answer.swap_remove(place);
        self.in_recent.swap_remove(place);
        if let Some(moved) = self.tokens.get(place) {
            self.places.insert(*moved, place);
        }
    }

    /// Changes whenever the adjustments do.
    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

/// The adjustments of a step's rows as arrays, one entry for each adjusted logit.
pub(super) struct AdjustmentArrays {
    /// Flat indices into `[n, vocab]`.
    places: Array,
    bias: Array,
    repetition: Array,
    subtract: Array,
}

impl AdjustmentArrays {
    /// `None` if no row has adjustments. `rows`: each row's adjustments. Tokens outside the vocabulary are ignored.
    pub(super) fn new<'a>(
        rows: impl Iterator<Item = Option<&'a LogitAdjustments>>,
        vocab: i32,
    ) -> mlx::Result<Option<Self>> {
        let mut places: Vec<i32> = Vec::new();
        let (mut bias, mut repetition, mut subtract) = (Vec::new(), Vec::new(), Vec::new());
        for (row, adjustments) in rows.enumerate() {
            let Some(adjustments) = adjustments else { continue };
            let known = adjustments.tokens.iter().enumerate().filter(|(_, token)| **token < vocab as u32);
            for (at, token) in known {
                places.push(row as i32 * vocab + *token as i32);
                bias.push(adjustments.bias[at]);
                repetition.push(adjustments.repetition[at]);
                subtract.push(adjustments.subtract[at]);
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let length = places.len() as i32;
        let column = |values: &[f32]| Array::from_slice(values, &[length]);
        let places = Array::from_slice(&places, &[length])?;
        let (bias, repetition, subtract) = (column(&bias)?, column(&repetition)?, column(&subtract)?);
        Ok(Some(Self { places, bias, repetition, subtract }))
    }

    /// The adjusted logits. `logits`: `[n, vocab]` f32.
    pub(super) fn apply(&self, logits: &Array) -> mlx::Result<Array> {
        let [rows, vocab] = logits.dims()?;
        let flat = logits.reshape(&[rows * vocab])?;
        let biased = flat.take(&self.places, 0)? + &self.bias;
        let positive = biased.greater(&Array::scalar(0.0, Dtype::F32)?)?;
        let penalized = mlx::where_(&positive, &(&biased / &self.repetition), &(&biased * &self.repetition))?;
        let adjusted = penalized - &self.subtract;
        flat.scatter_rows(&self.places, &adjusted)?.reshape(&[rows, vocab])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token, bias, repetition, subtract; by token.
    fn entries(adjustments: &LogitAdjustments) -> Vec<(u32, f32, f32, f32)> {
        let at = |(token, place): (&u32, &usize)| {
            let place = *place;
            (*token, adjustments.bias[place], adjustments.repetition[place], adjustments.subtract[place])
        };
        adjustments.places.iter().map(at).collect()
    }

    /// What the whole history gives, counted from the start.
    fn recount(sampling: &Sampling, tokens: &[u32], prompt: usize) -> Vec<(u32, f32, f32, f32)> {
        let mut all: BTreeMap<u32, (f32, f32, f32)> = BTreeMap::new();
        for (token, bias) in &sampling.logit_bias {
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).0 = *bias;
        }
        for token in tokens.iter().skip(tokens.len().saturating_sub(sampling.repetition_context)) {
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).1 = sampling.repetition_penalty;
        }
        for token in tokens.iter().skip(prompt) {
            let count = tokens.iter().skip(prompt).filter(|other| *other == token).count();
            all.entry(*token).or_insert((0.0, 1.0, 0.0)).2 =
                sampling.presence_penalty + sampling.frequency_penalty * count as f32;
        }
        all.into_iter()
            .map(|(token, (bias, repetition, subtract))| (token, bias, repetition, subtract))
            .collect()
    }

    #[test]
    fn incremental_counts_equal_a_recount() {
        let sampling = Sampling {
            repetition_penalty: 1.3,
            repetition_context: 7,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: [(3, 1.5), (99, -2.0)].into(),
            ..Sampling::default()
        };
        let only_repetition = Sampling { presence_penalty: 0.0, frequency_penalty: 0.0, ..sampling.clone() };
        let tokens: Vec<u32> = (0..200u32).map(|at| at * at * 7 % 13).collect();
        for (sampling, prompt) in [(&sampling, 20), (&sampling, 3), (&only_repetition, 200)] {
            let mut adjustments = LogitAdjustments::new(sampling);
            let start = 25;
            adjustments.start(&tokens[..start], prompt);
            for end in start + 1..=tokens.len() {
                adjustments.push(tokens[end - 1]);
                let counted = if sampling.presence_penalty == 0.0 { tokens.len() } else { prompt };
                assert_eq!(entries(&adjustments), recount(sampling, &tokens[..end], counted), "{end}");
            }
        }
    }
}
