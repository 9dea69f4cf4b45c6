//! The device's side of a draft head (MTP, EAGLE-3, DFlash): a small network that drafts from the target model's hidden states.
//!
//! The target's passes leave the hidden states of rows here; a draft takes those of the rows that it computes. Rows that a head
//! computes from its own output are written again once the target's states of their tokens are there.
//!
//! Invariant: what is missing or wrong here costs acceptance, never a token.

use std::collections::BTreeMap;

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_kv::{BlockId, KvFormat};
use omnibus_model::{
    Batch, DraftBlock, DraftHead, DraftHeadOutput, HiddenPlace, KvCache, Model, MultimodalRows, Segment,
    SpanRuns, take_rows,
};

use super::model::cache;
use super::rounds::{
    DraftPasses, DraftSegment, FirstRows, draft, first_rows, later_segments, rows_of_round, segment, taken,
};
use crate::sampler::Sampler;
use crate::worker::padding::Padding;

/// A draft head with its KV cache, and the target's hidden states that it has not read.
pub(in crate::worker) struct HeadDrafter {
    head: DraftHead,
    cache: KvCache,
    block_size: usize,
    format: KvFormat,
    states: BTreeMap<SequenceId, Vec<KeptStates>>,
}

/// Hidden states of consecutive positions.
struct KeptStates {
    first: usize,
    /// `[positions, width]`
    rows: Array,
}

impl KeptStates {
    fn end(&self) -> mlx::Result<usize> {
        Ok(self.first + self.rows.dim(0)? as usize)
    }

    /// The states of these positions that it has.
    fn within(&self, from: usize, to: usize) -> mlx::Result<Option<Array>> {
        let (from, to) = (from.max(self.first), to.min(self.end()?));
        if from >= to {
            return Ok(None);
        }
        if to - from == self.rows.dim(0)? as usize {
            return Ok(Some(self.rows.clone()));
        }
        let width = self.rows.dim(1)?;
        let at = |position: usize| (position - self.first) as i32;
        self.rows.slice(&[at(from), 0], &[at(to), width]).map(Some)
    }
}

impl HeadDrafter {
    /// With a KV cache of so many blocks.
    pub(super) fn new(
        head: DraftHead,
        blocks: usize,
        block_size: usize,
        format: KvFormat,
    ) -> mlx::Result<Self> {
        let cache = cache(head.network(), blocks, block_size, format)?;
        Ok(Self { head, cache, block_size, format, states: BTreeMap::new() })
    }

    /// Where the target's hidden states are read.
    pub(super) fn places(&self) -> &[HiddenPlace] {
        self.head.places()
    }

    /// Drops the KV cache and all states, and allocates another.
    pub(super) fn reset(&mut self, blocks: usize) -> mlx::Result<()> {
        self.states.clear();
        self.cache = cache(self.head.network(), 0, self.block_size, self.format)?;
        mlx::memory::clear_cache();
        self.cache = cache(self.head.network(), blocks, self.block_size, self.format)?;
        Ok(())
    }

    /// Copies blocks: the copy has the states of the target's rows that were in the original.
    pub(super) fn copy_blocks(&mut self, copies: &[(BlockId, BlockId)]) -> mlx::Result<()> {
        (0..self.cache.groups().len()).try_for_each(|group| self.cache.copy_blocks(group, copies))
    }

    /// A sequence has ended.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        self.states.remove(&sequence);
    }

    /// Keeps the target's hidden states of positions from `first` on, `[positions, width]`, which take the place of older ones.
    pub(super) fn keep(&mut self, sequence: SequenceId, first: usize, rows: Array) -> mlx::Result<()> {
        let kept = self.states.entry(sequence).or_default();
        while let Some(last) = kept.pop() {
            if let Some(rows) = last.within(0, first)? {
                kept.push(KeptStates { first: last.first, rows });
                break;
            }
        }
        kept.push(KeptStates { first, rows });
        Ok(())
    }

    /// The target's hidden states of these positions, `[positions, width]`. Earlier ones are not needed again.
    fn take(&mut self, sequence: SequenceId, from: usize, to: usize) -> mlx::Result<Array> {
        let kept = self.states.entry(sequence).or_default();
        let parts = kept.iter().map(|states| states.within(from, to)).collect::<mlx::Result<Vec<_>>>()?;
        let parts: Vec<&Array> = parts.iter().flatten().collect();
        let states = match parts.as_slice() {
            [] => return Err(mlx::Error::new("the target's hidden states of a draft head's rows")),
            [one] => (*one).clone(),
            several => mlx::concatenate(several, 0)?,
        };
        if states.dim(0)? as usize != to - from {
            return Err(mlx::Error::new("the target's hidden states of all of a draft head's rows"));
        }
        let mut left = Vec::new();
        for states in kept.drain(..) {
            let end = states.end()?;
            if let Some(rows) = states.within(to, end)? {
                left.push(KeptStates { first: to.max(states.first), rows });
            }
        }
        *kept = left;
        Ok(states)
    }

    /// Shows the head the tokens of all segments, and computes their draft tokens.
    pub(super) fn draft(
        &mut self,
        target: &Model,
        segments: &[DraftSegment],
        sampler: &Sampler,
        padding: Padding,
    ) -> mlx::Result<Vec<Vec<u32>>> {
        let mut passes = HeadPasses { drafter: self, target, states: None, blocks: None };
        draft(&mut passes, segments, sampler, padding)
    }
}

/// The passes of one draft.
struct HeadPasses<'a> {
    drafter: &'a mut HeadDrafter,
    target: &'a Model,
    /// What the last pass gave of each row that drafts, `[n, hidden]`.
    states: Option<Array>,
    /// Of a head that drafts in blocks.
    blocks: Option<BlockLogits>,
}

/// Logits of all draft tokens of one pass.
struct BlockLogits {
    /// `[n, vocab]`
    logits: Array,
    /// The first row of each sequence's block.
    first: Vec<usize>,
}

impl BlockLogits {
    /// Of one draft token of the first sequences, `[sequences, vocab]`.
    fn of_round(&self, sequences: usize, round: usize) -> mlx::Result<Array> {
        let rows: Vec<i32> = self.first.iter().take(sequences).map(|first| (first + round) as i32).collect();
        take_rows(&self.logits, &Array::from_slice(&rows, &[rows.len() as i32])?)
    }
}

impl HeadPasses<'_> {
    fn forward(
        &mut self,
        tokens: Array,
        states: &Array,
        segments: Vec<Segment>,
        logits_at: Vec<usize>,
    ) -> mlx::Result<Option<Array>> {
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden: None };
        let output = self.drafter.head.forward(self.target, states, &batch, &mut self.drafter.cache)?;
        let Some(DraftHeadOutput { logits, states }) = output else { return Ok(None) };
        self.states = Some(states);
        Ok(Some(logits))
    }

    /// One pass over the blocks of all segments with draft tokens: the newest token, and a mask for each draft token. Gives the
    /// logits of the first draft token of each.
    fn draft_blocks(
        &mut self,
        ordered: &[&DraftSegment],
        block: DraftBlock,
        states: &Array,
    ) -> mlx::Result<Option<Array>> {
        let groups = self.drafter.cache.groups().len();
        let (mut tokens, mut segments, mut logits_at) = (Vec::new(), Vec::new(), Vec::new());
        let (mut spans, mut first) = (Vec::new(), Vec::new());
        for of in ordered.iter().filter(|of| of.count > 0) {
            let (row, len) = (tokens.len(), of.count + 1);
            segments.push(segment(of, groups, (row, len), of.context + of.tokens.len(), 1));
            tokens.push(of.tokens.last().map_or(0, |token| *token as i32));
            tokens.extend(std::iter::repeat_n(block.mask_token as i32, of.count));
            let span = row..row + len;
            spans.push(SpanRuns::from([span]));
            first.push(logits_at.len());
            logits_at.extend(row + 1..row + len);
        }
        if segments.is_empty() {
            return Ok(None);
        }
        let multimodal = Some(MultimodalRows { bidirectional: spans, ..MultimodalRows::default() });
        let tokens = Array::from_slice(&tokens, &[tokens.len() as i32])?;
        let batch = Batch { tokens, segments, logits_at, multimodal, hidden: None };
        let output = self.drafter.head.forward(self.target, states, &batch, &mut self.drafter.cache)?;
        let Some(DraftHeadOutput { logits, .. }) = output else { return Ok(None) };
        let blocks = BlockLogits { logits, first };
        let of_first = blocks.of_round(blocks.first.len(), 0)?;
        self.blocks = Some(blocks);
        Ok(Some(of_first))
    }
}

impl DraftPasses for HeadPasses<'_> {
    fn cache(&self) -> &KvCache {
        &self.drafter.cache
    }

    fn first_pass(&mut self, ordered: &[&DraftSegment], padding: Padding) -> mlx::Result<Option<Array>> {
        let FirstRows { tokens, segments, logits_at } =
            first_rows(ordered, self.drafter.cache.groups().len(), padding)?;
        let states = ordered.iter().map(|of| {
            let first = of.skipped + of.context;
            self.drafter.take(of.sequence, first, first + of.tokens.len())
        });
        let states = states.collect::<mlx::Result<Vec<_>>>()?;
        let states = mlx::concatenate(&states.iter().collect::<Vec<_>>(), 0)?;
        let padding = tokens.dim(0)? - states.dim(0)?;
        let states = if padding == 0 { states } else { states.pad(&[(0, padding), (0, 0)], 0.0)? };
        let states = self.drafter.head.states_of_target(&states)?;
        match self.drafter.head.block() {
            None => self.forward(tokens, &states, segments, logits_at),
            Some(block) => {
                let batch = Batch { tokens, segments, logits_at: Vec::new(), multimodal: None, hidden: None };
                self.drafter.head.write_context(&states, &batch, &mut self.drafter.cache)?;
                self.draft_blocks(ordered, block, &states)
            }
        }
    }

    fn later_pass(
        &mut self,
        drafting: &[&DraftSegment],
        round: usize,
        before: &Array,
        padding: Padding,
    ) -> mlx::Result<Option<Array>> {
        if let Some(blocks) = &self.blocks {
            return blocks.of_round(drafting.len(), round).map(Some);
        }
        let states = self.states.take().ok_or_else(|| mlx::Error::new("states of the round before"))?;
        let tokens = taken(before, rows_of_round(drafting.len(), before, padding)?.as_ref())?;
        let states = taken(&states, rows_of_round(drafting.len(), &states, padding)?.as_ref())?;
        let segments = later_segments(drafting, self.drafter.cache.groups().len(), round);
        self.forward(tokens, &states, segments, (0..drafting.len()).collect())
    }
}
