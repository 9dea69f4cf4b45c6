//! The memory that experts of all layers share: buffers of those that were used last, read from files by several threads.
//!
//! Invariant: the buffers never take more than the bound, those that are being read included. An expert that the product
//! in progress uses is not evicted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use omnibus_cpu_kernels::ExpertAddresses;

use super::file::{Buffer, StackFiles};
use super::residents::{ExpertMemoryStats, Residents};

/// Threads that read: a disk is faster with several reads at once.
const READERS: usize = 4;

/// The memory for experts whose weights stay in files, with a bound in bytes. A clone is the same memory.
#[derive(Clone)]
pub struct ExpertMemory(Arc<Owner>);

/// Ends the readers with the last clone.
struct Owner {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
    limit_bytes: u64,
    /// One product at a time: two that wait for each other's experts would never end.
    product: Mutex<()>,
    failure: Mutex<Option<String>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something is to be read.
    to_read: Condvar,
    /// Something was read.
    was_read: Condvar,
}

struct State {
    residents: Residents,
    is_closed: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.to_read.notify_all();
        for reader in self.readers.drain(..) {
            let _panicked = reader.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a reader does.
    fn read_until_closed(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some(read) = state.residents.next_read() else {
                state = self.to_read.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let ended = read.run();
            state = self.lock();
            state.residents.finish(ended);
            self.was_read.notify_all();
        }
    }

    /// The experts of a part, which stay resident as long as they are held. The caller reads, too.
    fn hold(&self, stack: u32, part: &[u32]) -> Result<Vec<Arc<Buffer>>, String> {
        let mut held = vec![None; part.len()];
        let mut state = self.lock();
        state.residents.begin(stack, part);
        loop {
            state.residents.hold(stack, part, &mut held);
            if let Some(why) = state.residents.take_failed_read() {
                return Err(why);
            }
            if held.iter().all(Option::is_some) {
                return Ok(held.into_iter().flatten().collect());
            }
            let Some(read) = state.residents.next_wanted() else {
                state = self.was_read.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if state.residents.has_wanted() {
                self.to_read.notify_all();
            }
            drop(state);
            let ended = read.run();
            state = self.lock();
            state.residents.finish(ended);
        }
    }

    /// Residents first: a later part would find them evicted.
    fn residents_first(&self, stack: u32, needed: &[u32]) -> Vec<u32> {
        let state = self.lock();
        let (here, missing): (Vec<u32>, Vec<u32>) =
            needed.iter().partition(|expert| state.residents.contains((stack, **expert)));
        [here, missing].concat()
    }
}

impl ExpertMemory {
    /// Memory that holds `limit_bytes` at most. Fails if the system has no thread left.
    pub fn new(limit_bytes: u64) -> std::io::Result<Self> {
        let state = State { residents: Residents::new(limit_bytes), is_closed: false };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), to_read: Condvar::new(), was_read: Condvar::new() });
        let mut owner = Owner {
            shared: Arc::clone(&shared),
            readers: Vec::new(),
            limit_bytes,
            product: Mutex::new(()),
            failure: Mutex::new(None),
        };
        for _ in 0..READERS {
            let shared = Arc::clone(&shared);
            let reader = std::thread::Builder::new().name("experts".to_owned());
            owner.readers.push(reader.spawn(move || shared.read_until_closed())?);
        }
        Ok(Self(Arc::new(owner)))
    }

    /// What it did so far.
    pub fn stats(&self) -> ExpertMemoryStats {
        self.0.shared.lock().residents.stats()
    }

    /// Why experts could not be read since the last call: what was computed meanwhile is wrong.
    pub fn take_failure(&self) -> Option<String> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Most bytes of resident experts.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// Most bytes that are used: the bound, or less where all experts together take less.
    pub fn planned_bytes(&self) -> u64 {
        self.0.limit_bytes.min(self.0.shared.lock().residents.stored_bytes())
    }

    /// Numbers a stack of a layer.
    pub(super) fn add_stack(&self, layer: &str, files: Arc<StackFiles>) -> u32 {
        self.0.shared.lock().residents.add_stack(layer, files)
    }

    pub(super) fn fail(&self, why: String) {
        *self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Makes `needed` experts of a stack resident, as many at a time as fit, and calls `compute` with the table of each
    /// part: the addresses of all the stack's experts, null for those of no or another part. Without any it is called once.
    pub(super) fn by_parts(
        &self,
        (stack, files): (u32, &StackFiles),
        needed: &[u32],
        mut compute: impl FnMut(&[ExpertAddresses]),
    ) -> Result<(), String> {
        let mut table = vec![[std::ptr::null(); 3]; files.experts];
        if needed.is_empty() {
            compute(&table);
            return Ok(());
        }
        let shared = &self.0.shared;
        let _one = self.0.product.lock().unwrap_or_else(PoisonError::into_inner);
        let at_once = (self.0.limit_bytes / files.expert_bytes().max(1)).max(1) as usize;
        for (number, part) in shared.residents_first(stack, needed).chunks(at_once).enumerate() {
            let held = shared.hold(stack, part)?;
            if number == 0 && shared.lock().residents.read_ahead(stack, needed) {
                shared.to_read.notify_all();
            }
            table.fill([std::ptr::null(); 3]);
            for (expert, buffer) in part.iter().zip(&held) {
                if let Some(entry) = table.get_mut(*expert as usize) {
                    *entry = files.addresses(buffer);
                }
            }
            compute(&table);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
