//! Drafting on the device: rounds of passes, one draft token of each sequence a round. A token goes from one to the next on the
//! device, which computes a round while the host builds the next.
//!
//! Invariant: nothing here writes what the target model reads, so what it computes costs time and changes no token.

use mlx::Array;
use omnibus_core::{Padding, SequenceId};
use omnibus_kv::BlockTable;
use omnibus_model::{Segment, take_rows};
use serde::{Deserialize, Serialize};

use crate::sampler::{SampleRow, Sampler};

/// What a sequence's draft tokens follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::worker) struct DraftSegment {
    pub(in crate::worker) sequence: SequenceId,
    /// Tokens of the rows that are not computed, the newest last. At least one. Of a draft model a row's own tokens; of a draft
    /// head those that follow its rows.
    pub(in crate::worker) tokens: Vec<u32>,
    /// The first of the rows, from the beginning of the table.
    pub(in crate::worker) context: usize,
    /// What is before the table, in tokens: a draft head that has no states of them begins behind them.
    pub(in crate::worker) skipped: usize,
    /// Position of the first draft token.
    pub(in crate::worker) next: usize,
    /// Tokens of the prompt.
    pub(in crate::worker) prompt: usize,
    /// Blocks of all rows that are computed, those of draft tokens included.
    pub(in crate::worker) table: BlockTable,
    /// How many draft tokens; none only shows the tokens.
    pub(in crate::worker) count: usize,
}

/// Passes of a network that drafts.
pub(super) trait DraftPasses {
    /// What the last pass made beside its logits: keys, values and states.
    fn written(&self) -> Vec<&Array>;

    /// The tokens of all segments. Gives the logits of the last row of each segment with draft tokens, `[n, vocab]`.
    fn first_pass(&mut self, ordered: &[&DraftSegment], padding: Padding) -> mlx::Result<Option<Array>>;

    /// One more row of each of these segments: its token is that of the same row of the round `before`, `[n]` i32. Gives their
    /// logits, `[n, vocab]`.
    fn later_pass(
        &mut self,
        drafting: &[&DraftSegment],
        round: usize,
        before: &Array,
        padding: Padding,
    ) -> mlx::Result<Option<Array>>;
}

/// Draft tokens of several segments, on the device.
pub(in crate::worker) struct DraftRounds {
    /// The sequence of each segment.
    sequences: Vec<SequenceId>,
    /// The segments in the order of the rows.
    order: Vec<usize>,
    /// One token of each of the first segments in order, `[n]` i32 each.
    rounds: Vec<Array>,
}

impl DraftRounds {
    /// Waits, and gives the tokens of each segment.
    pub(in crate::worker) fn read(&self) -> mlx::Result<Vec<Vec<u32>>> {
        mlx::eval(&self.rounds)?;
        let mut drafts = vec![Vec::new(); self.sequences.len()];
        for round in &self.rounds {
            let tokens = round.to_vec::<i32>()?;
            for (at, token) in self.order.iter().zip(tokens) {
                drafts[*at].push(token.max(0) as u32);
            }
        }
        Ok(drafts)
    }

    /// Waits, and gives the tokens of each sequence that has some.
    pub(in crate::worker) fn of_sequences(&self) -> mlx::Result<Vec<(SequenceId, Vec<u32>)>> {
        let drafts = self.sequences.iter().copied().zip(self.read()?);
        Ok(drafts.filter(|(_, tokens)| !tokens.is_empty()).collect())
    }

    /// The tokens of each round, `[n]` i32.
    pub(in crate::worker) fn rounds(&self) -> &[Array] {
        &self.rounds
    }

    /// The row of a segment in its rounds; `None` if it has no token in this one.
    pub(in crate::worker) fn row(&self, segment: usize, round: usize) -> Option<usize> {
        let row = self.order.iter().position(|at| *at == segment)?;
        let rows = self.rounds.get(round)?.size();
        (row < rows).then_some(row)
    }
}

/// Shows the network the tokens of all segments, and computes their draft tokens.
pub(super) fn draft(
    passes: &mut impl DraftPasses,
    segments: &[DraftSegment],
    sampler: &Sampler,
    padding: Padding,
) -> mlx::Result<DraftRounds> {
    // Segments that a later round computes are the first rows of the one before.
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(segments[*at].count));
    let ordered: Vec<&DraftSegment> = order.iter().map(|at| &segments[*at]).collect();
    let mut rounds: Vec<Array> = Vec::new();
    loop {
        let drafting = ordered.iter().filter(|of| of.count > rounds.len()).count();
        let drafting_now = ordered.get(..drafting).unwrap_or_default();
        let pass = match rounds.last() {
            None => passes.first_pass(&ordered, padding)?,
            Some(_) if drafting == 0 => break,
            Some(before) => passes.later_pass(drafting_now, rounds.len(), before, padding)?,
        };
        let Some(logits) = pass else { break };
        let rows = drafting_now.iter().enumerate().map(|(row, of)| SampleRow {
            sequence: of.sequence,
            position: of.next + rounds.len(),
            logits: row,
        });
        let tokens = sampler.draft(&logits, &rows.collect::<Vec<_>>())?;
        mlx::async_eval(passes.written().into_iter().chain([&tokens]))?;
        rounds.push(tokens);
    }
    if rounds.is_empty() {
        // No step waits for tokens that are only shown.
        mlx::async_eval(passes.written())?;
    }
    let sequences = segments.iter().map(|of| of.sequence).collect();
    Ok(DraftRounds { sequences, order, rounds })
}

/// Rows of a first pass.
pub(super) struct FirstRows {
    /// `[T]` i32, padded.
    pub(super) tokens: Array,
    pub(super) segments: Vec<Segment>,
    /// The last row of each segment with draft tokens.
    pub(super) logits_at: Vec<usize>,
}

/// The rows of all segments, end to end, for a cache of so many groups.
pub(super) fn first_rows(
    ordered: &[&DraftSegment],
    groups: usize,
    padding: Padding,
) -> mlx::Result<FirstRows> {
    let (mut tokens, mut segments, mut logits_at) = (Vec::new(), Vec::new(), Vec::new());
    for of in ordered {
        let samples = usize::from(of.count > 0);
        segments.push(segment(of, groups, (tokens.len(), of.tokens.len()), of.context, samples));
        tokens.extend(of.tokens.iter().map(|token| *token as i32));
        logits_at.extend((of.count > 0).then(|| tokens.len() - 1));
    }
    tokens.resize(padding.of(tokens.len()), 0);
    let tokens = Array::from_slice(&tokens, &[tokens.len() as i32])?;
    Ok(FirstRows { tokens, segments, logits_at })
}

/// Which rows of the round before a later pass reads, padding included; `None` if that is all, in their order.
pub(super) fn rows_of_round(rows: usize, before: &Array, padding: Padding) -> mlx::Result<Option<Array>> {
    let place = |row: usize| if row < rows { row as i32 } else { 0 };
    let places: Vec<i32> = (0..padding.of(rows)).map(place).collect();
    if places.len() == before.dim(0)? as usize {
        return Ok(None);
    }
    Array::from_slice(&places, &[places.len() as i32]).map(Some)
}

/// These rows of an array, or all.
pub(super) fn taken(of: &Array, rows: Option<&Array>) -> mlx::Result<Array> {
    rows.map_or_else(|| Ok(of.clone()), |rows| take_rows(of, rows))
}

/// One row of each segment, behind those of the rounds before.
pub(super) fn later_segments(drafting: &[&DraftSegment], groups: usize, round: usize) -> Vec<Segment> {
    let context = |of: &DraftSegment| of.context + of.tokens.len() + round - 1;
    let segments = drafting.iter().enumerate();
    segments.map(|(row, of)| segment(of, groups, (row, 1), context(of), 1)).collect()
}

/// Rows of one segment.
pub(super) fn segment(
    of: &DraftSegment,
    groups: usize,
    (first, len): (usize, usize),
    context: usize,
    samples: usize,
) -> Segment {
    let tables = vec![of.table.clone(); groups];
    Segment { first, len, context, prompt: of.prompt, samples, adapter: None, tables }
}
