//! What a request changes about its logits before anything is drawn: biases and penalties.
//!
//! In this order: `logit_bias`; the repetition penalty over the last `repetition_context` tokens,
//! prompt included (arXiv 1909.05858 §4.1, as mlx-lm has it); presence and frequency penalties over
//! the whole answer, as OpenAI has them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx::{Array, Dtype};

use super::Row;
use crate::fault::{RowFault, injected_panic};

/// Sparse changes to a table of logits, one entry for each changed element.
pub(super) struct LogitAdjustments {
    /// Flat index into `[n, vocab]`.
    places: Vec<i32>,
    bias: Vec<f32>,
    /// Divides what is positive and multiplies what is not.
    repetition: Vec<f32>,
    subtract: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Adjustment {
    bias: f32,
    repetition: f32,
    subtract: f32,
}

const NONE: Adjustment = Adjustment { bias: 0.0, repetition: 1.0, subtract: 0.0 };

impl LogitAdjustments {
    /// No adjustments when no row changes anything; and the rows whose adjustments panicked, which then change nothing.
    pub(super) fn of(rows: &[Row<'_>], vocab: u32) -> (Option<Self>, Vec<usize>) {
        let mut panicked = Vec::new();
        let mut all =
            Self { places: Vec::new(), bias: Vec::new(), repetition: Vec::new(), subtract: Vec::new() };
        for (index, row) in rows.iter().enumerate() {
            // Nothing is shared with other rows that a panic could leave half-done.
            let Ok(adjustments) = catch_unwind(AssertUnwindSafe(|| of_row(row))) else {
                panicked.push(index);
                continue;
            };
            for (token, adjustment) in adjustments.into_iter().filter(|(token, _)| *token < vocab) {
                all.places.push(index as i32 * vocab as i32 + token as i32);
                all.bias.push(adjustment.bias);
                all.repetition.push(adjustment.repetition);
                all.subtract.push(adjustment.subtract);
            }
        }
        ((!all.places.is_empty()).then_some(all), panicked)
    }

    /// The logits, adjusted. `logits`: `[n, vocab]` f32.
    pub(super) fn apply(&self, logits: &Array) -> mlx::Result<Array> {
        let [rows, vocab] = logits.dims()?;
        let column = |values: &[f32]| Array::from_slice(values, &[values.len() as i32]);
        let places = Array::from_slice(&self.places, &[self.places.len() as i32])?;
        let flat = logits.reshape(&[rows * vocab])?;
        let biased = flat.take(&places, 0)? + column(&self.bias)?;
        let repetition = column(&self.repetition)?;
        let positive = biased.greater(&Array::scalar(0.0, Dtype::F32)?)?;
        let penalized = mlx::where_(&positive, &(&biased / &repetition), &(&biased * &repetition))?;
        let adjusted = penalized - column(&self.subtract)?;
        flat.scatter_rows(&places, &adjusted)?.reshape(&[rows, vocab])
    }
}

fn of_row(row: &Row<'_>) -> BTreeMap<u32, Adjustment> {
    if row.fault == Some(RowFault::Panic) {
        injected_panic();
    }
    let sampling = row.sampling;
    let mut adjustments: BTreeMap<u32, Adjustment> = BTreeMap::new();
    for (token, bias) in &sampling.logit_bias {
        adjustments.entry(*token).or_insert(NONE).bias = *bias;
    }
    if sampling.repetition_penalty != 1.0 {
        let recent = row.history.tokens.len().saturating_sub(sampling.repetition_context);
        for token in row.history.tokens.iter().skip(recent) {
            adjustments.entry(*token).or_insert(NONE).repetition = sampling.repetition_penalty;
        }
    }
    if sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0 {
        let mut counts: BTreeMap<u32, f32> = BTreeMap::new();
        for token in row.history.tokens.iter().skip(row.history.prompt) {
            *counts.entry(*token).or_default() += 1.0;
        }
        for (token, count) in counts {
            adjustments.entry(token).or_insert(NONE).subtract =
                sampling.presence_penalty + sampling.frequency_penalty * count;
        }
    }
    adjustments
}
