//! Blocks for other replicas: those in the pools, in host memory and on disk.
//!
//! Invariant: who names a block's hash knows its tokens and its tenant; and only a replica with the same weights, format and
//! block size gets any. The loop reads no file: it says which one has the block.

use bytes::Bytes;
use omnibus_core::Scheduler;
use omnibus_kv::BlockId;
use omnibus_kv_peer::{BlockHeader, BlockName, Fingerprint};

use super::{BATCH_BYTES, KvOffload, batch_blocks};
use crate::message::{BlockQuery, BlocksRefused, StoredBlock};
use crate::stats::KvTransferStats;
use crate::worker::device_client::DeviceClient;

/// Whose blocks are served, and how many were.
pub(super) struct Serving {
    fingerprint: Fingerprint,
    stats: KvTransferStats,
}

impl Serving {
    pub(super) fn new(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, stats: KvTransferStats::default() }
    }

    pub(super) fn stats(&self) -> KvTransferStats {
        self.stats.clone()
    }

    fn count(&mut self, bytes: usize) {
        self.stats.served_blocks_total += 1;
        self.stats.served_bytes_total += bytes as u64;
    }
}

impl KvOffload {
    /// Which of these blocks there are.
    pub(in crate::worker) fn find_for_peer(
        &self,
        scheduler: &Scheduler,
        query: &BlockQuery,
    ) -> Result<Vec<StoredBlock>, BlocksRefused> {
        self.check(query)?;
        let found = query.names.iter().map(|name| {
            let is_here = in_pools(scheduler, *name).is_some() || self.find(*name).is_some();
            if is_here { StoredBlock::Present } else { StoredBlock::Absent }
        });
        Ok(found.collect())
    }

    /// The first ones of these blocks, as many as are copied out at once.
    pub(in crate::worker) fn read_for_peer(
        &mut self,
        scheduler: &Scheduler,
        device: &mut DeviceClient,
        query: &BlockQuery,
    ) -> mlx::Result<Result<Vec<StoredBlock>, BlocksRefused>> {
        let fingerprint = match self.check(query) {
            Ok(fingerprint) => fingerprint,
            Err(refused) => return Ok(Err(refused)),
        };
        let names = query.names.iter().take(batch_blocks(&self.block_bytes, BATCH_BYTES));
        let mut blocks = Vec::new();
        for name in names {
            let content = self.content_of(scheduler, device, *name)?;
            blocks.push(match content {
                Some(bytes) => {
                    self.serving.iter_mut().for_each(|serving| serving.count(bytes.len()));
                    StoredBlock::Record(record(&fingerprint, *name, &bytes))
                }
                None => match self.disk.as_ref().and_then(|tier| tier.disk.file_of(*name)) {
                    Some(file) => {
                        let bytes = self.block_bytes.get(name.group as usize).copied().unwrap_or(0);
                        self.serving.iter_mut().for_each(|serving| serving.count(bytes));
                        StoredBlock::File(file)
                    }
                    None => StoredBlock::Absent,
                },
            });
        }
        Ok(Ok(blocks))
    }

    /// The content of a block in host memory or in the pools.
    fn content_of(
        &self,
        scheduler: &Scheduler,
        device: &mut DeviceClient,
        name: BlockName,
    ) -> mlx::Result<Option<Bytes>> {
        if let Some(bytes) = self.host.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let Some((group, block)) = in_pools(scheduler, name) else { return Ok(None) };
        device.finish()?;
        Ok(device.read_blocks(group, vec![block])?.into_iter().next())
    }

    fn check(&self, query: &BlockQuery) -> Result<Fingerprint, BlocksRefused> {
        let serving = self.serving.as_ref().ok_or(BlocksRefused::NotServed)?;
        match serving.fingerprint.long() == query.fingerprint {
            true => Ok(serving.fingerprint),
            false => Err(BlocksRefused::OtherModel),
        }
    }
}

/// A layer group and its block with this content.
fn in_pools(scheduler: &Scheduler, name: BlockName) -> Option<(usize, BlockId)> {
    let group = name.group as usize;
    scheduler.find_cached_block(group, name.key).map(|block| (group, block))
}

fn record(fingerprint: &Fingerprint, name: BlockName, bytes: &[u8]) -> Bytes {
    let header = BlockHeader::of(fingerprint, name, bytes);
    [header.bytes().as_slice(), bytes].concat().into()
}
