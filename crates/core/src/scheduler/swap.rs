//! Preemption: swap or recompute.
//!
//! A preempted sequence loses the blocks that other sequences take. The blocks that only it held can be offloaded first:
//! [`crate::Allocation::swaps`]. When it is planned again, [`Scheduler::newly_admitted`] names it, the engine restores
//! its offloaded blocks ([`Scheduler::missing_blocks`], [`Scheduler::restore`]), and plans once more.
//!
//! Invariant: the policy alone allocates and frees kv_cache. Transfers decide how much there is to compute, never which
//! sequence runs; and a preempted sequence is looked up once. So no sequence waits for another's blocks, and no block
//! moves back and forth without a step between.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::kv_cache::PreemptionLoss;
use crate::prefix::BlockHash;
use crate::sequence::{Phase, Sequence};
use crate::{Offload, Plan, PreemptionMode, PreemptionPolicy, SequenceId, StepLoad, Tick, Transfer};

/// A store of blocks outside of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OffloadTier {
    /// Host memory.
    Host,
    /// A disk.
    Disk,
}

impl Scheduler {
    /// What happens to the blocks of a preempted sequence.
    pub(super) fn leaving(&self, sequence: &Sequence) -> PreemptionMode {
        let swaps = match self.settings.swap.preemption {
            _ if self.settings.swap.offload == Offload::Unavailable => false,
            PreemptionPolicy::Recompute => false,
            PreemptionPolicy::Swap => true,
            PreemptionPolicy::Auto => self.is_cheaper_to_swap(&self.preemption_loss(sequence)),
        };
        if swaps { PreemptionMode::Swap } else { PreemptionMode::Recompute }
    }

    /// True if offload and onload take less time than computing what may be lost. Transfers without measurements are
    /// tried; without measured steps, nothing is swapped.
    fn is_cheaper_to_swap(&self, preemption_loss: &PreemptionLoss) -> bool {
        let back = preemption_loss.blocks.iter().map(|block| self.bytes_of(block.group)).sum();
        let unnamed = preemption_loss.blocks.iter().filter(|block| self.kv_cache.is_newly_cached(block));
        let out = unnamed.map(|block| self.bytes_of(block.group)).sum();
        let moves = &self.cost.transfers;
        let moving = moves.predict(Transfer::Offload, out) + moves.predict(Transfer::Onload, back);
        moving < self.computing(&preemption_loss.positions)
    }

    /// Whether the [`Self::missing_blocks`] of a waiting sequence should be restored rather than computed again:
    /// whichever is expected to take less time. Without measurements they are restored; each time they are not, the
    /// expected cost of transfers decays a little.
    pub fn is_worth_restoring(&mut self, id: SequenceId, absent: &[(usize, u128, OffloadTier)]) -> bool {
        let Some(sequence) = self.sequences.get(&id) else { return false };
        if self.settings.swap.preemption == PreemptionPolicy::Swap {
            return true;
        }
        let bytes = |of: &dyn Fn(OffloadTier) -> bool| {
            let those = absent.iter().filter(|(_, _, store)| of(*store));
            those.map(|(group, _, _)| self.bytes_of(*group)).sum::<u64>()
        };
        let moves = &self.cost.transfers;
        let moving = moves.predict(Transfer::DiskRead, bytes(&|store| store == OffloadTier::Disk))
            + moves.predict(Transfer::Onload, bytes(&|_| true));
        let keys = sequence.cache.hashes.all();
        let most = (sequence.tokens.len() - 1) / self.settings.block_size;
        let names: BTreeSet<(usize, u128)> = absent.iter().map(|(group, name, _)| (*group, *name)).collect();
        let elsewhere = |group, key: BlockHash| names.contains(&(group, key.0));
        let here = self.kv_cache.longest_cache_hit(keys, most);
        let there = self.kv_cache.cache_hit_lengths(keys, most, elsewhere, |_| {}).unwrap_or(0);
        let computing = self.computing(&(here * self.settings.block_size..there * self.settings.block_size));
        let is_worth = computing == 0.0 || moving <= computing;
        if !is_worth {
            self.cost.transfers.doubt();
        }
        is_worth
    }

    /// Learns the time of one transfer.
    pub fn learn_transfer(&mut self, which: Transfer, bytes: u64, took: Tick) {
        self.cost.learn_transfer(which, bytes, took);
    }

    /// Sequences that a plan admits and that were not [`Self::mark_looked_up`] since they last had kv_cache, in its order.
    pub fn newly_admitted(&self, plan: &Plan) -> Vec<SequenceId> {
        let works = plan.scheduled.iter().map(|work| work.sequence);
        let enters = |id: &SequenceId| {
            let sequence = self.sequences.get(id);
            sequence
                .is_some_and(|sequence| sequence.phase == Phase::Waiting && !sequence.offload.is_looked_up)
        };
        works.filter(enters).collect()
    }

    /// The offloaded blocks of a sequence have been looked up.
    pub fn mark_looked_up(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.offload.is_looked_up = true;
        }
    }

    /// True while the state is unchanged since the plan was made.
    pub fn is_current(&self, plan: &Plan) -> bool {
        plan.id == self.version
    }

    /// Records the blocks that a sequence is about to lose, if they are to be swapped.
    pub(super) fn note_swaps(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get(&id)
            && sequence.cache.cached_blocks * self.settings.block_size == sequence.computed
        {
            self.kv_cache.cache_states(
                &sequence.cache.tables,
                &sequence.cache.hashes.all()[..sequence.cache.cached_blocks],
            );
        }
        let Some(sequence) =
            self.sequences.get(&id).filter(|sequence| sequence.offload.mode == PreemptionMode::Swap)
        else {
            return;
        };
        let preemption_loss = self.preemption_loss(sequence);
        self.kv_cache.name(&preemption_loss.blocks);
        self.swaps.extend(preemption_loss.blocks);
    }

    /// Drops recorded blocks that have been overwritten since the last plan was applied.
    pub(super) fn forget_gone_swaps(&mut self) {
        let kv_cache = &self.kv_cache;
        self.swaps.retain(|block| kv_cache.is_cached_at(block));
    }

    fn preemption_loss(&self, sequence: &Sequence) -> PreemptionLoss {
        self.kv_cache.preemption_loss(
            &sequence.cache.hashes.all()
                [..sequence.cache.cached_blocks.min(sequence.cache.hashes.all().len())],
        )
    }

    fn computing(&self, positions: &std::ops::Range<usize>) -> f64 {
        match positions.len() {
            0 => 0.0,
            tokens => self.cost.predict(&StepLoad::prefill(positions.start, tokens)),
        }
    }

    fn bytes_of(&self, group: usize) -> u64 {
        self.settings.groups.get(group).map_or(0, |group| group.spec.block_bytes(self.settings.block_size))
    }
}
