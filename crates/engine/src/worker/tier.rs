//! What the loop does with the disk: keeps what became findable, and fetches for those who wait.
//!
//! Invariant: a step is never later for it. Blocks are copied out when there is nothing else to do or enough of them
//! have come together, and given to the writer once the copies are done; a sequence whose blocks are being read waits
//! in the queue while others run.

mod reading;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use mlx::Array;
use omnibus_core::{KeyedBlock, Scheduler, SequenceId, Tick};
use omnibus_model::{Outgoing, Source};
use sha2::{Digest, Sha256};

use super::runner::Runner;
use crate::disk::{BlockName, Disk, DiskStats, Loaded};
use crate::{Settings, StartError};
use reading::Reading;

/// Blocks copied out at once, at most.
const BATCH_BLOCKS: usize = 16;
/// And bytes, unless one block has more: the loop itself puts them together.
const BATCH_BYTES: usize = 8 << 20;
/// Turns after which blocks are copied out even if there is work.
const TURNS_MAX: usize = 16;
/// Bytes read for one sequence at a time, so that a long prompt does not fill the memory twice.
const READ_BYTES_MAX: usize = 256 << 20;

/// The disk, and what is on its way there and back.
pub(super) struct Tier {
    disk: Disk,
    arrived: Receiver<Vec<Loaded>>,
    reading: Reading,
    leaving: Option<Leaving>,
    block_bytes: Vec<usize>,
    turns: usize,
}

/// Blocks that are being copied out.
struct Leaving {
    names: Vec<BlockName>,
    parts: Vec<Outgoing>,
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
    /// Opens the tier that was asked for, if one was.
    pub(super) fn open(
        settings: &Settings,
        source: &Source,
        runner: &Runner,
    ) -> Result<Option<Self>, StartError> {
        let chosen = settings.disk.as_ref().filter(|disk| !disk.directory.as_os_str().is_empty());
        let Some(disk) = chosen else { return Ok(None) };
        let weights = source.fingerprint().map_err(StartError::new)?;
        let state = runner.state();
        let fingerprint = Sha256::new().chain_update(weights).chain_update(state.layout()).finalize();
        let block_bytes: Vec<usize> = (0..runner.groups()).map(|group| state.block_bytes(group)).collect();
        let (tell, arrived) = channel();
        let tell = move |blocks| {
            // The loop hangs up before the disk is closed.
            let _nobody = tell.send(blocks);
        };
        let disk = Disk::open(disk, fingerprint.into(), block_bytes.clone(), settings.faults.clone(), tell)?;
        let (reading, leaving, turns) = Default::default();
        Ok(Some(Self { disk, arrived, reading, leaving, block_bytes, turns }))
    }

    /// Holds a sequence that waits and asks for its blocks, if the disk has some that help it.
    pub(super) fn fetch(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        if self.reading.is_stuck() {
            return;
        }
        let name = |group: usize, key| BlockName { group: group as u32, key };
        let absent = scheduler.absent(id, |group, key| self.disk.has(name(group, key)));
        if absent.is_empty() {
            return;
        }
        let share = READ_BYTES_MAX / self.block_bytes.len().max(1);
        let mut asked: BTreeMap<usize, usize> = BTreeMap::new();
        let names = absent.into_iter().filter_map(|(group, key)| {
            let bytes = asked.entry(group).or_default();
            *bytes += self.block_bytes.get(group)?;
            (*bytes <= share).then_some(name(group, key))
        });
        let names: Vec<BlockName> = names.collect();
        if names.is_empty() || self.disk.fetch(names).is_err() {
            return;
        }
        scheduler.hold(id);
        self.reading.ask(id, now);
    }

    /// True while something is being read.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_any()
    }

    /// True while something is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.disk.is_writing()
    }

    /// Puts what has been read where it belongs, and lets go of those who waited for it, or for too long.
    pub(super) fn take_arrived(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        now: Tick,
    ) -> mlx::Result<()> {
        loop {
            let blocks = match self.arrived.try_recv() {
                Ok(blocks) => blocks,
                Err(TryRecvError::Empty) => break,
                // The thread that reads has died.
                Err(TryRecvError::Disconnected) => {
                    self.reading.end().into_iter().for_each(|id| scheduler.release_hold(id));
                    break;
                }
            };
            let Some(id) = self.reading.answered() else { continue };
            let loaded: BTreeMap<(usize, u128), Vec<u8>> = blocks
                .into_iter()
                .map(|block| ((block.name.group as usize, block.name.key), block.bytes))
                .collect();
            let restored = scheduler.restore(id, |group, key| loaded.contains_key(&(group, key)));
            let contents = restored.iter().filter_map(|block| loaded.get(&(block.group, block.key)));
            let contents: Vec<&[u8]> = contents.map(Vec::as_slice).collect();
            let written = runner.write_blocks(&restored, &contents);
            scheduler.release_hold(id);
            written?;
            if !restored.is_empty() {
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
        self.turns += 1;
        if leisure == Leisure::Busy && self.turns < TURNS_MAX {
            return Ok(false);
        }
        self.turns = 0;
        let fresh = scheduler.sealed(batch_blocks(&self.block_bytes));
        if fresh.is_empty() {
            return Ok(false);
        }
        let name = |block: &KeyedBlock| BlockName { group: block.group as u32, key: block.key };
        let unknown: Vec<KeyedBlock> =
            fresh.into_iter().filter(|block| !self.disk.has(name(block))).collect();
        let (mut names, mut parts) = (Vec::new(), Vec::new());
        for group in 0..self.block_bytes.len() {
            let blocks: Vec<&KeyedBlock> = unknown.iter().filter(|block| block.group == group).collect();
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

    /// Numbers as they are now.
    pub(super) fn stats(&self) -> DiskStats {
        self.disk.stats()
    }

    fn hand_over(&mut self, leisure: Leisure) -> mlx::Result<()> {
        let Some(Leaving { names, parts }) = self.leaving.take() else { return Ok(()) };
        let mut names = names.into_iter();
        for part in parts {
            for (bytes, name) in part.bytes()?.into_iter().zip(names.by_ref()) {
                match leisure {
                    Leisure::Over => self.disk.put_patiently(name, bytes),
                    Leisure::Busy | Leisure::Idle => self.disk.put(name, bytes),
                }
            }
        }
        Ok(())
    }
}

impl Leaving {
    fn is_done(&self) -> mlx::Result<bool> {
        let mut arrays = self.parts.iter().flat_map(Outgoing::arrays).map(Array::is_available);
        arrays.try_fold(true, |done, array| Ok(done && array?))
    }
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
