//! The disk cache: KV blocks, and features of pictures, in a directory that outlives the process.
//!
//! Two threads do all reading and writing. Invariant: the loop never waits for a disk. Writes are dropped when the writer
//! is behind, and reads are requested in advance. File contents are checked: see [`file`].

mod faulty_files;
mod file;
mod index;
mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
pub(crate) use omnibus_kv_peer::BlockName;
use omnibus_kv_peer::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::error::StartError;
use crate::fault::FaultPlan;
use crate::log_span::in_this;
use crate::settings::DiskSettings;
use crate::stats::DiskStats;
use faulty_files::FaultyFiles;
use file::{BlockFiles, FolderFiles};
use index::Index;

/// Most bytes that wait to be written. More are dropped.
pub(crate) const QUEUED_BYTES_MAX: usize = 256 << 20;
/// Bounds of the number of blocks that wait to be written, whatever their size.
const QUEUED_BLOCKS: std::ops::RangeInclusive<usize> = 16..=1024;

/// A block's content.
pub(crate) struct BlockData {
    pub(crate) name: BlockName,
    pub(crate) bytes: Bytes,
}

/// The result of a read.
pub(crate) struct ReadResult {
    /// The leading blocks of the request, as far as they could be read.
    pub(crate) blocks: Vec<BlockData>,
    /// The read's duration.
    pub(crate) took: Duration,
}

/// The directory and its two threads. Dropping it writes the queued blocks and ends the threads; a read that hangs is
/// abandoned.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    writes: Option<SyncSender<BlockData>>,
    reads: Option<Sender<Vec<BlockName>>>,
    writer: Option<std::thread::JoinHandle<()>>,
}

/// Shared by the loop and the two threads.
struct Shared {
    /// The directory of all models' files.
    root: PathBuf,
    fingerprint: Fingerprint,
    sizes: BlockSizes,
    index: Mutex<Index>,
    stats: Mutex<DiskStats>,
    /// Blocks that wait to be written.
    queued: AtomicUsize,
    files: Box<dyn BlockFiles>,
}

/// How many bytes blocks have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockSizes {
    /// Blocks of a layer group have this many bytes.
    OfGroups(Vec<usize>),
    /// Any number, as their files say.
    Any,
}

impl BlockSizes {
    /// How many blocks may wait to be written.
    fn queue(&self) -> usize {
        let largest = match self {
            Self::OfGroups(bytes) => bytes.iter().copied().max().unwrap_or(0),
            Self::Any => QUEUED_BYTES_MAX,
        };
        (QUEUED_BYTES_MAX / largest.max(1)).clamp(*QUEUED_BLOCKS.start(), *QUEUED_BLOCKS.end())
    }
}

/// The reading thread has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReaderGone;

impl Disk {
    /// Opens a folder of the directory. `fingerprint` identifies everything that a block's content depends on besides its
    /// key; the reading thread calls `on_read` with the result of
    /// each read, in order.
    pub(crate) fn open(
        settings: &DiskSettings,
        folder: &str,
        fingerprint: Fingerprint,
        sizes: BlockSizes,
        faults: &FaultPlan,
        mut on_read: impl FnMut(ReadResult) + Send + 'static,
    ) -> Result<Self, StartError> {
        let refused = |error: std::io::Error| {
            StartError::new(format!("--cache-dir {}: {error}", settings.directory.display()))
        };
        let root = settings.directory.join(folder);
        create_private(&root.join(fingerprint.short())).map_err(refused)?;
        let index = Index::scan(&root, settings.limit_bytes).map_err(refused)?;
        let shared = Arc::new(Shared {
            root,
            fingerprint,
            sizes,
            index: Mutex::new(index),
            stats: Mutex::default(),
            queued: AtomicUsize::new(0),
            files: files(faults),
        });
        shared.make_room(0);
        let (writes, to_write) = sync_channel(shared.sizes.queue());
        let (reads, to_read) = channel();
        let (for_writer, for_reader) = (Arc::clone(&shared), Arc::clone(&shared));
        let writer =
            spawn("omnibus-disk-write", move || writer::run(&for_writer, &to_write)).map_err(refused)?;
        spawn("omnibus-disk-read", move || reader::run(&for_reader, &to_read, &mut on_read))
            .map_err(refused)?;
        Ok(Self { shared, writes: Some(writes), reads: Some(reads), writer: Some(writer) })
    }

    /// True if the block is on disk, as far as the index knows.
    pub(crate) fn has(&self, name: BlockName) -> bool {
        self.shared.index().has(&self.shared.path_of(name))
    }

    /// The file of a block that is on disk, as far as the index knows.
    pub(crate) fn file_of(&self, name: BlockName) -> Option<PathBuf> {
        self.has(name).then(|| self.shared.root.join(self.shared.path_of(name)))
    }

    /// Writes a block unless it is on disk; drops it when the writer is behind.
    pub(crate) fn put(&self, name: BlockName, bytes: Bytes) {
        if self.has(name) {
            return;
        }
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        let sent =
            self.writes.as_ref().is_some_and(|writes| writes.try_send(BlockData { name, bytes }).is_ok());
        if !sent {
            self.shared.queued.fetch_sub(1, Ordering::Relaxed);
            self.shared.count(|stats| stats.dropped_blocks_total += 1);
        }
    }

    /// Writes a block unless it is on disk, and waits for the writer.
    pub(crate) fn put_blocking(&self, name: BlockName, bytes: Bytes) {
        if let Some(writes) = self.writes.as_ref().filter(|_| !self.has(name)) {
            self.shared.queued.fetch_add(1, Ordering::Relaxed);
            let _writer_lives_until_drop = writes.send(BlockData { name, bytes });
        }
    }

    /// Starts reading blocks. `on_read` gets the result.
    pub(crate) fn fetch(&self, names: Vec<BlockName>) -> Result<(), ReaderGone> {
        let reads = self.reads.as_ref().ok_or(ReaderGone)?;
        reads.send(names).map_err(|_| ReaderGone)
    }

    /// True while blocks wait to be written.
    pub(crate) fn is_writing(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) > 0
    }

    /// The statistics.
    pub(crate) fn stats(&self) -> DiskStats {
        let (files, bytes) = self.shared.index().size();
        DiskStats { files, bytes, ..*self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        (self.writes, self.reads) = (None, None);
        if let Some(writer) = self.writer.take() {
            let _panic_was_printed = writer.join();
        }
    }
}

impl Shared {
    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut DiskStats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Bytes that a block should have; `None` for one of no group, or without a file.
    fn bytes_of(&self, name: BlockName) -> Option<usize> {
        match &self.sizes {
            BlockSizes::OfGroups(bytes) => bytes.get(name.group as usize).copied(),
            BlockSizes::Any => file::content_bytes(self.index().bytes_of(&self.path_of(name))?),
        }
    }

    /// A block's path below the root.
    fn path_of(&self, name: BlockName) -> PathBuf {
        Path::new(&self.fingerprint.short()).join(format!("{name}.{}", file::EXTENSION))
    }

    /// Evicts the least recently used files until `bytes` more fit.
    fn make_room(&self, bytes: u64) {
        let evicted = self.index().make_room(bytes);
        for path in &evicted {
            // Another server may have removed it already.
            let _gone = std::fs::remove_file(self.root.join(path));
        }
        self.count(|stats| stats.evicted_files_total += evicted.len() as u64);
    }

    /// Removes an invalid file.
    fn reject(&self, path: &Path, why: &str) {
        tracing::warn!(file = %self.root.join(path).display(), why, "a cached block is invalid and is removed");
        self.index().remove(path);
        let _gone = std::fs::remove_file(self.root.join(path));
        self.count(|stats| stats.rejected_files_total += 1);
    }
}

/// One model's part of a disk cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedModel {
    /// Identifies the model's weights and the format of its blocks.
    pub fingerprint: String,
    /// Blocks.
    pub files: u64,
    /// Bytes they take.
    pub bytes: u64,
}

/// The contents of a `--cache-dir`, by model.
pub fn cached_models(directory: &Path) -> std::io::Result<Vec<CachedModel>> {
    let root = directory.join("kv");
    if !root.exists() {
        return Ok(Vec::new());
    }
    Ok(Index::scan(&root, u64::MAX)?.by_folder())
}

/// Removes a model's blocks from a `--cache-dir`. A running server recomputes what it misses.
pub fn remove_cached_model(directory: &Path, model: &CachedModel) -> std::io::Result<()> {
    std::fs::remove_dir_all(directory.join("kv").join(&model.fingerprint))
}

/// Creates a folder that only its owner can read, because its contents reveal prompts. An existing one keeps its mode.
fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// The files, failing as planned if a test has injected faults.
fn files(faults: &FaultPlan) -> Box<dyn BlockFiles> {
    if faults.is_empty() { Box::new(FolderFiles) } else { Box::new(FaultyFiles::new(faults.clone())) }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(in_this(body))
}

#[cfg(test)]
mod tests;
