//! The device's side of a draft head (MTP, EAGLE-3, DFlash): a small network that drafts from the target model's hidden states.
//!
//! The target's passes leave the hidden states of rows here; a draft takes those of the rows that it computes. Rows that a head
//! computes from its own output are written again once the target's states of their tokens are there.
//!
//! Invariant: what is missing or wrong here costs acceptance, never a token.

use mlx::Array;
use omnibus_core::{Padding, SequenceId};
use omnibus_kv::{BlockId, KvFormat};
use omnibus_model::{
    Batch, DraftBlock, DraftHead, DraftHeadOutput, DraftStates, HiddenPlace, KvCache, Model, MultimodalRows,
    Segment, SpanRuns, take_rows,
};

use super::model::cache;
use super::rounds::{
    DraftPasses, DraftRounds, DraftSegment, FirstRows, draft, first_rows, later_segments, rows_of_round,
    segment, taken,
};
use super::unread_states::UnreadStates;
use crate::sampler::Sampler;
use crate::worker::hidden::KeptStates;

/// A draft head with its KV cache, and the target's hidden states that it has not read.
pub(in crate::worker) struct HeadDrafter {
    head: DraftHead,
    cache: KvCache,
    block_size: usize,
    format: KvFormat,
    states: UnreadStates,
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
        Ok(Self { head, cache, block_size, format, states: UnreadStates::default() })
    }

    /// Its own network.
    pub(super) fn network(&self) -> &Model {
        self.head.network()
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
        self.states.remove(sequence);
    }

    /// Keeps the target's hidden states of a step.
    pub(super) fn keep(&mut self, kept: KeptStates) {
        self.states.keep(kept);
    }

    /// Shows the head the tokens of all segments, and computes their draft tokens.
    pub(super) fn draft(
        &mut self,
        target: &Model,
        segments: &[DraftSegment],
        sampler: &Sampler,
        padding: Padding,
    ) -> mlx::Result<DraftRounds> {
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
        states: DraftStates<'_>,
        segments: Vec<Segment>,
        logits_at: Vec<usize>,
    ) -> mlx::Result<Option<Array>> {
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden: None };
        let output = self.drafter.head.forward(self.target, Some(states), &batch, &mut self.drafter.cache)?;
        let Some(DraftHeadOutput { logits, states }) = output else { return Ok(None) };
        self.states = Some(states);
        Ok(Some(logits))
    }

    /// One pass over the blocks of all segments with draft tokens: the newest token, and a mask for each draft token. Gives the
    /// logits of the first draft token of each.
    fn draft_blocks(&mut self, ordered: &[&DraftSegment], block: DraftBlock) -> mlx::Result<Option<Array>> {
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
        let output = self.drafter.head.forward(self.target, None, &batch, &mut self.drafter.cache)?;
        let Some(DraftHeadOutput { logits, .. }) = output else { return Ok(None) };
        let blocks = BlockLogits { logits, first };
        let of_first = blocks.of_round(blocks.first.len(), 0)?;
        self.blocks = Some(blocks);
        Ok(Some(of_first))
    }
}

impl DraftPasses for HeadPasses<'_> {
    fn written(&self) -> Vec<&Array> {
        self.drafter.cache.arrays().chain(&self.states).collect()
    }

    fn first_pass(&mut self, ordered: &[&DraftSegment], padding: Padding) -> mlx::Result<Option<Array>> {
        let FirstRows { tokens, segments, logits_at } =
            first_rows(ordered, self.drafter.cache.groups().len(), padding)?;
        let wanted = ordered.iter().map(|of| {
            let first = of.skipped + of.context;
            (of.sequence, first..first + of.tokens.len())
        });
        let states = self.drafter.states.take(&wanted.collect::<Vec<_>>(), tokens.size())?;
        match self.drafter.head.block() {
            None => self.forward(tokens, DraftStates::OfTarget(&states), segments, logits_at),
            Some(block) => {
                let batch = Batch { tokens, segments, logits_at: Vec::new(), multimodal: None, hidden: None };
                self.drafter.head.write_context(&states, &batch, &mut self.drafter.cache)?;
                self.draft_blocks(ordered, block)
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
        self.forward(tokens, DraftStates::OfHead(&states), segments, (0..drafting.len()).collect())
    }
}
