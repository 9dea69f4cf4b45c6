//! Where blocks are besides the pools, and how they get there and back: the host's memory, and the disk behind it.
//!
//! Invariant: a step is never later for the disk. Blocks are copied out for it when there is nothing else to do or enough
//! of them have come together, and given to the writer once the copies are done; a sequence whose blocks are being read
//! waits in the queue while others run. For the host's memory a step waits, where the cost model says that it is the
//! shorter way.

mod host;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use mlx::Array;
use omnibus_core::{CachedBlock, OffloadTier, Scheduler, SequenceId, Tick, Transfer};
use omnibus_model::{BlockExport, Source};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::capacity::Capacity;
use super::runner::Runner;
use crate::disk::{Answer, BlockName, Disk, DiskStats, WAITING_BYTES_MAX};
use crate::{Settings, StartError};
use host::Host;
use reading::Reading;

/// Blocks copied out at once, at most.
const BATCH_BLOCKS: usize = 16;
/// And bytes, unless one block has more: the loop itself puts them together.
const BATCH_BYTES: usize = 8 << 20;
/// Turns after which blocks are copied out even if there is work.
const TURNS_MAX: usize = 16;
/// Bytes read for one sequence at a time, so that a long prompt does not fill the memory twice.
const READ_BYTES_MAX: usize = 256 << 20;

/// Bytes copied out of the pools at a time for a sequence that is preempted, unless one block has more: while they are
/// copied they take memory on the device.
const SWAP_BYTES: usize = 64 << 20;

/// Numbers of what moved between the pools and the host. Those named `…_total` only ever grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapStats {
    /// Bytes of the host's memory that blocks take.
    pub used_bytes: u64,
    /// Bytes they may take.
    pub limit_bytes: u64,
    /// Blocks copied out for sequences that were preempted.
    pub out_blocks_total: u64,
    /// Bytes of those.
    pub out_bytes_total: u64,
    /// Blocks put back from the host's memory.
    pub in_blocks_total: u64,
    /// Bytes of those.
    pub in_bytes_total: u64,
}

impl SwapStats {
    /// These numbers, their totals counted on from an engine that ran before.
    pub(crate) fn after(&self, before: &Self) -> Self {
        Self {
            out_blocks_total: self.out_blocks_total + before.out_blocks_total,
            out_bytes_total: self.out_bytes_total + before.out_bytes_total,
            in_blocks_total: self.in_blocks_total + before.in_blocks_total,
            in_bytes_total: self.in_bytes_total + before.in_bytes_total,
            ..*self
        }
    }
}

/// The places besides the pools, and what is on its way there and back.
pub(super) struct Tier {
    host: Host,
    disk: Option<Shelf>,
    /// For whom blocks are being read.
    reading: Reading,
    /// What is being copied out for the disk.
    leaving: Option<Leaving>,
    block_bytes: Vec<usize>,
    turns: usize,
    swapped: SwapStats,
}

/// The disk, and what it has read.
struct Shelf {
    disk: Disk,
    answers: Receiver<Answer>,
}

/// Blocks that are being copied out.
struct Leaving {
    names: Vec<BlockName>,
    parts: Vec<BlockExport>,
}

/// Whether the loop has anything better to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leisure {
    /// Somebody waits for the next step.
    Busy,
    /// Nobody waits for anything.
    Idle,
    /// Nobody ever will.
    Over,
}

impl Tier {
    /// Opens the places that were asked for, if any were.
    pub(super) fn open(
        settings: &Settings,
        source: &Source,
        runner: &Runner,
        capacity: &Capacity,
    ) -> Result<Option<Self>, StartError> {
        let block_bytes: Vec<usize> =
            (0..runner.groups()).map(|group| runner.state().block_bytes(group)).collect();
        let disk = Shelf::open(settings, source, runner, &block_bytes)?;
        let host = Host::new(capacity.memory.swap_bytes);
        if disk.is_none() && host.limit_bytes() == 0 {
            return Ok(None);
        }
        let (reading, leaving, turns, swapped) = Default::default();
        Ok(Some(Self { host, disk, reading, leaving, block_bytes, turns, swapped }))
    }

    /// Where a block is besides the pools.
    fn find(&self, name: BlockName) -> Option<OffloadTier> {
        if self.host.has(name) {
            return Some(OffloadTier::Host);
        }
        let is_on_disk = self.disk.as_ref().is_some_and(|shelf| shelf.disk.has(name));
        is_on_disk.then_some(OffloadTier::Disk)
    }

    /// What would help a sequence that waits, if it is worth while: as much as is moved at a time.
    fn seek(&self, scheduler: &mut Scheduler, id: SequenceId) -> Vec<(BlockName, OffloadTier)> {
        // A disk that hangs has nothing.
        let usable = |store: &OffloadTier| *store == OffloadTier::Host || !self.reading.is_stuck();
        let find = |group, key| self.find(name_of(group, key)).filter(usable);
        let absent = scheduler.missing_blocks(id, |group, key| find(group, key).is_some());
        let stored: Vec<(usize, u128, OffloadTier)> =
            absent.into_iter().filter_map(|(group, key)| Some((group, key, find(group, key)?))).collect();
        if stored.is_empty() || !scheduler.is_worth_restoring(id, &stored) {
            return Vec::new();
        }
        let share = READ_BYTES_MAX / self.block_bytes.len().max(1);
        let mut sought: BTreeMap<usize, usize> = BTreeMap::new();
        let piece = stored.into_iter().filter_map(|(group, key, store)| {
            let bytes = sought.entry(group).or_default();
            *bytes += self.block_bytes.get(group)?;
            (*bytes <= share).then_some((name_of(group, key), store))
        });
        piece.collect()
    }

    /// Holds a sequence that waits and asks the disk for its blocks, if it has some that help it.
    pub(super) fn fetch(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        let Some(shelf) = &self.disk else { return };
        let sought = self.seek(scheduler, id).into_iter();
        let on_disk = sought.filter_map(|(name, store)| (store == OffloadTier::Disk).then_some(name));
        let names: Vec<BlockName> = on_disk.collect();
        if names.is_empty() || shelf.disk.fetch(names).is_err() {
            return;
        }
        scheduler.hold(id);
        self.reading.ask(id, now);
    }

    /// Puts back what the host's memory has of a sequence that is about to begin; if the disk has more, the sequence is
    /// held until that is read.
    pub(super) fn bring_back(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        id: SequenceId,
        now: Tick,
    ) -> mlx::Result<()> {
        scheduler.mark_looked_up(id);
        self.fetch(scheduler, id, now);
        let nothing_read = BTreeMap::new();
        while !scheduler.is_held(id) {
            let sought: BTreeSet<BlockName> =
                self.seek(scheduler, id).into_iter().map(|(name, _)| name).collect();
            let back = self.put_back(scheduler, runner, id, &nothing_read, |name| sought.contains(&name))?;
            if back == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Puts blocks back for a sequence that waits: what was read, and what the host's memory has of the `wanted`. How
    /// many.
    fn put_back(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        id: SequenceId,
        read: &BTreeMap<BlockName, Vec<u8>>,
        wanted: impl Fn(BlockName) -> bool,
    ) -> mlx::Result<usize> {
        let host = &self.host;
        let has = |name| read.contains_key(&name) || wanted(name) && host.has(name);
        let restored = scheduler.restore(id, |group, key| has(name_of(group, key)));
        if restored.is_empty() {
            return Ok(0);
        }
        let names: Vec<BlockName> = restored.iter().map(|block| name_of(block.group, block.hash)).collect();
        let content = |name: &BlockName| read.get(name).map(Vec::as_slice).or_else(|| host.get(*name));
        let contents: Vec<&[u8]> = names.iter().filter_map(content).collect();
        runner.settle()?;
        let started = Instant::now();
        runner.write_blocks(&restored, &contents)?;
        let bytes = contents.iter().map(|content| content.len() as u64).sum();
        scheduler.learn_transfer(Transfer::Onload, bytes, ticks(started.elapsed()));
        for name in names.into_iter().filter(|name| !read.contains_key(name)) {
            self.host.touch(name);
            self.swapped.in_blocks_total += 1;
            self.swapped.in_bytes_total += self.host.get(name).map_or(0, |bytes| bytes.len() as u64);
        }
        Ok(restored.len())
    }

    /// Copies blocks out that a sequence gave back, before anything is launched that may overwrite them.
    pub(super) fn swap_out(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &Runner,
        blocks: &[CachedBlock],
    ) -> mlx::Result<()> {
        let unknown = blocks.iter().filter(|block| self.find(name_of(block.group, block.hash)).is_none());
        let unknown = self.beginning(&unknown.copied().collect::<Vec<_>>());
        if unknown.is_empty() {
            return Ok(());
        }
        runner.settle()?;
        let started = Instant::now();
        let mut copied: Vec<(BlockName, Vec<u8>)> = Vec::new();
        for (group, bytes) in self.block_bytes.iter().enumerate() {
            let of_group: Vec<&CachedBlock> = unknown.iter().filter(|block| block.group == group).collect();
            for batch in of_group.chunks((SWAP_BYTES / bytes.max(&1)).max(1)) {
                let contents = runner.read_blocks(group, batch.iter().map(|block| block.block))?.bytes()?;
                copied.extend(batch.iter().map(|block| name_of(group, block.hash)).zip(contents));
            }
        }
        let bytes = copied.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        scheduler.learn_transfer(Transfer::Offload, bytes, ticks(started.elapsed()));
        self.swapped.out_blocks_total += copied.len() as u64;
        self.swapped.out_bytes_total += bytes;
        // Should others have to make room, the beginning is what is of use.
        for (name, bytes) in copied.into_iter().rev() {
            if let Some(shelf) = &self.disk {
                shelf.disk.put(name, bytes.clone());
            }
            self.host.put(name, bytes);
        }
        Ok(())
    }

    /// Of a sequence's blocks, each group's in order, the leading ones that there is room for once they are copied: more
    /// would only fill the host's memory.
    fn beginning(&self, blocks: &[CachedBlock]) -> Vec<CachedBlock> {
        let for_disk = self.disk.as_ref().map_or(0, |_| WAITING_BYTES_MAX);
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

    /// True while something is being read.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_any()
    }

    /// True while something is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.disk.as_ref().is_some_and(|shelf| shelf.disk.is_writing())
    }

    /// Puts what has been read where it belongs, and lets go of those who waited for it, or for too long.
    pub(super) fn take_arrived(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        now: Tick,
    ) -> mlx::Result<()> {
        while let Some(shelf) = &self.disk {
            let Answer { blocks, took } = match shelf.answers.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => break,
                // The thread that reads has died.
                Err(TryRecvError::Disconnected) => {
                    self.reading.end().into_iter().for_each(|id| scheduler.release_hold(id));
                    break;
                }
            };
            let Some(id) = self.reading.answered() else { continue };
            let bytes = blocks.iter().map(|block| block.bytes.len() as u64).sum();
            scheduler.learn_transfer(Transfer::DiskRead, bytes, ticks(took));
            let read: BTreeMap<BlockName, Vec<u8>> =
                blocks.into_iter().map(|block| (block.name, block.bytes)).collect();
            let back = self.put_back(scheduler, runner, id, &read, |_| true);
            scheduler.release_hold(id);
            if back? > 0 {
                // A long prompt comes in pieces.
                self.fetch(scheduler, id, now);
            }
        }
        for id in self.reading.overdue(now) {
            tracing::warn!("the disk does not answer; a request is computed instead");
            scheduler.release_hold(id);
        }
        Ok(())
    }

    /// Copies out what became findable and hands over what has been copied. To be called when a step was read and
    /// before the next one is begun. True while there is more to do.
    pub(super) fn keep(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &Runner,
        leisure: Leisure,
    ) -> mlx::Result<bool> {
        if let Some(leaving) = &self.leaving {
            if leisure == Leisure::Busy && !leaving.is_done()? {
                return Ok(true);
            }
            self.hand_over(leisure)?;
        }
        let Some(shelf) = &self.disk else { return Ok(false) };
        self.turns += 1;
        if leisure == Leisure::Busy && self.turns < TURNS_MAX {
            return Ok(false);
        }
        self.turns = 0;
        let fresh = scheduler.take_newly_cached(batch_blocks(&self.block_bytes));
        if fresh.is_empty() {
            return Ok(false);
        }
        let name = |block: &CachedBlock| name_of(block.group, block.hash);
        let unknown: Vec<CachedBlock> =
            fresh.into_iter().filter(|block| !shelf.disk.has(name(block))).collect();
        let (mut names, mut parts) = (Vec::new(), Vec::new());
        for group in 0..self.block_bytes.len() {
            let blocks: Vec<&CachedBlock> = unknown.iter().filter(|block| block.group == group).collect();
            if !blocks.is_empty() {
                names.extend(blocks.iter().copied().map(name));
                parts.push(runner.read_blocks(group, blocks.iter().map(|block| block.block))?);
            }
        }
        self.leaving = Some(Leaving { names, parts });
        Ok(true)
    }

    /// Keeps all that is left, however long it takes. For the end.
    pub(super) fn flush(&mut self, scheduler: &mut Scheduler, runner: &Runner) -> mlx::Result<()> {
        while self.keep(scheduler, runner, Leisure::Over)? {}
        Ok(())
    }

    /// Forgets what was being copied out, because the memory it came from is no longer trusted.
    pub(super) fn abandon(&mut self) {
        self.leaving = None;
    }

    /// Forgets for whom blocks are being read: those sequences have other names now.
    pub(super) fn disown(&mut self) {
        self.reading.disown();
    }

    /// The disk's numbers as they are now.
    pub(super) fn disk_stats(&self) -> DiskStats {
        self.disk.as_ref().map(|shelf| shelf.disk.stats()).unwrap_or_default()
    }

    /// The others.
    pub(super) fn swap_stats(&self) -> SwapStats {
        SwapStats { used_bytes: self.host.bytes(), limit_bytes: self.host.limit_bytes(), ..self.swapped }
    }

    fn hand_over(&mut self, leisure: Leisure) -> mlx::Result<()> {
        let (Some(Leaving { names, parts }), Some(shelf)) = (self.leaving.take(), &self.disk) else {
            return Ok(());
        };
        let mut names = names.into_iter();
        for part in parts {
            for (bytes, name) in part.bytes()?.into_iter().zip(names.by_ref()) {
                match leisure {
                    Leisure::Over => shelf.disk.put_patiently(name, bytes),
                    Leisure::Busy | Leisure::Idle => shelf.disk.put(name, bytes),
                }
            }
        }
        Ok(())
    }
}

impl Shelf {
    fn open(
        settings: &Settings,
        source: &Source,
        runner: &Runner,
        block_bytes: &[usize],
    ) -> Result<Option<Self>, StartError> {
        let chosen = settings.disk.as_ref().filter(|disk| !disk.directory.as_os_str().is_empty());
        let Some(chosen) = chosen else { return Ok(None) };
        let weights = source.fingerprint().map_err(StartError::new)?;
        let layout = runner.state().layout();
        let fingerprint = Sha256::new().chain_update(weights).chain_update(layout).finalize();
        let (tell, answers) = channel();
        let tell = move |answer| {
            // The loop hangs up before the disk is closed.
            let _nobody = tell.send(answer);
        };
        let faults = settings.faults.clone();
        let disk = Disk::open(chosen, fingerprint.into(), block_bytes.to_vec(), faults, tell)?;
        Ok(Some(Self { disk, answers }))
    }
}

impl Leaving {
    fn is_done(&self) -> mlx::Result<bool> {
        let mut arrays = self.parts.iter().flat_map(BlockExport::arrays).map(Array::is_available);
        arrays.try_fold(true, |done, array| Ok(done && array?))
    }
}

fn name_of(group: usize, key: u128) -> BlockName {
    BlockName { group: group as u32, key }
}

fn ticks(took: Duration) -> Tick {
    took.as_micros() as Tick
}

/// How many blocks are copied out at once, of groups whose blocks have so many bytes.
fn batch_blocks(block_bytes: &[usize]) -> usize {
    let largest = block_bytes.iter().copied().max().unwrap_or(0).max(1);
    (BATCH_BYTES / largest).clamp(1, BATCH_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_small_in_blocks_and_in_bytes() {
        assert_eq!(batch_blocks(&[1 << 10, 4 << 10]), 16);
        assert_eq!(batch_blocks(&[1 << 10, 2 << 20]), 4, "the largest counts");
        assert_eq!(batch_blocks(&[64 << 20]), 1, "one at least, or nothing would ever be kept");
    }
}
