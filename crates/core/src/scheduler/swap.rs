//! Preemption: swap or recompute.
//!
//! A preempted sequence loses the blocks that other sequences take. The blocks that only it held can be offloaded first:
//! [`crate::Allocation::swaps`].
//!
//! Invariant: the policy alone allocates and frees blocks. Transfers decide how much there is to compute, never which
//! sequence runs.

use std::ops::Range;

use crate::cost::{CostModel, StepLoad, Transfer};
use crate::kv_cache::{KvCacheManager, PreemptionLoss};
use crate::plan::{CachedBlock, PreemptionMode};
use crate::scheduler::OffloadTier;
use crate::sequence::Sequence;
use crate::settings::{Offload, PreemptionPolicy, Settings, SwapSettings};

/// How preempted sequences leave, and the blocks to be offloaded for them.
#[derive(Debug, Clone)]
pub(super) struct Swaps {
    settings: SwapSettings,
    /// Bytes of a block of each group.
    block_bytes: Vec<u64>,
    /// To be offloaded with the next plan.
    pending: Vec<CachedBlock>,
}

impl Swaps {
    /// Nothing to be offloaded.
    pub(super) fn new(settings: &Settings) -> Self {
        let groups = settings.groups.iter();
        Self {
            settings: settings.swap,
            block_bytes: groups.map(|group| group.spec.block_bytes(settings.block_size)).collect(),
            pending: Vec::new(),
        }
    }

    /// What happens to the blocks of a sequence that is preempted.
    pub(super) fn mode(
        &self,
        sequence: &Sequence,
        kv_cache: &KvCacheManager,
        cost: &CostModel,
    ) -> PreemptionMode {
        let swaps = match self.settings.preemption {
            _ if self.settings.offload == Offload::Unavailable => false,
            PreemptionPolicy::Recompute => false,
            PreemptionPolicy::Swap => true,
            PreemptionPolicy::Auto => {
                let loss = kv_cache.preemption_loss(sequence.cache.cached_hashes());
                self.is_cheaper(&loss, kv_cache, cost)
            }
        };
        if swaps { PreemptionMode::Swap } else { PreemptionMode::Recompute }
    }

    /// True if offload and onload take less time than computing what may be lost. Transfers without measurements are
    /// tried; without measured steps, nothing is swapped.
    fn is_cheaper(&self, loss: &PreemptionLoss, kv_cache: &KvCacheManager, cost: &CostModel) -> bool {
        let back = loss.blocks.iter().map(|block| self.bytes_of(block.group)).sum();
        let new = loss.blocks.iter().filter(|block| kv_cache.is_newly_cached(block));
        let out = new.map(|block| self.bytes_of(block.group)).sum();
        let transfers = &cost.transfers;
        let transfer_us =
            transfers.predict(Transfer::Offload, out) + transfers.predict(Transfer::Onload, back);
        transfer_us < recompute_us(cost, &loss.positions)
    }

    /// Whether offloaded blocks should be restored rather than these positions computed again: whichever is expected to
    /// take less time.
    pub(super) fn is_worth_restoring(
        &self,
        blocks: &[(usize, u128, OffloadTier)],
        positions: &Range<usize>,
        cost: &CostModel,
    ) -> bool {
        if self.settings.preemption == PreemptionPolicy::Swap {
            return true;
        }
        let bytes = |is_counted: &dyn Fn(OffloadTier) -> bool| {
            let counted = blocks.iter().filter(|(_, _, tier)| is_counted(*tier));
            counted.map(|(group, _, _)| self.bytes_of(*group)).sum::<u64>()
        };
        let disk_bytes = bytes(&|tier| tier == OffloadTier::Disk);
        let peer_bytes = bytes(&|tier| tier == OffloadTier::Peer);
        let transfer_us = cost.transfers.predict(Transfer::DiskRead, disk_bytes)
            + cost.transfers.predict(Transfer::PeerRead, peer_bytes)
            + cost.transfers.predict(Transfer::Onload, bytes(&|_| true));
        let recompute_us = recompute_us(cost, positions);
        recompute_us == 0.0 || transfer_us <= recompute_us
    }

    /// A sequence is about to lose its blocks. Records them, if they are to be swapped.
    pub(super) fn note(&mut self, sequence: &Sequence, kv_cache: &mut KvCacheManager) {
        kv_cache.cache_states(&sequence.cache, sequence.computed);
        if sequence.offload.mode == PreemptionMode::Swap {
            let loss = kv_cache.preemption_loss(sequence.cache.cached_hashes());
            kv_cache.mark_offloaded(&loss.blocks);
            self.pending.extend(loss.blocks);
        }
    }

    /// Drops recorded blocks that have been overwritten since the last plan was applied.
    pub(super) fn retain_cached(&mut self, kv_cache: &KvCacheManager) {
        self.pending.retain(|block| kv_cache.is_cached_at(block));
    }

    /// Takes the recorded blocks.
    pub(super) fn take(&mut self) -> Vec<CachedBlock> {
        std::mem::take(&mut self.pending)
    }

    /// Drops all recorded blocks, when their content is gone.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Bytes of a block of a group; 0 where blocks are not offloaded.
    pub(super) fn bytes_of(&self, group: usize) -> u64 {
        self.block_bytes.get(group).copied().unwrap_or(0)
    }
}

/// Expected microseconds of computing these positions. Zero without measurements.
pub(super) fn recompute_us(cost: &CostModel, positions: &Range<usize>) -> f64 {
    match positions.len() {
        0 => 0.0,
        tokens => cost.predict(&StepLoad::prefill(positions.start, tokens)),
    }
}
