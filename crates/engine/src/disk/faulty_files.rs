//! Block files that fail as a [`FaultPlan`] says, around the real ones. For tests.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use omnibus_kv_peer::Fingerprint;

use super::BlockName;
use super::file::{BlockFiles, FolderFiles, ReadError};
use crate::fault::{FaultPlan, Kind, injected_panic};

/// Block files that fail as planned.
pub(super) struct FaultyFiles {
    plan: FaultPlan,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl FaultyFiles {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self { plan, writes: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }
}

impl BlockFiles for FaultyFiles {
    fn write(&self, path: &Path, of: &Fingerprint, name: BlockName, bytes: &[u8]) -> io::Result<()> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.plan.of_disk(Kind::DiskFull, number) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => FolderFiles.write(path, of, name, bytes),
        }
    }

    fn read(
        &self,
        path: &Path,
        of: &Fingerprint,
        name: BlockName,
        block_bytes: usize,
    ) -> Result<Vec<u8>, ReadError> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.plan.of_disk(Kind::DiskReader, number) {
            injected_panic();
        }
        FolderFiles.read(path, of, name, block_bytes)
    }
}
