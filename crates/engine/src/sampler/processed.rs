//! Logits that processors of the embedding program have changed.

use std::collections::BTreeMap;

use mlx::Array;
use omnibus_core::SequenceId;

use super::SampleRow;
use super::drafted::DraftedTokens;
use super::state::SequenceState;
use crate::logits_processor::{LogitsProcessors, SequenceTokens};

/// The logits `[n, vocab]` f32 with the rows of sequences that name processors changed by them. `None` if none does.
pub(super) fn processed(
    logits: &Array,
    rows: &[SampleRow],
    states: &mut BTreeMap<SequenceId, SequenceState>,
    (processors, drafts): (&LogitsProcessors, &DraftedTokens),
) -> mlx::Result<Option<Array>> {
    let has_any = |state: &SequenceState| !state.sampling.processors.is_empty();
    if !rows.iter().any(|row| states.get(&row.sequence).is_some_and(has_any)) {
        return Ok(None);
    }
    let [count, vocab] = logits.dims()?;
    let mut values = logits.to_vec::<f32>()?;
    let before = drafts.before_rows(rows);
    for ((row, before), logits) in rows.iter().zip(before).zip(values.chunks_exact_mut(vocab as usize)) {
        if let Some(state) = states.get_mut(&row.sequence) {
            process(state, before, logits, processors);
        }
    }
    Array::from_slice(&values, &[count, vocab]).map(Some)
}

fn process(state: &mut SequenceState, drafts: &[u32], logits: &mut [f32], processors: &LogitsProcessors) {
    let names = std::mem::take(&mut state.sampling.processors);
    state.update(|state| {
        let (prompt, answer) = state.history(drafts);
        for processor in names.iter().filter_map(|name| processors.get(name)) {
            processor.process(SequenceTokens { prompt, answer: &answer }, logits);
        }
    });
    state.sampling.processors = names;
}
