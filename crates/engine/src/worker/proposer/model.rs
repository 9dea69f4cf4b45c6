//! Draft tokens of a draft model or head: what the loop knows of its KV cache.
//!
//! Its blocks have the numbers of the target model's. Which of them hold what is known by their content: a hash
//! of all tokens up to a block's end, kept from when it was written. So prefix hits, swaps and blocks that change hands need
//! no word to this module: a block whose hash is not the sequence's is computed again.
//!
//! A draft head reads the target's hidden states, which the device keeps from the steps that computed them. Where a prefix was not
//! computed, because its keys were found, and the head has no block of it either, it begins behind the prefix.
//!
//! Invariant: a wrong entry costs acceptance, never a token.

mod rest;
mod shown;

use std::collections::BTreeMap;

use omnibus_core::{DraftKind, DraftLoad, SequenceId};
use omnibus_kv::{BlockId, BlockTable};

use super::{Computed, DraftContext, DraftNetwork, DraftTokens, Promised, Proposal, Proposer};
use crate::worker::device_call::{DraftRead, DraftResult};
use crate::worker::device_client::DeviceClient;
use crate::worker::drafting::{DraftReads, DraftSegment, STATES_KEPT_MAX};
use crate::worker::step_input::RowDrafts;
use rest::Rest;
use shown::Shown;

/// Asks a draft model or head.
pub(super) struct ModelProposer {
    sequences: BTreeMap<SequenceId, Shown>,
    /// The hash of all tokens up to a block's end, of the blocks that the network has filled.
    filled: BTreeMap<BlockId, u64>,
    block_size: usize,
    /// Most tokens of all sequences that are shown to it at once.
    chunk: usize,
    network: DraftNetwork,
    /// Of a head.
    rest: Rest,
}

impl ModelProposer {
    /// `chunk`: most tokens that are shown to the network at once.
    pub(super) fn new(block_size: usize, chunk: usize, network: DraftNetwork) -> Self {
        Self {
            sequences: BTreeMap::new(),
            filled: BTreeMap::new(),
            block_size,
            chunk,
            network,
            rest: Rest::default(),
        }
    }

    /// Rows that the network can compute: a draft head needs the token behind each row, and its state.
    fn rows(&self, of: &Promised<'_>) -> usize {
        match self.network.reads {
            DraftReads::Tokens => of.tokens.len(),
            DraftReads::States => of.tokens.len().saturating_sub(1).min(of.planned.start),
        }
    }

    /// Whether a sequence has to be shown, although it has no draft tokens.
    fn is_late(&self, of: &Promised<'_>) -> bool {
        let waiting =
            self.sequences.get(&of.sequence).map_or(0, |own| self.rows(of).saturating_sub(own.computed));
        match self.network.reads {
            DraftReads::Tokens => waiting > self.chunk && of.is_decode,
            DraftReads::States => waiting >= STATES_KEPT_MAX,
        }
    }

    /// What the device is to compute for a sequence, with room for so many tokens. `None` if there is no room.
    fn segment(&mut self, of: &Promised<'_>, room: usize) -> Option<DraftSegment> {
        let (rows, reads) = (self.rows(of), self.network.reads);
        let Self { sequences, filled, block_size, .. } = self;
        let own = sequences.entry(of.sequence).or_default();
        own.find_filled(of, own.most_found(rows), filled, *block_size);
        own.skip_missing_states(*block_size);
        let end = rows.min(own.computed + room);
        let behind = match reads {
            DraftReads::Tokens => 0,
            DraftReads::States => 1,
        };
        let tokens = of.tokens.get(own.computed + behind..end + behind)?;
        if tokens.is_empty() {
            return None;
        }
        let count = if end + behind == of.tokens.len() { of.count } else { 0 };
        for block in own.computed / *block_size..(end + count).div_ceil(*block_size) {
            if let Some(block) = of.table.block(block) {
                filled.remove(&block);
            }
        }
        let blocks = of.table.blocks.get(own.skipped_blocks..).unwrap_or_default().to_vec();
        let skipped = own.skipped_blocks * *block_size;
        Some(DraftSegment {
            sequence: of.sequence,
            tokens: tokens.to_vec(),
            context: own.computed - skipped,
            skipped,
            next: of.tokens.len(),
            prompt: of.prompt,
            table: BlockTable { blocks, ..of.table.clone() },
            count,
        })
    }

    /// The device has computed a segment, and these draft tokens.
    fn computed(&mut self, of: &Promised<'_>, segment: &DraftSegment, drafts: &[u32]) {
        let reads = self.network.reads;
        let Self { sequences, filled, block_size, .. } = self;
        let Some(own) = sequences.get_mut(&of.sequence) else { return };
        own.computed = segment.skipped + segment.context + segment.tokens.len();
        own.drafted = match (reads, drafts.split_last()) {
            // The last one was drawn, and not shown.
            (DraftReads::Tokens, Some((_, shown))) => shown.to_vec(),
            // What a head computed of its own output is computed again of the target's.
            (DraftReads::States, _) | (DraftReads::Tokens, None) => Vec::new(),
        };
        own.read_states(own.computed);
        let written = (own.computed + own.drafted.len()).div_ceil(*block_size);
        own.blocks = of.table.blocks.iter().copied().take(written).collect();
        own.fill(of, filled, *block_size);
    }
}

fn no_drafts() -> RowDrafts {
    RowDrafts::Known(Vec::new())
}

/// What the network computes: the tokens that it has not seen, and a row for each draft token but the last. Nothing waits for
/// tokens that are only shown, so their time is not known.
fn load_of(segments: &[DraftSegment]) -> DraftLoad {
    if segments.iter().all(|of| of.count == 0) {
        return DraftLoad::default();
    }
    DraftLoad {
        rounds: segments.iter().map(|of| of.count.max(1)).max().unwrap_or(0),
        rows: segments.iter().map(|of| of.tokens.len() + of.count.saturating_sub(1)).sum(),
    }
}

impl Proposer for ModelProposer {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        let own = self.sequences.entry(context.sequence).or_default();
        own.take_accepted(context.tokens);
        let most = context.most.min(self.network.most);
        let has_room = context.tokens.len() + most <= self.network.context;
        let is_late = context.tokens.len() > own.computed + self.chunk;
        let can_begin = own.can_begin(context.tokens.len().saturating_sub(1), self.block_size);
        let count = if has_room && !is_late && can_begin && !self.rest.rests() { most } else { 0 };
        Proposal { tokens: DraftTokens::Promised(count), kind: DraftKind::NETWORK }
    }

    fn keeps_states(&self) -> bool {
        !self.rest.rests()
    }

    fn compute(
        &mut self,
        promised: &[Promised<'_>],
        read: DraftRead,
        device: &mut DeviceClient,
    ) -> mlx::Result<Computed> {
        if self.network.reads == DraftReads::States {
            let count = |of: &&Promised<'_>| of.count > 0;
            let batch = promised.iter().filter(|of| of.is_decode).count();
            self.rest.see_step(batch, promised.iter().filter(count).count());
        }
        if self.rest.rests() {
            promised.iter().for_each(|of| self.sequences.entry(of.sequence).or_default().rest());
            return Ok(Computed { drafts: vec![no_drafts(); promised.len()], ..Computed::default() });
        }
        let (mut room, mut segments, mut places) = (self.chunk, Vec::new(), Vec::new());
        for (place, of) in promised.iter().enumerate() {
            let own = self.sequences.entry(of.sequence).or_default();
            own.keep_same_blocks(of.table, self.block_size);
            if self.network.reads == DraftReads::States {
                own.see_plan(&of.planned);
            }
            if of.count == 0 && !self.is_late(of) {
                continue;
            }
            if let Some(segment) = self.segment(of, room) {
                room -= segment.tokens.len();
                segments.push(segment);
                places.push(place);
            }
        }
        let drafts = vec![no_drafts(); promised.len()];
        if segments.is_empty() {
            return Ok(Computed { drafts, ..Computed::default() });
        }
        // What a draft model has written depends on which tokens it drew.
        let read = if self.network.reads == DraftReads::States { read } else { DraftRead::Now };
        let DraftResult { tokens, built } = device.draft(segments.clone(), read)?;
        let mut computed = Computed { drafts, load: load_of(&segments), built };
        for ((at, (place, segment)), own) in places.into_iter().zip(&segments).enumerate().zip(tokens) {
            let (Some(of), Some(drafts)) = (promised.get(place), computed.drafts.get_mut(place)) else {
                continue;
            };
            self.computed(of, segment, &own);
            *drafts = match read {
                DraftRead::WithStep if segment.count > 0 => {
                    RowDrafts::OnDevice { segment: at, count: segment.count }
                }
                DraftRead::Now | DraftRead::WithStep => RowDrafts::Known(own),
            };
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
