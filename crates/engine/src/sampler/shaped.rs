//! Rows with samplers that the kernels do not have, or with an order of their own: their logits are shaped here, and a
//! kernel only draws from what is left.
//!
//! The rows are read back for it, so a step with such a row waits for its logits before it draws.
//!
//! Invariant: what a row becomes depends on its sequence, its position and its logits, on nothing else in the batch.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;

use super::SampleRow;
use super::candidates::Candidates;
use super::drafted::DraftedTokens;
use super::state::SequenceState;
use super::xtc;
use crate::request::{SamplerKind, Sampling};

/// The logits `[n, vocab]` f32 with the rows shaped that need it, whose masks are taken. `None` if none does.
pub(super) fn shaped(
    logits: &Array,
    rows: &[SampleRow],
    states: &mut BTreeMap<SequenceId, SequenceState>,
    (drafts, masks): (&DraftedTokens, &mut [Option<Cow<'_, TokenMask>>]),
) -> mlx::Result<Option<Array>> {
    let is_shaped = |row: &SampleRow| states.get(&row.sequence).is_some_and(|state| state.shaping.is_some());
    let places: Vec<i32> =
        (0..).zip(rows).filter(|(_, row)| is_shaped(row)).map(|(place, _)| place).collect();
    if places.is_empty() {
        return Ok(None);
    }
    let [_, vocab] = logits.dims()?;
    let (count, own) = (places.len() as i32, Array::from_slice(&places, &[places.len() as i32])?);
    let mut values = logits.take(&own, 0)?.to_vec::<f32>()?;
    let before = drafts.before_rows(rows);
    let of_rows =
        rows.iter().zip(before).zip(masks).filter(|((row, _), _)| is_shaped(row)).collect::<Vec<_>>();
    for (((row, before), mask), logits) in of_rows.into_iter().zip(values.chunks_exact_mut(vocab as usize)) {
        let mask = mask.take();
        if let Some(state) = states.get_mut(&row.sequence) {
            state.update(|state| shape(state, (row.position, before), mask.as_deref(), logits));
        }
    }
    let values = Array::from_slice(&values, &[count, vocab])?;
    logits.clone().scatter_rows(&own, &values).map(Some)
}

/// Shapes one row. One whose logits are not numbers stays as it is, and is reported.
fn shape(
    state: &SequenceState,
    (position, drafts): (usize, &[u32]),
    mask: Option<&TokenMask>,
    logits: &mut [f32],
) {
    let Some(shaping) = &state.shaping else { return };
    if logits.iter().any(|logit| logit.is_nan()) {
        return;
    }
    let mut adjustments = Cow::Borrowed(&state.adjustments);
    drafts.iter().for_each(|token| adjustments.to_mut().push(*token));
    for (token, adjustment) in adjustments.entries() {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit += adjustment.bias;
        }
    }
    if let Some(mask) = mask {
        let forbidden = (0_u32..).zip(logits.iter_mut()).filter(|(token, _)| !mask.allows(*token));
        forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    }
    let mut left = Candidates::of(logits);
    for kind in &shaping.order {
        if left.is_empty() {
            return;
        }
        match kind {
            SamplerKind::Penalties => {
                adjustments.entries().for_each(|(token, of)| left.change(token, |logit| of.penalized(logit)));
            }
            SamplerKind::Dry => {
                let penalties = shaping.dry.as_ref().map(|dry| dry.penalties(state.tokens(), drafts));
                let penalties = penalties.unwrap_or_default();
                penalties.iter().for_each(|(token, penalty)| left.change(*token, |logit| logit - penalty));
            }
            other => cut(&mut left, *other, &state.sampling, (position, &state.xtc_kept)),
        }
    }
    left.write(logits);
}

/// Applies one of the samplers that look at what is left alone.
fn cut(left: &mut Candidates, kind: SamplerKind, of: &Sampling, (position, stay): (usize, &[u32])) {
    match kind {
        SamplerKind::TopNSigma if of.top_n_sigma > 0.0 => left.top_n_sigma(of.top_n_sigma),
        SamplerKind::Temperature if of.dynatemp_range > 0.0 => {
            let ends = ((of.temperature - of.dynatemp_range).max(0.0), of.temperature + of.dynatemp_range);
            if let Some(temperature) = left.dynamic_temperature(ends, of.dynatemp_exponent) {
                left.temper(temperature);
            }
        }
        SamplerKind::Temperature => left.temper(of.temperature),
        SamplerKind::TypicalP if of.typical_p < 1.0 => left.typical_p(of.typical_p),
        SamplerKind::MinP if of.min_p > 0.0 => left.min_p(of.min_p),
        SamplerKind::TopK if of.top_k > 0 => left.top_k(of.top_k),
        SamplerKind::TopP if of.top_p < 1.0 => left.top_p(of.top_p),
        SamplerKind::Xtc if xtc::excludes(of, position) => left.without_top(of.xtc_threshold, stay),
        SamplerKind::TopNSigma
        | SamplerKind::TypicalP
        | SamplerKind::MinP
        | SamplerKind::TopK
        | SamplerKind::TopP
        | SamplerKind::Xtc
        | SamplerKind::Penalties
        | SamplerKind::Dry => {}
    }
}
