//! From logits to tokens, a row at a time in meaning and all rows at once in work.
//!
//! Rows are sorted into kinds by what they ask for: greedy rows cost one argmax, rows that only have
//! a temperature one cumulative sum, and only rows with filters a sort. The random number of a token
//! comes from its request's seed and its position, so no batch changes what a seed draws.

mod adjustments;
mod draw;
mod score;
#[cfg(test)]
mod tests;

use mlx::{Array, Dtype};

use crate::Sampling;
use crate::fault::RowFault;
use adjustments::LogitAdjustments;
pub use score::Scores;

/// What the sampler is told of one row of logits.
pub struct Row<'a> {
    /// How to draw.
    pub sampling: &'a Sampling,
    /// The request's seed.
    pub seed: u64,
    /// Position the drawn token will have.
    pub position: usize,
    /// Prompt and answer so far, and where the answer begins; read only where penalties need it.
    pub history: History<'a>,
    /// As in [`crate::Request::logprobs`].
    pub logprobs: Option<usize>,
    /// What is to go wrong with it, in tests.
    pub fault: Option<RowFault>,
}

/// A row's tokens so far.
#[derive(Clone, Copy)]
pub struct History<'a> {
    /// Prompt, then answer.
    pub tokens: &'a [u32],
    /// Tokens of the prompt.
    pub prompt: usize,
}

/// Tokens drawn and not yet read.
pub struct PendingSample {
    /// `[n]` i32, safe to feed to the next step whatever the logits were.
    pub tokens: Array,
    /// `[2, n]` i32: the tokens again, and 1 where a row's logits were not numbers.
    report: Array,
    /// Rows whose own part of the work panicked.
    panicked: Vec<usize>,
    scores: Option<Scores>,
}

/// One row's outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// `None` when the logits were not numbers, or when the row's own part of the work panicked.
    pub token: Option<u32>,
    /// Its log-probability, where asked for.
    pub logprob: Option<f32>,
    /// The likeliest tokens and their log-probabilities, as many as were asked for.
    pub top: Vec<(u32, f32)>,
}

/// A seed for a request that brought none: different for each, and the same after a restart with the
/// same arrivals, so that a run can be repeated.
pub fn fresh_seed(engine: u64, arrival: u64) -> u64 {
    draw::mix(draw::mix(engine) ^ arrival)
}

/// True when the row's logits are adjusted by what was drawn before.
pub fn needs_history(sampling: &Sampling) -> bool {
    sampling.repetition_penalty != 1.0
        || sampling.presence_penalty != 0.0
        || sampling.frequency_penalty != 0.0
}

/// Builds the drawing of one token for each row of `logits`, `[n, vocab]` f32.
pub fn sample(logits: &Array, rows: &[Row<'_>]) -> mlx::Result<PendingSample> {
    let [_, vocab] = logits.dims()?;
    let logits = &poison(logits, rows)?;
    let (adjustments, panicked) = LogitAdjustments::of(rows, vocab as u32);
    let adjusted = match adjustments {
        Some(adjustments) => adjustments.apply(logits)?,
        None => logits.clone(),
    };
    let tokens = draw::draw(&adjusted, rows)?;
    let broken = logits.sum(&[-1])?.is_nan()?.astype(Dtype::I32)?;
    let report = mlx::stack(&[&tokens, &broken], 0)?;
    let wanted = rows.iter().filter_map(|row| row.logprobs).max();
    let scores = wanted.map(|top| Scores::of(logits, &tokens, top)).transpose()?;
    Ok(PendingSample { tokens, report, panicked, scores })
}

/// Makes rows not a number on order.
fn poison(logits: &Array, rows: &[Row<'_>]) -> mlx::Result<Array> {
    let ordered = |row: &Row<'_>| row.fault == Some(RowFault::NotANumber);
    if !rows.iter().any(ordered) {
        return Ok(logits.clone());
    }
    let added: Vec<f32> = rows.iter().map(|row| if ordered(row) { f32::NAN } else { 0.0 }).collect();
    Ok(logits + Array::from_slice(&added, &[added.len() as i32, 1])?)
}

impl PendingSample {
    /// What must be evaluated before [`PendingSample::read`].
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.tokens, &self.report].into_iter().chain(self.scores.iter().flat_map(Scores::arrays))
    }

    /// Waits, and gives each row's outcome. `rows` are the log-probability logprobs_requested, in order.
    pub fn read(&self, logprobs_requested: &[Option<usize>]) -> mlx::Result<Vec<SampledToken>> {
        let report = self.report.to_vec::<i32>()?;
        let (tokens, broken) = report.split_at(report.len() / 2);
        let scores = match &self.scores {
            Some(scores) => scores.read()?,
            None => vec![score::Score::default(); tokens.len()],
        };
        let sampled = tokens.iter().zip(broken).zip(scores).zip(logprobs_requested).enumerate().map(
            |(row, (((token, broken), score), wish))| {
                let sound = *broken == 0 && *token >= 0 && !self.panicked.contains(&row);
                let top = score.top.into_iter().take(wish.unwrap_or(0)).collect();
                SampledToken { token: sound.then_some(*token as u32), logprob: wish.and(score.logprob), top }
            },
        );
        Ok(sampled.collect())
    }
}
