//! Prompts that peers compute, and the sequences that wait for them.
//!
//! Invariant: a sequence waits for a peer's computation once, and no longer than computing here is expected to take and the
//! timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use omnibus_core::{HoldReason, Scheduler, SequenceId, Tick, Transfer};
use omnibus_kv_peer::{PrefillAnswer, RemotePrefill, Request};

use super::{KvOffload, name_of, ticks};
use crate::disk::BlockName;

/// Most prompts that peers compute for this server at once. Further ones are computed here.
const IN_FLIGHT_MAX: usize = 32;

/// Prompts that peers compute now.
#[derive(Debug)]
pub(super) struct RemotePrefills {
    timeout: Duration,
    next: u64,
    /// The sequences that wait, and when they give up.
    in_flight: BTreeMap<u64, (SequenceId, Tick)>,
    /// Sequences whose prompt was computed by a peer, or should have been.
    asked: BTreeSet<SequenceId>,
}

impl RemotePrefills {
    /// None. `timeout`: of a request to a peer, besides the time of computing.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, next: 0, in_flight: BTreeMap::new(), asked: BTreeSet::new() }
    }

    pub(super) fn is_any(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Detaches all from their sequences.
    pub(super) fn detach(&mut self) {
        self.in_flight.clear();
        self.asked.clear();
    }

    /// A sequence begins to wait. Returns the number of its prompt, and how long it waits.
    fn begin(&mut self, id: SequenceId, here: Tick, now: Tick) -> (u64, Duration) {
        let wait = self.timeout.saturating_add(Duration::from_micros(here));
        self.next += 1;
        self.in_flight.insert(self.next, (id, now.saturating_add(ticks(wait))));
        self.asked.insert(id);
        (self.next, wait)
    }

    /// A peer replied. Returns the sequence, if it still waits.
    fn finish(&mut self, number: u64) -> Option<SequenceId> {
        self.in_flight.remove(&number).map(|(id, _)| id)
    }

    /// Sequences that have waited for too long. They no longer wait.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<SequenceId> {
        let mut late = Vec::new();
        self.in_flight.retain(|_, (id, gives_up)| {
            let is_late = *gives_up <= now;
            late.extend(is_late.then_some(*id));
            !is_late
        });
        late
    }

    /// Whether a sequence's prompt may be given to a peer.
    fn may_take(&mut self, scheduler: &Scheduler, id: SequenceId) -> bool {
        // A sequence that waits no longer does not come back.
        self.asked.retain(|asked| scheduler.is_waiting(*asked));
        self.in_flight.len() < IN_FLIGHT_MAX && !self.asked.contains(&id)
    }
}

impl KvOffload {
    /// Has a peer compute the prompt of a waiting sequence, of which it has these blocks, and holds the sequence. False if
    /// the prompt is to be computed here.
    pub(super) fn delegate_prefill(
        &mut self,
        scheduler: &mut Scheduler,
        id: SequenceId,
        (peer, at_peer): (usize, &BTreeSet<BlockName>),
        now: Tick,
    ) -> bool {
        let prefills = self.peers.as_mut().and_then(|peers| peers.prefills.as_mut());
        if !prefills.is_some_and(|prefills| prefills.may_take(scheduler, id)) {
            return false;
        }
        let first = scheduler.block_hashes(id).first().copied().unwrap_or_default();
        let is_stored = |group, key| {
            let name = name_of(group, key);
            at_peer.contains(&name) || self.find(name).is_some()
        };
        let Some(prompt) = scheduler.remote_prompt(id, is_stored) else { return false };
        let (tokens, cache_salt, here) = (prompt.tokens.to_vec(), prompt.cache_salt, prompt.here);
        let Some(peers) = &mut self.peers else { return false };
        let chosen = if at_peer.is_empty() { peers.peers.prefill_peer(first) } else { Some(peer) };
        let (Some(peer), Some(prefills)) = (chosen, &mut peers.prefills) else { return false };
        let (number, timeout) = prefills.begin(id, here, now);
        let prefill = RemotePrefill { id: number, peer, tokens, cache_salt, timeout };
        if !peers.peers.send(Request::Prefill(prefill)) {
            return false;
        }
        scheduler.hold(id, HoldReason::Transfer);
        true
    }

    /// A peer has computed a prompt, or failed to: its sequence looks for the blocks again, or runs.
    pub(super) fn finish_prefill(
        &mut self,
        scheduler: &mut Scheduler,
        (number, computed): (u64, Option<(PrefillAnswer, Duration)>),
        now: Tick,
    ) {
        let prefills = self.peers.as_mut().and_then(|peers| peers.prefills.as_mut());
        let waiting = prefills.and_then(|prefills| prefills.finish(number));
        if let Some((answer, took)) = computed {
            let computed = answer.prompt_tokens.saturating_sub(answer.cached_tokens);
            scheduler.learn_transfer(Transfer::PeerPrefill, computed as u64, ticks(took));
        }
        let Some(id) = waiting else { return };
        scheduler.release_hold(id, HoldReason::Transfer);
        if computed.is_some() {
            self.ask_peers(scheduler, id, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_waits_for_the_timeout_and_the_time_of_computing_here() {
        let mut prefills = RemotePrefills::new(Duration::from_secs(5));
        let (first, wait) = prefills.begin(SequenceId(1), 2_000_000, 100);
        assert_eq!(wait, Duration::from_secs(7));
        let (second, _) = prefills.begin(SequenceId(2), 0, 100);
        assert_eq!(prefills.expire(5_000_099), []);
        assert_eq!(prefills.expire(5_000_100), [SequenceId(2)]);
        assert_eq!((prefills.finish(second), prefills.finish(first)), (None, Some(SequenceId(1))));
        assert!(!prefills.is_any());
    }
}
