//! Draft tokens of a draft model: what the loop knows of its KV cache.
//!
//! The draft model's blocks have the numbers of the target model's. Which of them hold what is known by their content: a hash
//! of all tokens up to a block's end, kept from when it was written. So prefix hits, swaps and blocks that change hands need
//! no word to this module: a block whose hash is not the sequence's is computed again.
//!
//! Invariant: a wrong entry costs acceptance, never a token.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use omnibus_core::{DRAFT_KINDS, DraftKind, DraftLoad, SequenceId};
use omnibus_kv::{BlockId, BlockTable};

use super::{Computed, DraftContext, DraftTokens, Promised, Proposal, Proposer};
use crate::worker::device_client::DeviceClient;
use crate::worker::draft_model::DraftSegment;

/// The kind of a draft model's tokens; lower ones are those of n-grams.
const KIND: DraftKind = DraftKind(DRAFT_KINDS as u8 - 1);

/// Asks a draft model.
pub(super) struct ModelProposer {
    sequences: BTreeMap<SequenceId, Shown>,
    /// The hash of all tokens up to a block's end, of the blocks that the draft model has filled.
    filled: BTreeMap<BlockId, u64>,
    block_size: usize,
    /// Most tokens of all sequences that are shown to it at once.
    chunk: usize,
    /// Longest sequence that it was trained for.
    context: usize,
}

/// What the draft model has seen of a sequence.
#[derive(Default)]
struct Shown {
    /// Tokens, from the first on, whose keys and values it has.
    computed: usize,
    /// The blocks that it wrote for this sequence.
    blocks: Vec<BlockId>,
    /// Of each full one.
    hashes: Vec<u64>,
    /// Draft tokens behind the computed ones that it has keys and values of, too.
    drafted: Vec<u32>,
}

impl ModelProposer {
    /// `chunk`: most tokens that are shown to the draft model at once. `context`: its longest sequence.
    pub(super) fn new(block_size: usize, chunk: usize, context: usize) -> Self {
        Self { sequences: BTreeMap::new(), filled: BTreeMap::new(), block_size, chunk, context }
    }

    /// What the device is to compute for a sequence, with room for so many tokens. `None` if there is no room.
    fn segment(&mut self, of: &Promised<'_>, room: usize) -> Option<DraftSegment> {
        let Self { sequences, filled, block_size, .. } = self;
        let own = sequences.entry(of.sequence).or_default();
        own.keep_same_blocks(of.table, *block_size);
        own.find_filled(of, filled, *block_size);
        let end = of.tokens.len().min(own.computed + room);
        let tokens = of.tokens.get(own.computed..end).filter(|tokens| !tokens.is_empty())?;
        let count = if end == of.tokens.len() { of.count } else { 0 };
        for block in own.computed / *block_size..(end + count).div_ceil(*block_size) {
            if let Some(block) = of.table.block(block) {
                filled.remove(&block);
            }
        }
        Some(DraftSegment {
            sequence: of.sequence,
            tokens: tokens.to_vec(),
            context: own.computed,
            prompt: of.prompt,
            table: of.table.clone(),
            count,
        })
    }

    /// The device has computed a segment, and these draft tokens.
    fn computed(&mut self, of: &Promised<'_>, segment: &DraftSegment, drafts: &[u32]) {
        let Self { sequences, filled, block_size, .. } = self;
        let Some(own) = sequences.get_mut(&of.sequence) else { return };
        own.computed = segment.context + segment.tokens.len();
        // The last one was drawn, and not shown.
        own.drafted = drafts.split_last().map(|(_, shown)| shown.to_vec()).unwrap_or_default();
        let written = (own.computed + own.drafted.len()).div_ceil(*block_size);
        own.blocks = of.table.blocks.iter().copied().take(written).collect();
        own.fill(of, filled, *block_size);
    }
}

/// What the draft model computes: the tokens that it has not seen, and a row for each draft token but the last.
fn load_of(segments: &[DraftSegment]) -> DraftLoad {
    DraftLoad {
        rounds: segments.iter().map(|of| of.count.max(1)).max().unwrap_or(0),
        rows: segments.iter().map(|of| of.tokens.len() + of.count.saturating_sub(1)).sum(),
    }
}

impl Shown {
    /// Draft tokens that were accepted are computed.
    fn take_accepted(&mut self, tokens: &[u32]) {
        let behind = tokens.get(self.computed..).unwrap_or_default();
        let accepted = behind.iter().zip(&self.drafted).take_while(|(one, other)| one == other).count();
        self.computed += accepted;
        self.drafted.clear();
    }

    /// Forgets what it wrote to blocks that the sequence has no more.
    fn keep_same_blocks(&mut self, table: &BlockTable, block_size: usize) {
        let same = self.blocks.iter().zip(&table.blocks).take_while(|(one, other)| one == other).count();
        self.blocks.truncate(same);
        self.hashes.truncate(same);
        self.computed = self.computed.min(same * block_size);
    }

    /// Counts the blocks that follow and that hold this sequence's tokens already. The newest token is always shown.
    fn find_filled(&mut self, of: &Promised<'_>, filled: &BTreeMap<BlockId, u64>, block_size: usize) {
        let newest = of.tokens.len().saturating_sub(1);
        while self.computed == self.hashes.len() * block_size && self.computed + block_size <= newest {
            let hash = self.next_hash(of.tokens, block_size);
            let block = of.table.block(self.hashes.len());
            let Some(block) = block.filter(|block| filled.get(block) == Some(&hash)) else { break };
            self.blocks.truncate(self.hashes.len());
            self.blocks.push(block);
            self.hashes.push(hash);
            self.computed += block_size;
        }
        self.computed = self.computed.min(newest);
    }

    /// Keeps the hashes of the blocks that are full.
    fn fill(&mut self, of: &Promised<'_>, filled: &mut BTreeMap<BlockId, u64>, block_size: usize) {
        while (self.hashes.len() + 1) * block_size <= self.computed {
            let hash = self.next_hash(of.tokens, block_size);
            if let Some(block) = self.blocks.get(self.hashes.len()) {
                filled.insert(*block, hash);
            }
            self.hashes.push(hash);
        }
    }

    fn next_hash(&self, tokens: &[u32], block_size: usize) -> u64 {
        let start = self.hashes.len() * block_size;
        let mut hasher = DefaultHasher::new();
        (self.hashes.last(), tokens.get(start..start + block_size)).hash(&mut hasher);
        hasher.finish()
    }
}

impl Proposer for ModelProposer {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        let own = self.sequences.entry(context.sequence).or_default();
        own.take_accepted(context.tokens);
        let has_room = context.tokens.len() + context.most <= self.context;
        let is_late = context.tokens.len() > own.computed + self.chunk;
        let count = if has_room && !is_late { context.most } else { 0 };
        Proposal { tokens: DraftTokens::Promised(count), kind: KIND }
    }

    fn compute(&mut self, promised: &[Promised<'_>], device: &mut DeviceClient) -> mlx::Result<Computed> {
        let (mut room, mut segments, mut places) = (self.chunk, Vec::new(), Vec::new());
        for (place, of) in promised.iter().enumerate() {
            let is_late = |own: &Shown| of.tokens.len() > own.computed + self.chunk;
            if of.count == 0 && !self.sequences.get(&of.sequence).is_some_and(is_late) {
                continue;
            }
            if let Some(segment) = self.segment(of, room) {
                room -= segment.tokens.len();
                segments.push(segment);
                places.push(place);
            }
        }
        let mut computed = Computed { drafts: vec![Vec::new(); promised.len()], load: load_of(&segments) };
        if segments.is_empty() {
            return Ok(computed);
        }
        for ((place, segment), own) in places.into_iter().zip(&segments).zip(device.draft(segments.clone())?)
        {
            let (Some(of), Some(drafts)) = (promised.get(place), computed.drafts.get_mut(place)) else {
                continue;
            };
            self.computed(of, segment, &own);
            *drafts = own;
        }
        Ok(computed)
    }

    fn remove(&mut self, sequence: SequenceId) {
        self.sequences.remove(&sequence);
    }

    fn clear(&mut self) {
        self.sequences.clear();
        self.filled.clear();
    }
}
