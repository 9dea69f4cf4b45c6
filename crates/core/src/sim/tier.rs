//! Simulated offload tiers: a disk that stores cached blocks and returns some of them, late and not all; and host
//! memory, which stores blocks of preempted sequences while there is room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::device::Device;
use super::{Rng, Tier};
use crate::cost::Transfer;
use crate::plan::CachedBlock;
use crate::random::mix;
use crate::request::{SequenceId, Tick};
use crate::scheduler::{OffloadTier, Scheduler};
use crate::sequence::HoldReason;
use crate::settings::Settings;

/// Names a block: its group and its key.
type Name = (usize, u128);

/// The tiers while the world runs.
#[derive(Debug)]
pub(super) struct Storage {
    tier: Tier,
    /// Bytes of a block of each group.
    block_bytes: Vec<u64>,
    rng: Rng,
    /// The contents of the blocks on disk.
    disk: BTreeMap<Name, Vec<u64>>,
    /// The contents of the blocks in the host's memory, and which were put there first.
    host: BTreeMap<Name, Vec<u64>>,
    host_order: VecDeque<Name>,
    /// Held sequences, and until when.
    held: BTreeMap<SequenceId, Tick>,
    /// Sequences that were ever held.
    ever_held: BTreeSet<SequenceId>,
    pub(super) restored: u64,
    pub(super) swapped_out: u64,
    pub(super) swapped_in: u64,
}

impl Storage {
    /// Nothing is kept yet.
    pub(super) fn new(tier: &Tier, settings: &Settings, seed: u64) -> Self {
        let (disk, host, host_order, held, ever_held) = Default::default();
        Self {
            tier: tier.clone(),
            block_bytes: settings
                .groups
                .iter()
                .map(|group| group.spec.block_bytes(settings.block_size))
                .collect(),
            rng: Rng::new(mix(seed ^ 0x57)),
            disk,
            host,
            host_order,
            held,
            ever_held,
            restored: 0,
            swapped_out: 0,
            swapped_in: 0,
        }
    }

    /// Stores newly cached blocks.
    pub(super) fn keep(&mut self, scheduler: &mut Scheduler, device: &Device) {
        if self.tier.delay == 0 {
            return;
        }
        for block in scheduler.take_newly_cached(usize::MAX) {
            self.write(&block, device);
        }
    }

    fn write(&mut self, block: &CachedBlock, device: &Device) {
        let contents = device.block(block.group, block.block);
        let before = self.disk.insert((block.group, block.hash), contents.clone());
        assert!(before.is_none_or(|before| before == contents), "one key, and two contents");
    }

    /// Offloads blocks. Returns the time it takes.
    pub(super) fn swap_out(
        &mut self,
        scheduler: &mut Scheduler,
        device: &Device,
        blocks: &[CachedBlock],
    ) -> Tick {
        let unknown = blocks.iter().filter(|block| self.find((block.group, block.hash)).is_none());
        let unknown: Vec<CachedBlock> = unknown.copied().collect();
        // Where there is no room for all, the prefix is kept.
        for block in unknown.iter().rev() {
            let name = (block.group, block.hash);
            if self.tier.delay > 0 {
                self.write(block, device);
            }
            if self.tier.host_blocks > 0 {
                self.host.insert(name, device.block(block.group, block.block));
                self.host_order.push_back(name);
            }
        }
        while self.host.len() > self.tier.host_blocks {
            let oldest = self.host_order.pop_front();
            oldest.map(|oldest| self.host.remove(&oldest));
        }
        self.swapped_out += unknown.len() as u64;
        let bytes = unknown.iter().map(|block| self.block_bytes[block.group]).sum();
        let took = bytes * self.tier.byte_ns.0 / 1000;
        scheduler.learn_transfer(Transfer::Offload, bytes, took);
        took
    }

    fn find(&self, name: Name) -> Option<OffloadTier> {
        let host = self.host.contains_key(&name).then_some(OffloadTier::Host);
        host.or_else(|| self.disk.contains_key(&name).then_some(OffloadTier::Disk))
    }

    /// Blocks that would extend a waiting sequence's cache hit, if reading them is worth it.
    fn seek(&self, scheduler: &mut Scheduler, id: SequenceId) -> Vec<Name> {
        let absent = scheduler.missing_blocks(id, |group, key| self.find((group, key)).is_some());
        let stored: Vec<(usize, u128, OffloadTier)> = absent
            .into_iter()
            .filter_map(|(group, key)| Some((group, key, self.find((group, key))?)))
            .collect();
        match scheduler.is_worth_restoring(id, &stored) {
            true => stored.into_iter().map(|(group, key, _)| (group, key)).collect(),
            false => Vec::new(),
        }
    }

    /// Holds a sequence if the disk has blocks for it.
    pub(super) fn fetch(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        if self.tier.delay == 0 || self.held.contains_key(&id) {
            return;
        }
        let sought = self.seek(scheduler, id);
        if sought.iter().all(|name| self.find(*name) == Some(OffloadTier::Host)) {
            return;
        }
        scheduler.hold(id, HoldReason::Transfer);
        assert!(scheduler.is_held(id), "what waits can be held");
        self.ever_held.insert(id);
        self.held.insert(id, now + 1 + self.rng.below(self.tier.delay));
    }

    /// Restores the offloaded blocks of an admitted sequence, or holds it until they are read. Returns the time it takes.
    pub(super) fn bring_back(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut Device,
        id: SequenceId,
        now: Tick,
    ) -> Tick {
        scheduler.mark_looked_up(id);
        self.fetch(scheduler, id, now);
        if scheduler.is_held(id) {
            return 0;
        }
        let sought: BTreeSet<Name> = self.seek(scheduler, id).into_iter().collect();
        let host = &self.host;
        let has = |group, key| sought.contains(&(group, key)) && host.contains_key(&(group, key));
        let restored = scheduler.restore(id, has);
        for block in &restored {
            device.fill(block.group, block.block, &self.host[&(block.group, block.hash)]);
        }
        self.swapped_in += restored.len() as u64;
        let bytes = restored.iter().map(|block| self.block_bytes[block.group]).sum();
        let took = bytes * self.tier.byte_ns.1 / 1000;
        scheduler.learn_transfer(Transfer::Onload, bytes, took);
        took
    }

    /// True if the sequence was ever held.
    pub(super) fn has_held(&self, id: SequenceId) -> bool {
        self.ever_held.contains(&id)
    }

    /// When the next sequence is to be released.
    pub(super) fn next(&self) -> Option<Tick> {
        self.held.values().copied().min()
    }

    /// Writes blocks that were read, and releases the sequences that waited for them.
    pub(super) fn load(&mut self, scheduler: &mut Scheduler, device: &mut Device, now: Tick) {
        let due: Vec<_> = self.held.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.held.remove(&id);
            let (disk, salt, one_in) = (&self.disk, self.rng.draw(), self.tier.loss_one_in);
            let is_lost = |key: u128| one_in > 0 && mix(key as u64 ^ salt).is_multiple_of(one_in);
            let has = |group, key| disk.contains_key(&(group, key)) && !is_lost(key);
            for restored in scheduler.restore(id, has) {
                assert!(!is_lost(restored.hash), "what was not read is not restored");
                device.fill(restored.group, restored.block, &disk[&(restored.group, restored.hash)]);
                self.restored += 1;
            }
            scheduler.release_hold(id, HoldReason::Transfer);
            scheduler.audit();
        }
    }
}
