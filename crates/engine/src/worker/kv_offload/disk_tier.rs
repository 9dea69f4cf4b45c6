//! The disk cache of keys and values, and its reads in progress.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use omnibus_core::{HoldReason, OffloadTier, Scheduler, SequenceId, Tick, Transfer};
use omnibus_kv_peer::Fingerprint;
use omnibus_model::Source;
use sha2::{Digest, Sha256};

use super::pending_reads::PendingReads;
use super::{KvOffload, ticks};
use crate::disk::{BlockName, BlockSizes, Disk, ReadResult};
use crate::error::StartError;
use crate::settings::{CpuActivations, DiskSettings, Settings};
use crate::worker::device_client::DeviceClient;
use crate::worker::model_traits::KvLayout;

/// A read that takes longer counts as hung.
const TIMEOUT: Tick = 5_000_000;

/// The disk and its reads.
pub(super) struct DiskTier {
    pub(super) disk: Disk,
    results: Receiver<ReadResult>,
    reading: PendingReads,
    /// Sequences whose reads failed with the reading thread.
    failed: Vec<SequenceId>,
}

/// Identifies what a block's content depends on besides its key: weights, format and size of blocks, and what products do
/// with activations.
pub(super) fn fingerprint(
    settings: &Settings,
    source: &Source,
    layout: &KvLayout,
) -> Result<Fingerprint, StartError> {
    let weights = source.fingerprint().map_err(StartError::new)?;
    let activations: &[u8] = match settings.cpu_activations {
        CpuActivations::Exact => b"",
        CpuActivations::Int8 => b"int8 activations",
    };
    let parts = Sha256::new().chain_update(weights).chain_update(&layout.words).chain_update(activations);
    Ok(Fingerprint(parts.finalize().into()))
}

impl DiskTier {
    /// The settings, if there is to be a disk cache.
    pub(super) fn settings(settings: &Settings) -> Option<&DiskSettings> {
        settings.disk.as_ref().filter(|disk| !disk.directory.as_os_str().is_empty())
    }

    pub(super) fn open(
        settings: &Settings,
        fingerprint: Fingerprint,
        layout: &KvLayout,
    ) -> Result<Option<Self>, StartError> {
        let Some(chosen) = Self::settings(settings) else { return Ok(None) };
        let (results_tx, results) = channel();
        let on_read = move |result| {
            // The loop drops the receiver before the disk.
            let _receiver_gone = results_tx.send(result);
        };
        let sizes = BlockSizes::OfGroups(layout.block_bytes.clone());
        let disk = Disk::open(chosen, "kv", fingerprint, sizes, &settings.faults, on_read)?;
        Ok(Some(Self { disk, results, reading: PendingReads::new(TIMEOUT), failed: Vec::new() }))
    }

    /// Starts reading blocks for a sequence. False if the reading thread has died.
    pub(super) fn read(&mut self, id: SequenceId, names: Vec<BlockName>, now: Tick) -> bool {
        let is_sent = self.disk.fetch(names).is_ok();
        if is_sent {
            self.reading.push(id, now);
        }
        is_sent
    }

    /// The next result of a read that has come, and its sequence, if it still waits.
    pub(super) fn next_result(&mut self) -> Option<(Option<SequenceId>, ReadResult)> {
        match self.results.try_recv() {
            Ok(result) => Some((self.reading.complete(), result)),
            Err(TryRecvError::Empty) => None,
            // The reading thread has died.
            Err(TryRecvError::Disconnected) => {
                self.failed.extend(self.reading.fail_all());
                None
            }
        }
    }

    /// Sequences that no longer wait, because their reads failed or take too long.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<SequenceId> {
        let mut ended = std::mem::take(&mut self.failed);
        ended.extend(self.reading.expire(now));
        ended
    }

    /// Detaches the reads from their sequences.
    pub(super) fn detach(&mut self) {
        self.reading.detach();
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_any()
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.reading.is_stalled()
    }
}

impl KvOffload {
    /// Starts reading a waiting sequence's blocks from disk, and holds it, if there are any.
    pub(super) fn fetch_from_disk(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        if self.disk.is_none() {
            return;
        }
        let sought = self.find_restorable(scheduler, id, &BTreeSet::new()).into_iter();
        let on_disk = sought.filter_map(|(name, store)| (store == OffloadTier::Disk).then_some(name));
        let names: Vec<BlockName> = on_disk.collect();
        if let Some(disk) = &mut self.disk
            && !names.is_empty()
            && disk.read(id, names, now)
        {
            scheduler.hold(id, HoldReason::Transfer);
        }
    }

    /// Restores the blocks that were read, and releases the sequences whose reads failed or take too long.
    pub(super) fn finish_disk_reads(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        now: Tick,
    ) -> mlx::Result<()> {
        while let Some((id, result)) = self.disk.as_mut().and_then(DiskTier::next_result) {
            let Some(id) = id else { continue };
            let bytes = result.blocks.iter().map(|block| block.bytes.len() as u64).sum();
            scheduler.learn_transfer(Transfer::DiskRead, bytes, ticks(result.took));
            let read = result.blocks.into_iter().map(|block| (block.name, block.bytes)).collect();
            self.restore_read(scheduler, device, (id, &read), now)?;
        }
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for id in disk.expire(now) {
            tracing::warn!("the disk does not respond; the prompt is computed instead");
            scheduler.release_hold(id, HoldReason::Transfer);
        }
        Ok(())
    }
}
