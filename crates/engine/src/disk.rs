//! The prefix index's second tier: blocks of keys and values in a directory that outlives the process.
//!
//! Two threads do all reading and writing. Invariant: the loop never waits for a disk. What it writes is dropped when
//! the writer is behind, and what it reads it has asked for before. Nothing read is trusted: see [`file`].

mod file;
mod index;
mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::fault::FaultPlan;
use file::Fingerprint;
use index::Index;

/// Bytes that may wait to be written. What comes beyond them is dropped.
pub(crate) const WAITING_BYTES_MAX: usize = 256 << 20;
/// But so many blocks may wait, however large they are, and no more than that many, however small.
const WAITING_BLOCKS: std::ops::RangeInclusive<usize> = 16..=1024;

/// Names a block: its layer group, and the key of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockName {
    pub(crate) group: u32,
    pub(crate) key: u128,
}

/// A block's content, as it was handed in.
pub(crate) struct Loaded {
    pub(crate) name: BlockName,
    pub(crate) bytes: Vec<u8>,
}

/// What came of a question.
pub(crate) struct Answer {
    /// The leading part of what was asked for.
    pub(crate) blocks: Vec<Loaded>,
    /// How long it took to read.
    pub(crate) took: Duration,
}

/// Where blocks are kept, and how much of it may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Made if it is not there. May be shared by several servers and models. Empty is no directory: nothing is kept.
    pub directory: PathBuf,
    /// Bytes of all files in it together; the ones used longest ago go first.
    pub limit_bytes: u64,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self { directory: PathBuf::new(), limit_bytes: 10_000_000_000 }
    }
}

/// Numbers for people and for `/metrics`. Those named `…_total` only ever grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStats {
    /// Files there are.
    pub files: u64,
    /// Bytes of all files, those of other models included.
    pub bytes: u64,
    /// Blocks read and used.
    pub read_blocks_total: u64,
    /// Blocks written.
    pub written_blocks_total: u64,
    /// Blocks not written, because the writer was behind or the disk refused them.
    pub dropped_blocks_total: u64,
    /// Files removed because they were corrupt, cut short or not ours.
    pub rejected_files_total: u64,
    /// Files removed to stay within the limit.
    pub evicted_files_total: u64,
}

impl DiskStats {
    /// These numbers, their totals counted on from an engine that ran before.
    pub(crate) fn after(&self, before: &Self) -> Self {
        Self {
            read_blocks_total: self.read_blocks_total + before.read_blocks_total,
            written_blocks_total: self.written_blocks_total + before.written_blocks_total,
            dropped_blocks_total: self.dropped_blocks_total + before.dropped_blocks_total,
            rejected_files_total: self.rejected_files_total + before.rejected_files_total,
            evicted_files_total: self.evicted_files_total + before.evicted_files_total,
            ..*self
        }
    }
}

/// The directory and its two threads. They end when this is dropped: what still waits to be written is written first,
/// and a read that hangs is left to itself.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    writes: Option<SyncSender<Loaded>>,
    reads: Option<Sender<Vec<BlockName>>>,
    writer: Option<std::thread::JoinHandle<()>>,
}

/// What the loop and the two threads share.
struct Shared {
    /// Files of all models.
    root: PathBuf,
    fingerprint: Fingerprint,
    /// Bytes of a block of each layer group.
    block_bytes: Vec<usize>,
    index: Mutex<Index>,
    stats: Mutex<DiskStats>,
    /// Blocks that wait to be written.
    waiting: AtomicUsize,
    faults: FaultPlan,
}

/// The thread that would do it has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NobodyReads;

impl Disk {
    /// Opens the directory. `fingerprint` names everything that a block's content depends on besides its key;
    /// `block_bytes` is the size of a block of each layer group; `tell` is called by the reading thread with what
    /// came of each question, in their order.
    pub(crate) fn open(
        settings: &DiskSettings,
        fingerprint: [u8; 32],
        block_bytes: Vec<usize>,
        faults: FaultPlan,
        mut tell: impl FnMut(Answer) + Send + 'static,
    ) -> Result<Self, StartError> {
        let refused = |error: std::io::Error| {
            StartError::new(format!("--cache-dir {}: {error}", settings.directory.display()))
        };
        let root = settings.directory.join("kv");
        let fingerprint = Fingerprint(fingerprint);
        create_private(&root.join(fingerprint.folder())).map_err(refused)?;
        let index = Index::scan(&root, settings.limit_bytes).map_err(refused)?;
        let shared = Arc::new(Shared {
            root,
            fingerprint,
            block_bytes,
            index: Mutex::new(index),
            stats: Mutex::default(),
            waiting: AtomicUsize::new(0),
            faults,
        });
        shared.make_room(0);
        let largest = shared.block_bytes.iter().copied().max().unwrap_or(0).max(1);
        let waiting = (WAITING_BYTES_MAX / largest).clamp(*WAITING_BLOCKS.start(), *WAITING_BLOCKS.end());
        let (writes, to_write) = sync_channel(waiting);
        let (reads, to_read) = channel();
        let (for_writer, for_reader) = (Arc::clone(&shared), Arc::clone(&shared));
        let writer =
            spawn("omnibus-disk-write", move || writer::run(&for_writer, &to_write)).map_err(refused)?;
        spawn("omnibus-disk-read", move || reader::run(&for_reader, &to_read, &mut tell)).map_err(refused)?;
        Ok(Self { shared, writes: Some(writes), reads: Some(reads), writer: Some(writer) })
    }

    /// Whether a block can probably be read.
    pub(crate) fn has(&self, name: BlockName) -> bool {
        self.shared.index().has(&self.shared.path_of(name))
    }

    /// Keeps a block unless it is kept already; drops it when the writer is behind.
    pub(crate) fn put(&self, name: BlockName, bytes: Vec<u8>) {
        if self.has(name) {
            return;
        }
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.writes.as_ref().is_some_and(|writes| writes.try_send(Loaded { name, bytes }).is_ok());
        if !sent {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.count(|stats| stats.dropped_blocks_total += 1);
        }
    }

    /// Keeps a block unless it is kept already, and waits for the writer. For those who have nothing else to do.
    pub(crate) fn put_patiently(&self, name: BlockName, bytes: Vec<u8>) {
        if let Some(writes) = self.writes.as_ref().filter(|_| !self.has(name)) {
            self.shared.waiting.fetch_add(1, Ordering::Relaxed);
            let _gone_only_when_dropped = writes.send(Loaded { name, bytes });
        }
    }

    /// Reads blocks. What came of it is told later, once.
    pub(crate) fn fetch(&self, names: Vec<BlockName>) -> Result<(), NobodyReads> {
        let reads = self.reads.as_ref().ok_or(NobodyReads)?;
        reads.send(names).map_err(|_| NobodyReads)
    }

    /// True while blocks wait to be written.
    pub(crate) fn is_writing(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > 0
    }

    /// Numbers as they are now.
    pub(crate) fn stats(&self) -> DiskStats {
        let (files, bytes) = self.shared.index().size();
        DiskStats { files, bytes, ..*self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        (self.writes, self.reads) = (None, None);
        if let Some(writer) = self.writer.take() {
            let _its_panic_was_printed = writer.join();
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

    /// Where a block is kept, below the root.
    fn path_of(&self, name: BlockName) -> PathBuf {
        Path::new(&self.fingerprint.folder()).join(format!(
            "{:032x}-{}.{}",
            name.key,
            name.group,
            file::EXTENSION
        ))
    }

    /// Removes what was used longest ago until `bytes` more fit.
    fn make_room(&self, bytes: u64) {
        let evicted = self.index().make_room(bytes);
        for path in &evicted {
            // Another server may have removed it before us.
            let _gone = std::fs::remove_file(self.root.join(path));
        }
        self.count(|stats| stats.evicted_files_total += evicted.len() as u64);
    }

    /// Removes a file that must not be used.
    fn reject(&self, path: &Path, why: &str) {
        tracing::warn!(file = %self.root.join(path).display(), why, "a cached block is not usable; it is removed");
        self.index().forget(path);
        let _gone = std::fs::remove_file(self.root.join(path));
        self.count(|stats| stats.rejected_files_total += 1);
    }
}

/// What a directory keeps for one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedModel {
    /// Names the model's weights and the format of its blocks.
    pub fingerprint: String,
    /// Blocks there are.
    pub files: u64,
    /// Bytes they take.
    pub bytes: u64,
}

/// What a `--cache-dir` keeps, by model.
pub fn cached_models(directory: &Path) -> std::io::Result<Vec<CachedModel>> {
    let root = directory.join("kv");
    if !root.exists() {
        return Ok(Vec::new());
    }
    Ok(Index::scan(&root, u64::MAX)?.by_folder())
}

/// Removes what a `--cache-dir` keeps for a model. A server that uses it computes again what it misses.
pub fn remove_cached_model(directory: &Path, model: &CachedModel) -> std::io::Result<()> {
    std::fs::remove_dir_all(directory.join("kv").join(&model.fingerprint))
}

/// Makes a folder that nobody else can look into: what is kept in it tells what was asked. One that was there stays as
/// it is.
fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

#[cfg(test)]
mod tests;
