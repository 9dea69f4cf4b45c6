//! Which experts are resident or being read, and what is to be read next.
//!
//! Invariant: no locks and no files are read here. What is being read counts as resident.

use std::collections::VecDeque;
use std::sync::Arc;

use super::file::{Buffer, StackFiles};
use super::history::History;
use super::lru::{Key, Lru};

/// What an [`ExpertMemory`](super::ExpertMemory) did. Those named `…_total` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertMemoryStats {
    /// Experts of a product whose weights were resident, or being read ahead.
    pub hits_total: u64,
    /// Experts of a product that had to be read for it.
    pub misses_total: u64,
    /// Experts that were read ahead.
    pub prefetches_total: u64,
    /// Of these, those that a product used before they were evicted.
    pub prefetch_hits_total: u64,
    /// Bytes read; some of them may come from the system's page cache.
    pub read_bytes_total: u64,
    /// Bytes of resident experts.
    pub resident_bytes: u64,
    /// The bound of these.
    pub limit_bytes: u64,
}

pub(super) struct Residents {
    limit_bytes: u64,
    /// By number.
    stacks: Vec<Arc<StackFiles>>,
    experts: Lru<Slot>,
    history: History,
    /// For the product in progress.
    wanted: VecDeque<Read>,
    ahead: VecDeque<Key>,
    /// Why a read for the product in progress failed.
    failed_read: Option<String>,
    stats: ExpertMemoryStats,
}

struct Slot {
    /// `None` while it is read. With other owners it is in use.
    buffer: Option<Arc<Buffer>>,
    reason: Reason,
}

/// Why an expert is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A product needs it, or has used it.
    Product,
    /// It is likely to be needed.
    Ahead,
}

/// A read that has its memory.
pub(super) struct Read {
    key: Key,
    files: Arc<StackFiles>,
    buffer: Buffer,
    reason: Reason,
}

impl Read {
    /// Reads the file.
    pub(super) fn run(mut self) -> (Self, Result<(), String>) {
        let result = self.files.read(self.key.1, &mut self.buffer);
        (self, result)
    }
}

impl Residents {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            stacks: Vec::new(),
            experts: Lru::new(limit_bytes),
            history: History::default(),
            wanted: VecDeque::new(),
            ahead: VecDeque::new(),
            failed_read: None,
            stats: ExpertMemoryStats { limit_bytes, ..ExpertMemoryStats::default() },
        }
    }

    pub(super) fn add_stack(&mut self, layer: &str, files: Arc<StackFiles>) -> u32 {
        let number = self.history.add_stack(layer, files.experts, files.expert_bytes());
        self.stacks.push(files);
        number
    }

    pub(super) fn stats(&self) -> ExpertMemoryStats {
        ExpertMemoryStats { resident_bytes: self.experts.used_bytes(), ..self.stats }
    }

    /// Bytes of all experts if they were resident.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stacks.iter().map(|files| files.experts as u64 * files.expert_bytes()).sum()
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.experts.contains(key)
    }

    /// A product of a stack begins with these experts.
    pub(super) fn begin(&mut self, stack: u32, part: &[u32]) {
        self.failed_read = None;
        let hits = part.iter().filter(|expert| self.contains((stack, **expert))).count();
        self.stats.hits_total += hits as u64;
    }

    /// Plans what is read ahead while a stack computes with these experts. False if there is nothing new.
    pub(super) fn read_ahead(&mut self, stack: u32, experts: &[u32]) -> bool {
        let Some(ahead) = self.history.used(stack, experts, self.limit_bytes) else { return false };
        // What was planned for earlier layers comes too late.
        self.ahead = ahead.into_iter().filter(|key| !self.contains(*key)).collect();
        !self.ahead.is_empty()
    }

    /// Holds the experts of a part that are there, and plans reads for the others, as far as there is room.
    pub(super) fn hold(&mut self, stack: u32, part: &[u32], held: &mut [Option<Arc<Buffer>>]) {
        // First those that are there: room for the others would evict them.
        for (expert, held) in part.iter().zip(held.iter_mut()).filter(|(_, held)| held.is_none()) {
            let Some(slot) = self.experts.touch((stack, *expert)) else { continue };
            held.clone_from(&slot.buffer);
            if slot.reason == Reason::Ahead {
                slot.reason = Reason::Product;
                self.stats.prefetch_hits_total += 1;
            }
        }
        for (expert, _) in part.iter().zip(held).filter(|(_, held)| held.is_none()) {
            let key = (stack, *expert);
            if self.contains(key) {
                continue;
            }
            let Some(read) = self.reserve(key, Reason::Product) else { break };
            self.stats.misses_total += 1;
            self.wanted.push_back(read);
        }
    }

    /// The next read for the product in progress.
    pub(super) fn next_wanted(&mut self) -> Option<Read> {
        self.wanted.pop_front()
    }

    pub(super) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The next read, for the product in progress first.
    pub(super) fn next_read(&mut self) -> Option<Read> {
        if let Some(read) = self.next_wanted() {
            return Some(read);
        }
        while let Some(key) = self.ahead.pop_front() {
            if let Some(read) = (!self.contains(key)).then(|| self.reserve(key, Reason::Ahead)).flatten() {
                self.stats.prefetches_total += 1;
                return Some(read);
            }
        }
        None
    }

    /// Makes room for an expert that is not there.
    fn reserve(&mut self, key: Key, reason: Reason) -> Option<Read> {
        let files = Arc::clone(self.stacks.get(key.0 as usize)?);
        let bytes = files.expert_bytes();
        let is_idle = |slot: &Slot| slot.buffer.as_ref().is_some_and(|buffer| Arc::strong_count(buffer) == 1);
        let evicted = self.experts.evict_for(bytes, is_idle)?;
        let spare = evicted.into_iter().filter_map(|slot| Arc::into_inner(slot.buffer?)).last();
        let is_added = self.experts.insert(key, bytes, Slot { buffer: None, reason });
        is_added.then(|| Read { key, buffer: files.buffer(spare), files, reason })
    }

    /// A read has ended. One ahead that failed is tried again where a product needs it.
    pub(super) fn finish(&mut self, (read, result): (Read, Result<(), String>)) {
        match result {
            Ok(()) => {
                self.stats.read_bytes_total += read.files.read_bytes();
                if let Some(slot) = self.experts.get_mut(read.key) {
                    slot.buffer = Some(Arc::new(read.buffer));
                }
            }
            Err(why) => {
                self.experts.remove(read.key);
                if read.reason == Reason::Product {
                    self.failed_read = Some(why);
                }
            }
        }
    }

    /// Why the product in progress cannot be computed; its other reads are cancelled.
    pub(super) fn take_failed_read(&mut self) -> Option<String> {
        let why = self.failed_read.take()?;
        for read in std::mem::take(&mut self.wanted) {
            self.experts.remove(read.key);
        }
        Some(why)
    }

    /// Whether nothing is being read, and nothing is to be.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.wanted.is_empty()
            && self.ahead.is_empty()
            && self.experts.values().all(|slot| slot.buffer.is_some())
    }
}
