//! All sequences, and the sets that they are in by phase.
//!
//! Invariant: a sequence is in the set of its phase and in no other; its deadline is listed until it has ended.

use std::collections::BTreeSet;
use std::ops::Index;

use rustc_hash::FxHashMap;

use super::waiting::WaitingQueue;
use crate::request::{Request, SequenceId, Tick};
use crate::sequence::{Hold, HoldReason, Phase, Rank, Sequence};

/// All sequences: waiting, running, and being released.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequences {
    by_id: FxHashMap<SequenceId, Box<Sequence>>,
    waiting: WaitingQueue,
    running: BTreeSet<SequenceId>,
    /// Preempted or ended, and still used by a step in flight.
    releasing: BTreeSet<SequenceId>,
    /// Of sequences that have not ended.
    deadlines: BTreeSet<(Tick, SequenceId)>,
    next_id: u64,
    /// The latest arrival so far.
    arrived: Tick,
}

impl Sequences {
    /// The rank of a new sequence. Its id is higher than all before, and it arrives no earlier, whatever time is given.
    pub(super) fn new_rank(&mut self, now: Tick, request: &Request) -> Rank {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.arrived = self.arrived.max(now);
        Rank::new(self.arrived, (request.class, request.priority), id)
    }

    /// Adds a sequence that waits.
    pub(super) fn insert(&mut self, sequence: Box<Sequence>) {
        let id = sequence.id();
        self.waiting.push(&sequence);
        self.deadlines.extend(sequence.deadline.map(|deadline| (deadline, id)));
        self.by_id.insert(id, sequence);
    }

    /// The sequence, until it is removed.
    pub(super) fn get(&self, id: SequenceId) -> Option<&Sequence> {
        self.by_id.get(&id).map(|sequence| &**sequence)
    }

    /// The sequence, to change it. Its phase, hold, tenant, rank and deadline are changed by the other methods only.
    pub(super) fn get_mut(&mut self, id: SequenceId) -> Option<&mut Sequence> {
        self.by_id.get_mut(&id).map(|sequence| &mut **sequence)
    }

    /// True when there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.by_id.values().map(|sequence| &**sequence)
    }

    /// The waiting queue.
    pub(super) fn waiting(&self) -> &WaitingQueue {
        &self.waiting
    }

    /// Running sequences, oldest first.
    pub(super) fn running(&self) -> impl DoubleEndedIterator<Item = &Sequence> {
        self.running.iter().map(|id| &*self.by_id[id])
    }

    /// Number of running sequences.
    pub(super) fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Preempted and ended sequences that a step in flight uses, oldest first.
    pub(super) fn releasing(&self) -> impl Iterator<Item = &Sequence> {
        self.releasing.iter().map(|id| &*self.by_id[id])
    }

    /// Sequences with blocks, oldest first.
    pub(super) fn holding(&self) -> impl Iterator<Item = &Sequence> {
        self.running.union(&self.releasing).map(|id| &*self.by_id[id])
    }

    /// Number of sequences with blocks.
    pub(super) fn holding_count(&self) -> usize {
        self.running.len() + self.releasing.len()
    }

    /// True while a preempted sequence has not reached the queue: it is older than those in it.
    pub(super) fn is_preempting(&self) -> bool {
        self.releasing().any(|sequence| sequence.phase == Phase::Preempted)
    }

    /// Sequences whose deadline has passed, in the order of ids.
    pub(super) fn expired(&self, now: Tick) -> Vec<SequenceId> {
        let late = self.deadlines.range(..=(now, SequenceId(u64::MAX)));
        let mut late: Vec<SequenceId> = late.map(|(_, id)| *id).collect();
        late.sort_unstable();
        late
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Moves a sequence to a phase, and to the set that goes with it.
    pub(super) fn enter(&mut self, id: SequenceId, phase: Phase) {
        let Some(sequence) = self.by_id.get_mut(&id) else { return };
        let before = std::mem::replace(&mut sequence.phase, phase);
        self.leave_set(id, before);
        let sequence = &self.by_id[&id];
        match phase {
            Phase::Waiting => self.waiting.push(sequence),
            Phase::Running => {
                self.waiting.start(sequence);
                self.running.insert(id);
            }
            Phase::Preempted | Phase::Ended => {
                self.waiting.start(sequence);
                self.releasing.insert(id);
            }
        }
        if phase == Phase::Ended {
            self.forget_deadline(id);
        }
    }

    /// Removes a sequence.
    pub(super) fn remove(&mut self, id: SequenceId) -> Option<Box<Sequence>> {
        let phase = self.get(id)?.phase;
        self.leave_set(id, phase);
        self.forget_deadline(id);
        self.by_id.remove(&id)
    }

    /// Takes a waiting sequence out of the queue, whose order and load follow from its tokens. Nothing for others.
    pub(super) fn leave_queue(&mut self, id: SequenceId) {
        if let Some(sequence) = self.by_id.get(&id).filter(|sequence| sequence.phase == Phase::Waiting) {
            self.waiting.remove(sequence);
        }
    }

    /// Puts it back.
    pub(super) fn rejoin_queue(&mut self, id: SequenceId) {
        if let Some(sequence) = self.by_id.get(&id).filter(|sequence| sequence.phase == Phase::Waiting) {
            self.waiting.push(sequence);
        }
    }

    /// Keeps a waiting sequence from being planned. False for others.
    pub(super) fn hold(&mut self, id: SequenceId, reason: HoldReason) -> bool {
        let sequence = self.by_id.get_mut(&id).filter(|sequence| sequence.phase == Phase::Waiting);
        let Some(sequence) = sequence else { return false };
        *sequence.hold_mut(reason) = Hold::Now;
        self.waiting.hold(sequence);
        true
    }

    /// Ends a hold. A sequence that no other hold keeps may be planned again. False for those without it.
    pub(super) fn release_hold(&mut self, id: SequenceId, reason: HoldReason) -> bool {
        let sequence = self.by_id.get_mut(&id).filter(|sequence| sequence.hold(reason) == Hold::Now);
        let Some(sequence) = sequence else { return false };
        *sequence.hold_mut(reason) = Hold::Released;
        if !sequence.is_held() && sequence.phase == Phase::Waiting {
            self.waiting.release(sequence);
        }
        true
    }

    /// All sequences wait; those that have ended are removed and returned. `reset` drops what a sequence holds.
    pub(super) fn restart(&mut self, mut reset: impl FnMut(&mut Sequence)) -> Vec<Sequence> {
        self.waiting.clear();
        self.running.clear();
        self.releasing.clear();
        let mut all: Vec<_> = std::mem::take(&mut self.by_id).into_iter().collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        let mut ended = Vec::new();
        for (id, mut sequence) in all {
            if sequence.phase == Phase::Ended {
                ended.push(*sequence);
                continue;
            }
            sequence.phase = Phase::Waiting;
            reset(&mut sequence);
            self.waiting.push(&sequence);
            self.by_id.insert(id, sequence);
        }
        ended
    }

    /// Removes a sequence from the set of a phase.
    fn leave_set(&mut self, id: SequenceId, phase: Phase) {
        let sequence = &self.by_id[&id];
        match phase {
            Phase::Waiting => self.waiting.remove(sequence),
            Phase::Running | Phase::Preempted | Phase::Ended => {
                self.waiting.stop(sequence);
                self.running.remove(&id);
                self.releasing.remove(&id);
            }
        }
    }

    fn forget_deadline(&mut self, id: SequenceId) {
        if let Some(deadline) = self.get(id).and_then(|sequence| sequence.deadline) {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// Panics if the sets disagree with the sequences.
    pub(super) fn audit(&self) {
        let waiting = self.iter().filter(|sequence| sequence.phase == Phase::Waiting);
        self.waiting.audit(waiting, self.holding_count());
        let live = self.iter().filter(|sequence| sequence.phase != Phase::Ended);
        let deadlines = live.filter_map(|sequence| Some((sequence.deadline?, sequence.id())));
        assert!(deadlines.collect::<BTreeSet<_>>() == self.deadlines, "a deadline is missed");
        let members = self.waiting.len() + self.holding_count();
        assert_eq!(members, self.by_id.len(), "a sequence is in two sets or in none");
        for (id, sequence) in &self.by_id {
            let is_there = match sequence.phase {
                Phase::Waiting => self.waiting.contains(id),
                Phase::Running => self.running.contains(id),
                Phase::Preempted | Phase::Ended => self.releasing.contains(id),
            };
            assert!(is_there, "{id:?} is in the set of another phase");
        }
    }
}

impl Index<SequenceId> for Sequences {
    type Output = Sequence;

    fn index(&self, id: SequenceId) -> &Sequence {
        let sequence = self.get(id);
        assert!(sequence.is_some(), "{id:?} is not there");
        &self.by_id[&id]
    }
}
