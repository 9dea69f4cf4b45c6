//! KV offload: blocks outside the pools, in host memory and on disk, and their transfers.
//!
//! Invariant: no step waits for the disk. Blocks are copied out for it when the loop is idle or every few steps, and given
//! to the writer once the copies are done; a sequence with blocks being read waits in the queue while others run. A step
//! waits for host memory only where the cost model says that it is faster.

mod disk_tier;
mod host;
mod peer_tier;
mod pending_reads;
mod remote_prefills;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use omnibus_core::{CachedBlock, HoldReason, OffloadTier, Scheduler, SequenceId, Tick, Transfer};
use omnibus_kv::BlockId;
use omnibus_model::Source;

use super::capacity::Capacity;
use super::device_call::GroupBlocks;
use super::device_client::DeviceClient;
use super::model_traits::KvLayout;
use crate::disk::{BlockName, QUEUED_BYTES_MAX};
use crate::error::StartError;
use crate::settings::Settings;
use crate::stats::{DiskStats, KvTransferStats, SwapStats};
use disk_tier::DiskTier;
use host::Host;
use peer_tier::PeerTier;
use serving::Serving;

/// Most blocks copied out for the disk at once.
const BATCH_BLOCKS: usize = 16;
/// Most bytes of those, unless one block has more: the loop itself copies them.
const BATCH_BYTES: usize = 8 << 20;
/// Most bytes copied out at once while the loop is idle: a request that arrives meanwhile waits for them.
const IDLE_BATCH_BYTES: usize = 2 << 20;
/// Iterations after which blocks are copied out even while sequences run.
const ITERATIONS_MAX: usize = 16;
/// Most bytes read for one sequence at a time, so that a long prompt does not fill the memory twice.
const READ_BYTES_MAX: usize = 256 << 20;

/// Most bytes swapped out at a time, unless one block has more: the copies take twice as much device memory.
const SWAP_BYTES: usize = 32 << 20;

/// Host memory, disk, and the transfers in progress.
pub(super) struct KvOffload {
    host: Host,
    disk: Option<DiskTier>,
    peers: Option<PeerTier>,
    /// What other replicas read; `None` where they may not.
    serving: Option<Serving>,
    /// Blocks being copied out for the disk.
    export: Option<PendingExport>,
    block_bytes: Vec<usize>,
    iterations: usize,
    swapped: SwapStats,
}

/// Blocks that are being copied out.
struct PendingExport {
    names: Vec<BlockName>,
}

/// What else the loop has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idleness {
    /// There are sequences to run.
    Busy,
    /// There are none.
    Idle,
    /// The loop is about to end.
    ShuttingDown,
}

impl KvOffload {
    /// Opens host memory and disk as the settings say; `None` for neither.
    pub(super) fn open(
        settings: &Settings,
        source: &Source,
        layout: &KvLayout,
        capacity: &Capacity,
    ) -> Result<Option<Self>, StartError> {
        let block_bytes = layout.block_bytes.clone();
        let host = Host::new(capacity.memory.swap_bytes);
        let has_disk = DiskTier::settings(settings).is_some();
        if !has_disk && host.limit_bytes() == 0 && !settings.serves_blocks() && !settings.fetches_blocks() {
            return Ok(None);
        }
        let fingerprint = disk_tier::fingerprint(settings, source, layout)?;
        let disk = DiskTier::open(settings, fingerprint, layout)?;
        let peers = PeerTier::open(settings, fingerprint, layout)?;
        let serving = settings.serves_blocks().then(|| Serving::new(fingerprint));
        let (export, iterations, swapped) = Default::default();
        Ok(Some(Self { host, disk, peers, serving, export, block_bytes, iterations, swapped }))
    }

    /// Where a block is outside the pools.
    fn find(&self, name: BlockName) -> Option<OffloadTier> {
        if self.host.has(name) {
            return Some(OffloadTier::Host);
        }
        let is_on_disk = self.disk.as_ref().is_some_and(|disk_tier| disk_tier.disk.has(name));
        is_on_disk.then_some(OffloadTier::Disk)
    }

    /// Stored blocks, and blocks at a peer, that a waiting sequence can use, if restoring them is faster than computing: at most one batch.
    fn find_restorable(
        &self,
        scheduler: &mut Scheduler,
        id: SequenceId,
        at_peer: &BTreeSet<BlockName>,
    ) -> Vec<(BlockName, OffloadTier)> {
        // A hung disk is not used.
        let is_stalled = self.disk.as_ref().is_some_and(DiskTier::is_stalled);
        let usable = |store: &OffloadTier| *store != OffloadTier::Disk || !is_stalled;
        let find = |group, key| {
            let name = name_of(group, key);
            let found = self.find(name).filter(usable);
            found.or_else(|| at_peer.contains(&name).then_some(OffloadTier::Peer))
        };
        let absent = scheduler.missing_blocks(id, |group, key| find(group, key).is_some());
        let stored: Vec<(usize, u128, OffloadTier)> =
            absent.into_iter().filter_map(|(group, key)| Some((group, key, find(group, key)?))).collect();
        if stored.is_empty() || !scheduler.is_worth_restoring(id, &stored) {
            return Vec::new();
        }
        let share = READ_BYTES_MAX / self.block_bytes.len().max(1);
        let mut bytes_of: BTreeMap<usize, usize> = BTreeMap::new();
        let piece = stored.into_iter().filter_map(|(group, key, store)| {
            let bytes = bytes_of.entry(group).or_default();
            *bytes += self.block_bytes.get(group)?;
            (*bytes <= share).then_some((name_of(group, key), store))
        });
        piece.collect()
    }

    /// Starts reading a waiting sequence's blocks from disk, or looking for them at peers, and holds the sequence, if there
    /// are any.
    pub(super) fn fetch(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        self.fetch_from_disk(scheduler, id, now);
        if !scheduler.is_held(id) {
            self.ask_peers(scheduler, id, now);
        }
    }

    /// Restores the blocks of a sequence that is about to run from host memory; if the disk has more, the sequence is held
    /// until they are read.
    pub(super) fn restore(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        id: SequenceId,
        now: Tick,
    ) -> mlx::Result<()> {
        scheduler.mark_looked_up(id);
        self.fetch_from_disk(scheduler, id, now);
        let nothing_read = BTreeMap::new();
        while !scheduler.is_held(id) {
            let sought: BTreeSet<BlockName> = self
                .find_restorable(scheduler, id, &BTreeSet::new())
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            let restored =
                self.write_back(scheduler, device, id, &nothing_read, |name| sought.contains(&name))?;
            if restored == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Writes blocks back for a waiting sequence: those read from disk, and the `wanted` ones in host memory. Returns how
    /// many.
    fn write_back(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        id: SequenceId,
        read: &BTreeMap<BlockName, Bytes>,
        wanted: impl Fn(BlockName) -> bool,
    ) -> mlx::Result<usize> {
        let host = &self.host;
        let has = |name| read.contains_key(&name) || wanted(name) && host.has(name);
        let restored = scheduler.restore(id, |group, key| has(name_of(group, key)));
        if restored.is_empty() {
            return Ok(0);
        }
        let names: Vec<BlockName> = restored.iter().map(|block| name_of(block.group, block.hash)).collect();
        let content = |name: &BlockName| read.get(name).or_else(|| host.get(*name)).cloned();
        let contents: Vec<Bytes> = names.iter().filter_map(content).collect();
        device.finish()?;
        let started = Instant::now();
        for group in 0..self.block_bytes.len() {
            let of_group = restored.iter().zip(&contents).filter(|(block, _)| block.group == group);
            let (blocks, contents): (Vec<BlockId>, Vec<Bytes>) =
                of_group.map(|(block, content)| (block.block, content.clone())).unzip();
            device.write_blocks(GroupBlocks { group, blocks }, contents)?;
        }
        let bytes = contents.iter().map(|content| content.len() as u64).sum();
        scheduler.learn_transfer(Transfer::Onload, bytes, ticks(started.elapsed()));
        for name in names.into_iter().filter(|name| !read.contains_key(name)) {
            self.host.touch(name);
            self.swapped.in_blocks_total += 1;
            self.swapped.in_bytes_total += self.host.get(name).map_or(0, |bytes| bytes.len() as u64);
        }
        Ok(restored.len())
    }

    /// Swaps out blocks of preempted sequences, before a step is launched that may overwrite them.
    pub(super) fn swap_out(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        blocks: &[CachedBlock],
    ) -> mlx::Result<()> {
        let unknown = blocks.iter().filter(|block| self.find(name_of(block.group, block.hash)).is_none());
        let unknown = self.fitting(&unknown.copied().collect::<Vec<_>>());
        if unknown.is_empty() {
            return Ok(());
        }
        device.finish()?;
        let started = Instant::now();
        let mut copied: Vec<(BlockName, Bytes)> = Vec::new();
        for (group, bytes) in self.block_bytes.iter().enumerate() {
            let of_group: Vec<&CachedBlock> = unknown.iter().filter(|block| block.group == group).collect();
            for batch in of_group.chunks((SWAP_BYTES / bytes.max(&1)).max(1)) {
                let contents = device.read_blocks(group, ids(batch))?;
                copied.extend(batch.iter().map(|block| name_of(group, block.hash)).zip(contents));
            }
        }
        let bytes = copied.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        scheduler.learn_transfer(Transfer::Offload, bytes, ticks(started.elapsed()));
        self.swapped.out_blocks_total += copied.len() as u64;
        self.swapped.out_bytes_total += bytes;
        // Leading blocks are put last, so that they are evicted last: a hit needs all blocks before it.
        for (name, bytes) in copied.into_iter().rev() {
            if let Some(disk_tier) = &self.disk {
                disk_tier.disk.put(name, bytes.clone());
            }
            self.host.put(name, bytes);
        }
        Ok(())
    }

    /// Of a sequence's blocks, each group's in order, the leading ones that fit: more would evict each other.
    fn fitting(&self, blocks: &[CachedBlock]) -> Vec<CachedBlock> {
        let for_disk = self.disk.as_ref().map_or(0, |_| QUEUED_BYTES_MAX);
        let room = for_disk.max(self.host.limit_bytes() as usize);
        let bytes = |block: &CachedBlock| self.block_bytes.get(block.group).copied().unwrap_or(0);
        let all: usize = blocks.iter().map(bytes).sum();
        let groups = (0..self.block_bytes.len()).flat_map(|group| {
            let of_group: Vec<CachedBlock> =
                blocks.iter().filter(|block| block.group == group).copied().collect();
            let fitting = if all <= room { of_group.len() } else { of_group.len() * room / all };
            of_group.into_iter().take(fitting)
        });
        groups.collect()
    }

    /// True while a sequence waits for a read.
    pub(super) fn is_reading(&self) -> bool {
        self.disk.as_ref().is_some_and(DiskTier::is_reading)
            || self.peers.as_ref().is_some_and(PeerTier::is_reading)
    }

    /// True while blocks wait to be written.
    pub(super) fn is_writing(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk_tier| disk_tier.disk.is_writing())
    }

    /// Restores the blocks that were read, and releases the sequences that waited for them, or for too long.
    pub(super) fn finish_reads(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        now: Tick,
    ) -> mlx::Result<()> {
        self.finish_disk_reads(scheduler, device, now)?;
        self.finish_peer_requests(scheduler, device, now)
    }

    /// Writes back what was read for a sequence, and releases it; a long prompt is read in several batches.
    fn restore_read(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        (id, read): (SequenceId, &BTreeMap<BlockName, Bytes>),
        now: Tick,
    ) -> mlx::Result<()> {
        let restored = self.write_back(scheduler, device, id, read, |_| true);
        scheduler.release_hold(id, HoldReason::Transfer);
        if restored? > 0 {
            self.fetch(scheduler, id, now);
        }
        Ok(())
    }

    /// Copies newly cached blocks out for the disk, and gives finished copies to its writer. Call it after a step was read
    /// and before the next one is applied. True while there is more to do.
    pub(super) fn offload(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        idleness: Idleness,
    ) -> mlx::Result<bool> {
        if let Some(export) = &self.export {
            if idleness == Idleness::Busy && !export.is_done(device)? {
                return Ok(true);
            }
            self.write_exported(device, idleness)?;
        }
        let Some(disk_tier) = &self.disk else { return Ok(false) };
        self.iterations += 1;
        if idleness == Idleness::Busy && self.iterations < ITERATIONS_MAX {
            return Ok(false);
        }
        self.iterations = 0;
        let most = if idleness == Idleness::Idle { IDLE_BATCH_BYTES } else { BATCH_BYTES };
        let fresh = scheduler.take_newly_cached(batch_blocks(&self.block_bytes, most));
        if fresh.is_empty() {
            return Ok(false);
        }
        let name = |block: &CachedBlock| name_of(block.group, block.hash);
        let unknown: Vec<CachedBlock> =
            fresh.into_iter().filter(|block| !disk_tier.disk.has(name(block))).collect();
        let (mut names, mut parts) = (Vec::new(), Vec::new());
        for group in 0..self.block_bytes.len() {
            let blocks: Vec<&CachedBlock> = unknown.iter().filter(|block| block.group == group).collect();
            if !blocks.is_empty() {
                names.extend(blocks.iter().copied().map(name));
                parts.push(GroupBlocks { group, blocks: ids(&blocks) });
            }
        }
        device.start_copy(parts)?;
        self.export = Some(PendingExport { names });
        Ok(true)
    }

    /// Writes all remaining blocks. For shutdown.
    pub(super) fn flush(&mut self, scheduler: &mut Scheduler, device: &mut DeviceClient) -> mlx::Result<()> {
        while self.offload(scheduler, device, Idleness::ShuttingDown)? {}
        Ok(())
    }

    /// Drops the copies in progress, because their source is no longer trusted.
    pub(super) fn cancel_all(&mut self) {
        self.export = None;
    }

    /// Detaches the reads in progress from their sequences, which get new ids.
    pub(super) fn detach(&mut self) {
        self.disk.iter_mut().for_each(DiskTier::detach);
        self.peers.iter_mut().for_each(PeerTier::detach);
    }

    /// Statistics of the disk cache.
    pub(super) fn disk_stats(&self) -> DiskStats {
        self.disk.as_ref().map(|disk_tier| disk_tier.disk.stats()).unwrap_or_default()
    }

    /// Statistics of blocks that went to other replicas and came of them.
    pub(super) fn kv_transfer_stats(&self) -> KvTransferStats {
        let fetch = self.peers.as_ref().map(PeerTier::stats).unwrap_or_default();
        let served = self.serving.as_ref().map(Serving::stats).unwrap_or_default();
        KvTransferStats { fetch, ..served }
    }

    /// Statistics of swapping.
    pub(super) fn swap_stats(&self) -> SwapStats {
        SwapStats { used_bytes: self.host.bytes(), limit_bytes: self.host.limit_bytes(), ..self.swapped }
    }

    fn write_exported(&mut self, device: &mut DeviceClient, idleness: Idleness) -> mlx::Result<()> {
        let (Some(PendingExport { names }), Some(disk_tier)) = (self.export.take(), &self.disk) else {
            return Ok(());
        };
        for (name, bytes) in names.into_iter().zip(device.take_copy()?) {
            match idleness {
                Idleness::ShuttingDown => disk_tier.disk.put_blocking(name, bytes),
                Idleness::Busy | Idleness::Idle => disk_tier.disk.put(name, bytes),
            }
        }
        Ok(())
    }
}

impl PendingExport {
    fn is_done(&self, device: &mut DeviceClient) -> mlx::Result<bool> {
        Ok(self.names.is_empty() || device.is_copied()?)
    }
}

fn name_of(group: usize, key: u128) -> BlockName {
    BlockName { group: group as u32, key }
}

fn ticks(took: Duration) -> Tick {
    took.as_micros() as Tick
}

/// How many blocks are copied out at once, given the block size of each group.
fn batch_blocks(block_bytes: &[usize], most: usize) -> usize {
    let largest = block_bytes.iter().copied().max().unwrap_or(0).max(1);
    (most / largest).clamp(1, BATCH_BLOCKS)
}

fn ids(blocks: &[&CachedBlock]) -> Vec<BlockId> {
    blocks.iter().map(|block| block.block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_in_blocks_and_in_bytes() {
        assert_eq!(batch_blocks(&[1 << 10, 4 << 10], BATCH_BYTES), 16);
        assert_eq!(batch_blocks(&[1 << 10, 2 << 20], BATCH_BYTES), 4, "the largest counts");
        assert_eq!(batch_blocks(&[64 << 20], BATCH_BYTES), 1, "at least one");
    }
}
